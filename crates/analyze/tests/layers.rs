//! Layers: the repeat within a step, exact times, modules from marks, real captures.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod support;

use steptally_analyze::results::{Analysis, Layers};
use steptally_analyze::{Config, analyze};
use steptally_testkit::{DecodeMode, TraceDsl, decode_run};
use steptally_trace_model::Trace;
use support::{fixture, fixture_with, run};

const NORM: &str = "flashinfer::norm::RMSNormKernel<8u>";
const ADD_NORM: &str = "flashinfer::norm::FusedAddRMSNormKernel<8u>";

/// One step at `at` as a graph replay: embedding 10 ns, `layers` layers, final norm 3, head 20, cut
/// off by 100 ns until the next. A layer is norm 2, gemm 10, attention 8, 5 ns of nothing, gemm 7.
fn step(mut dsl: TraceDsl, at: i64, layers: i64, id: u64) -> TraceDsl {
    dsl = dsl.range("step[DECODE bs=1]", at..at + 20).graph_launch(at + 1..at + 9, id);
    let mut work = vec![("_vocab_parallel_embedding_kernel", 10)];
    for layer in 0..layers {
        let norm = if layer == 0 { NORM } else { ADD_NORM };
        work.extend([(norm, 2), ("nvjet_qkv", 10), ("flash::flash_fwd_kernel", 8)]);
        work.extend([("", 5), ("nvjet_out", 7)]);
    }
    work.extend([(ADD_NORM, 3), ("nvjet_head", 20)]);
    let mut gpu = at + 30;
    for (name, ns) in work {
        if !name.is_empty() {
            dsl = dsl.kernel(name, gpu..gpu + ns).correlation(id);
        }
        gpu += ns;
    }
    dsl
}

fn steps(layers: &[i64]) -> TraceDsl {
    let numbered = layers.iter().zip(0u64..);
    numbered.fold(TraceDsl::rank(0), |dsl, (&layers, id)| step(dsl, id as i64 * 1000, layers, id))
}

fn layers(trace: Trace) -> Layers {
    run(trace).layers.unwrap()
}

/// Prologue, layers, epilogue: the parts must add up to the busy time of the steps.
fn parts(layers: &Layers) -> (i64, Vec<i64>, i64) {
    let prologue = layers.prologue.as_ref().unwrap().gpu_busy_ns;
    let epilogue = layers.epilogue.as_ref().unwrap().gpu_busy_ns;
    let each: Vec<i64> = layers.layers.iter().map(|layer| layer.gpu_busy_ns).collect();
    assert_eq!(prologue + each.iter().sum::<i64>() + epilogue, layers.gpu_busy_ns);
    (prologue, each, epilogue)
}

/// The busy time of the selected steps, as the table of steps has it.
fn busy(analysis: &Analysis) -> i64 {
    analysis.steps.steps.iter().filter(|s| s.selected).filter_map(|s| s.gpu_busy_ns).sum()
}

#[test]
fn times_by_layer_inside_graph_replays() {
    // Three steps, the last has no period: 2 x (10; 27, 27, 27; 23).
    let found = layers(steps(&[3, 3, 3]).build());
    assert_eq!(found.detected_by, "kernel_sequence");
    assert_eq!((found.count, found.n, found.irregular_steps), (3, 2, 0));
    assert_eq!(parts(&found), (20, vec![54, 54, 54], 46));
    // 12 of 15 kernels; 5 ns of nothing within a layer, none between; the first norm is another.
    assert_eq!(found.covered_ratio, 0.8);
    let second = &found.layers[1];
    assert_eq!((second.ns_per_step, second.kernels_per_step), (27.0, 4.0));
    assert_eq!((second.idle_ns_per_step, second.idle_before_ns_per_step), (5.0, 0.0));
    // From a step's first work to the next one's: 1000 = 114 busy + 3 x 5 idle + the rest.
    assert_eq!(found.idle_after_ns_per_step, Some(871.0));
    assert_eq!(found.layers.iter().map(|l| l.odd).collect::<Vec<_>>(), [true, false, false]);
    let roles: Vec<_> = found
        .roles
        .iter()
        .map(|r| (r.name.as_str(), r.category.as_str(), r.mean_ns, r.calls))
        .collect();
    // Two steps, two layers that are not odd.
    assert_eq!(
        roles,
        [
            (ADD_NORM, "norm", 2.0, 4),
            ("nvjet_qkv", "gemm.bf16", 10.0, 4),
            ("flash::flash_fwd_kernel", "attn.flash", 8.0, 4),
            ("nvjet_out", "gemm.bf16", 7.0, 4),
        ]
    );
    assert!(found.slow_layers.is_empty() && found.modules.is_none());
}

#[test]
fn overlapping_work_counts_once() {
    // Step 0: layer 0 runs 40-60 and 65-72. A copy 55-70 on another stream begins in it: 55-60
    // belongs to attention, 60-70 to the copy, 70-72 is left to the gemm. It fills the gap: 27 + 5.
    let dsl = steps(&[3, 3, 3]).stream(9).memcpy_d2d(55..70, 64);
    let analysis = run(dsl.build());
    let found = analysis.layers.as_ref().unwrap();
    assert_eq!(parts(found), (20, vec![59, 54, 54], 46));
    assert_eq!(busy(&analysis), found.gpu_busy_ns);
    assert_eq!(found.layers[0].idle_ns_per_step, 2.5);
    // Side streams do not disturb the sequence: a kernel beside it changes no layer.
    let dsl = steps(&[3, 3, 3]).stream(9).kernel("shared_expert_gemm", 44..50);
    assert_eq!(parts(&layers(dsl.build())), (20, vec![54, 54, 54], 46));
}

#[test]
fn steps_with_another_number_of_layers_are_left_out_and_counted() {
    let found = layers(steps(&[3, 4, 3, 3]).build());
    assert_eq!((found.count, found.n, found.irregular_steps), (3, 2, 1));
    assert_eq!(parts(&found), (20, vec![54, 54, 54], 46));
}

#[test]
fn a_step_with_an_extra_kernel_in_its_prologue_is_regular() {
    // 5 ns before the second step's embedding.
    let dsl = steps(&[3, 3, 3]).kernel("prepare", 1020..1025).correlation(1);
    let found = layers(dsl.build());
    assert_eq!((found.n, found.irregular_steps), (2, 0));
    assert_eq!(parts(&found), (25, vec![54, 54, 54], 46));
}

#[test]
fn a_layer_that_takes_longer_is_named() {
    // Layer 2 of four: its last gemm (7 ns) goes on for 30 ns more, the rest comes as much later.
    let mut dsl = TraceDsl::rank(0);
    for id in 0..3u64 {
        let at = id as i64 * 1000;
        dsl = dsl.range("step[DECODE bs=1]", at..at + 20).graph_launch(at + 1..at + 9, id);
        let mut gpu = at + 30;
        for layer in 0..4 {
            let last = if layer == 2 { 37 } else { 7 };
            for (name, ns) in
                [(ADD_NORM, 2), ("nvjet_a", 10), ("act_and_mul_kernel", 8), ("nvjet_b", last)]
            {
                dsl = dsl.kernel(name, gpu..gpu + ns).correlation(id);
                gpu += ns;
            }
        }
    }
    let found = layers(dsl.build());
    assert_eq!(found.slow_layers, [2]);
    assert_eq!((found.median_ns_per_step, found.layers[2].ns_per_step), (27.0, 57.0));
}

#[test]
fn the_expected_number_of_layers_is_checked() {
    let with = |num_layers| {
        let config = Config { num_layers: Some(num_layers), ..Config::default() };
        let found = analyze(&[steps(&[3, 3, 3]).build()], &config).layers.unwrap();
        (found.count, found.matches_expected, found.layers_per_repeat)
    };
    assert_eq!(with(3), (3, Some(true), None));
    assert_eq!(with(6), (3, Some(false), Some(2)));
    assert_eq!(with(4), (3, Some(false), None));
}

#[test]
fn without_steps_or_repeats_there_are_no_layers() {
    let single = TraceDsl::rank(0).kernel("a", 0..10).kernel("b", 10..20).build();
    assert_eq!(run(single).layers, None);
    // One layer cannot be told from none.
    assert_eq!(run(steps(&[1, 1, 1]).build()).layers, None);
}

#[test]
fn generated_runs_have_the_layers_that_they_were_made_with() {
    for (mode, ranks, count, seed) in [
        (DecodeMode::Eager, 1, 4, 1),
        (DecodeMode::Eager, 2, 5, 2),
        (DecodeMode::Graph, 1, 6, 3),
        (DecodeMode::Graph, 4, 3, 4),
    ] {
        let run = decode_run(mode, ranks, 9, count, seed);
        let analysis = analyze(&run.traces, &Config::default());
        let found = analysis.layers.as_ref().unwrap();
        assert_eq!((found.count, found.irregular_steps), (u64::from(count), 0), "{mode:?} {ranks}");
        parts(found);
        // The last step of each rank has no period.
        let truth = run.steps.iter().flat_map(|steps| &steps[..8]);
        assert_eq!(found.gpu_busy_ns, truth.map(|step| step.gpu_busy_ns).sum::<i64>());
        let kernels = if ranks > 1 { 7.0 } else { 6.0 };
        assert!(found.layers.iter().all(|layer| layer.kernels_per_step == kernels));
    }
}

/// An NVTX text as SGLang's layer-wise markers write it.
fn mark(module: &str) -> String {
    format!("{{'Module': '{module}', 'Inputs': [[1, 64]]}}")
}

#[test]
fn module_marks_give_a_tree() {
    // Per step: two layers of attention (10 ns) and mlp (20 ns), then a head (5 ns) in no layer.
    let mut dsl = TraceDsl::rank(0);
    for step in 0..3 {
        let at = step * 1000;
        dsl = dsl.range("step[DECODE bs=1]", at..at + 500).nvtx(&mark("model"), at..at + 300);
        for layer in 0..2 {
            let call = at + 10 + layer * 100;
            let module = format!("model.layers.{layer}");
            dsl = dsl
                .nvtx(&mark(&module), call..call + 80)
                .nvtx(&mark(&format!("{module}.self_attn")), call + 1..call + 30)
                .launch_kernel(
                    "attend",
                    call + 5..call + 9,
                    at + 500 + layer * 40..at + 510 + layer * 40,
                )
                .nvtx(&mark(&format!("{module}.mlp")), call + 31..call + 60)
                .launch_kernel(
                    "mlp",
                    call + 35..call + 39,
                    at + 515 + layer * 40..at + 535 + layer * 40,
                );
        }
        dsl = dsl.launch_kernel("head", at + 400..at + 410, at + 600..at + 605);
    }
    let found = layers(dsl.build());
    let modules = found.modules.as_ref().unwrap();
    assert_eq!((modules.detected_by.as_str(), modules.layer_count), ("module_marks", 2));
    // 60 of 65 ns.
    assert_eq!(modules.covered_ratio, 60.0 / 65.0);
    let rows: Vec<_> = modules
        .rows
        .iter()
        .map(|r| {
            (r.path.as_str(), r.depth, r.layer, r.gpu_total_ns_per_step, r.gpu_self_ns_per_step)
        })
        .collect();
    assert_eq!(
        rows,
        [
            ("model", 0, None, 60.0, 0.0),
            ("model.layers", 1, None, 60.0, 0.0),
            ("model.layers.0", 2, Some(0), 30.0, 0.0),
            ("model.layers.0.self_attn", 3, Some(0), 10.0, 10.0),
            ("model.layers.0.mlp", 3, Some(0), 20.0, 20.0),
            ("model.layers.1", 2, Some(1), 30.0, 0.0),
            ("model.layers.1.self_attn", 3, Some(1), 10.0, 10.0),
            ("model.layers.1.mlp", 3, Some(1), 20.0, 20.0),
        ]
    );
    // The kernels attend, mlp, attend, mlp, head repeat as well, and both agree.
    assert_eq!((found.detected_by.as_str(), found.count), ("kernel_sequence", 2));
    assert_eq!(modules.same_layer_count, Some(true));
    assert_eq!(modules.largest_share_difference, Some(0.0));
}

#[test]
fn kernels_of_a_replay_belong_to_the_module_their_node_was_created_in() {
    // Captured under marks as nodes 1 and 2, instantiated as 11 and 12, replayed outside of marks.
    let mut dsl = TraceDsl::rank(0)
        .nvtx(&mark("model.layers.0"), 0..10)
        .node_created("k", 5..5, 1)
        .nvtx(&mark("model.layers.1"), 10..20)
        .node_created("k", 15..15, 2);
    for (node, original) in [(11, 1), (12, 2)] {
        dsl = dsl
            .node_created("k", 30..30, node)
            .node_created("k", 31..31, node)
            .cloned_from(original);
    }
    for step in 0..3u64 {
        let at = 1000 + step as i64 * 1000;
        dsl = dsl
            .range("step[DECODE bs=1]", at..at + 50)
            .graph_launch(at + 5..at + 20, step)
            .kernel("k", at + 100..at + 130)
            .correlation(step)
            .graph_node(11)
            .kernel("other", at + 130..at + 140)
            .correlation(step)
            .graph_node(12);
    }
    let found = layers(dsl.build());
    // No sequence repeats within a step of two kernels: the modules are the layers.
    assert_eq!((found.detected_by.as_str(), found.count, found.n), ("module_marks", 2, 2));
    let times: Vec<f64> = found.layers.iter().map(|layer| layer.ns_per_step).collect();
    assert_eq!(times, [30.0, 10.0]);
}

#[test]
fn module_frames_and_layer_ranges_give_layers_too() {
    let with = |inner: fn(TraceDsl, i64, i64) -> TraceDsl| {
        let mut dsl = TraceDsl::rank(0);
        for step in 0..3 {
            let at = step * 1000;
            dsl = dsl.range("step[DECODE bs=1]", at..at + 500);
            for layer in 0..2 {
                let call = at + 10 + layer * 100;
                dsl = inner(dsl, layer, call);
                let gpu = at + 500 + layer * 40;
                let name = if layer == 0 { "first" } else { "second" };
                dsl = dsl.launch_kernel(name, call + 5..call + 9, gpu..gpu + 10 + layer * 10);
            }
        }
        let found = layers(dsl.build());
        let paths: Vec<String> =
            found.modules.unwrap().rows.into_iter().map(|row| row.path).collect();
        let times: Vec<f64> = found.layers.iter().map(|layer| layer.ns_per_step).collect();
        (found.detected_by, times, paths)
    };
    let ranges = with(|dsl, layer, at| dsl.nvtx(&format!("layer {layer}"), at..at + 50));
    let both = vec![10.0, 20.0];
    let paths = |texts: [&str; 2]| texts.map(str::to_owned).to_vec();
    assert_eq!(ranges, ("layer_ranges".into(), both.clone(), paths(["layer 0", "layer 1"])));
    let frames = with(|dsl, layer, at| {
        dsl.frame(&format!("nn.Module: DecoderLayer_{layer}"), at..at + 50)
            .frame("model.py(7): forward", at + 1..at + 49)
    });
    let expected = ("module_frames".into(), both, paths(["DecoderLayer_0", "DecoderLayer_1"]));
    assert_eq!(frames, expected);
}

#[test]
fn few_marked_modules_are_no_layers_but_a_tree() {
    // 10 of 100 ns lie in layers 0 and 1.
    let mut dsl = TraceDsl::rank(0);
    for step in 0..3 {
        let at = step * 1000;
        dsl = dsl
            .range("step[DECODE bs=1]", at..at + 500)
            .nvtx("layer 0", at + 10..at + 20)
            .launch_kernel("a", at + 12..at + 14, at + 500..at + 505)
            .nvtx("layer 1", at + 30..at + 40)
            .launch_kernel("b", at + 32..at + 34, at + 505..at + 510)
            .launch_kernel("c", at + 50..at + 54, at + 510..at + 600);
    }
    let found = layers(dsl.build());
    assert_eq!((found.count, found.layers.len()), (0, 0));
    let modules = found.modules.unwrap();
    assert_eq!((modules.layer_count, modules.rows.len(), modules.covered_ratio), (2, 2, 0.1));
}

/// Share of each layer in the time of all layers.
fn shares(layers: &Layers) -> Vec<f64> {
    let all: i64 = layers.layers.iter().map(|layer| layer.gpu_busy_ns).sum();
    layers.layers.iter().map(|layer| layer.gpu_busy_ns as f64 / all as f64).collect()
}

#[test]
fn graph_and_eager_captures_of_one_model_have_the_same_layers() {
    // Worked out by a script from the files: per step 7 kernels, 6 x 16, the rest; 4 steps.
    let graphs = fixture("sglang-h200/decode-graphs-TP-0.trace.json.gz");
    let eager = fixture("sglang-h200/decode-eager-TP-0.trace.json.gz");
    let (graphs, eager) = (graphs.layers.unwrap(), eager.layers.unwrap());
    assert_eq!(
        parts(&graphs),
        (43_519, vec![309_977, 304_992, 304_248, 306_139, 304_668, 305_401], 257_344)
    );
    assert_eq!(
        parts(&eager),
        (41_887, vec![298_754, 299_612, 298_628, 301_308, 297_345, 301_192], 253_955)
    );
    for found in [&graphs, &eager] {
        assert_eq!((found.count, found.n, found.irregular_steps), (6, 4, 0));
        assert_eq!(found.roles.len(), 16);
    }
    // Half a percent of the layers' time.
    for (a, b) in shares(&graphs).iter().zip(shares(&eager)) {
        assert!((a - b).abs() < 0.005, "{a} {b}");
    }
}

#[test]
fn every_capture_of_the_model_has_six_layers() {
    for name in [
        "sglang-h200/decode-eager-bs4-TP-0.trace.json.gz",
        "sglang-h200/decode-eager-gpu-only-TP-0.trace.json.gz",
        "sglang-h200/decode-eager-layer-nvtx-TP-0.trace.json.gz",
        "sglang-h200/stage-eager-TP-0-DECODE.trace.json.gz",
        "sglang-h200/stage-graphs-TP-0-DECODE.trace.json.gz",
        "sglang-h200/decode-graphs-gpu-only-TP-0.trace.json.gz",
        "sglang-h200/decode-graphs-fp8-kv-TP-0.trace.json.gz",
        "sglang-h200/decode-graphs-stacks-TP-0.trace.json.gz",
        "sglang-h200-tp2/graphs",
        "sglang-h200-tp2/eager",
        "sglang-h200-tp2/merged/merged-decode.trace.json.gz",
        "nsys-h200/sglang-graph-by-node.sqlite",
    ] {
        let config = Config { num_layers: Some(6), ..Config::default() };
        let analysis = fixture_with(name, &config);
        let found = analysis.layers.as_ref().expect(name);
        assert_eq!((found.count, found.matches_expected), (6, Some(true)), "{name}");
        assert_eq!(found.irregular_steps, 0, "{name}");
        parts(found);
        assert_eq!(found.gpu_busy_ns, busy(&analysis), "{name}");
    }
}

#[test]
fn two_ranks_are_added_up() {
    // By the script: 8 kernels, 6 x 18, the rest; rank 0 and rank 1, 3 steps each, without the one
    // in which rank 0 waits for the recording of rank 1 to begin.
    let found = fixture("sglang-h200-tp2/graphs").layers.unwrap();
    let expected = vec![
        231_069 + 230_753,
        227_940 + 227_164,
        228_860 + 229_348,
        229_309 + 230_686,
        227_936 + 227_741,
        228_508 + 228_962,
    ];
    assert_eq!(parts(&found), (799_930 + 129_053, expected, 169_504 + 170_432));
    assert_eq!(found.n, 6);
}

#[test]
fn the_fault_pair_has_eight_layers() {
    // By the script: 1 kernel, 8 x 21, the rest; 9 steps.
    let bad = fixture("torch-h200/pool-cast.trace.json.gz").layers.unwrap();
    let good = fixture("torch-h200/pool-cast-fixed.trace.json.gz").layers.unwrap();
    let expected = vec![
        4_231_359, 4_233_849, 4_237_073, 4_236_020, 4_236_657, 4_234_478, 4_237_458, 4_238_362,
    ];
    assert_eq!(parts(&bad), (12_801, expected, 427_649));
    let expected = vec![848_324, 850_015, 848_535, 850_949, 848_832, 850_016, 852_478, 849_888];
    assert_eq!(parts(&good), (13_056, expected, 427_197));
}

#[test]
fn layer_times_of_an_nsys_capture_are_those_of_its_graph_nodes() {
    // SQL over the kernels with a graph node id, in order of start: 8 replays of 100 kernels, the
    // sums of positions 1+16k..17+16k over all of them.
    let found = fixture("nsys-h200/sglang-graph-by-node.sqlite").layers.unwrap();
    assert_eq!(found.n, 8);
    assert_eq!(parts(&found).1, [614_809, 606_133, 611_262, 612_001, 604_665, 611_581]);
}

#[test]
fn layer_ranges_around_a_graph_capture_name_the_replay() {
    // NVTX `layer0`..`layer3` around the launches of the eager steps: 4 layers of 2 kernels.
    let found = fixture("nsys-h200/program-graph-by-node.sqlite").layers.unwrap();
    assert_eq!((found.detected_by.as_str(), found.count), ("kernel_sequence", 4));
    let modules = found.modules.unwrap();
    assert_eq!((modules.detected_by.as_str(), modules.layer_count), ("layer_ranges", 4));
    assert_eq!(modules.same_layer_count, Some(true));
    assert!(modules.largest_share_difference.unwrap() < 0.001);
    // The replays run outside of these ranges; their nodes were created inside.
    let config = Config { kind: Some("graph step".into()), ..Config::default() };
    let replays = fixture_with("nsys-h200/program-graph-by-node.sqlite", &config).layers.unwrap();
    let modules = replays.modules.unwrap();
    assert_eq!((modules.layer_count, modules.same_layer_count), (4, Some(true)));
}
