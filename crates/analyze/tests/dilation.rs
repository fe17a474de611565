//! Steps under a profiler against the time per token without one.

#![allow(clippy::unwrap_used)]

mod support;

use steptally_analyze::results::{Analysis, Baseline, CheckStatus, Dilation};
use steptally_analyze::{Config, analyze};
use steptally_testkit::TraceDsl;

/// Steps of 1000 ns, each with one kernel of 400 ns.
fn analysis(mark: &str, baseline: Option<Baseline>) -> Analysis {
    let mut dsl = TraceDsl::rank(0);
    for step in 0..6 {
        let at = step * 1000;
        dsl = dsl
            .range(mark, at..at + 500)
            .launch("cudaLaunchKernel", at + 10..at + 20, step as u64)
            .kernel("nvjet_a", at + 100..at + 500)
            .correlation(step as u64);
    }
    analyze(&[dsl.build()], &Config { baseline, ..Config::default() })
}

fn baseline(tpot_ns: f64, batch_size: u32) -> Option<Baseline> {
    Some(Baseline { batch_size: Some(batch_size), ..Baseline::given(tpot_ns) })
}

/// Status and effect of the check.
fn check(analysis: &Analysis) -> (CheckStatus, &str) {
    let checks = &analysis.quality.checks;
    let check = checks.iter().find(|check| check.code == "profiler_dilation").unwrap();
    (check.status, &check.effect)
}

#[test]
fn busy_time_stays_and_idle_time_is_what_is_left_of_tpot() {
    // 1000 ns against 500: twice as long, 500 added. Without: 400 busy, 500 - 400 = 100 idle, not 600.
    // 2 tokens in 500 ns: 4 million a second.
    let analysis = analysis("step[DECODE bs=2]", baseline(500.0, 2));
    let expected = Dilation {
        period_ns: 1000.0,
        tpot_ns: 500.0,
        ratio: 2.0,
        added_ns: 500.0,
        gpu_busy_ns: Some(400.0),
        idle_ns: Some(100.0),
        tokens_per_s: Some(4e6),
    };
    assert_eq!(analysis.dilation, Some(expected));
    let (status, effect) = check(&analysis);
    assert_eq!(status, CheckStatus::Note);
    assert!(effect.contains("2.00 times"), "{effect}");
}

#[test]
fn a_step_that_is_hardly_longer_needs_no_note() {
    // 1000 / 950 = 1.05.
    let analysis = analysis("step[DECODE bs=1]", baseline(950.0, 1));
    assert_eq!(check(&analysis).0, CheckStatus::Pass);
    assert_eq!(analysis.dilation.unwrap().added_ns, 50.0);
}

#[test]
fn tpot_hardly_below_the_busy_time_leaves_no_idle_time() {
    // 400 ns busy; another run may differ by 10 %.
    let analysis = analysis("step[DECODE bs=1]", baseline(390.0, 1));
    assert_eq!(analysis.dilation.unwrap().idle_ns, Some(0.0));
}

#[test]
fn a_tpot_that_is_not_about_these_steps_is_not_used() {
    let refused = |mark: &str, baseline: Option<Baseline>, words: &str| {
        let analysis = analysis(mark, baseline);
        assert_eq!(analysis.dilation, None, "{words}");
        let (status, effect) = check(&analysis);
        assert_eq!(status, CheckStatus::Note, "{words}");
        assert!(effect.contains(words), "{effect}");
    };
    refused("step[DECODE bs=4]", baseline(500.0, 1), "batch size 4, TPOT was measured at 1");
    refused("step[EXTEND bs=1 toks=8]", baseline(500.0, 1), "not extend steps");
    let speculative =
        Some(Baseline { speculative: Some("EAGLE".to_owned()), ..Baseline::given(500.0) });
    refused("step[DECODE bs=1]", speculative, "with speculation (EAGLE)");
    refused("step[DECODE bs=1]", baseline(0.0, 1), "is zero");
    // 400 ns busy / 300; 1000 ns / 4000.
    refused("step[DECODE bs=1]", baseline(300.0, 1), "copies in one for 1.33 times as long");
    refused("step[DECODE bs=1]", baseline(4000.0, 1), "they take 0.250 of it");
    refused("step[DECODE bs=1]", None, "60 % of the period is idle");
}
