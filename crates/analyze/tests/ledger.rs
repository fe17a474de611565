//! The ledger, to the nanosecond, on timelines worked out by hand.

mod support;

use proptest::prelude::*;
use steptally_analyze::results::LedgerScope;
use steptally_testkit::TraceDsl;
use support::{accounts, check_accounts, run};

/// Two marked steps; the first is `0..next` with the work that `step` adds, the second only ends it.
fn one_step(
    mark_end: i64,
    next: i64,
    step: impl FnOnce(TraceDsl) -> TraceDsl,
) -> steptally_trace_model::Trace {
    step(TraceDsl::rank(0).range("step[DECODE bs=1]", 0..mark_end))
        .range("step[DECODE bs=1]", next - 500..next + 500)
        .launch("cudaLaunchKernel", next - 400..next - 390, 99)
        .kernel("nvjet_tail", next..next + 10)
        .correlation(99)
        .build()
}

#[test]
fn compute_goes_before_communication_before_copies_before_fills() {
    // Step 1000..2000. gemm 1000-1300; all-reduce 1200-1600 (300 exposed, 100 hidden);
    // memcpy 1550-1800 (200 exposed, 50 hidden); memset 1790-1900 (100 exposed).
    // 1900-2000 idle: its launch was called at 1600, so before the gap: latency.
    let trace = one_step(1500, 2000, |dsl| {
        dsl.launch("cudaLaunchKernel", 10..20, 1)
            .kernel("nvjet_a", 1000..1300)
            .correlation(1)
            .launch("cudaLaunchKernel", 30..40, 2)
            .kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 1200..1600)
            .correlation(2)
            .on_stream(8)
            .launch("cudaMemcpyAsync", 50..60, 3)
            .memcpy_d2d(1550..1800, 64)
            .correlation(3)
            .on_stream(9)
            .launch("cudaMemsetAsync", 70..80, 4)
            .memset(1790..1900, 64)
            .correlation(4)
            .on_stream(10)
    });
    let analysis = run(trace);
    assert_eq!(
        accounts(&analysis),
        [
            ("gemm.bf16", 300),
            ("comm.allreduce.nccl", 300),
            ("memcpy.d2d", 200),
            ("memset", 100),
            ("idle.launch_latency", 100),
        ]
        .into()
    );
    assert_eq!(analysis.ledger.hidden_communication_ns_per_step, 100.0);
    assert_eq!(analysis.ledger.hidden_copy_ns_per_step, 50.0);
    assert_eq!(analysis.steps.gpu_busy_ns.unwrap().median, 900.0);
}

#[test]
fn a_late_launch_is_the_hosts_until_the_call_and_latency_after_it() {
    // Step 1000..9000. gemm 1000-2000, then idle 2000-5000: the next launch is called at 4000:
    // 2000 host late, 1000 latency. norm 5000-8500. The next step's first work is launched at 8600:
    // 100 between steps, 400 latency.
    let trace = one_step(8500, 9000, |dsl| {
        dsl.launch("cudaLaunchKernel", 100..200, 1)
            .kernel("nvjet_a", 1000..2000)
            .correlation(1)
            .launch("cudaLaunchKernel", 4000..4100, 2)
            .kernel("rmsnorm", 5000..8500)
            .correlation(2)
    });
    check_accounts(
        trace,
        &[
            ("gemm.bf16", 1000),
            ("norm", 3500),
            ("idle.host_launched_late", 2000),
            ("idle.between_steps", 100),
            ("idle.launch_latency", 1000 + 400),
        ],
    );
}

#[test]
fn work_launched_long_before_it_starts_waits_for_something() {
    // gemm 1000-2000; the next was launched at 300..400 but starts at 52000: latency counts up to
    // 400 + 20000 = 20400, so 18400 latency and 31600 dependency. Then norm to 53000 and the next
    // step at 53000.
    let trace = one_step(52_500, 53_000, |dsl| {
        dsl.launch("cudaLaunchKernel", 100..200, 1)
            .kernel("nvjet_a", 1000..2000)
            .correlation(1)
            .launch("cudaLaunchKernel", 300..400, 2)
            .kernel("rmsnorm", 52_000..53_000)
            .correlation(2)
    });
    check_accounts(
        trace,
        &[
            ("gemm.bf16", 1000),
            ("norm", 1000),
            ("idle.launch_latency", 18_400),
            ("idle.dependency_or_queue", 31_600),
        ],
    );
}

#[test]
fn gaps_between_nodes_of_one_graph_are_graph_gaps() {
    // One graph launch, three nodes: 1000-1100, 1130-1200, 1210-1300: gaps 30 + 10.
    // Then idle to the next step at 2000: between steps until 1600, 400 latency.
    let trace = one_step(1500, 2000, |dsl| {
        dsl.graph_launch(100..900, 1)
            .kernel("nvjet_a", 1000..1100)
            .correlation(1)
            .kernel("rmsnorm", 1130..1200)
            .correlation(1)
            .kernel("nvjet_a", 1210..1300)
            .correlation(1)
    });
    check_accounts(
        trace,
        &[
            ("gemm.bf16", 190),
            ("norm", 70),
            ("idle.graph_gap", 40),
            ("idle.between_steps", 300),
            ("idle.launch_latency", 400),
        ],
    );
}

/// Step 1000..2000: a norm 1000-1010, three copies 1010-1100, 1130-1200, 1210-1300 of one correlation id.
fn three_copies(id: u64, call: Option<&str>) -> steptally_trace_model::Trace {
    one_step(1500, 2000, |mut dsl| {
        if let Some(call) = call {
            dsl = dsl.launch(call, 100..900, id);
        }
        dsl = dsl
            .launch("cudaLaunchKernel", 50..60, 77)
            .kernel("rmsnorm", 1000..1010)
            .correlation(77);
        for time in [1010..1100, 1130..1200, 1210..1300] {
            dsl = dsl.memcpy_h2d(time, 8).correlation(id);
        }
        dsl
    })
}

#[test]
fn correlation_id_zero_is_none() {
    // Migrations of unified memory: all with id 0, asked for by no call. Nobody knows why 30 + 10 ns
    // between them are idle.
    check_accounts(
        three_copies(0, None),
        &[
            ("norm", 10),
            ("memcpy.h2d", 250),
            ("idle.unknown", 40),
            ("idle.between_steps", 300),
            ("idle.launch_latency", 400),
        ],
    );
    // A graph launch before the capture began is not recorded, its id is.
    check_accounts(
        three_copies(1, None),
        &[
            ("norm", 10),
            ("memcpy.h2d", 250),
            ("idle.graph_gap", 40),
            ("idle.between_steps", 300),
            ("idle.launch_latency", 400),
        ],
    );
}

#[test]
fn the_parts_of_one_copy_are_no_nodes_of_a_graph() {
    // The call ended at 900: up to 20 us later idle time counts as its latency.
    check_accounts(
        three_copies(1, Some("cudaMemcpyAsync")),
        &[
            ("norm", 10),
            ("memcpy.h2d", 250),
            ("idle.launch_latency", 440),
            ("idle.between_steps", 300),
        ],
    );
}

#[test]
fn host_time_is_split_by_what_the_host_did() {
    // Step 1000..20000. gemm 1000-2000, then the host: in the mark and a sync until 3000 (blocked
    // 1000), in aten::item until 4000 (late 1000), nothing recorded until the mark ends at 5000 (late
    // 1000), scheduler until 8000 and nothing until it launches argmax at 9500 (between 4500; 500
    // latency). argmax 10000-11000. Then until the next step's launch at 19600: in a scheduler range
    // 12000-13000, in the next mark from 19500 on: all between, 8600. 400 latency.
    let trace = one_step(5000, 20_000, |dsl| {
        dsl.launch("cudaLaunchKernel", 100..200, 1)
            .kernel("nvjet_a", 1000..2000)
            .correlation(1)
            .op("aten::item", 1500..4000, "")
            .api("cudaStreamSynchronize", 1600..3000)
            .range("scheduler.process_batch_result", 5000..8000)
            .launch("cudaLaunchKernel", 9500..9600, 2)
            .kernel("argmax", 10_000..11_000)
            .correlation(2)
            .range("scheduler.recv_requests", 12_000..13_000)
    });
    let analysis = run(trace);
    assert_eq!(
        accounts(&analysis),
        [
            ("gemm.bf16", 1000),
            ("sampling", 1000),
            ("idle.host_blocked", 1000),
            ("idle.host_launched_late", 1000 + 1000),
            ("idle.between_steps", 4500 + 8600),
            ("idle.launch_latency", 500 + 400),
        ]
        .into()
    );
    let activity: Vec<_> = (analysis.ledger.host_activity.iter())
        .map(|a| (a.account.as_str(), a.kind.as_str(), a.name.as_str(), a.ns_per_step))
        .collect();
    let processing = "scheduler.process_batch_result";
    assert_eq!(
        activity,
        [
            // 1500 + 1000 (11000-12000) + 6500 (13000-19500).
            ("idle.between_steps", "nothing_recorded", "", 9000.0),
            ("idle.between_steps", "range", processing, 3000.0),
            ("idle.between_steps", "range", "scheduler.recv_requests", 1000.0),
            ("idle.host_blocked", "api", "cudaStreamSynchronize", 1000.0),
            ("idle.host_launched_late", "op", "aten::item", 1000.0),
            ("idle.host_launched_late", "range", "step[DECODE bs=1]", 1000.0),
            ("idle.between_steps", "range", "step[DECODE bs=1]", 100.0),
        ]
    );
    assert_eq!(analysis.ledger.host_activity[1].within, processing);
}

#[test]
fn gaps_are_listed_by_what_runs_around_them() {
    // Two steps of 1000 ns. In each gemm 100, gap 100, norm 100, gap 700 to the next step's gemm.
    let mut dsl = TraceDsl::rank(0);
    for step in 0..3i64 {
        let (at, id) = (step * 1000, step as u64 * 2);
        dsl = dsl
            .range("step[DECODE bs=1]", at..at + 900)
            .launch("cudaLaunchKernel", at + 5..at + 6, id)
            .kernel("nvjet_a", at + 100..at + 200)
            .correlation(id)
            .launch("cudaLaunchKernel", at + 280..at + 281, id + 1)
            .kernel("rmsnorm", at + 300..at + 400)
            .correlation(id + 1);
    }
    let analysis = run(dsl.build());
    let gaps: Vec<_> = (analysis.gaps.iter())
        .map(|gap| (gap.after.as_str(), gap.before.as_str(), gap.ends_step, gap.ns_per_step))
        .collect();
    assert_eq!(gaps, [("rmsnorm", "nvjet_a", true, 700.0), ("nvjet_a", "rmsnorm", false, 100.0)]);
    // The gap ends the step: 400-1005 between steps, 95 latency.
    let causes: Vec<_> = (analysis.gaps[0].causes.iter())
        .map(|cause| (cause.account.as_str(), cause.ns_per_step))
        .collect();
    assert_eq!(causes, [("idle.between_steps", 605.0), ("idle.launch_latency", 95.0),]);
}

#[test]
fn a_device_to_host_copy_that_returns_after_its_end_blocks_the_host() {
    // The copy runs 2000-2500, its call returns at 3000: 500 blocked. Then 600 between steps.
    let trace = one_step(3500, 4000, |dsl| {
        dsl.launch("cudaLaunchKernel", 100..200, 1)
            .kernel("nvjet_a", 1000..2000)
            .correlation(1)
            .launch("cudaMemcpyAsync", 1500..3000, 2)
            .memcpy_d2h(2000..2500, 4)
            .correlation(2)
    });
    check_accounts(
        trace,
        &[
            ("gemm.bf16", 1000),
            ("memcpy.d2h", 500),
            ("idle.host_blocked", 500),
            ("idle.between_steps", 600),
            ("idle.launch_latency", 400),
        ],
    );
}

#[test]
fn without_api_calls_idle_time_has_no_known_cause() {
    let mut dsl = TraceDsl::rank(0);
    for step in 0..4 {
        let at = step * 1000;
        dsl = dsl
            .kernel("embedding", at..at + 10)
            .kernel("nvjet_a", at + 10..at + 100)
            .kernel("nvjet_a", at + 100..at + 200);
    }
    let analysis = run(dsl.build());
    assert_eq!(analysis.steps.detected_by, "kernel_sequence");
    assert_eq!(
        accounts(&analysis),
        [("embedding", 30), ("gemm.bf16", 3 * 190), ("idle.unknown", 3 * 800)].into()
    );
    assert_eq!(analysis.ledger.unknown_idle_ratio, Some(0.8));
}

#[test]
fn a_kernel_that_no_rule_knows_is_shown_as_uncategorised() {
    let trace = one_step(1500, 2000, |dsl| {
        dsl.launch("cudaLaunchKernel", 100..200, 1).kernel("mystery", 1000..2000).correlation(1)
    });
    let analysis = run(trace);
    assert_eq!(accounts(&analysis), [("uncategorised", 1000)].into());
    assert_eq!(analysis.ledger.uncategorised_ratio, Some(1.0));
}

#[test]
fn a_trace_without_steps_has_a_ledger_of_its_whole_window() {
    let trace = TraceDsl::rank(0)
        .launch_kernel("nvjet_a", 0..10, 100..200)
        .launch_kernel("rmsnorm", 250..260, 300..350)
        .build();
    let analysis = run(trace);
    assert_eq!(analysis.ledger.scope, LedgerScope::WholeWindow);
    assert_eq!(analysis.steps.detected_by, "none");
    assert_eq!(
        accounts(&analysis),
        [
            ("gemm.bf16", 100),
            ("norm", 50),
            ("idle.host_launched_late", 50),
            ("idle.launch_latency", 50),
        ]
        .into()
    );
}

proptest! {
    /// Whatever the events, the accounts add up to the periods, exactly, and busy time is the union.
    #[test]
    fn accounts_sum_to_the_period(
        works in prop::collection::vec(
            (0i64..5_000, 0i64..400, 0usize..5, 0u64..3, 0i64..600, prop::bool::ANY), 1..60),
        marks in prop::collection::vec((0i64..5_000, 1i64..900), 0..8),
        syncs in prop::collection::vec((0i64..5_000, 0i64..500), 0..6),
    ) {
        let mut dsl = TraceDsl::rank(0);
        for &(start, length) in &marks {
            dsl = dsl.range("step[DECODE bs=1]", start..start + length);
        }
        for &(start, length) in &syncs {
            dsl = dsl.api("cudaDeviceSynchronize", start..start + length);
        }
        let names = ["nvjet_a", "ncclDevKernel_AllReduce", "mystery", "rmsnorm"];
        for (id, &(start, length, what, stream, ahead, called)) in works.iter().enumerate() {
            // Some calls come after the work they launch: a clock skew.
            let call = start - ahead + 100;
            if called {
                dsl = dsl.launch("cudaLaunchKernel", call..call + 10, id as u64);
            }
            dsl = match names.get(what) {
                Some(name) => dsl.kernel(name, start..start + length),
                None => dsl.memcpy_d2h(start..start + length, 8),
            };
            dsl = dsl.correlation(id as u64).on_stream(stream);
        }
        let analysis = run(dsl.build());
        let ledger = &analysis.ledger;
        prop_assert_eq!(ledger.sum_ns, ledger.period_sum_ns);
        let selected: Vec<_> = analysis.steps.steps.iter().filter(|step| step.selected).collect();
        if !selected.is_empty() {
            let busy: i64 = selected.iter().filter_map(|step| step.gpu_busy_ns).sum();
            let in_ledger: i64 = ledger
                .accounts
                .iter()
                .filter(|a| !a.account.starts_with("idle."))
                .map(|a| a.total_ns)
                .sum();
            prop_assert_eq!(busy, in_ledger);
            let periods: i64 = selected.iter().filter_map(|step| step.period_ns).sum();
            prop_assert_eq!(periods, ledger.period_sum_ns);
        }
    }
}
