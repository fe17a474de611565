//! From the bound to the captured step: GLM-5 with a planted fault, and captures of a small model.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)] // helpers of tests

mod support;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use proptest::prelude::*;
use steptally_analyze::gap::{GapError, GapInputs, bound_gap};
use steptally_analyze::results::{Analysis, Baseline, BoundGap, Component, GapKind};
use steptally_analyze::roofline::{
    Deployment, Format, Hardware, Measured, ModelConfig, Part, Precision, Sharding, Speculation,
};
use steptally_analyze::{Config, analyze};
use steptally_import::{ImportOptions, import_path};
use steptally_testkit::{TraceDsl, pool_cast_run};

static ANALYSIS: OnceLock<Analysis> = OnceLock::new();

const GLM_5: &str = include_str!("data/roofline/glm-5.json");
const GLM_5_QUANT: &str = include_str!("data/roofline/glm-5-nvfp4.quant.json");
const SMALL: &str = include_str!("../../../fixtures/qwen3-moe-6-layers/config.json");

fn gap_of(
    analysis: &Analysis,
    model: &ModelConfig,
    gpu: &str,
    deployment: &Deployment,
    tpot_ns: Option<f64>,
) -> Result<BoundGap, GapError> {
    let hardware = Hardware::built_in().unwrap();
    let baseline = tpot_ns.map(Baseline::given);
    let inputs = GapInputs {
        model,
        gpu: hardware.find(gpu).unwrap(),
        deployment,
        measured: &Measured::default(),
        baseline: baseline.as_ref(),
        guesses: &[],
    };
    let gap = bound_gap(analysis, inputs)?;
    assert_eq!(gap.unexplained_ns, 0);
    assert_eq!(gap.rows.iter().map(|row| row.total_ns).sum::<i64>(), gap.captured_total_ns);
    let unprofiled: Option<i64> = gap.rows.iter().map(|row| row.unprofiled_total_ns).sum();
    assert_eq!(unprofiled, gap.unprofiled.as_ref().map(|step| step.total_ns));
    Ok(gap)
}

/// GLM-5 on eight RTX PRO 6000, all weights in 4 bits and sharded, nothing else counted.
fn four_bits() -> Deployment {
    Deployment {
        precision: Precision::Uniform(Format::nvfp4(16)),
        sharding: Sharding::Ideal,
        exclude: [&Part::BESIDE_WEIGHTS[..], &[Part::Indexer]].concat(),
        all_reduce_ns: Some(10_000),
        ..Deployment::new(8, 1, 1024)
    }
}

/// Mean per step of a row, in nanoseconds.
fn row(gap: &BoundGap, name: &str) -> f64 {
    gap.rows.iter().find(|row| row.name == name).expect(name).ns_per_step
}

#[test]
fn a_cast_of_the_whole_pool_between_bound_and_step() {
    let analysis = analyze(&[pool_cast_run(6)], &Config::default());
    let model = ModelConfig::parse(GLM_5, Some(GLM_5_QUANT)).unwrap();
    let gap = gap_of(&analysis, &model, "RTX PRO 6000", &four_bits(), Some(94_700_000.0)).unwrap();
    assert_eq!((gap.n, gap.captured_ns_per_step), (5, 95_100_000.0));
    // 24,094,261,248 B / 8 / 1.792 TB/s = 1,680,682 ns + 156 x 10 us: 3.24 ms. Parts are rounded.
    let near = |value: f64, expected: f64| {
        assert!((value - expected).abs() <= 6.0, "{value}, not {expected}");
    };
    near(gap.bound_ns as f64, 3_240_682.0);
    near(row(&gap, "bound"), 3_240_682.0);
    // 78 x 120,000 + 3 x 50,000 + 300,000 = 9,810,000; its bound is 1,680,682 less the experts' 888,686
    near(row(&gap, "dense GEMM"), 9_810_000.0 - 791_996.0);
    // 75 x 50,000, less 75 x 8 x 37,748,736 x 0.5625 B / 8 / 1.792 TB/s
    near(row(&gap, "experts"), 3_750_000.0 - 888_686.0);
    // not in this bound: 78 x 40,000 and 156 x 5,000
    assert_eq!(row(&gap, "attention"), 3_120_000.0);
    assert_eq!(row(&gap, "norms"), 780_000.0);
    // 156 x 42,300 less 156 x 10,000
    assert_eq!(row(&gap, "communication"), 5_038_800.0);
    // 78 x 841,269 = 69.0 % of the step
    assert_eq!(row(&gap, "copy.cast"), 65_618_982.0);
    assert_eq!((row(&gap, "copy.cast") / 95_100.0).round(), 690.0);
    assert_eq!(row(&gap, "idle.between_steps"), 4_412_218.0);
    assert_eq!(row(&gap, "idle.host_launched_late"), 990_000.0);
    assert_eq!(row(&gap, "idle.launch_latency"), 20_000.0);
    assert_eq!(gap.rows.len(), 10);

    // Busy 89,677,782 of 94.7 ms: 5,022,218 of 5,422,218 ns of idle time stay, 92.6 % of each.
    let step = gap.unprofiled.as_ref().unwrap();
    assert_eq!((step.ns_per_step, step.total_ns), (94_700_000.0, 473_500_000));
    assert_eq!(gap.busy_ns_per_step, 89_677_782.0);
    let idle = gap.rows.iter().filter(|row| row.kind == GapKind::Idle);
    let idle: i64 = idle.map(|row| row.unprofiled_total_ns.unwrap()).sum();
    assert_eq!(idle, 5 * 5_022_218);

    // 495,000 x 576 x (1 + 2) B x 78 = 66,718,080,000 B; / 1.792 TB/s = 37,231,071 ns
    let [cast] = &gap.copies[..] else { panic!("one kind of copy") };
    assert_eq!((cast.name.as_str(), cast.pool_sized), ("aten::copy_", true));
    assert_eq!((cast.bytes_per_step, cast.least_ns.round()), (66_718_080_000.0, 37_231_071.0));
    assert_eq!(cast.ns_per_step, 65_618_982.0);
    assert_eq!(gap.cautions, [""; 0]);
}

#[test]
fn the_finding_has_the_casts_numbers() {
    let analysis = analyze(&[pool_cast_run(6)], &Config::default());
    let finding = analysis.findings.findings.iter().find(|of| of.code == "KV001").unwrap();
    let number = |unit: &str, at: usize| {
        finding.evidence.iter().filter(|of| of.unit == unit).nth(at).unwrap().value
    };
    assert_eq!(number("bytes", 0), 66_718_080_000.0);
    // the time that it takes, then the least that it could take
    assert_eq!((number("ns", 0), number("ns", 1).round()), (65_618_982.0, 37_231_071.0));
    assert_eq!(number("per_step", 0), 78.0);
    // 66,718,080,000 B in 65,618,982 ns: 1.0168 TB/s
    assert_eq!((number("bytes_per_s", 0) / 1e8).round(), 10_167.0);
    // All but 2,000 ns of each of 78.
    assert_eq!(finding.saving.gpu_ns_per_step, 65_618_982.0 - 156_000.0);
    // The cast of the first layer ends before the host launches the second one, which saves nothing:
    // 95,100,000 less the 77 others' 841,269. In the second layer attention is launched 24,000 ns after
    // the norm, which takes 5,000: the host is the bound for 19,000, the cast's 2,000 among them. In
    // the other 76 they are left.
    let after = 95_100_000.0 - 64_777_713.0 + 19_000.0 + 152_000.0;
    assert_eq!(finding.saving.period_after_ns, Some(after));
    assert!(finding.headline.contains("float8_e4m3fn -> bfloat16"), "{}", finding.headline);
}

#[test]
fn every_layer_is_held_against_its_bound() {
    let analysis = analyze(&[pool_cast_run(6)], &Config::default());
    let model = ModelConfig::parse(GLM_5, Some(GLM_5_QUANT)).unwrap();
    let gap = gap_of(&analysis, &model, "RTX PRO 6000", &four_bits(), None).unwrap();
    let layers = &gap.layers;
    assert_eq!(layers.not_compared, None);
    assert_eq!(layers.rows.len(), 78);
    // A layer's matrices over eight ranks in 4.5 bits, two all-reduces of 10 us: attention
    // 165,019,648 x 0.5625 / 8 = 11,602,944 B; dense 226,492,416: 15,925,248 B; experts 9 x
    // 37,748,736: 23,887,872 B; router 1,572,864 x 2 / 8 = 393,216 B. At 1.792 TB/s:
    // (11,602,944 + 15,925,248) = 15,362 ns; (11,602,944 + 23,887,872 + 393,216) = 20,025 ns
    for (at, bound) in [(0, 35_362_i64), (2, 35_362), (3, 40_025), (77, 40_025)] {
        assert!((layers.rows[at].bound_ns - bound).abs() <= 6, "{at}: {:?}", layers.rows[at]);
    }
    // 841,269 + 2 x 5,000 + 40,000 + 120,000 + 2 x 42,300 + 50,000 in each
    assert!(layers.rows.iter().all(|layer| layer.ns_per_step == 1_145_869.0));
    // output head 951,582,720 x 2 / 8 / 1.792 TB/s
    assert!((layers.outside_bound_ns - 132_754).abs() <= 2, "{}", layers.outside_bound_ns);
    assert_eq!(layers.outside_ns_per_step, 300_000.0);
    assert!(gap.cautions[0].starts_with("idle time is an upper bound"));
}

#[test]
fn what_does_not_fit_is_said() {
    let analysis = analyze(&[pool_cast_run(3)], &Config::default());
    let model = ModelConfig::parse(GLM_5, Some(GLM_5_QUANT)).unwrap();
    let served = Deployment { batch: 4, tp: 4, ..four_bits() };
    let gap = gap_of(&analysis, &model, "H200", &served, Some(80_000_000.0)).unwrap();
    for expected in [
        "TPOT is shorter than the GPU's busy time",
        "the steps have batch size 1, the bound is for 4",
        "the trace is of 8 ranks, the bound is for 4",
        "the trace is from RTX PRO 6000 Blackwell, the bound is for H200 SXM",
    ] {
        assert!(gap.cautions.iter().any(|of| of.starts_with(expected)), "{:?}", gap.cautions);
    }
    let remainder = gap.rows.last().unwrap();
    assert_eq!(remainder.kind, GapKind::Remainder);
    // 80,000,000 - 89,677,782, two steps
    assert_eq!(remainder.unprofiled_total_ns, Some(-19_355_564));
    // Below what its GPU computes and copies, TPOT is of other steps.
    let gap = gap_of(&analysis, &model, "H200", &served, Some(40_000_000.0)).unwrap();
    assert_eq!(gap.unprofiled, None);
    assert!(gap.cautions[0].contains("it is not about these steps"), "{:?}", gap.cautions);
}

#[test]
fn layers_of_another_number_are_not_compared() {
    // 78 layers were found; a model of 6 is not theirs.
    let analysis = analyze(&[pool_cast_run(3)], &Config::default());
    let model = ModelConfig::parse(SMALL, None).unwrap();
    let gap = gap_of(&analysis, &model, "RTX PRO 6000", &Deployment::new(8, 1, 9), None).unwrap();
    let expected = "78 layers were found, and the model has 6";
    assert_eq!(gap.layers.not_compared.as_deref(), Some(expected));
}

#[test]
fn steps_of_an_unknown_kind_are_not_called_decode_steps() {
    let mut loops = TraceDsl::rank(0);
    for at in [0, 1000, 2000] {
        loops = loops.range("step", at..at + 900);
        loops = loops.launch_kernel("nvjet_a", at + 10..at + 20, at + 100..at + 500);
    }
    let analysis = support::run(loops.build());
    let model = ModelConfig::parse(SMALL, None).unwrap();
    let gap = gap_of(&analysis, &model, "H200", &Deployment::new(1, 1, 9), None).unwrap();
    assert_eq!(gap.kind, "step");
    let expected = "nothing says that the steps (step) are decode steps, which the bound is for";
    assert!(gap.cautions.iter().any(|of| of == expected), "{:?}", gap.cautions);
}

#[test]
fn tpot_of_another_load_corrects_nothing() {
    let analysis = analyze(&[pool_cast_run(3)], &Config::default());
    let model = ModelConfig::parse(GLM_5, Some(GLM_5_QUANT)).unwrap();
    let hardware = Hardware::built_in().unwrap();
    let of_four = Baseline { batch_size: Some(4), ..Baseline::given(94_700_000.0) };
    let inputs = GapInputs {
        model: &model,
        gpu: hardware.find("RTX PRO 6000").unwrap(),
        deployment: &four_bits(),
        measured: &Measured::default(),
        baseline: Some(&of_four),
        guesses: &["the context is a guess".to_owned()],
    };
    let gap = bound_gap(&analysis, inputs).unwrap();
    assert_eq!(gap.unprofiled, None);
    let why = "idle time is an upper bound: a profiler slows the host, and the TPOT without it says \
               nothing here: the steps have batch size 1, TPOT was measured at 4";
    assert_eq!(gap.cautions, [why, "the context is a guess"]);
}

#[test]
fn without_decode_steps_there_is_no_gap() {
    let model = ModelConfig::parse(SMALL, None).unwrap();
    let refuse = |trace| {
        let analysis = support::run(trace);
        let error = gap_of(&analysis, &model, "H200", &Deployment::new(1, 1, 1), None).unwrap_err();
        assert!(!error.hint().is_empty());
        error.to_string()
    };
    let kernels = TraceDsl::rank(0).launch_kernel("nvjet_a", 0..10, 100..200);
    assert_eq!(refuse(kernels.build()), "no complete step was found in the trace");
    let mut extend = TraceDsl::rank(0);
    for at in [0, 1000, 2000] {
        extend = extend.range("step[EXTEND bs=1 toks=9]", at..at + 900);
        extend = extend.launch_kernel("nvjet_a", at + 10..at + 20, at + 100..at + 500);
    }
    let expected = "the steps are of kind extend, and the bound is for decode steps";
    assert_eq!(refuse(extend.build()), expected);
    let host = TraceDsl::rank(0).range("step[DECODE bs=1]", 0..100).build();
    assert!(refuse(host).starts_with("the trace does not support a verdict: "));
}

/// The bound of the small model must not be above what its GPU needed.
fn check_captured(path: &Path, gpu: &str, batch: u64, tp: u32) {
    let import = import_path(path, &ImportOptions::default()).unwrap();
    let analysis = analyze(&import.traces, &Config::default());
    let model = ModelConfig::parse(SMALL, None).unwrap();
    let gap = gap_of(&analysis, &model, gpu, &Deployment::new(tp, batch, 512), None).unwrap();
    let shown = path.file_name().unwrap_or_default().to_string_lossy();
    eprintln!(
        "{shown}: bound {} ns, busy {:.0} ns per step, {:.2} times the bound",
        gap.bound_ns,
        gap.busy_ns_per_step,
        gap.busy_ns_per_step / gap.bound_ns as f64
    );
    assert!((gap.bound_ns as f64) < gap.busy_ns_per_step, "{shown}");
    let about_it =
        |of: &String| of.contains("the bound is above") || of.contains("the bound is for");
    assert!(!gap.cautions.iter().any(about_it), "{shown}: {:?}", gap.cautions);
    // Components whose work has kernels of its own: none may take less than its bound.
    for component in [Component::Experts, Component::DenseGemm, Component::Attention] {
        let of = gap.components.iter().find(|of| of.component == component).unwrap();
        assert!(of.times_bound.unwrap() > 1.0, "{shown}: {of:?}");
    }
    assert_eq!(gap.layers.rows.len(), 6, "{shown}");
    assert!(gap.layers.rows.iter().all(|layer| layer.times_bound > 1.0), "{shown}");
}

#[test]
fn captured_steps_take_longer_than_their_bound() {
    let fixtures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    for (name, batch, tp) in [
        ("sglang-h200/decode-eager-TP-0.trace.json.gz", 1, 1),
        ("sglang-h200/decode-eager-bs4-TP-0.trace.json.gz", 4, 1),
        ("sglang-h200/decode-graphs-TP-0.trace.json.gz", 1, 1),
        ("sglang-h200/stage-graphs-TP-0-DECODE.trace.json.gz", 1, 1),
        ("sglang-h200-tp2/eager", 1, 2),
        ("sglang-h200-tp2/graphs", 1, 2),
    ] {
        check_captured(&fixtures.join(name), "H200", batch, tp);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64, failure_persistence: None, ..ProptestConfig::default()
    })]

    /// Whatever bound a deployment gives, the rows add up: [`gap_of`] checks it.
    #[test]
    fn rows_add_up_for_any_deployment(
        bytes_per_s in 1e9..1e14_f64,
        all_reduce_ns in 0..1_000_000_i64,
        tp in prop_oneof![Just(1_u32), Just(2), Just(8)],
        batch in 1..512_u64,
        context in 0..200_000_u64,
        tpot_ns in proptest::option::of(1.0..1e9_f64),
        draft_tokens in proptest::option::of(1..4_u32),
    ) {
        let analysis = ANALYSIS.get_or_init(|| analyze(&[pool_cast_run(3)], &Config::default()));
        let model = ModelConfig::parse(GLM_5, Some(GLM_5_QUANT)).unwrap();
        let plan = |draft_tokens| Speculation { draft_tokens, accepted_tokens: 1.5 };
        let deployment = Deployment {
            memory_bytes_per_s: Some(bytes_per_s),
            all_reduce_ns: Some(all_reduce_ns),
            speculation: draft_tokens.map(plan),
            ..Deployment::new(tp, batch, context)
        };
        let gap = gap_of(analysis, &model, "RTX PRO 6000", &deployment, tpot_ns).unwrap();
        prop_assert_eq!(gap.rows[0].total_ns, 2 * gap.roofline.step_ns);
        let shares: i64 = gap.components.iter().map(|of| of.bound_ns).sum();
        prop_assert_eq!(shares, gap.bound_ns);
    }
}
