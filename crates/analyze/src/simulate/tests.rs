//! Replays of small timelines, worked out by hand.

use steptally_testkit::TraceDsl;
use steptally_trace_model::Trace;

use super::{Change, Pace, Replay, Simulation, run as run_lanes};
use crate::categories::Categories;
use crate::gpu::{self, GpuKind, GpuOp};
use crate::links::{ApiIndex, OpTree};
use crate::{Config, quality, steps, view};

/// Replays the only lane with the kernels of these names changed.
fn simulate(trace: &Trace, change: impl Fn(&str) -> Change) -> Simulation {
    simulate_at(Pace::CAPTURED, trace, change)
}

/// The same with a host of this pace.
fn simulate_at(pace: Pace, trace: &Trace, change: impl Fn(&str) -> Change) -> Simulation {
    let links = (ApiIndex::new(trace), OpTree::new(trace));
    let mut lanes = gpu::lanes(trace);
    quality::gate(&mut lanes[0]);
    let config = Config::default();
    let detection = steps::detect(&lanes, &[&links.0], &config);
    let (lane_steps, selection) = steps::select(&detection, &config);
    let categories = Categories::builtin();
    let (_, views) = view::views(&lanes, &[&links], &lane_steps, selection.as_ref(), &categories);
    let replay = Replay::new(0, &views[0]).expect("steps");
    let of = |op: &GpuOp| match op.kind {
        GpuKind::Kernel => change(trace.text(trace.kernels.name[op.row as usize])),
        _ => Change::Keep,
    };
    let changes = views[0].lane.ops.iter().map(of).collect();
    run_lanes(&[replay], &[], &[changes], pace).remove(0)
}

fn remove(name: &'static str) -> impl Fn(&str) -> Change {
    move |kernel| if kernel == name { Change::Remove } else { Change::Keep }
}

/// `n` steps; in each the host launches `cast` (60 us) and `gemm` (10 us) and takes `host` us for
/// a step; with a synchronisation at its end or without.
fn run(n: i64, host: i64, sync: bool) -> Trace {
    let us = 1000;
    let mut dsl = TraceDsl::rank(0);
    let mut gpu_free = 0;
    let mut at = 0;
    for step in 0..n {
        let id = step as u64 * 3;
        let start = at;
        dsl = dsl.launch("cudaLaunchKernel", at..at + us, id);
        let cast = (at + 5 * us).max(gpu_free + us);
        dsl = dsl.kernel("cast", cast..cast + 60 * us).correlation(id);
        dsl = dsl.launch("cudaLaunchKernel", at + 2 * us..at + 3 * us, id + 1);
        let gemm = (at + 7 * us).max(cast + 61 * us);
        gpu_free = gemm + 10 * us;
        dsl = dsl.kernel("gemm", gemm..gpu_free).correlation(id + 1);
        let mut end = at + host * us;
        if sync {
            end = (gpu_free + 3 * us).max(at + 6 * us);
            dsl = dsl.api("cudaStreamSynchronize", at + 4 * us..end);
            end += us;
        }
        dsl = dsl.range("step[DECODE bs=1]", start..end);
        at = end;
    }
    dsl.build()
}

#[test]
fn without_a_change_the_captured_periods_come_out() {
    for (host, sync) in [(200, false), (20, false), (20, true)] {
        let simulation = simulate(&run(6, host, sync), |_| Change::Keep);
        assert_eq!(simulation.error_ns(), 0, "host {host} us, sync {sync}");
        assert_eq!(simulation.before.len(), 5);
    }
}

#[test]
fn where_the_host_is_the_bound_removing_gpu_work_changes_nothing() {
    // 200 us of host per step, 72 us of GPU.
    let simulation = simulate(&run(6, 200, false), remove("cast"));
    assert_eq!(simulation.before, [200_000; 5]);
    // The first step's start is the removed cast's own; all are the launch plus latency.
    assert_eq!(simulation.after, [200_000; 5]);
    assert!(simulation.host_bound_ratio > 0.4);
}

#[test]
fn where_the_gpu_is_the_bound_the_period_shrinks_to_the_next_bound() {
    // 30 us of host per step, 72 us of GPU (60 + 1 + 10 + 1): captured periods are 72 us once the
    // queue has filled. Without the cast 11 us of GPU are left: the host's 30 us are the bound.
    let simulation = simulate(&run(12, 30, false), remove("cast"));
    assert_eq!(simulation.before[5], 72_000);
    assert_eq!(simulation.after[5], 30_000);
}

#[test]
fn a_host_that_waits_for_the_gpu_goes_on_earlier() {
    // Each step: launch at 0, cast 5-65, gemm 66-76, sync returns at 79, next step at 80.
    // Without the cast: gemm starts at its launch 2 + latency 5 = 7, ends at 17, sync returns at 20
    // (3 us after the end, as captured), next step at 21.
    let simulation = simulate(&run(6, 0, true), remove("cast"));
    assert_eq!(simulation.before, [80_000; 5]);
    assert_eq!(simulation.after, [21_000; 5]);
}

#[test]
fn a_faster_host_shortens_a_step_until_the_gpu_is_the_bound() {
    let keep = |_: &str| Change::Keep;
    // 200 us of host per step: 100 at half of it; 72 us of GPU (60 + 1 + 10 + 1) at a tenth.
    assert_eq!(simulate_at(Pace(0.5), &run(6, 200, false), keep).after, [100_000; 5]);
    assert_eq!(simulate_at(Pace(0.1), &run(9, 200, false), keep).after[6], 72_000);
    // A host that waits: launch at 0, cast 2.5-62.5, gemm 63.5-73.5, sync returns at 76.5 as the wait for
    // the GPU is no work of the host; 0.5 until the next step.
    assert_eq!(simulate_at(Pace(0.5), &run(6, 0, true), keep).after, [77_000; 5]);
}

#[test]
fn a_resized_kernel_moves_what_follows() {
    let half = |name: &str| match name {
        "cast" => Change::Resize(30_000),
        _ => Change::Keep,
    };
    let simulation = simulate(&run(6, 0, true), half);
    assert_eq!(simulation.after, [50_000; 5]);
}

#[test]
fn nodes_of_a_graph_follow_one_another() {
    // Launch 0-50; nodes 60-100, 102-150, 151-160; sync returns at 163; next launch at 170.
    let us = 1000;
    let mut dsl = TraceDsl::rank(0);
    for step in 0..4 {
        let at = step * 170 * us;
        let node = |name: &str, from: i64, to: i64, dsl: TraceDsl| {
            dsl.kernel(name, at + from * us..at + to * us).correlation(step as u64)
        };
        dsl = dsl
            .range("step[DECODE bs=1]", at..at + 165 * us)
            .graph_launch(at..at + 50 * us, step as u64);
        dsl = node("a", 60, 100, dsl);
        dsl = node("cast", 102, 150, dsl);
        dsl = node("b", 151, 160, dsl);
        dsl = dsl.api("cudaStreamSynchronize", at + 52 * us..at + 163 * us);
    }
    let trace = dsl.build();
    assert_eq!(simulate(&trace, |_| Change::Keep).error_ns(), 0);
    // Without cast: b starts 1 us after a: 101-110; sync returns at 113, 50 us earlier.
    assert_eq!(simulate(&trace, remove("cast")).after, [120_000; 3]);
}
