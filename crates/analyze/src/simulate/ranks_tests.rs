//! Replays of two ranks together, worked out by hand. Times are in us.

use steptally_testkit::TraceDsl;
use steptally_trace_model::Trace;

use super::{Change, MatchedCollective, MatchedKernel, Pace, Replay, run};
use crate::categories::Categories;
use crate::collectives;
use crate::gpu::{self, GpuKind, Lane};
use crate::links::{ApiIndex, OpTree};
use crate::{Config, quality, steps, view};

const NCCL: &str = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL";
const US: i64 = 1000;

/// Five steps of 115. The host launches `cast` at 0 and the all-reduce at `launch`, which waits for the
/// stream, and then waits until the GPU is done: 3 after the end of the all-reduce at 111.
fn rank(rank: u32, cast: i64, launch: i64, start: i64) -> Trace {
    let mut dsl = TraceDsl::rank(rank);
    for step in 0..5 {
        let (at, id) = (step * 115 * US, step as u64 * 2);
        let time = |from: i64, to: i64| at + from * US..at + to * US;
        dsl = dsl
            .range("step[DECODE bs=1]", time(0, 114))
            .launch("cudaLaunchKernel", time(0, 1), id)
            .kernel("cast", time(5, 5 + cast))
            .correlation(id)
            .launch("cudaLaunchKernel", time(launch, launch + 1), id + 1)
            .kernel(NCCL, time(start, 111))
            .correlation(id + 1)
            .api("cudaStreamSynchronize", time(launch + 2, 114));
    }
    dsl.build()
}

/// The periods of each rank after `change`, which is told rank and kernel, and whether all of them
/// are as captured without any.
fn periods(
    traces: &[Trace],
    matched: Option<&[MatchedCollective]>,
    change: impl Fn(usize, &str) -> Change,
) -> Vec<Vec<i64>> {
    let links: Vec<_> =
        traces.iter().map(|trace| (ApiIndex::new(trace), OpTree::new(trace))).collect();
    let mut lanes: Vec<Lane<'_>> = traces.iter().flat_map(gpu::lanes).collect();
    lanes.iter_mut().for_each(|lane| quality::gate(lane));
    let of_lane: Vec<_> = links.iter().collect();
    let apis: Vec<&ApiIndex> = links.iter().map(|(api, _)| api).collect();
    let config = Config::default();
    let detection = steps::detect(&lanes, &apis, &config);
    let (lane_steps, selection) = steps::select(&detection, &config);
    let categories = Categories::builtin();
    let (scope, views) =
        view::views(&lanes, &of_lane, &lane_steps, selection.as_ref(), &categories);
    let found = collectives::collectives(scope, &views).matched;
    let matched = matched.unwrap_or(&found);
    let replays: Vec<Replay<'_>> =
        views.iter().enumerate().filter_map(|(index, view)| Replay::new(index, view)).collect();
    let changes = |change: &dyn Fn(usize, &str) -> Change| -> Vec<Vec<Change>> {
        (views.iter().enumerate())
            .map(|(rank, view)| {
                let trace = view.lane.trace;
                let kernels = view.lane.ops.iter().map(|op| {
                    assert_eq!(op.kind, GpuKind::Kernel);
                    trace.text(trace.kernels.name[op.row as usize])
                });
                kernels.map(|kernel| change(rank, kernel)).collect()
            })
            .collect()
    };
    for unchanged in run(&replays, matched, &changes(&|_, _| Change::Keep), Pace::CAPTURED) {
        assert_eq!(unchanged.after, unchanged.before);
    }
    run(&replays, matched, &changes(&change), Pace::CAPTURED)
        .into_iter()
        .map(|run| run.after)
        .collect()
}

/// Removes `cast` from these ranks.
fn without_cast(of: &[usize]) -> impl Fn(usize, &str) -> Change {
    move |rank, kernel| {
        if kernel == "cast" && of.contains(&rank) { Change::Remove } else { Change::Keep }
    }
}

/// Rank 0 casts 5-65 and waits in the all-reduce 66-111; rank 1 casts 5-105 and arrives at 106: each
/// transfers 106-111.
fn late_by_its_gpu() -> [Trace; 2] {
    [rank(0, 60, 2, 66), rank(1, 100, 2, 106)]
}

#[test]
fn a_rank_that_gets_faster_alone_waits_as_much_longer() {
    let found = periods(&late_by_its_gpu(), None, without_cast(&[0]));
    assert_eq!(found, [[115 * US; 4]; 2]);
}

#[test]
fn what_all_ranks_lose_moves_all_of_them() {
    // Launched at 2, both all-reduces start 5 later at 7, and transfer until 12. The wait returns at 15,
    // the step ends at 16.
    let found = periods(&late_by_its_gpu(), None, without_cast(&[0, 1]));
    assert_eq!(found, [[16 * US; 4]; 2]);
}

#[test]
fn a_late_rank_that_gets_faster_helps_up_to_the_next() {
    // Rank 1 arrives at 7, rank 0 still at 66: both transfer until 71 and end at 75.
    let found = periods(&late_by_its_gpu(), None, without_cast(&[1]));
    assert_eq!(found, [[75 * US; 4]; 2]);
}

#[test]
fn a_host_that_launches_late_on_one_rank_bounds_all() {
    // Rank 1 casts 5-65 as rank 0 does, but its host launches the all-reduce at 101 only.
    let traces = [rank(0, 60, 2, 66), rank(1, 60, 101, 106)];
    assert_eq!(periods(&traces, None, without_cast(&[0, 1])), [[115 * US; 4]; 2]);
}

#[test]
fn a_shorter_transfer_leaves_the_wait() {
    // 2 instead of 5 for the transfer: 106-108 on both.
    let shorter = |_: usize, kernel: &str| match kernel {
        NCCL => Change::Resize(2 * US),
        _ => Change::Keep,
    };
    assert_eq!(periods(&late_by_its_gpu(), None, shorter), [[112 * US; 4]; 2]);
}

#[test]
fn collectives_that_were_not_matched_keep_their_durations() {
    // 45 for rank 0's all-reduce from 7: until 52, the step ends at 56; rank 1's takes 5.
    let found = periods(&late_by_its_gpu(), Some(&[]), without_cast(&[0, 1]));
    assert_eq!(found, [[56 * US; 4], [16 * US; 4]]);
}

#[test]
fn collectives_in_opposite_order_hold_up_nobody_for_ever() {
    // As if each rank's cast were the other's all-reduce: no order of replay meets both.
    let kernel =
        |view: usize, op: usize| MatchedKernel { view, op, lag_ns: 0, transfer_ns: 5 * US };
    let crossed = [
        MatchedCollective { members: vec![kernel(0, 0), kernel(1, 1)] },
        MatchedCollective { members: vec![kernel(0, 1), kernel(1, 0)] },
    ];
    let found = periods(&late_by_its_gpu(), Some(&crossed), |_, _| Change::Keep);
    assert_eq!(found, [[115 * US; 4]; 2]);
}
