//! Step detection: marks, graph launches, kernel sequences, gaps; periods, cuts, selection.

mod support;

use regex::Regex;
use steptally_analyze::results::Confidence;
use steptally_analyze::{Config, analyze};
use steptally_testkit::TraceDsl;
use steptally_trace_model::Trace;
use support::run;

/// A mark on the host with one kernel that it launches; the GPU runs it `delay` later.
fn marked(dsl: TraceDsl, mark: &str, host: i64, gpu: i64, id: u64) -> TraceDsl {
    dsl.range(mark, host..host + 100)
        .launch("cudaLaunchKernel", host + 10..host + 20, id)
        .kernel("nvjet_a", gpu..gpu + 50)
        .correlation(id)
}

fn periods(trace: Trace, config: &Config) -> (String, Vec<i64>) {
    let analysis = analyze(&[trace], config);
    let selected = analysis.steps.steps.iter().filter(|step| step.selected);
    (analysis.steps.detected_by.clone(), selected.filter_map(|step| step.period_ns).collect())
}

#[test]
fn marks_are_mapped_by_correlation_not_by_time() {
    // The GPU runs a step behind: kernel k runs during mark k + 1. Starts 200, 350, 520: periods
    // 150, 170; the last has no successor.
    let mut dsl = TraceDsl::rank(0);
    for (id, (host, gpu)) in [(0, 200), (150, 350), (300, 520)].into_iter().enumerate() {
        dsl = marked(dsl, "step[DECODE bs=1]", host, gpu, id as u64);
    }
    let analysis = run(dsl.build());
    assert_eq!(analysis.steps.detected_by, "marks.sglang");
    assert_eq!(analysis.steps.confidence, Confidence::High);
    assert_eq!(analysis.steps.kinds, [("decode".to_owned(), 3)].into());
    assert_eq!(analysis.steps.cut_count, 1);
    let period = analysis.steps.period_ns.unwrap();
    assert_eq!((period.n, period.min, period.median, period.max), (2, 150.0, 160.0, 170.0));
    let selected = analysis.steps.selected.unwrap();
    assert_eq!((selected.kind.as_str(), selected.n, selected.batch_size), ("decode", 2, Some(1)));
}

#[test]
fn a_step_begun_before_the_capture_is_cut() {
    let mut dsl = TraceDsl::rank(0).window(50..2000);
    for (id, host) in [0, 150, 300].into_iter().enumerate() {
        dsl = marked(dsl, "step[DECODE bs=1]", host, host + 40, id as u64);
    }
    let analysis = run(dsl.build());
    assert_eq!(analysis.steps.cut_count, 2);
    assert_eq!(analysis.steps.period_ns.unwrap().n, 1);
}

#[test]
fn the_period_of_a_step_ends_where_the_next_step_of_any_kind_begins() {
    // extend at 40, decode at 240, decode at 440, extend at 640: the decode periods are 200, 200.
    let mut dsl = TraceDsl::rank(0);
    let marks = ["EXTEND bs=1 toks=9", "DECODE bs=1", "DECODE bs=1", "EXTEND bs=1 toks=9"];
    for (id, mark) in marks.iter().enumerate() {
        let host = id as i64 * 200;
        dsl = marked(dsl, &format!("step[{mark}]"), host, host + 40, id as u64);
    }
    let trace = dsl.build();
    let by_kind = |kind: &str| Config { kind: Some(kind.to_owned()), ..Config::default() };
    assert_eq!(periods(trace.clone(), &Config::default()).1, [200, 200]);
    assert_eq!(periods(trace.clone(), &by_kind("extend")).1, [200]);
    assert_eq!(periods(trace.clone(), &by_kind("verify")).1, [0i64; 0]);
    let second = Config { steps: Some(1..2), ..Config::default() };
    assert_eq!(periods(trace, &second).1, [200]);
}

#[test]
fn ranges_that_match_a_pattern_are_steps() {
    let mut dsl = TraceDsl::rank(0);
    for (id, host) in [0, 300, 500].into_iter().enumerate() {
        dsl = marked(dsl, &format!("my_forward {id}"), host, host + 40, id as u64);
    }
    let config =
        Config { step_pattern: Some(Regex::new("^my_forward").unwrap()), ..Config::default() };
    let (detected_by, periods) = periods(dsl.build(), &config);
    assert_eq!(detected_by, "marks.pattern");
    assert_eq!(periods, [300, 200]);
}

#[test]
fn marks_that_an_old_recorder_wrote_as_operators_are_steps() {
    // GPU work at 40, 340, 540: periods 300 and 200. The operator inside is no step.
    let mut dsl = TraceDsl::rank(0);
    for (id, host) in [0, 300, 500].into_iter().enumerate() {
        dsl = dsl
            .op(&format!("ProfilerStep#{}", id + 5), host..host + 100, "")
            .op("aten::mm", host + 5..host + 30, "")
            .launch("cudaLaunchKernel", host + 10..host + 20, id as u64)
            .kernel("nvjet_a", host + 40..host + 90)
            .correlation(id as u64);
    }
    let trace = dsl.build();
    let found = periods(trace.clone(), &Config::default());
    assert_eq!(found, ("marks.profiler_step".to_owned(), vec![300, 200]));
    let pattern = Some(Regex::new("ProfilerStep").unwrap());
    let found = periods(trace, &Config { step_pattern: pattern, ..Config::default() });
    assert_eq!(found, ("marks.pattern".to_owned(), vec![300, 200]));
}

#[test]
fn a_process_with_two_devices_has_steps_on_each() {
    let mut dsl = TraceDsl::rank(0);
    for step in 0..3u64 {
        let host = step as i64 * 200;
        dsl = dsl.device(0);
        dsl = marked(dsl, "step[DECODE bs=1]", host, host + 40, step * 2);
        dsl = dsl
            .device(1)
            .launch("cudaLaunchKernel", host + 30..host + 35, step * 2 + 1)
            .kernel("nvjet_a", host + 60 + step as i64..host + 90)
            .correlation(step * 2 + 1);
    }
    let analysis = run(dsl.build());
    let by_device: Vec<_> =
        analysis.steps.ranks.iter().map(|r| (r.device, r.period_ns.median)).collect();
    // Device 1 starts at 60, 261, 462.
    assert_eq!(by_device, [(Some(0), 200.0), (Some(1), 201.0)]);
    assert_eq!(analysis.ledger.sum_ns, 2 * 200 + 2 * 201);
}

/// `steps` steps of an embedding, `layers` layers of two kernels and a sampling kernel.
fn unmarked(steps: i64, layers: i64, graph: bool) -> Trace {
    let mut dsl = TraceDsl::rank(0);
    for step in 0..steps {
        let at = step * 1000;
        let id = step as u64;
        if graph {
            dsl = dsl.graph_launch(at - 50..at - 10, id);
        }
        let mut kernel = |name: &str, start: i64| {
            dsl = std::mem::take(&mut dsl).kernel(name, start..start + 8);
            if graph {
                dsl = std::mem::take(&mut dsl).correlation(id);
            }
        };
        kernel("embedding", at);
        for layer in 0..layers {
            kernel("nvjet_a", at + 10 + layer * 20);
            kernel("rmsnorm", at + 20 + layer * 20);
        }
        kernel("argmax", at + 10 + layers * 20);
    }
    dsl.build()
}

#[test]
fn the_period_of_the_kernel_sequence_is_the_step_not_the_layer() {
    for layers in [3, 6, 20] {
        let analysis = run(unmarked(5, layers, false));
        assert_eq!(analysis.steps.detected_by, "kernel_sequence", "{layers} layers");
        assert_eq!(analysis.steps.confidence, Confidence::Medium);
        let period = analysis.steps.period_ns.unwrap();
        assert_eq!((period.n, period.min, period.max), (4, 1000.0, 1000.0), "{layers} layers");
        // The boundary lies before the embedding, where the GPU waits longest.
        assert!(analysis.steps.steps.iter().all(|s| s.start_ns.unwrap() % 1000 == 0));
    }
}

#[test]
fn a_period_in_which_nothing_repeats_may_be_a_layer() {
    // Embedding, two kernels, sampling: nothing tells it from a layer of four kernels.
    for graph in [false, true] {
        let analysis = run(unmarked(5, 1, graph));
        assert_eq!(analysis.steps.confidence, Confidence::Low);
        assert_eq!(analysis.steps.period_ns.unwrap().n, 4);
        assert!(analysis.steps.explanation.contains("may be one layer instead of a step"));
    }
}

/// `periods` periods of 1 us with `layers` layers of three kernels, each launched after a range that
/// names it. Layers are numbered over all periods, or from 0 in each. With `embedding` a period
/// begins with a kernel of its own.
fn named_layers(periods: i64, layers: i64, over_all: bool, embedding: bool) -> Trace {
    let mut dsl = TraceDsl::rank(0);
    for period in 0..periods {
        if embedding {
            let at = period * 1000 - 50;
            dsl = dsl.launch_kernel("embedding", at..at + 5, at + 7..at + 20);
        }
        for layer in 0..layers {
            let at = period * 1000 + layer * 100;
            let number = if over_all { 2 + period * layers + layer } else { layer };
            dsl = dsl.nvtx(
                &format!("FSDP::pre_forward (blocks.{number}.mlp), op_id = {at}"),
                at..at + 5,
            );
            for (place, name) in ["nvjet_a", "rmsnorm", "silu"].into_iter().enumerate() {
                let call = at + 10 + place as i64 * 20;
                dsl = dsl.launch_kernel(name, call..call + 5, call + 7..call + 20);
            }
        }
    }
    dsl.build()
}

#[test]
fn periods_that_ranges_name_as_layers_are_no_steps() {
    // Six periods, one layer each: `blocks.2` to `blocks.7`. Between the first launches of two
    // periods the range of the second begins, for the five periods with a successor: 3 to 7.
    let analysis = run(named_layers(6, 1, true, false));
    assert_eq!(analysis.steps.detected_by, "none");
    assert_eq!(analysis.steps.confidence, Confidence::None);
    assert!(
        analysis.steps.explanation.contains("another layer in each, 3 to 7"),
        "{}",
        analysis.steps.explanation
    );
    // The lowest numbers are 1 2 3 0 1 2 3 0 ..: they start over, but the period is a layer.
    assert_eq!(run(named_layers(6, 4, false, false)).steps.detected_by, "none");
    // Where each period names all layers, it is a step.
    let analysis = run(named_layers(6, 4, false, true));
    assert_eq!(analysis.steps.detected_by, "kernel_sequence");
    assert_eq!(analysis.steps.period_ns.unwrap().median, 1000.0);
}

#[test]
fn one_graph_launch_per_period_is_said() {
    let analysis = run(unmarked(4, 6, true));
    assert_eq!(analysis.steps.detected_by, "graph_launches");
    assert_eq!(analysis.steps.period_ns.unwrap().median, 1000.0);
}

#[test]
fn two_repeats_are_no_pattern() {
    let analysis = run(unmarked(2, 6, false));
    assert_eq!(analysis.steps.detected_by, "none");
    assert_eq!(analysis.steps.confidence, Confidence::None);
    assert!(analysis.steps.period_ns.is_none());
}

#[test]
fn regular_bursts_of_changing_kernels_are_steps_by_gaps() {
    // Each burst has other kernels in other number; bursts start every 1 ms.
    let mut dsl = TraceDsl::rank(0);
    for step in 0..6i64 {
        for kernel in 0..10 + step {
            let start = step * 1_000_000 + kernel * 1100;
            dsl = dsl.kernel(&format!("k{step}_{kernel}"), start..start + 1000);
        }
    }
    let analysis = run(dsl.build());
    assert_eq!(analysis.steps.detected_by, "gaps");
    assert_eq!(analysis.steps.confidence, Confidence::Low);
    let period = analysis.steps.period_ns.unwrap();
    assert_eq!((period.n, period.median), (5, 1_000_000.0));
}
