//! Launches, delays, queue depth, to the nanosecond.

mod support;

use steptally_testkit::TraceDsl;
use support::run;

#[test]
fn calls_delays_and_depth_are_counted_per_step() {
    // Two accounted steps of 10 us. In each: a launched at +1000..+1200 runs +3000..+5000 (GPU idle
    // at the call: latency 2000); b launched at +1300..+1500 runs +5000..+6000 (delay 3700); a sync
    // +1600..+6100; a malloc +6200..+6300.
    let mut dsl = TraceDsl::rank(0);
    for step in 0..3i64 {
        let (at, id) = (step * 10_000, step as u64 * 2);
        dsl = dsl
            .range("step[DECODE bs=1]", at..at + 9_000)
            .launch("cudaLaunchKernel", at + 1000..at + 1200, id)
            .kernel("nvjet_a", at + 3000..at + 5000)
            .correlation(id)
            .launch("cudaLaunchKernel", at + 1300..at + 1500, id + 1)
            .kernel("rmsnorm", at + 5000..at + 6000)
            .correlation(id + 1)
            .api("cudaStreamSynchronize", at + 1600..at + 6100)
            .api("cudaMalloc", at + 6200..at + 6300);
    }
    let launches = run(dsl.build()).launches;
    assert_eq!(launches.kernel_launches_per_step, 2.0);
    assert_eq!((launches.syncs_per_step, launches.allocations_per_step), (1.0, 1.0));
    assert_eq!(launches.api_ns_per_step, 200.0 + 200.0 + 4500.0 + 100.0);
    assert_eq!(launches.graph_step_ratio, Some(0.0));
    let delay = launches.delay_ns.unwrap();
    assert_eq!((delay.n, delay.min, delay.max), (4, 2000.0, 3700.0));
    let latency = launches.latency_ns.unwrap();
    // b was called while a was queued: its delay is not latency alone.
    assert_eq!((latency.n, latency.median), (2, 2000.0));
    // At a: itself, 1. At b: a has not begun: 2.
    let depth = launches.queue_depth.unwrap();
    assert_eq!((depth.min, depth.max), (1.0, 2.0));
    assert_eq!(launches.calls[0].name, "cudaStreamSynchronize");
    assert_eq!((launches.calls[0].class.as_str(), launches.calls[0].median_ns), ("sync", 4500.0));
}

#[test]
fn a_graph_launch_counts_once_whatever_its_nodes() {
    let mut dsl = TraceDsl::rank(0);
    for step in 0..3i64 {
        let at = step * 10_000;
        dsl =
            dsl.range("step[DECODE bs=1]", at..at + 9_000).graph_launch(at..at + 500, step as u64);
        for node in 0..4 {
            let start = at + 1000 + node * 100;
            dsl = dsl.kernel("nvjet_a", start..start + 90).correlation(step as u64);
        }
    }
    let launches = run(dsl.build()).launches;
    assert_eq!(launches.graph_launches_per_step, 1.0);
    assert_eq!((launches.kernel_launches_per_step, launches.graph_step_ratio), (0.0, Some(1.0)));
    assert_eq!(launches.delay_ns.unwrap().n, 2);
}
