//! Findings on this project's own captures: the planted cast, against the capture without it.

mod support;

use steptally_analyze::findings::all_rules;
use steptally_analyze::results::{Analysis, Finding, SavingMethod};
use support::fixture;

fn finding<'a>(analysis: &'a Analysis, code: &str) -> &'a Finding {
    analysis.findings.findings.iter().find(|f| f.code == code).expect("found")
}

#[test]
fn the_planted_cast_is_first_and_its_worth_is_what_the_fixed_capture_lacks() {
    let bad = fixture("torch-h200/pool-cast.trace.json.gz");
    let good = fixture("torch-h200/pool-cast-fixed.trace.json.gz");
    assert_eq!(bad.findings.findings[0].code, "KV001");
    let cast = finding(&bad, "KV001");
    assert_eq!(cast.saving.method, SavingMethod::Simulated);
    assert_eq!(cast.saving.simulation_error_ns, Some(0));

    // GPU time: what the fixed capture really lacks, per step, within 3 %. The fix itself casts the
    // gathered tokens; both captures have 10 steps.
    let busy = |analysis: &Analysis| analysis.devices[0].gpu_busy_ns as f64 / 10.0;
    let lacks = busy(&bad) - busy(&good);
    let predicted = cast.saving.gpu_ns_per_step;
    assert!((predicted / lacks - 1.0).abs() < 0.03, "predicted {predicted}, lacks {lacks}");

    // Period: the host is the bound, so it hardly moves; within 10 % of the fixed capture's.
    let after = cast.saving.period_after_ns.unwrap();
    let fixed = good.steps.period_ns.unwrap().median;
    assert!((after / fixed - 1.0).abs() < 0.10, "predicted {after}, fixed {fixed}");
    assert_eq!(cast.saving.next_bound.as_deref(), Some("host"));
    assert!(!good.findings.findings.iter().any(|f| f.code == "KV001"));
}

/// Inside CUDA graphs: no operator, no shapes, and small casts by the same kernel.
#[test]
fn the_planted_cast_is_found_in_graph_replays_and_the_fixed_period_is_foretold() {
    let bad = fixture("torch-h200/pool-cast-graph.trace.json.gz");
    let good = fixture("torch-h200/pool-cast-graph-fixed.trace.json.gz");
    assert_eq!(bad.findings.findings[0].code, "KV001");
    let cast = finding(&bad, "KV001");
    assert_eq!(cast.saving.method, SavingMethod::Simulated);
    // Two for each of eight layers: keys and values.
    let calls = cast.evidence.iter().find(|evidence| evidence.unit == "per_step").unwrap();
    assert_eq!(calls.value, 16.0);
    let after = cast.saving.period_after_ns.unwrap();
    let fixed = good.steps.period_ns.unwrap().median;
    assert!((after / fixed - 1.0).abs() < 0.10, "predicted {after}, fixed {fixed}");
    assert_eq!(cast.saving.next_bound.as_deref(), Some("gpu"));
    assert!(!good.findings.findings.iter().any(|f| f.code == "KV001"));
}

#[test]
fn an_unchanged_replay_gives_the_captured_periods_of_every_capture_with_a_saving() {
    for name in ["torch-h200/pool-cast.trace.json.gz", "torch-h200/pool-cast-fixed.trace.json.gz"] {
        for finding in fixture(name).findings.findings {
            if finding.saving.method == SavingMethod::Simulated {
                assert_eq!(finding.saving.simulation_error_ns, Some(0), "{name} {}", finding.code);
            }
        }
    }
}

#[test]
fn every_rule_has_a_unique_code_and_a_whole_doc() {
    let mut codes: Vec<&str> = all_rules().iter().map(|rule| rule.code).collect();
    assert!(codes.is_sorted());
    codes.dedup();
    assert_eq!(codes.len(), all_rules().len());
    for rule in all_rules() {
        for part in ["## What it is", "## Why it costs", "## How it is found", "## What to do"] {
            assert!(rule.doc.contains(part), "{} lacks {part}", rule.code);
        }
    }
}
