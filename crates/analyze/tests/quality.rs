//! The quality gate, the checks, the grade, and the verdicts that are refused.

mod support;

use steptally_analyze::results::{Analysis, CheckStatus, Grade};
use steptally_analyze::{Config, analyze};
use steptally_testkit::TraceDsl;
use steptally_trace_model::TraceFormat;
use support::{accounts, run};

#[track_caller]
fn check(analysis: &Analysis, code: &str, status: CheckStatus, count: u64) {
    let check = analysis
        .quality
        .checks
        .iter()
        .find(|check| check.code == code)
        .expect("every check is made");
    assert_eq!((check.status, check.count), (status, count), "{code}: {}", check.effect);
}

/// `n` marked decode steps of 1000 ns with one 400 ns kernel each, from `base`.
fn steps(n: i64, base: i64) -> TraceDsl {
    let mut dsl = TraceDsl::rank(0);
    for step in 0..n {
        let at = base + step * 1000;
        dsl = dsl
            .range("step[DECODE bs=1]", at..at + 500)
            .launch("cudaLaunchKernel", at + 10..at + 20, step as u64)
            .kernel("nvjet_a", at + 100..at + 500)
            .correlation(step as u64);
    }
    dsl
}

#[test]
fn a_clean_trace_gets_an_a() {
    let analysis = run(steps(20, 0).build());
    assert_eq!(analysis.quality.grade, Grade::A);
    assert!(analysis.quality.refused.is_none());
    check(&analysis, "window_edges", CheckStatus::Note, 1);
    check(&analysis, "profiler_dilation", CheckStatus::Note, 0);
}

/// Between the calls that begin and end it on its thread, and where nodes are recorded.
#[test]
fn launches_taken_in_by_graph_capture_are_not_lost() {
    let trace = TraceDsl::rank(0)
        .api("cudaStreamBeginCapture_v10000", 0..10)
        .launch("cudaLaunchKernel", 20..30, 1)
        .launch("cudaLaunchKernel", 40..50, 2)
        .api("cudaStreamEndCapture", 60..70)
        .launch("cudaLaunchKernel", 80..90, 3)
        .node_created("kernel", 85..86, 9)
        .launch("cudaLaunchKernel", 100..110, 4)
        .launch("cudaLaunchKernel", 120..130, 5)
        .kernel("nvjet_a", 200..260)
        .correlation(5)
        .build();
    let analysis = run(trace);
    // Only the fourth launch is lost, of the two that were to put work on the GPU.
    check(&analysis, "launches_without_gpu_work", CheckStatus::Warn, 1);
    let checks = &analysis.quality.checks;
    let found = checks.iter().find(|c| c.code == "launches_without_gpu_work").unwrap();
    assert_eq!(found.of, Some(2));
}

#[test]
fn launches_without_kernels_are_counted_and_lower_the_grade() {
    // 100 launches, kernels only for the last 70 (30 %).
    let mut dsl = TraceDsl::rank(0);
    for id in 0..100i64 {
        dsl = dsl.launch("cudaLaunchKernel", id * 100..id * 100 + 10, id as u64);
        if id >= 30 {
            dsl = dsl.kernel("nvjet_a", id * 100 + 20..id * 100 + 60).correlation(id as u64);
        }
    }
    let analysis = run(dsl.build());
    check(&analysis, "launches_without_gpu_work", CheckStatus::Warn, 30);
    let found = &analysis.quality.checks.iter().find(|c| c.code == "launches_without_gpu_work");
    let found = found.unwrap();
    assert_eq!(found.of, Some(100));
    // Nine in ten of 30: the 27th lost launch starts at 2600 ns.
    assert!(found.effect.ends_with("nine in ten of them within 0.002 ms of the first call"));
    assert_eq!(analysis.quality.grade, Grade::E);
}

#[test]
fn work_without_a_launch_still_counts_as_gpu_time() {
    let analysis = run(steps(20, 0).kernel("rmsnorm", 600..700).correlation(77_777).build());
    check(&analysis, "gpu_work_without_launch", CheckStatus::Note, 1);
    assert_eq!(accounts(&analysis)["norm"], 100);
}

#[test]
fn timeless_and_stray_events_are_left_out_of_all_but_devices() {
    let base = 1_600_000_000_000_000_000;
    let trace = steps(200, base)
        .kernel("nvjet_a", 0..0)
        .kernel("nvjet_a", base + 3_600_000_000_000..base + 3_600_000_000_100)
        .build();
    let analysis = run(trace);
    check(&analysis, "timeless_events", CheckStatus::Warn, 1);
    check(&analysis, "stray_events", CheckStatus::Warn, 1);
    assert_eq!(analysis.devices[0].kernel_count, 202);
    assert_eq!(analysis.devices[0].gpu_span_ns, base + 3_600_000_000_100);
    assert_eq!(analysis.devices[0].left_out.stray_count, 1);
    // 199 periods of 1000 ns, unharmed.
    assert_eq!(analysis.ledger.sum_ns, 199_000);
    // 1 of 202 events: at most 1 %.
    assert_eq!(analysis.quality.grade, Grade::B);
}

#[test]
fn a_stray_kernel_before_the_window_does_not_make_it_idle() {
    // One kernel 463 ms before 500 kernels that take 10 ms: the whole-window ledger is of the 10 ms.
    let mut dsl = TraceDsl::rank(0).kernel("fill", 0..1000);
    for n in 0..500i64 {
        let at = 463_000_000 + n * 20_000;
        dsl = dsl.kernel(&format!("kernel_{n}"), at..at + 19_000);
    }
    let analysis = run(dsl.build());
    assert_eq!(analysis.ledger.period_sum_ns, 499 * 20_000 + 19_000);
}

#[test]
fn a_kernel_before_its_launch_is_a_clock_skew_not_an_error() {
    let trace = steps(10, 0)
        .launch("cudaLaunchKernel", 100_000..105_000, 500)
        .kernel("nvjet_a", 99_200..99_900)
        .correlation(500)
        .build();
    let analysis = run(trace);
    check(&analysis, "clock_skew", CheckStatus::Note, 1);
}

#[test]
fn a_gpu_that_was_not_traced_gets_no_verdict() {
    let trace = TraceDsl::rank(0)
        .gpu("NVIDIA H200")
        .range("step[DECODE bs=1]", 0..100)
        .op("aten::mm", 5..50, "")
        .launch("cudaLaunchKernel", 10..20, 1)
        .build();
    let analysis = run(trace);
    let refused = analysis.quality.refused.unwrap();
    assert_eq!(refused.code, "gpu_not_traced");
    assert_eq!(
        refused.reason,
        "GPU not traced: 1 calls launched GPU work, but no GPU event was recorded"
    );
    assert_eq!(analysis.quality.grade, Grade::F);
    assert!(analysis.devices.is_empty());
}

#[test]
fn a_trace_of_the_host_only_says_so() {
    let analysis = run(TraceDsl::new().op("aten::mul", 0..10, "").build());
    let refused = analysis.quality.refused.unwrap();
    assert_eq!(refused.code, "no_gpu_events");
    assert_eq!(refused.reason, "no GPU kernels recorded: this is a trace of the host only");
}

#[test]
fn files_of_unknown_ranks_are_one_run_only_when_recorded_at_one_time() {
    // 20 steps of 1 us each, from 0 and from `base` on the epoch's clock.
    let with = |base: i64, format| {
        let at = move |base| {
            steps(20, 0).format(format).meta(|meta| {
                meta.rank = None;
                meta.base_time_ns = base;
            })
        };
        let traces = [at(Some(7_000)).build(), at(Some(7_000 + base)).build()];
        analyze(&traces, &Config::default())
    };
    let together = with(10_000, TraceFormat::TorchProfiler);
    assert!(together.quality.refused.is_none());
    check(&together, "unknown_ranks", CheckStatus::Warn, 2);
    for format in [TraceFormat::TorchProfiler, TraceFormat::NsysSqlite] {
        let apart = with(20_000, format);
        assert_eq!(apart.quality.grade, Grade::F);
        assert_eq!(apart.quality.refused.unwrap().code, "unrelated_files");
        assert!(apart.findings.findings.is_empty());
    }
    // Without the epoch an nsys export tells no time that two files share.
    let nsys = |kernel: i64| {
        steps(20, kernel).format(TraceFormat::NsysSqlite).meta(|meta| meta.rank = None).build()
    };
    let refused = analyze(&[nsys(0), nsys(1)], &Config::default()).quality.refused.unwrap();
    assert_eq!(refused.code, "unrelated_files");
}

#[test]
fn kernels_without_time_or_name_lower_the_grade() {
    // Of 20 kernels 4 end where they start: 20 %. A fifth has the name of a missing string.
    let mut dsl = steps(16, 0);
    for step in 16..20 {
        let at = step * 1000;
        dsl = dsl
            .range("step[DECODE bs=1]", at..at + 500)
            .launch("cudaLaunchKernel", at + 10..at + 20, step as u64)
            .kernel(if step == 18 { "string 382" } else { "nvjet_a" }, at + 100..at + 100)
            .correlation(step as u64);
    }
    let analysis = run(dsl.build());
    check(&analysis, "kernels_without_duration", CheckStatus::Warn, 4);
    check(&analysis, "kernels_without_name", CheckStatus::Warn, 1);
    assert_eq!(analysis.quality.grade, Grade::D);
    check(&run(steps(20, 0).build()), "kernels_without_duration", CheckStatus::Pass, 0);
    // Recorded in whole microseconds a short kernel takes 0, which is no defect; all of them is.
    let coarse = |n: i64| {
        let mut dsl = TraceDsl::rank(0);
        for at in (0..10).map(|at| at * 10_000) {
            dsl = dsl.kernel("nvjet_a", at..at + if at < n * 10_000 { 0 } else { 5000 });
        }
        run(dsl.build())
    };
    check(&coarse(2), "kernels_without_duration", CheckStatus::Pass, 0);
    check(&coarse(10), "kernels_without_duration", CheckStatus::Warn, 10);
}

#[test]
fn a_mark_far_longer_than_the_gpu_work_is_said() {
    // 465 ms marked, 463 of them in one copy; the GPU work spans 10 ms.
    let ms = 1_000_000;
    let trace = TraceDsl::rank(0)
        .range("step[DECODE bs=32]", 0..465 * ms)
        .launch("hipMemcpyWithStream", ms..464 * ms, 1)
        .memcpy_h2d(453 * ms..454 * ms, 128)
        .correlation(1)
        .launch("hipLaunchKernel", 464 * ms..464 * ms + 100, 2)
        .kernel("nvjet_a", 454 * ms..463 * ms)
        .correlation(2)
        .build();
    let analysis = run(trace);
    check(&analysis, "marks_beyond_gpu_work", CheckStatus::Warn, 1);
    let said = "a mark lasts 465000 us (463000 us of it in one hipMemcpyWithStream), and all GPU work \
                recorded spans 10000 us";
    assert!(analysis.steps.explanation.contains(said), "{}", analysis.steps.explanation);
    check(&run(steps(20, 0).build()), "marks_beyond_gpu_work", CheckStatus::Pass, 0);
}

/// Marked decode steps of these periods in us, the GPU idle only after the first 98 us; one more at
/// the end.
fn busy_steps(periods: &[i64]) -> TraceDsl {
    let (mut dsl, mut at) = (TraceDsl::rank(0), 0);
    for (id, period) in periods.iter().chain(&[100]).enumerate() {
        dsl = dsl
            .range("step[DECODE bs=1]", at..at + 50_000)
            .launch("cudaLaunchKernel", at + 100..at + 200, id as u64)
            .kernel("nvjet_tst", at + 1000..at + 99_000)
            .correlation(id as u64);
        at += period * 1000;
    }
    dsl
}

#[test]
fn an_exceptional_step_is_left_out_of_means_and_findings() {
    let mut periods = [100; 10];
    periods[6] = 12_000;
    let trace = busy_steps(&periods).build();
    let analysis = run(trace.clone());
    let period = analysis.steps.period_ns.unwrap();
    assert_eq!((period.n, period.mean), (9, 100_000.0));
    assert_eq!(analysis.steps.outlier_count, 1);
    assert_eq!(analysis.ledger.sum_ns, 9 * 100_000);
    assert_eq!(analysis.quality.grade, Grade::A);
    check(&analysis, "outlier_steps", CheckStatus::Note, 1);
    // Between steps the GPU waits 2 us of 100.
    assert!(analysis.findings.findings.iter().all(|finding| finding.code != "HOST003"));
    // Asked for by number it counts: mean (9 x 100 + 12000) / 10.
    let config = Config { steps: Some(0..10), ..Config::default() };
    let asked = analyze(std::slice::from_ref(&trace), &config);
    assert_eq!(asked.steps.period_ns.unwrap().mean, 1_290_000.0);
    assert_eq!(asked.steps.outlier_count, 0);
    check(&asked, "outlier_steps", CheckStatus::Warn, 1);
    // Two in ten are no exceptions: mean (8 x 100 + 2 x 12000) / 10.
    periods[4] = 12_000;
    let often = run(busy_steps(&periods).build());
    assert_eq!(often.steps.period_ns.unwrap().mean, 2_480_000.0);
    check(&often, "outlier_steps", CheckStatus::Warn, 2);
}

#[test]
fn mixed_batch_sizes_and_opaque_graphs_are_noted() {
    let trace = steps(4, 0)
        .range("step[DECODE bs=8]", 4000..4500)
        .launch("cudaLaunchKernel", 4010..4020, 80)
        .kernel("nvjet_a", 4100..4500)
        .correlation(80)
        .range("step[DECODE bs=8]", 5000..5500)
        .launch("cudaLaunchKernel", 5010..5020, 81)
        .kernel("nvjet_a", 5100..5500)
        .correlation(81)
        .graph_trace(600..900)
        .build();
    let analysis = run(trace);
    // Selected: four of batch 1, one of batch 8 (the last is cut).
    check(&analysis, "mixed_batch_sizes", CheckStatus::Note, 4);
    assert_eq!(analysis.steps.selected.as_ref().unwrap().batch_size, None);
    check(&analysis, "opaque_graphs", CheckStatus::Warn, 1);
    assert_eq!(accounts(&analysis)["graph.opaque"], 300);
}

#[test]
fn whole_microseconds_are_noted() {
    let mut dsl = TraceDsl::rank(0);
    for n in 0..20i64 {
        dsl = dsl.kernel("nvjet_a", n * 14_000..n * 14_000 + 10_000);
    }
    check(&run(dsl.build()), "microsecond_timestamps", CheckStatus::Note, 1);
    check(&run(steps(20, 1).build()), "microsecond_timestamps", CheckStatus::Pass, 0);
}

#[test]
fn external_ids_that_name_another_operator_are_noted() {
    let trace = TraceDsl::rank(0)
        .op("aten::mm", 0..100, "")
        .external(1)
        .launch("cudaLaunchKernel", 10..20, 7)
        .kernel("nvjet_a", 50..90)
        .correlation(7)
        .external(7)
        .build();
    let analysis = run(trace);
    check(&analysis, "external_id_disagrees", CheckStatus::Note, 1);
    assert_eq!(analysis.kernels[0].op.as_deref(), Some("aten::mm"));
}
