//! Diffs as text: for the terminal, and as GitHub-flavoured Markdown.

mod markdown;
mod terminal;

pub use markdown::diff_markdown;
pub use terminal::diff_text;

use steptally_analyze::results::{
    Agreement, Bound, Change, DecidedBy, Diff, DiffSide, Fate, GateOutcome, KernelDiff, KernelSide,
    PairedBy, Verdict,
};

use super::units::{counted, duration, percent};
use crate::short_kernel_name;

/// Accounts whose change is below this share of the largest are added up, after the first `top`.
const SMALL: f64 = 0.01;

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Regression => "regression",
        Verdict::Improvement => "improvement",
        Verdict::Neutral => "neutral",
        Verdict::Inconclusive => "inconclusive",
    }
}

/// What the verdict rests on, with its figure: `TPOT 3.01 ms -> 1.45 ms (-51.8 %)`.
fn deciding(diff: &Diff) -> Option<String> {
    let (name, change) = match diff.decided_by {
        DecidedBy::Tpot => ("TPOT", diff.tpot.as_ref()?),
        DecidedBy::Profile => ("profiled period", diff.period.as_ref()?),
        DecidedBy::Nothing => return None,
    };
    let (a, b) = (duration(change.a_ns), duration(change.b_ns));
    Some(format!("{name} {a} -> {b} ({})", relative(change)))
}

/// The measures as rows: name, A, B, change, interval, noise floor.
fn measures(diff: &Diff) -> Vec<[String; 6]> {
    let rows = [
        ("TPOT, unprofiled", &diff.tpot),
        ("period, profiled", &diff.period),
        ("GPU busy", &diff.gpu_busy),
    ];
    let row = |name: &str, change: &Change| {
        let interval = change.interval_ns.map_or_else(
            || "-".to_owned(),
            |(low, high)| format!("{} .. {}", signed(low), signed(high)),
        );
        [
            name.to_owned(),
            duration(change.a_ns),
            duration(change.b_ns),
            format!("{} ({})", signed(change.change_ns), relative(change)),
            interval,
            format!("+-{}", duration(change.noise_floor_ns)),
        ]
    };
    rows.iter().filter_map(|(name, change)| Some(row(name, change.as_ref()?))).collect()
}

fn relative(change: &Change) -> String {
    change.change_ratio.map_or_else(|| "from 0".to_owned(), signed_percent)
}

fn signed_percent(ratio: f64) -> String {
    format!("{}{}", sign(ratio), percent(ratio.abs()))
}

/// A length of time with its sign: `+359 us`.
fn signed(ns: f64) -> String {
    format!("{}{}", sign(ns), duration(ns.abs()))
}

fn sign(value: f64) -> &'static str {
    match value {
        x if x > 0.0 => "+",
        x if x < 0.0 => "-",
        _ => "",
    }
}

/// `GPU (busy 97 % of the step)`.
fn bound(side: &DiffSide) -> String {
    let name = match side.bound {
        None => return "unknown: no steps".to_owned(),
        Some(Bound::Gpu) => "the GPU",
        Some(Bound::Host) => "the host",
        Some(Bound::Profiler) => "the host, slowed by the profiler",
        Some(Bound::HostOrProfiler) => "the host or the profiler on it (no TPOT tells which)",
        Some(Bound::Other) => "neither GPU nor host",
    };
    let busy = side.busy_ratio.map(|ratio| format!("GPU busy {} of the period", percent(ratio)));
    let dilated = side.dilation_ratio.map(|ratio| format!("the period is {ratio:.2} times TPOT"));
    let facts: Vec<String> = busy.into_iter().chain(dilated).collect();
    if facts.is_empty() { name.to_owned() } else { format!("{name}; {}", facts.join(", ")) }
}

/// One side in short: `9 step steps, 1 rank, NVIDIA H200`.
fn side(side: &DiffSide) -> String {
    let kind = side.kind.as_deref().unwrap_or("");
    let noun = match kind {
        "" => "window".to_owned(),
        kind if kind.ends_with("step") => kind.to_owned(),
        kind => format!("{kind} step"),
    };
    let mut parts = vec![counted(side.n, &noun)];
    parts.extend(side.batch_size.map(|batch| format!("batch size {batch}")));
    parts.push(counted(side.rank_count, "rank"));
    if !side.gpu_names.is_empty() {
        parts.push(side.gpu_names.join(", "));
    }
    parts.extend(side.layer_count.map(|count| counted(count, "layer")));
    parts.push(format!("quality {:?}", side.grade));
    parts.join(", ")
}

/// What differs, what is unknown, and the score.
fn comparability(diff: &Diff) -> Vec<String> {
    let of = &diff.comparability;
    let listed = |outcome: Agreement| {
        of.checks.iter().filter(move |check| check.outcome == outcome).map(|check| &check.code)
    };
    let mut lines = vec![format!(
        "score {:.2} of 1, {} is needed{}",
        of.score,
        of.threshold,
        if of.forced && !of.comparable { "; forced" } else { "" }
    )];
    for check in of.checks.iter().filter(|check| check.outcome == Agreement::Differs) {
        let shared = check
            .shared_ratio
            .map_or_else(String::new, |ratio| format!(", {} in common", percent(ratio)));
        lines.push(format!(
            "differs: {}: {} against {}{shared} (-{:.1})",
            check.code, check.a, check.b, check.penalty
        ));
    }
    let join = |outcome| listed(outcome).cloned().collect::<Vec<_>>().join(", ");
    let (same, unknown) = (join(Agreement::Same), join(Agreement::Unknown));
    if !same.is_empty() {
        lines.push(format!("alike: {same}"));
    }
    if !unknown.is_empty() {
        lines.push(format!("not known on both sides: {unknown}"));
    }
    lines
}

fn fate(fate: Fate) -> &'static str {
    match fate {
        Fate::Appeared => "appeared",
        Fate::Vanished => "vanished",
        Fate::Changed => "changed",
        Fate::Same => "",
    }
}

/// `changed, renamed, other grid (4) -> (8)`.
fn kernel_fate(row: &KernelDiff) -> String {
    let mut parts = vec![fate(row.fate).to_owned()];
    if let (Some(a), Some(b)) = (&row.a, &row.b) {
        if row.paired_by == Some(PairedBy::Role) {
            parts.push(format!("was {}", short_kernel_name(&a.name)));
        }
        if row.launch_changed {
            parts.push(format!("launch {} -> {}", launch(a), launch(b)));
        }
    }
    parts.retain(|part| !part.is_empty());
    parts.join(", ")
}

fn launch(side: &KernelSide) -> String {
    let (Some(grid), Some(block)) = (side.grid, side.block) else {
        return "?".to_owned();
    };
    format!("{}x{}", super::work::extent(grid), super::work::extent(block))
}

/// Kernels worth listing: those that changed, and those with another launch or name.
fn changed_kernels(diff: &Diff) -> Vec<&KernelDiff> {
    let differs = |row: &&KernelDiff| {
        row.fate != Fate::Same || row.launch_changed || row.paired_by == Some(PairedBy::Role)
    };
    diff.kernels.iter().filter(differs).collect()
}

/// `period>+3%: FAILED, +6.8 % (5.26 ms -> 5.62 ms)`.
#[must_use]
pub fn gate_line(gate: &GateOutcome) -> String {
    let measured = match gate.value {
        None => "from nothing".to_owned(),
        Some(value) if gate.relative => signed_percent(value),
        Some(value) => duration(value),
    };
    let before = gate.a_ns.map_or_else(|| "?".to_owned(), duration);
    let outcome = if gate.holds { "FAILED" } else { "passed" };
    format!("{}: {outcome}, {measured} ({before} -> {})", gate.gate, duration(gate.b_ns))
}
