//! What is wrong, and what fixing it is worth.

use steptally_analyze::results::{
    Analysis, Evidence, Finding, ProfilerCost, ProfilerCostBasis, Saving, SavingMethod,
    UnprofiledSaving,
};

use super::style::{TerminalStyle, Tone, printable};
use super::title;
use super::units::{counted, duration};

/// Findings shown; JSON has them all.
const SHOWN: usize = 6;

pub(super) fn findings(analysis: &Analysis, style: &TerminalStyle) -> String {
    let all = &analysis.findings.findings;
    if all.is_empty() {
        return String::new();
    }
    let note = format!("{}, what a fix recovers most first", counted(all.len() as u64, "finding"));
    let mut out = title(style, "FINDINGS", &note);
    for finding in all.iter().take(SHOWN) {
        out.push_str(&one(finding, style));
    }
    if let Some(more) = all.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        out.push_str(&format!("  and {more} more; see --format json\n"));
    }
    let any_without = all.iter().any(|finding| finding.saving.unprofiled.is_some());
    if let Some(cost) = analysis.findings.profiler_cost.as_ref().filter(|_| any_without) {
        out.push_str(&format!("  {}\n", style.wrap(&printable(&profiler_cost(cost)), 2)));
    }
    if let Some(together) = &analysis.findings.combined {
        let text = format!("all that was simulated, fixed together: {}", worth(together));
        out.push_str(&format!("  {}\n", style.wrap(&text, 2)));
    }
    out
}

fn one(finding: &Finding, style: &TerminalStyle) -> String {
    let indent = 11;
    let code = style.paint(Tone::Warning, &format!("{:9}", finding.code));
    let mut out = format!("  {code}{}\n", style.wrap(&printable(&finding.headline), indent));
    let mut line = |text: String| {
        out.push_str(&format!("{:indent$}{}\n", "", style.wrap(&printable(&text), indent)));
    };
    if finding.saving.method != SavingMethod::None {
        line(format!("worth: {}", worth(&finding.saving)));
    }
    let numbers: Vec<String> = finding.evidence.iter().map(number).collect();
    line(format!("evidence: {}", numbers.join(", ")));
    line(format!("try: {}", finding.advice));
    out
}

fn worth(saving: &Saving) -> String {
    let mut parts = Vec::new();
    if saving.gpu_ns_per_step > 0.0 {
        parts.push(format!("{} of GPU time per step", duration(saving.gpu_ns_per_step)));
    }
    if let (Some(before), Some(after)) = (saving.period_before_ns, saving.period_after_ns) {
        let step = format!("{} -> {}", duration(before), duration(after));
        let unchanged = (before - after).abs() < 0.01 * before;
        parts.push(match saving.method {
            SavingMethod::Simulated if unchanged => {
                let bound = match saving.next_bound.as_deref() {
                    Some("host") => "the host",
                    _ => "something else",
                };
                format!("the profiled step stays at {}: {bound} is the bound", duration(before))
            }
            SavingMethod::Simulated => {
                let bound = saving.next_bound.as_deref().unwrap_or("?");
                format!("the profiled step becomes {step} (simulated; next bound: {bound})")
            }
            _ if unchanged => "no change of the period is claimed".to_owned(),
            _ => format!("the profiled step at best {step} (upper bound)"),
        });
    }
    let bounded = saving.method == SavingMethod::UpperBound;
    let claims = |without: &&UnprofiledSaving| {
        let saved = without.period_before_ns - without.period_after_ns;
        !bounded || saved >= 0.01 * without.period_before_ns
    };
    if let Some(without) = saving.unprofiled.as_ref().filter(claims) {
        let (before, after) = (without.period_before_ns, without.period_after_ns);
        let at_best = if bounded { "at best " } else { "" };
        // A bound that holds for any period has no uncertainty of its own.
        let uncertainty = match without.uncertainty_ns {
            0.0 => String::new(),
            ns => format!(" ± {}", duration(ns)),
        };
        parts.push(format!(
            "without the profiler {at_best}{} -> {} ({}{uncertainty} less)",
            duration(before),
            duration(after),
            duration((before - after).max(0.0)),
        ));
    }
    parts.join("; ")
}

/// What "without the profiler" rests on.
fn profiler_cost(cost: &ProfilerCost) -> String {
    let added = duration(cost.added_ns_per_step);
    let range =
        format!("{} to {}", duration(cost.least_ns_per_step), duration(cost.most_ns_per_step));
    match cost.basis {
        ProfilerCostBasis::Baseline if cost.added_ns_per_step < 0.0 => {
            "without the profiler: by the TPOT without it, the recorded steps took no longer"
                .to_owned()
        }
        ProfilerCostBasis::Baseline => format!(
            "without the profiler: it adds {added} to a step ({range}), by the TPOT without it"
        ),
        ProfilerCostBasis::EventCosts if cost.least_ns_per_step <= 0.0 => format!(
            "without the profiler: an estimate; recording likely adds {added} to a step ({range}), by what the \
             recorded events cost on {}, but eager steps vary by more than that from run to run, and may be longer \
             without it. Only TPOT without it tells",
            cost.source
        ),
        ProfilerCostBasis::EventCosts => format!(
            "without the profiler: an estimate; recording likely adds {added} to a step ({range}), by what the recorded events cost on {}. Measure TPOT without it to be sure",
            cost.source
        ),
    }
}

fn number(evidence: &Evidence) -> String {
    let value = evidence.value;
    let text = match evidence.unit.as_str() {
        "ns" => duration(value),
        "ratio" => format!("{:.0} %", value * 100.0),
        "bytes" => format!("{:.2} GB", value / 1e9),
        "bytes_per_s" => format!("{:.2} TB/s", value / 1e12),
        "per_step" => format!("{value:.1} per step"),
        _ => format!("{value:.0}"),
    };
    format!("{} {text}", evidence.what)
}
