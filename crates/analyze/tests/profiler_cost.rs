//! What recording adds to a step, and what fixes are worth without it.

#![allow(clippy::unwrap_used)] // in the tests' own functions

mod support;

use steptally_analyze::results::{
    Analysis, Baseline, Finding, ProfilerCost, ProfilerCostBasis, UnprofiledSaving,
};
use steptally_analyze::{Config, analyze};
use steptally_testkit::TraceDsl;
use steptally_trace_model::TraceFormat;
use support::{fixture, fixture_with};

fn with_tpot(tpot_ns: f64) -> Config {
    Config { baseline: Some(Baseline::given(tpot_ns)), ..Config::default() }
}

/// Five steps of 1 ms; `more` adds what is in each, given its start and a correlation id.
fn steps(format: TraceFormat, more: impl Fn(TraceDsl, i64, u64) -> TraceDsl) -> TraceDsl {
    let mut dsl = TraceDsl::rank(0).format(format);
    for step in 0..5i64 {
        let at = step * 1_000_000;
        dsl = dsl.range("step[DECODE bs=1]", at..at + 500_000);
        dsl = more(dsl, at, step as u64 * 10);
    }
    dsl
}

/// In each step 4 operators with shapes, 2 launches, another call and 10 frames.
fn eager(format: TraceFormat) -> TraceDsl {
    steps(format, |mut dsl, at, id| {
        for n in 0..4 {
            dsl = dsl.op("aten::mm", at + n * 1_000..at + n * 1_000 + 900, "[[1, 2], [2, 3]]");
        }
        for n in 0..2i64 {
            let call = at + 100 + n * 1_000;
            dsl = dsl
                .launch("cudaLaunchKernel", call..call + 200, id + n as u64)
                .kernel("nvjet_a", at + 200_000 + n * 100_000..at + 290_000 + n * 100_000)
                .correlation(id + n as u64);
        }
        for n in 0..10 {
            dsl = dsl.frame("model.py(3): forward", at + 5_000 + n * 100..at + 5_050 + n * 100);
        }
        dsl.api("cudaEventQuery", at + 8_000..at + 8_100)
    })
}

fn cost(dsl: TraceDsl, config: &Config) -> Option<ProfilerCost> {
    analyze(&[dsl.build()], config).findings.profiler_cost
}

fn events(cost: &ProfilerCost) -> Vec<(&str, f64, f64)> {
    cost.events.iter().map(|kind| (kind.kind.as_str(), kind.per_step, kind.ns_each)).collect()
}

#[test]
fn events_are_counted_and_cost_what_was_measured() {
    // In a loop 4 x 1350 + 2 x 1800 + 200 + 10 x 270 + 1300 (the step's own mark) = 13,200 ns; eager
    // programs took 2 times that, from nothing to 9 times.
    let found = cost(eager(TraceFormat::TorchProfiler), &Config::default()).unwrap();
    assert_eq!(found.basis, ProfilerCostBasis::EventCosts);
    assert_eq!(found.added_ns_per_step, 26_400.0);
    assert_eq!((found.least_ns_per_step, found.most_ns_per_step), (0.0, 118_800.0));
    let expected = [
        ("cpu_op", 4.0, 2_700.0),
        ("launch", 2.0, 3_600.0),
        ("other_api_call", 1.0, 400.0),
        ("python_frame", 10.0, 540.0),
        ("range", 1.0, 2_600.0),
    ];
    assert_eq!(events(&found), expected);
}

#[test]
fn nodes_of_a_graph_have_a_cost_of_their_own() {
    // One launch with its first node, 99 more nodes, the mark: 1800 + 99 x 740 + 1300 = 76,360 ns in a
    // loop; servers with graphs took 6 times that, from 3 to 11 times.
    let graphs = steps(TraceFormat::TorchProfiler, |mut dsl, at, id| {
        dsl = dsl.graph_launch(at + 1_000..at + 50_000, id);
        for node in 0..100 {
            let start = at + 60_000 + node * 2_000;
            dsl = dsl.kernel("nvjet_a", start..start + 1_900).correlation(id);
        }
        dsl
    });
    let found = cost(graphs, &Config::default()).unwrap();
    assert_eq!(found.added_ns_per_step, 458_160.0);
    assert_eq!((found.least_ns_per_step, found.most_ns_per_step), (229_080.0, 839_960.0));
    assert_eq!(events(&found)[1], ("graph_node", 99.0, 4_440.0));
}

#[test]
fn one_graph_in_an_eager_step_does_not_make_it_a_graph_step() {
    // 200 ns of 180,200 are a graph's: the factor is that of eager steps, 0 to 9 times.
    let dsl = steps(TraceFormat::TorchProfiler, |mut dsl, at, id| {
        dsl = dsl
            .graph_launch(at + 100..at + 200, id)
            .kernel("rmsnorm", at + 100_000..at + 100_200)
            .correlation(id);
        for n in 1..3i64 {
            let call = at + n * 1_000;
            dsl = dsl
                .launch("cudaLaunchKernel", call..call + 200, id + n as u64)
                .kernel("nvjet_a", at + 100_000 + n * 100_000..at + 190_000 + n * 100_000)
                .correlation(id + n as u64);
        }
        dsl
    });
    // Three launches and the mark: 3 x 1800 + 1300 = 6700 ns in a loop.
    let found = cost(dsl, &Config::default()).unwrap();
    assert_eq!(found.added_ns_per_step, 13_400.0);
    assert_eq!(found.least_ns_per_step, 0.0);
}

#[test]
fn a_tpot_goes_before_the_table() {
    // A period of 1 ms, a TPOT of 0.9 ms that another run would give within 5 %.
    for format in [TraceFormat::TorchProfiler, TraceFormat::NsysSqlite] {
        let found = cost(eager(format), &with_tpot(900_000.0)).unwrap();
        assert_eq!(found.basis, ProfilerCostBasis::Baseline);
        assert_eq!(found.added_ns_per_step, 100_000.0);
        assert_eq!((found.least_ns_per_step, found.most_ns_per_step), (55_000.0, 145_000.0));
        let sum: f64 = events(&found).iter().map(|(_, count, each)| count * each).sum();
        let is_torch = format == TraceFormat::TorchProfiler;
        assert_eq!(sum.round(), if is_torch { 100_000.0 } else { 0.0 });
    }
}

#[test]
fn where_nothing_tells_nothing_is_claimed() {
    // No cost was measured for nsys.
    assert_eq!(cost(eager(TraceFormat::NsysSqlite), &Config::default()), None);
    // No steps, no step without the profiler.
    let no_steps = TraceDsl::rank(0).launch_kernel("nvjet_a", 0..10, 100..200);
    assert_eq!(cost(no_steps, &with_tpot(900_000.0)), None);
}

fn finding<'a>(analysis: &'a Analysis, code: &str) -> &'a Finding {
    analysis.findings.findings.iter().find(|finding| finding.code == code).unwrap()
}

#[test]
fn the_planted_cast_is_worth_without_the_profiler_what_the_fixed_program_lacks() {
    // Wall time of a step without the profiler, measured in the same programs: 3.9 to 4.5 ms with the
    // cast, 2.5 to 3.0 ms without. Under the profiler both take 5.3 to 5.6 ms.
    let name = "torch-h200/pool-cast.trace.json.gz";
    for analysis in [fixture(name), fixture_with(name, &with_tpot(4.2e6))] {
        let saving = &finding(&analysis, "KV001").saving;
        let UnprofiledSaving { period_before_ns, period_after_ns, uncertainty_ns } =
            saving.unprofiled.unwrap();
        assert!((3.9e6..4.5e6).contains(&period_before_ns), "{saving:?}");
        assert!((2.5e6..3.0e6).contains(&period_after_ns), "{saving:?}");
        // The GPU is the bound without the profiler, so TPOT does not tell the host's pace.
        assert!(uncertainty_ns > 1.0e6, "{saving:?}");
        assert_eq!(saving.period_before_ns, saving.period_after_ns);
    }
}

/// The period without the profiler that each finding starts from.
fn starts(analysis: &Analysis) -> Vec<f64> {
    let all = analysis.findings.findings.iter().map(|finding| &finding.saving);
    let all = all.chain(&analysis.findings.combined);
    all.filter_map(|saving| Some(saving.unprofiled?.period_before_ns)).collect()
}

#[test]
fn all_findings_start_from_the_same_step_without_the_profiler() {
    let cast = "torch-h200/pool-cast.trace.json.gz";
    assert_eq!(starts(&fixture_with(cast, &with_tpot(4.2e6))), [4.2e6, 4.2e6]);
    let estimates = starts(&fixture(cast));
    assert_eq!(estimates.len(), 2);
    assert_eq!(estimates[0], estimates[1]);
    // The profiled steps of this capture came out faster, 11.7 ms.
    let eager = "sglang-h200/decode-eager-gpu-only-TP-0.trace.json.gz";
    let analysis = fixture_with(eager, &with_tpot(14.2e6));
    assert_eq!(starts(&analysis), [14.2e6]);
    // Launches and their latency are 10.490 of 11.176 ms idle, so 12.84 of 14.2 - 0.520 = 13.68 ms.
    let saving = finding(&analysis, "HOST001").saving.unprofiled.unwrap();
    assert!((saving.period_after_ns - 1.36e6).abs() < 0.02e6, "{saving:?}");
    assert!(saving.uncertainty_ns > 0.0);
}

#[test]
fn idle_time_shrinks_in_the_proportion_of_the_steps() {
    // 1128.3 us of idle time between steps. Of the mean period of 2400.15 us the GPU is busy for 534.0,
    // so with a TPOT of 1140 us (1140 - 534.0) / (2400.15 - 534.0) = 0.3247 of it is left: 366.4 us.
    let name = "sglang-h200/decode-graphs-TP-0.trace.json.gz";
    let analysis = fixture_with(name, &with_tpot(1.14e6));
    let saving = finding(&analysis, "HOST003").saving.unprofiled.unwrap();
    assert_eq!(saving.period_before_ns, 1.14e6);
    let saved = saving.period_before_ns - saving.period_after_ns;
    assert!((saved - 366_400.0).abs() < 100.0, "{saved}");
    // A TPOT 5 % longer leaves (1197 - 534.0) / 1866.15 = 0.3553: 34.5 us more.
    assert!((saving.uncertainty_ns - 34_460.0).abs() < 100.0, "{saving:?}");
    // What the GPU does takes as long without the profiler.
    let gemm = finding(&analysis, "GEMM001").saving.clone();
    let profiled = gemm.period_before_ns.unwrap() - gemm.period_after_ns.unwrap();
    let without = gemm.unprofiled.unwrap();
    assert_eq!(without.period_before_ns - without.period_after_ns, profiled);
}

#[test]
fn waiting_for_another_ranks_host_is_the_same_share_of_the_step() {
    // 23,715,400 of the mean period of 30,118,081 ns is rank 0's waiting; with a TPOT of 19.4 ms
    // 0.7874 of that: 15.28 ms.
    let analysis = fixture_with("sglang-h200-tp2/eager", &with_tpot(19.4e6));
    let saving = finding(&analysis, "COMM002").saving.unprofiled.unwrap();
    let saved = saving.period_before_ns - saving.period_after_ns;
    assert!((saved - 15.28e6).abs() < 0.01e6, "{saving:?}");
}

#[test]
fn without_a_tpot_the_estimate_of_a_graph_step_holds_the_true_one() {
    // The same server without the profiler: 1.11 to 1.15 ms.
    let found = fixture("sglang-h200/decode-graphs-TP-0.trace.json.gz");
    let cost = found.findings.profiler_cost.as_ref().unwrap();
    let period = found.ledger.period_sum_ns as f64 / found.ledger.n as f64;
    let (shortest, longest) = (period - cost.most_ns_per_step, period - cost.least_ns_per_step);
    assert!(shortest < 1.13e6 && 1.13e6 < longest, "{shortest} to {longest}");
}
