//! Before against after: exact numbers on hand-made pairs, and verdicts on real ones.

#![allow(clippy::unwrap_used)] // in the tests' own functions

mod support;

use std::path::Path;

use steptally_analyze::categories::Categories;
use steptally_analyze::diff::{DiffInput, DiffOptions, Gate, GateError, diff};
use steptally_analyze::results::{
    Agreement, Baseline, Bound, DecidedBy, Diff, Effect, Fate, PairedBy, Verdict,
};
use steptally_analyze::{Config, analyze};
use steptally_import::{ImportOptions, import_path};
use steptally_testkit::TraceDsl;

/// A kernel's name, duration and number of blocks.
type Work<'a> = (&'a str, i64, u32);

/// Marked decode steps of these periods on one GPU, from `at` on. Each begins with its mark;
/// launches are called 5 ns later, the kernels run back to back from 100 ns after the mark on. So the
/// idle time of a period ends with 95 ns of launch latency, and the rest is between steps.
fn decode(mark: &str, at: i64, periods: &[i64], work: &[Work<'_>]) -> TraceDsl {
    let mut dsl = TraceDsl::rank(0).gpu("NVIDIA H200");
    let (mut at, mut id) = (at, 0);
    for period in periods.iter().chain([&1_000_000_000]) {
        dsl = dsl.range(mark, at..at + 90);
        let mut start = at + 100;
        for &(name, duration, blocks) in work {
            id += 1;
            dsl = dsl
                .launch("cudaLaunchKernel", at + 5..at + 6, id)
                .kernel(name, start..start + duration)
                .correlation(id)
                .grid([blocks, 1, 1])
                .block([128, 1, 1]);
            start += duration;
        }
        at += period;
    }
    dsl
}

fn input(dsl: TraceDsl) -> DiffInput {
    support::run(dsl.build()).into()
}

fn steps(at: i64, periods: &[i64], work: &[Work<'_>]) -> DiffInput {
    input(decode("step[DECODE bs=1]", at, periods, work))
}

fn compare(a: &DiffInput, b: &DiffInput) -> Diff {
    diff(a, b, DiffOptions::default())
}

fn fixture(name: &str) -> DiffInput {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name);
    let import = import_path(&path, &ImportOptions::default()).unwrap();
    analyze(&import.traces, &Config::default()).into()
}

fn tpot(input: &DiffInput, ns: f64) -> DiffInput {
    input.clone().with_baseline(Some(Baseline::given(ns)))
}

/// The code of the first reason.
fn code(diff: &Diff) -> &str {
    &diff.reasons[0].code
}

#[test]
fn accounts_add_up_to_the_change_of_the_mean_period() {
    let a = steps(0, &[1000, 1000, 1001], &[("nvjet_a", 300, 4), ("rmsnorm", 100, 1)]);
    let work = [("nvjet_a", 300, 4), ("rmsnorm", 150, 1), ("argmax", 7, 1)];
    let b = steps(0, &[1100, 1100, 1100, 1101], &work);
    // Means 3001 / 3 and 4401 / 4: 1100.25 - 1000.33 = 99.92, so 100.
    // Between steps: A (505 + 505 + 506) / 3 = 505.33, B (3 x 548 + 549) / 4 = 548.25: 42.92. Rounded
    // down all are 50 + 7 + 42 = 99; the missing one goes to the only account with a remainder.
    let waterfall = compare(&a, &b).waterfall.unwrap();
    assert_eq!((waterfall.a_n, waterfall.b_n), (3, 4));
    assert_eq!((waterfall.a_sum_ns, waterfall.b_sum_ns, waterfall.change_ns), (3001, 4401, 100));
    let rows: Vec<_> = (waterfall.rows.iter())
        .map(|row| (row.account.as_str(), row.fate, row.a_total_ns, row.b_total_ns, row.change_ns))
        .collect();
    assert_eq!(
        rows,
        [
            ("norm", Fate::Changed, 300, 600, 50),
            ("idle.between_steps", Fate::Changed, 1516, 2193, 43),
            ("sampling", Fate::Appeared, 0, 28, 7),
            ("gemm.bf16", Fate::Same, 900, 1200, 0),
            ("idle.launch_latency", Fate::Same, 285, 380, 0),
        ]
    );
    let back = compare(&b, &a).waterfall.unwrap();
    assert_eq!(back.change_ns, -100);
    assert_eq!(back.rows.iter().map(|row| row.change_ns).sum::<i64>(), -100);
    assert_eq!(back.rows[2].fate, Fate::Vanished);
}

/// Two live servers, alike but for a cast of the whole KV pool: TPOT 3.01 and 1.45 ms, profiled
/// period 3.13 and 3.15 ms, GPU busy 3.03 and 0.52 ms.
fn live_servers() -> (DiffInput, DiffInput) {
    let slow = steps(0, &[3_130_000; 10], &[("nvjet_a", 3_030_000, 4)]);
    let fast = steps(0, &[3_150_000; 10], &[("nvjet_a", 520_000, 4)]);
    (slow, fast)
}

#[test]
fn periods_that_only_the_profilers_cost_makes_equal_are_not_neutral() {
    let (slow, fast) = live_servers();
    for (a, b) in [(&slow, &fast), (&fast, &slow)] {
        let diff = compare(a, b);
        let period = diff.period.as_ref().unwrap();
        assert_eq!((period.change_ns.abs(), period.effect), (20_000.0, Effect::Unchanged));
        assert_eq!((diff.verdict, code(&diff)), (Verdict::Inconclusive, "gpu_busy_differs"));
        assert_eq!(diff.decided_by, DecidedBy::Profile);
    }
    let diff = compare(&slow, &fast);
    assert_eq!(diff.a.bound, Some(Bound::Gpu));
    assert_eq!(diff.b.bound, Some(Bound::HostOrProfiler));
    let busy = diff.gpu_busy.unwrap();
    assert_eq!((busy.change_ns, busy.effect), (-2_510_000.0, Effect::Shorter));
}

#[test]
fn tpot_decides_when_both_sides_have_one() {
    let (slow, fast) = live_servers();
    let (slow, fast) = (tpot(&slow, 3_010_000.0), tpot(&fast, 1_450_000.0));
    let diff = compare(&slow, &fast);
    assert_eq!((diff.verdict, diff.decided_by), (Verdict::Improvement, DecidedBy::Tpot));
    assert_eq!(diff.tpot.as_ref().unwrap().change_ns, -1_560_000.0);
    assert_eq!(diff.a.bound, Some(Bound::Gpu));
    assert_eq!(diff.b.bound, Some(Bound::Profiler));
    assert_eq!(diff.b.dilation_ratio, Some(3_150_000.0 / 1_450_000.0));
    assert_eq!(compare(&fast, &slow).verdict, Verdict::Regression);
    // 2 % of 3.01 ms is 60.2 us.
    let same = compare(&slow, &tpot(&fast, 3_070_000.0));
    assert_eq!((same.verdict, same.decided_by), (Verdict::Neutral, DecidedBy::Tpot));
    // One TPOT alone decides nothing.
    let (_, bare) = live_servers();
    assert_eq!(compare(&slow, &bare).verdict, Verdict::Inconclusive);
}

#[test]
fn steps_that_the_gpu_bounds_are_compared_by_period() {
    let a = steps(0, &[1000; 6], &[("nvjet_a", 950, 4)]);
    let b = steps(0, &[1100; 6], &[("nvjet_a", 1000, 4)]);
    let regression = compare(&a, &b);
    assert_eq!((regression.verdict, code(&regression)), (Verdict::Regression, "period"));
    assert_eq!(regression.cautions, []);
    let period = regression.period.unwrap();
    assert_eq!((period.interval_ns, period.noise_floor_ns), (Some((100.0, 100.0)), 20.0));
    assert_eq!(compare(&b, &a).verdict, Verdict::Improvement);
    // The whole of B is shorter than A's GPU work alone: no profiler can explain that.
    let c = steps(0, &[900; 6], &[("nvjet_a", 300, 4)]);
    assert_eq!(code(&compare(&a, &c)), "period_beyond_profiler");
    assert_eq!(compare(&a, &c).verdict, Verdict::Improvement);
}

#[test]
fn equal_steps_are_neutral_and_small_changes_of_the_host_would_not_show() {
    let a = steps(0, &[1000; 6], &[("nvjet_a", 300, 4)]);
    let b = steps(7, &[1000; 6], &[("nvjet_a", 300, 4)]);
    let neutral = compare(&a, &b);
    assert_eq!((neutral.verdict, neutral.same_capture), (Verdict::Neutral, false));
    assert_eq!(neutral.cautions[0].code, "profiled_only");
    let busy = |at| steps(at, &[1000; 6], &[("nvjet_a", 950, 4)]);
    assert_eq!(compare(&busy(0), &busy(7)).cautions, []);
}

#[test]
fn the_same_capture_is_said_to_be() {
    let a = steps(0, &[1000, 3000], &[("nvjet_a", 300, 4)]);
    let same = compare(&a, &a.clone());
    assert_eq!((same.verdict, same.same_capture), (Verdict::Neutral, true));
    assert_eq!(code(&same), "same_capture");
}

#[test]
fn a_period_against_the_gpus_time_tells_nothing() {
    let a = steps(0, &[5000; 5], &[("nvjet_a", 3800, 4)]);
    let b = steps(0, &[5400; 5], &[("nvjet_a", 800, 4)]);
    let diff = compare(&a, &b);
    assert_eq!((diff.verdict, code(&diff)), (Verdict::Inconclusive, "gpu_busy_contradicts"));
}

#[test]
fn a_host_that_got_faster_is_an_improvement_of_unknown_size() {
    let a = steps(0, &[9000; 5], &[("nvjet_a", 300, 4)]);
    let b = steps(0, &[3000; 5], &[("nvjet_a", 301, 4)]);
    let diff = compare(&a, &b);
    assert_eq!((diff.verdict, code(&diff)), (Verdict::Improvement, "period"));
    assert_eq!(diff.cautions[0].code, "size_unknown");
}

#[test]
fn a_profiler_that_records_more_on_one_side_makes_equal_periods_suspect() {
    let a = steps(0, &[1000; 6], &[("nvjet_a", 300, 4)]);
    let mut dsl = decode("step[DECODE bs=1]", 0, &[1000; 6], &[("nvjet_a", 300, 4)]);
    for step in 0..6 {
        dsl = dsl.op("aten::mm", step * 1000 + 4..step * 1000 + 8, "");
    }
    // 3 events a step (mark, call, kernel) against 3 + 6/7.
    let diff = compare(&a, &input(dsl));
    assert_eq!((diff.verdict, code(&diff)), (Verdict::Inconclusive, "profiler_cost_differs"));
}

#[test]
fn noise_and_few_steps_are_inconclusive() {
    let noisy = [1000, 1300, 800, 1250, 900];
    let a = steps(0, &noisy, &[("nvjet_a", 300, 4)]);
    let b = steps(7, &noisy, &[("nvjet_a", 300, 4)]);
    let diff = compare(&a, &b);
    assert_eq!((diff.verdict, code(&diff)), (Verdict::Inconclusive, "noise"));
    let few = steps(7, &[1000, 1000], &[("nvjet_a", 300, 4)]);
    let diff = compare(&steps(0, &[1000; 6], &[("nvjet_a", 300, 4)]), &few);
    assert_eq!((diff.verdict, code(&diff)), (Verdict::Inconclusive, "few_steps"));
    assert_eq!(diff.period.unwrap().interval_ns, None);
}

#[test]
fn what_cannot_be_compared_gets_no_verdict_unless_forced() {
    let work = [("nvjet_a", 950, 4)];
    let a = steps(0, &[1000; 6], &work);
    let batch = input(decode("step[DECODE bs=8]", 0, &[2000; 6], &work));
    let extend = input(decode("step[EXTEND bs=1 toks=9]", 0, &[2000; 6], &work));
    let mut ranks = steps(0, &[2000; 6], &work);
    ranks.ranks.push(ranks.ranks[0].clone());
    let mut layers = (a.clone(), steps(0, &[2000; 6], &work));
    let count = |input: &mut DiffInput, n: u64| {
        input.layers = serde_json::from_str(&format!("{{\"count\":{n}}}")).unwrap();
    };
    count(&mut layers.0, 6);
    count(&mut layers.1, 8);
    let nothing = input(TraceDsl::rank(0).gpu("NVIDIA H200"));
    for (a, b, check) in [
        (&a, &batch, "batch_size"),
        (&a, &extend, "kind"),
        (&a, &ranks, "ranks"),
        (&layers.0, &layers.1, "layers"),
        (&a, &nothing, "kind"),
    ] {
        let refused = compare(a, b);
        assert_eq!((refused.verdict, code(&refused)), (Verdict::Inconclusive, "not_comparable"));
        let differs = refused.comparability.checks.iter().find(|one| one.code == check).unwrap();
        assert_eq!(differs.outcome, Agreement::Differs, "{check}");
        assert!(!refused.comparability.comparable && refused.comparability.score < 0.5);
        assert!(refused.reasons[0].text.contains(check), "{}", refused.reasons[0].text);
    }
    let forced = diff(&a, &batch, DiffOptions { force: true });
    assert_eq!(forced.verdict, Verdict::Regression);
    assert!(forced.cautions.iter().any(|caution| caution.code == "forced"));
    let forced = diff(&a, &nothing, DiffOptions { force: true });
    assert_eq!((forced.verdict, code(&forced)), (Verdict::Inconclusive, "no_steps"));
}

#[test]
fn another_gpu_or_other_names_alone_do_not_stop_the_comparison() {
    let a = steps(0, &[1000; 6], &[("nvjet_a", 950, 4)]);
    let mut b = steps(0, &[1100; 6], &[("nvjet_b", 1050, 4)]);
    b.ranks[0].gpu_name = Some("NVIDIA B200".into());
    let diff = compare(&a, &b);
    // 1 - 0.3 for the GPU - 0.1 for no kernel name in common.
    assert!((diff.comparability.score - 0.6).abs() < 1e-9, "{:?}", diff.comparability);
    assert_eq!(diff.verdict, Verdict::Regression);
}

#[test]
fn kernels_are_paired_by_name_and_then_by_role() {
    let a = steps(
        0,
        &[2000; 4],
        &[("nvjet_up", 300, 4), ("rmsnorm", 100, 1), ("nvjet_down", 200, 8), ("argmax", 10, 1)],
    );
    let b = steps(
        0,
        &[2000; 4],
        &[
            ("nvjet_up2", 290, 4),
            ("rmsnorm", 100, 2),
            ("nvjet_down2", 240, 8),
            ("fill_kernel", 9, 1),
        ],
    );
    let diff = compare(&a, &b);
    let rows: Vec<_> = (diff.kernels.iter())
        .map(|row| {
            let name = |of: &Option<steptally_analyze::results::KernelSide>| {
                of.as_ref().map_or(String::new(), |of| of.name.clone())
            };
            (name(&row.a), name(&row.b), row.paired_by, row.launch_changed, row.change_ns_per_step)
        })
        .collect();
    let row =
        |a: &str, b: &str, by, launch, change| (a.to_owned(), b.to_owned(), by, launch, change);
    assert_eq!(
        rows,
        [
            row("nvjet_down", "nvjet_down2", Some(PairedBy::Role), false, 40.0),
            row("argmax", "", None, false, -10.0),
            row("nvjet_up", "nvjet_up2", Some(PairedBy::Role), false, -10.0),
            row("", "fill_kernel", None, false, 9.0),
            row("rmsnorm", "rmsnorm", Some(PairedBy::Name), true, 0.0),
        ]
    );
    let fates: Vec<Fate> = diff.kernels.iter().map(|row| row.fate).collect();
    use Fate::{Appeared, Changed, Same, Vanished};
    assert_eq!(fates, [Changed, Vanished, Changed, Appeared, Same]);
}

#[test]
fn kernels_with_far_more_calls_are_not_the_same() {
    let a = steps(0, &[2000; 4], &[("nvjet_a", 300, 4)]);
    let b = steps(0, &[2000; 4], &[("nvjet_b", 150, 4), ("nvjet_b", 150, 4)]);
    let fates: Vec<Fate> = compare(&a, &b).kernels.iter().map(|row| row.fate).collect();
    assert_eq!(fates, [Fate::Vanished, Fate::Appeared]);
}

fn gate(diff: &Diff, text: &str) -> Result<(bool, Option<f64>), GateError> {
    let outcome = text.parse::<Gate>()?.evaluate(diff, &Categories::builtin())?;
    Ok((outcome.holds, outcome.value))
}

#[test]
fn gates_are_decided_on_medians_and_means() {
    let a = steps(0, &[1000; 4], &[("nvjet_a", 400, 4), ("rmsnorm", 100, 1)]);
    let work = [("nvjet_a", 400, 4), ("rmsnorm", 130, 1), ("argmax", 7, 1)];
    let b = steps(0, &[1050; 4], &work);
    let diff = compare(&tpot(&a, 800.0), &tpot(&b, 900.0));
    for (text, expected) in [
        ("period>+3%", (true, Some(0.05))),
        ("period>+5%", (false, Some(0.05))),
        ("period>=+5%", (true, Some(0.05))),
        ("period>1us", (true, Some(1050.0))),
        ("gpu_busy>+37ns", (false, Some(37.0))),
        ("gpu_busy>=+37ns", (true, Some(37.0))),
        ("tpot>+2%", (true, Some(0.125))),
        ("norm>+25%", (true, Some(0.3))),
        ("norm>0.2us", (false, Some(130.0))),
        // 405 between steps and 95 of latency in A, 418 and 95 in B.
        ("idle.between_steps<-10%", (false, Some(13.0 / 405.0))),
        ("idle>+12ns", (true, Some(13.0))),
        // Absent in A; absent on both sides.
        ("sampling>+3%", (true, None)),
        ("sampling>+5ns", (true, Some(7.0))),
        ("copy.cast>200us", (false, Some(0.0))),
        ("copy.cast>+3%", (false, Some(0.0))),
    ] {
        assert_eq!(gate(&diff, text), Ok(expected), "{text}");
    }
}

#[test]
fn gates_that_cannot_be_decided() {
    let a = steps(0, &[1000; 4], &[("nvjet_a", 400, 4)]);
    let diff = compare(&a, &tpot(&a, 700.0));
    let error = gate(&diff, "copy.csat>1us").unwrap_err();
    assert_eq!(error.to_string(), "`copy.csat>1us`: there is no account `copy.csat`");
    assert!(error.hint().contains("copy.cast"), "{}", error.hint());
    assert!(gate(&diff, "quux>1us").unwrap_err().hint().contains("steptally analyze"));
    let error = gate(&diff, "tpot>+2%").unwrap_err();
    assert_eq!(error.to_string(), "`tpot>+2%`: tpot of A is not known");
    assert!(error.hint().contains("--tpot-a"));
    assert_eq!(gate(&diff, "tpot>1us"), Ok((false, Some(700.0))));
    let nothing = input(TraceDsl::rank(0));
    let error = gate(&compare(&nothing, &nothing), "period>+2%").unwrap_err();
    assert_eq!(error.to_string(), "`period>+2%`: period of A and B is not known");
    assert!(error.hint().contains("steps on both sides"));
    let error = gate(&compare(&a, &nothing), "norm>2us").unwrap_err();
    assert!(matches!(error, GateError::NotKnown { side: "B", .. }), "{error}");
}

#[test]
fn the_pool_cast_and_its_fix() {
    // fixtures/README.md: periods 5.26 and 5.62 ms, busy 3.81 and 0.80 ms.
    let bad = fixture("torch-h200/pool-cast.trace.json.gz");
    let good = fixture("torch-h200/pool-cast-fixed.trace.json.gz");
    let diff = compare(&bad, &good);
    let (period, busy) = (diff.period.as_ref().unwrap(), diff.gpu_busy.as_ref().unwrap());
    let ms = |ns: f64| (ns / 1e4).round() / 100.0;
    assert_eq!([period.a_ns, period.b_ns, busy.a_ns, busy.b_ns].map(ms), [5.26, 5.62, 3.81, 0.8]);
    let (low, high) = period.interval_ns.unwrap();
    assert!(low < 0.0 && high > period.change_ns, "{period:?}");
    assert_eq!((period.effect, busy.effect), (Effect::Unclear, Effect::Shorter));
    assert_eq!((diff.verdict, code(&diff)), (Verdict::Inconclusive, "gpu_busy_differs"));
    let waterfall = diff.waterfall.unwrap();
    assert_eq!(
        waterfall.rows.iter().map(|row| row.change_ns).sum::<i64>(),
        waterfall.change_ns,
        "{waterfall:?}"
    );
    let cast = waterfall.rows.iter().find(|row| row.account == "copy.cast").unwrap();
    assert!(cast.change_ns < -2_900_000, "{cast:?}");

    let diff = compare(&tpot(&bad, 4.2e6), &tpot(&good, 2.75e6));
    assert_eq!((diff.verdict, diff.decided_by), (Verdict::Improvement, DecidedBy::Tpot));
}

#[test]
fn eager_against_graphs() {
    let eager = fixture("sglang-h200/decode-eager-TP-0.trace.json.gz");
    let graphs = fixture("sglang-h200/decode-graphs-TP-0.trace.json.gz");
    let diff = compare(&eager, &graphs);
    assert_eq!(diff.verdict, Verdict::Improvement, "{:?}", diff.reasons);
    // 21.2 to 2.39 ms.
    let period = diff.period.unwrap();
    assert!((period.change_ns + 18.77e6).abs() < 0.05e6, "{period:?}");
    assert!(period.interval_ns.unwrap().1 < -17e6, "{period:?}");
    assert_eq!(diff.cautions[0].code, "size_unknown");
    // The model is the same, so nearly all kernels are on both sides, as often.
    let paired = diff.kernels.iter().filter(|row| row.paired_by.is_some()).count();
    assert!(paired >= 30, "{paired} of {}", diff.kernels.len());
    let same = compare(&graphs, &graphs.clone());
    assert_eq!((same.verdict, same.same_capture), (Verdict::Neutral, true));
}

#[test]
fn the_pool_cast_and_its_fix_in_cuda_graphs() {
    // fixtures/README.md: periods 3.90 and 0.825 ms, busy 3.88 and 0.80 ms. The GPU is the bound of both.
    let bad = fixture("torch-h200/pool-cast-graph.trace.json.gz");
    let good = fixture("torch-h200/pool-cast-graph-fixed.trace.json.gz");
    let diff = compare(&bad, &good);
    let (period, busy) = (diff.period.as_ref().unwrap(), diff.gpu_busy.as_ref().unwrap());
    let ms = |ns: f64| (ns / 1e4).round() / 100.0;
    assert_eq!([period.a_ns, period.b_ns, busy.a_ns, busy.b_ns].map(ms), [3.9, 0.83, 3.88, 0.8]);
    let (low, high) = period.interval_ns.unwrap();
    assert!(low <= period.change_ns && period.change_ns <= high && high < -3_000_000.0);
    assert_eq!((period.effect, busy.effect), (Effect::Shorter, Effect::Shorter));
    assert_eq!((diff.verdict, diff.decided_by), (Verdict::Improvement, DecidedBy::Profile));
    // And back again.
    assert_eq!(compare(&good, &bad).verdict, Verdict::Regression);
}
