//! What is wrong, and what fixing it is worth.

use steptally_analyze::results::{Analysis, Evidence, Finding, Saving, SavingMethod};

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
    parts.join("; ")
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
