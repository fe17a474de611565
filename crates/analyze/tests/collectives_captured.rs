//! Communication of captured two-rank runs. Expected numbers were worked out apart, from the JSON.

#![allow(clippy::unwrap_used, clippy::panic)] // in the tests' own functions

use std::path::PathBuf;

use steptally_analyze::results::{Collectives, CrossRank, MatchedBy, RankArrival, StepsMatchedBy};
use steptally_analyze::{Config, analyze};
use steptally_import::{ImportOptions, import_path};

fn captured(name: &str, config: &Config) -> Collectives {
    let fixtures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/sglang-h200-tp2");
    let import = import_path(&fixtures.join(name), &ImportOptions::default()).unwrap();
    analyze(&import.traces, config).collectives
}

fn cross(collectives: &Collectives) -> &CrossRank {
    collectives.cross_rank.as_ref().expect("ranks should be compared")
}

/// Number of kernels, wait, transfer, times last, sum of lateness (exact in a double).
fn sums(rank: &RankArrival) -> (u64, i64, i64, u64, f64) {
    let lateness = rank.lateness_ns.unwrap_or(0.0) * rank.last_count as f64;
    (rank.n, rank.wait_ns, rank.transfer_ns, rank.last_count, lateness.round())
}

/// (wait, transfer) of each step of a rank; they add up to the kernels' durations.
fn steps(collectives: &Collectives, rank: u32) -> Vec<(i64, i64)> {
    let own = collectives.steps.iter().filter(|step| step.rank == Some(rank));
    own.map(|step| {
        assert_eq!((step.count, step.matched_count), (14, 14));
        assert_eq!(step.wait_ns + step.transfer_ns, step.total_ns);
        assert_eq!(step.exposed_ns + step.hidden_ns, step.total_ns);
        (step.wait_ns, step.transfer_ns)
    })
    .collect()
}

#[test]
fn in_the_eager_run_rank_1_is_late_at_every_collective() {
    let found = captured("eager", &Config::default());
    let cross = cross(&found);
    assert_eq!(cross.matched_by, MatchedBy::OrderInStep);
    assert_eq!((cross.matched_count, cross.unmatched_count, cross.mismatch_count), (56, 0, 0));
    let clock = &cross.clocks[1];
    assert_eq!(clock.steps_matched_by, Some(StepsMatchedBy::CollectiveEnds));
    assert_eq!((clock.base_offset_ns, clock.residual_ns), (Some(0), Some(175)));
    assert_eq!((cross.uncertainty_ns, cross.together_count), (398, 0));
    // 23.7 ms of rank 0's step of 30 ms is waiting for rank 1; a collective's own time is 5 us.
    assert_eq!(
        steps(&found, 0),
        [(26_239_127, 191_936), (22_279_265, 75_213), (23_785_576, 72_768), (22_557_630, 74_355)]
    );
    assert_eq!(steps(&found, 1), [(0, 192_384), (0, 73_600), (0, 73_982), (0, 74_398)]);
    assert_eq!(sums(&cross.ranks[0]), (56, 94_861_598, 414_272, 0, 0.0));
    assert_eq!(sums(&cross.ranks[1]), (56, 0, 414_364, 56, 94_861_598.0));
    assert_eq!(cross.ranks[0].median_transfer_ns, 5215.5);
    assert_eq!(cross.ranks[1].median_transfer_ns, 5184.5);
    // Nothing of it is a window's start: the later steps wait as long.
    assert!(found.window_starts.is_empty());
    // 13 all-reduces of 2048 bf16 and an all-gather of 2 x 16000 bf16 each step.
    assert_eq!(found.ranks[0].bytes_per_step, Some(13.0 * 4096.0 + 64_000.0));

    // Late by its host, which runs the model op by op.
    let [late] = cross.late.as_slice() else {
        panic!("one late rank expected: {:?}", cross.late);
    };
    assert_eq!((late.rank, late.n, late.lateness_ns), (Some(1), 56, 94_861_598));
    assert_eq!(late.host_late_ns + late.gpu_late_ns, late.lateness_ns);
    assert!(late.host_late_ns * 10 > late.lateness_ns * 8, "{late:?}");
    assert_eq!(late.host_activity.len(), 5);
    assert_eq!(late.host_activity[0].within, "scheduler.run_batch");
    assert!(late.host_activity.iter().any(|a| a.kind == "op" && a.name.starts_with("sglang::")));
}

fn check_graphs(found: &Collectives) {
    let cross = cross(found);
    let [start] = found.window_starts.as_slice() else {
        panic!("one window start expected: {:?}", found.window_starts);
    };
    assert_eq!((start.rank, start.late_rank, start.step), (Some(0), Some(1), Some(0)));
    assert_eq!(start.window_start_wait_ns, 1_476_918);
    // First collectives of the other steps: 24032, 63839 and 756796 apart.
    assert_eq!(start.steady_ns, 63_839.0);
    assert_eq!((found.count, found.left_out_count), (112, 28));
    assert_eq!((cross.clocks[1].residual_ns, cross.uncertainty_ns), (Some(170), 448));
    assert_eq!(
        steps(found, 0),
        [(1_479_755, 56_745), (2_430, 57_631), (3_653, 56_893), (759_555, 57_558)]
    );
    assert_eq!(
        steps(found, 1),
        [(3_143, 56_313), (27_303, 56_377), (66_013, 56_319), (4_697, 56_360)]
    );
    // Without step 0.
    assert_eq!((cross.n, cross.together_count), (42, 21));
    assert_eq!(sums(&cross.ranks[0]), (42, 765_638, 172_082, 12, 95_835.0));
    assert_eq!(sums(&cross.ranks[1]), (42, 98_013, 169_056, 9, 763_071.0));
    assert_eq!(cross.ranks[0].median_transfer_ns, 3919.5);
    assert_eq!(cross.ranks[1].median_transfer_ns, 3904.0);
    assert_eq!(found.ranks.iter().map(|rank| rank.n).collect::<Vec<_>>(), [3, 3]);
}

#[test]
fn in_the_graph_run_the_windows_start_is_told_apart() {
    check_graphs(&captured("graphs", &Config::default()));
}

#[test]
fn a_merged_file_gives_the_same_as_the_ranks_files() {
    check_graphs(&captured("merged", &Config::default()));
}

/// Another program multiplied matrices on rank 1's GPU throughout (`slowed`).
#[test]
fn the_rank_whose_gpu_another_program_uses_is_named() {
    let found = captured("slowed", &Config::default());
    let cross = cross(&found);
    assert_eq!((cross.matched_count, cross.unmatched_count, cross.mismatch_count), (126, 0, 0));
    for (rank, arrival) in [0, 1].into_iter().zip(&cross.ranks) {
        let (wait, transfer): (Vec<_>, Vec<_>) = steps(&found, rank).into_iter().unzip();
        assert_eq!(wait.len(), 9);
        assert_eq!(wait.iter().sum::<i64>(), arrival.wait_ns);
        assert_eq!(transfer.iter().sum::<i64>(), arrival.transfer_ns);
    }
    // Once in each of nine steps, at the first collective, by nothing but its GPU. Rank 0's first
    // all-reduces of eight of them last 4,337,992 ns together instead of 4,350 each, one step's is
    // on time.
    let late = &cross.late[0];
    assert_eq!((late.rank, late.n, late.host_late_ns), (Some(1), 9, 0));
    assert_eq!(late.gpu_late_ns, late.lateness_ns);
    let by_hand = 4_337_992.0 - 8.0 * 4_350.0;
    assert!((late.lateness_ns as f64 / by_hand - 1.0).abs() < 0.01, "{late:?}");
    // Rank 0 is late by what a host varies.
    assert!(cross.late[1..].iter().all(|other| other.lateness_ns * 8 < late.lateness_ns));
}

#[test]
fn one_rank_of_a_pair_cannot_tell() {
    let found = captured("eager", &Config { rank: Some(0), ..Config::default() });
    assert_eq!(found.cross_rank, None);
    assert_eq!(
        found.no_cross_rank.as_deref(),
        Some("one rank only: waiting cannot be told from transfer")
    );
    assert_eq!(found.count, 56);
}
