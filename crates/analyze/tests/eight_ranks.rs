//! Runs of eight ranks, synthetic: made from the captured runs of two, so that what is true of them
//! follows from what is true of those (`collectives_captured.rs`) and from how they were made.

#![allow(clippy::unwrap_used, clippy::panic)] // in the tests' own functions

use std::path::PathBuf;

use steptally_analyze::results::{Analysis, CrossRank, MatchedBy, RankArrival};
use steptally_analyze::{Config, analyze};
use steptally_import::{Import, ImportOptions, import_path};
use steptally_testkit::{
    SlowRank, Template, base_shift_ns, clock_error_ns, many_ranks, read_captured,
};

/// The texts of eight ranks made from a captured run.
fn texts(captured: &str, slow: Option<SlowRank>) -> Vec<String> {
    let fixtures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/sglang-h200-tp2");
    many_ranks(&read_captured(&fixtures.join(captured)).unwrap(), 8, slow).unwrap()
}

/// The import of eight ranks made from a captured run, and its analysis.
fn eight(captured: &str, slow: Option<SlowRank>) -> (Import, Analysis) {
    read(&texts(captured, slow))
}

fn read(texts: &[String]) -> (Import, Analysis) {
    let folder = tempfile::tempdir().unwrap();
    for (rank, text) in texts.iter().enumerate() {
        let name = format!("synthetic-TP-{rank}.trace.json");
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let import = import_path(folder.path(), &ImportOptions::default()).unwrap();
    let analysis = analyze(&import.traces, &Config::default());
    (import, analysis)
}

/// Number of kernels, wait, transfer, times last, sum of lateness (exact in a double).
fn sums(rank: &RankArrival) -> (u64, i64, i64, u64, f64) {
    let lateness = rank.lateness_ns.unwrap_or(0.0) * rank.last_count as f64;
    (rank.n, rank.wait_ns, rank.transfer_ns, rank.last_count, lateness.round())
}

/// What holds of every such run: eight ranks in order on one clock, all their collectives matched,
/// wait and transfer of every step as long as its kernels.
fn check(import: &Import, analysis: &Analysis, odd_residual_ns: i64) -> CrossRank {
    assert_eq!(import.issues.len(), 0, "{:?}", import.issues);
    let ranks: Vec<_> = import.traces.iter().map(|trace| trace.rank()).collect();
    assert_eq!(ranks, (0..8).map(Some).collect::<Vec<_>>());
    assert!(import.traces.iter().all(|trace| trace.meta.world_size == Some(8)));
    assert!(import.files.iter().all(|file| file.left_out.is_none()), "{:?}", import.files);
    let found = &analysis.collectives;
    // 14 collectives in each of 4 steps, on 8 ranks.
    assert_eq!((found.count, found.steps.len()), (8 * 14 * 4, 8 * 4));
    for step in &found.steps {
        assert_eq!((step.count, step.matched_count), (14, 14));
        assert_eq!(step.wait_ns + step.transfer_ns, step.total_ns);
        assert_eq!(step.rank, step.device);
    }
    assert!(found.sizes.iter().all(|size| size.group_size == Some(8)), "{:?}", found.sizes);
    let cross = found.cross_rank.clone().expect("ranks should be compared");
    assert_eq!(cross.matched_by, MatchedBy::OrderInStep);
    assert_eq!((cross.matched_count, cross.unmatched_count, cross.mismatch_count), (56, 0, 0));
    for (rank, clock) in (0..).zip(&cross.clocks) {
        assert_eq!((clock.rank, clock.n), (Some(rank), 56));
        assert_eq!(clock.base_offset_ns, Some(base_shift_ns(rank)));
        // Ends of captured rank 1 come that much after those of rank 0.
        let captured = i64::from(rank % 2) * odd_residual_ns;
        assert_eq!(clock.residual_ns, Some(captured + clock_error_ns(rank)));
    }
    cross
}

#[test]
fn a_slowed_rank_is_named_with_what_it_costs() {
    // Captured: rank 1 is last at all 56 collectives, rank 0 waits 94_861_598 ns for it; transfer is
    // 414_272 and 414_364 ns. Rank 5 does as rank 1, and is 50 us later at each.
    let slow = SlowRank { rank: 5, delay_ns: 50_000 };
    let (import, analysis) = eight("eager", Some(slow));
    let cross = check(&import, &analysis, 175);
    assert_eq!((cross.n, cross.together_count, cross.uncertainty_ns), (56, 0, 398));
    for (rank, arrival) in (0..).zip(&cross.ranks) {
        assert_eq!(arrival.rank, Some(rank));
        let expected = match rank {
            // 56 x 50_000 = 2_800_000.
            5 => (56, 0, 414_364, 56, 2_800_000.0),
            1 | 3 | 7 => (56, 2_800_000, 414_364, 0, 0.0),
            _ => (56, 94_861_598 + 2_800_000, 414_272, 0, 0.0),
        };
        assert_eq!(sums(arrival), expected, "rank {rank}");
    }
    // 14 x 50 us in each step.
    assert_eq!(cross.ranks[5].lateness_ns_per_step, 700_000.0);
    // Its GPU worked for longer; its host is late as that of the other odd ranks.
    let [late] = cross.late.as_slice() else {
        panic!("one late rank expected: {:?}", cross.late);
    };
    assert_eq!((late.rank, late.n), (Some(5), 56));
    assert_eq!((late.host_late_ns, late.gpu_late_ns, late.unknown_ns), (0, 2_800_000, 0));
}

#[test]
fn every_period_grows_by_what_a_rank_is_slowed() {
    let periods = |slow| {
        let (_, analysis) = eight("eager", slow);
        let steps = analysis.steps.steps.iter().filter(|step| step.period_ns.is_some());
        steps.map(|step| (step.rank, step.index, step.period_ns.unwrap())).collect::<Vec<_>>()
    };
    let (before, after) = (periods(None), periods(Some(SlowRank { rank: 2, delay_ns: 20_000 })));
    assert_eq!((before.len(), after.len()), (8 * 4, 8 * 4));
    for ((rank, index, before), (same_rank, same_index, after)) in before.into_iter().zip(after) {
        assert_eq!((rank, index), (same_rank, same_index));
        // 14 collectives, each 20 us later, on every rank.
        assert_eq!(after - before, 14 * 20_000, "rank {rank:?}, step {index}");
    }
}

#[test]
fn ranks_that_are_alike_arrive_together() {
    let (import, analysis) = eight("graphs", None);
    let cross = check(&import, &analysis, 170);
    // Captured: 42 collectives without the step whose recordings began at different times.
    assert_eq!(analysis.collectives.left_out_count, 8 * 14);
    assert_eq!((cross.n, cross.uncertainty_ns), (42, 448));
    // Four ranks are always last together: none is the one that is waited for.
    assert_eq!((cross.together_count, cross.late.len()), (42, 0));
    for (rank, arrival) in (0..).zip(&cross.ranks) {
        let expected = match rank % 2 {
            0 => (42, 765_638, 172_082, 0, 0.0),
            _ => (42, 98_013, 169_056, 0, 0.0),
        };
        assert_eq!(sums(arrival), expected, "rank {rank}");
    }
}

#[test]
fn repeated_in_step_the_ranks_stay_together() {
    let texts = texts("eager", None);
    let templates: Vec<_> = texts.iter().map(|text| Template::new(text).unwrap()).collect();
    let period_ns = templates.iter().map(Template::period_ns).max().unwrap();
    let repeated = templates.into_iter().map(|template| {
        let mut text = Vec::new();
        template.every_ns(period_ns).write(3, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    });
    let (_, analysis) = read(&repeated.collect::<Vec<_>>());
    let cross = analysis.collectives.cross_rank.expect("ranks should be compared");
    // 3 x 5 steps, of which the last is cut: 14 steps of 14 collectives; no rank is last alone.
    assert_eq!((cross.matched_count, cross.unmatched_count), (14 * 14, 0));
    assert_eq!((cross.ranks.len(), cross.together_count), (8, 14 * 14));
}
