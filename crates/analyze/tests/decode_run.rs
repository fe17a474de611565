//! Generated decode runs: what the analysis finds is what they were made of.

use steptally_analyze::{Config, analyze};
use steptally_testkit::{DecodeMode, decode_run};

#[test]
fn periods_and_busy_time_are_those_of_the_run() {
    for (mode, ranks, seed) in [
        (DecodeMode::Eager, 1, 1),
        (DecodeMode::Eager, 2, 2),
        (DecodeMode::Graph, 1, 3),
        (DecodeMode::Graph, 4, 4),
    ] {
        let run = decode_run(mode, ranks, 9, 4, seed);
        let analysis = analyze(&run.traces, &Config::default());
        // A step's period ends where the next one's first GPU work starts; the last has no next.
        let expected: Vec<_> = run
            .steps
            .iter()
            .enumerate()
            .flat_map(|(rank, steps)| {
                steps.windows(2).map(move |pair| {
                    let period = pair[1].first_gpu_start_ns - pair[0].first_gpu_start_ns;
                    (Some(rank as u32), Some(period), Some(pair[0].gpu_busy_ns))
                })
            })
            .collect();
        let found: Vec<_> = analysis
            .steps
            .steps
            .iter()
            .filter(|step| step.selected)
            .map(|step| (step.rank, step.period_ns, step.gpu_busy_ns))
            .collect();
        assert_eq!(found, expected, "{mode:?} with {ranks} ranks");
        assert_eq!(analysis.steps.detected_by, "marks.sglang");
        assert_eq!(analysis.ledger.sum_ns, analysis.ledger.period_sum_ns);
        let periods: i64 = expected.iter().filter_map(|(_, period, _)| *period).sum();
        assert_eq!(analysis.ledger.sum_ns, periods);
    }
}
