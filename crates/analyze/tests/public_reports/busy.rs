//! Reports about when a GPU is busy and when it is idle.

use steptally_analyze::results::AccountGroup;
use steptally_testkit::TraceDsl;

use crate::support::{accounts, check_accounts, run};

/// A utilisation of 112 %: durations of an NCCL stream beside compute were added up, and idle time
/// was understated by as much.
#[test]
fn two_streams_at_once_make_no_gpu_busier_than_wholly_busy() {
    // Compute 0-100, NCCL beside it 50-100, compute 110-120: busy 110 of 120, sum 160.
    let analysis = run(TraceDsl::rank(0)
        .stream(7)
        .kernel("nvjet_a", 0..100)
        .kernel("nvjet_a", 110..120)
        .stream(13)
        .kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 50..100)
        .build());
    let device = &analysis.devices[0];
    assert_eq!((device.gpu_busy_ns, device.kernel_busy_ns), (110, 110));
    assert_eq!((device.gpu_span_ns, device.kernel_sum_ns), (120, 160));
    let groups = |group| {
        let of_group = analysis.ledger.accounts.iter().filter(move |a| a.group == group);
        of_group.map(|account| account.total_ns).sum::<i64>()
    };
    assert_eq!((groups(AccountGroup::Compute), groups(AccountGroup::Idle)), (110, 10));
    assert_eq!(groups(AccountGroup::Communication), 0);
    assert_eq!(analysis.ledger.hidden_communication_ns_per_step, 50.0);
}

/// 258 % for "stream 17": the streams of that number on three GPUs were taken for one.
#[test]
fn a_stream_number_of_several_gpus_is_a_stream_of_each() {
    let mut dsl = TraceDsl::rank(0).stream(17);
    for device in 1..=3 {
        dsl = dsl.device(device).kernel("nvjet_a", 0..86).kernel("nvjet_b", 90..100);
    }
    let analysis = run(dsl.build());
    let uses: Vec<_> = (analysis.devices.iter())
        .map(|device| (device.device, device.kernel_sum_ns, device.gpu_busy_ns, device.gpu_span_ns))
        .collect();
    let expected = [(Some(1), 96, 96, 100), (Some(2), 96, 96, 100), (Some(3), 96, 96, 100)];
    assert_eq!(uses, expected);
    // Three windows of 100, each with 96 of compute.
    assert_eq!((analysis.ledger.n, analysis.ledger.period_sum_ns), (3, 300));
    assert_eq!(analysis.ledger.accounts[0].total_ns, 3 * 96);
    assert_eq!(
        analysis.quality.checks.iter().filter(|c| c.code == "impossible_durations").count(),
        1
    );
}

/// 810 ms idle in a profile of 310 ms: gaps of each stream were added up, though another stream ran.
#[test]
fn a_stream_that_rests_while_another_runs_leaves_no_idle_time() {
    // Stream 7 rests for 49 ms, in which stream 8 runs; the GPU never does.
    let trace = TraceDsl::rank(0)
        .stream(7)
        .kernel("nvjet_a", 0..1_000_000)
        .kernel("nvjet_a", 50_000_000..51_000_000)
        .stream(8)
        .kernel("nvjet_b", 1_000_000..50_000_000)
        .build();
    check_accounts(trace.clone(), &[("gemm.bf16", 51_000_000)]);
    assert!(run(trace).gaps.is_empty());
}

/// Gaps between kernels were reported as idle though a copy filled them.
#[test]
fn a_gap_that_a_copy_fills_is_a_copy_and_not_idle() {
    let trace = TraceDsl::rank(0)
        .kernel("nvjet_a", 0..10_000_000)
        .memcpy_h2d(10_000_000..260_000_000, 1 << 30)
        .kernel("nvjet_a", 260_000_000..270_000_000)
        .build();
    check_accounts(trace, &[("gemm.bf16", 20_000_000), ("memcpy.h2d", 250_000_000)]);
}

/// An "elementwise" kernel of 3.4 s that runs far past the next start on its stream became 62 % of all
/// GPU time and led the ranking.
#[test]
fn a_corrupt_duration_of_two_seconds_leads_no_ranking() {
    // 1000 kernels of 50 us every 60 us; number 500, of another name, claims two seconds.
    let mut dsl = TraceDsl::rank(0);
    for n in 0..1000i64 {
        let (name, length) =
            if n == 500 { ("elementwise_kernel", 2_000_000_000) } else { ("nvjet_a", 50_000) };
        dsl = dsl.kernel(name, n * 60_000..n * 60_000 + length);
    }
    let analysis = run(dsl.build());
    let totals: Vec<_> =
        analysis.kernels.iter().map(|kernel| (kernel.name.as_str(), kernel.total_ns)).collect();
    // Cut at the next start: 60 us. As recorded it stays in `devices`.
    assert_eq!(totals, [("nvjet_a", 999 * 50_000), ("elementwise_kernel", 60_000)]);
    let device = &analysis.devices[0];
    assert_eq!(device.kernel_sum_ns, 999 * 50_000 + 2_000_000_000);
    assert_eq!((device.left_out.clipped_count, device.left_out.clipped_ns), (1, 1_999_940_000));
    assert_eq!(analysis.ledger.period_sum_ns, 999 * 60_000 + 50_000);
}

/// Overlaps of microseconds, as programmatic dependent launches make them, are no corrupt durations.
#[test]
fn overlaps_of_dependent_launches_are_no_corrupt_durations() {
    let mut dsl = TraceDsl::rank(0);
    for n in 0..100i64 {
        dsl = dsl.kernel("nvjet_a", n * 8_000..n * 8_000 + 10_000);
    }
    let analysis = run(dsl.build());
    assert_eq!(analysis.devices[0].left_out.clipped_count, 0);
    assert_eq!(analysis.devices[0].kernel_sum_ns, 1_000_000);
    assert_eq!(accounts(&analysis)["gemm.bf16"], 99 * 8_000 + 10_000);
}

/// 26 % "idle" between the nodes of a graph, which the profiler made: it was sold as headroom.
#[test]
fn idle_time_between_nodes_of_a_graph_is_named_as_the_profilers_likely_doing() {
    // Four steps of one graph: 500 kernels of 2 us with 1 us holes, then 100 us for the host.
    let mut dsl = TraceDsl::rank(0);
    for step in 0..4i64 {
        let at = step * 1_600_000;
        dsl = dsl
            .range("step[DECODE bs=1]", at..at + 50_000)
            .graph_launch(at + 1_000..at + 40_000, step as u64 + 1);
        for node in 0..500 {
            let start = at + 50_000 + node * 3_000;
            dsl = dsl.kernel("nvjet_a", start..start + 2_000).correlation(step as u64 + 1);
        }
    }
    let analysis = run(dsl.build());
    // 499 holes in each of three whole steps.
    assert_eq!(accounts(&analysis)["idle.graph_gap"], 3 * 499 * 1_000);
    let gap = analysis.ledger.accounts.iter().find(|a| a.account == "idle.graph_gap").unwrap();
    assert!(gap.meaning.contains("profiler"), "{}", gap.meaning);
    let check = analysis.quality.checks.iter().find(|c| c.code == "profiler_dilation").unwrap();
    assert!(check.effect.contains("without a profiler"), "{}", check.effect);
}
