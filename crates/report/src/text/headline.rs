//! The first lines: how long a step takes, where most of it goes, and how sure that is.

use steptally_analyze::results::{
    Account, AccountGroup, Analysis, CheckStatus, Confidence, Dilation, Distribution, LedgerScope,
    Refusal, Selected,
};

use super::style::{TerminalStyle, Tone, printable};
use super::units::{counted, duration, percent_rough, three_digits};
use crate::{Report, Severity};

/// Accounts that a reader should know first.
const TOP_ACCOUNTS: usize = 3;

/// From this share of the period on, what the profiler adds on the host decides the result.
const MOSTLY_IDLE: f64 = 0.5;

/// From here on a step under the profiler is another than one without.
const DILATED: f64 = 1.1;

pub(super) fn headline(report: &Report, style: &TerminalStyle) -> String {
    let analysis = &report.analysis;
    if let Some(refusal) = &analysis.quality.refused {
        return refused(refusal, style);
    }
    let mut out = match (&analysis.steps.period_ns, &analysis.steps.selected) {
        (Some(period), Some(selected)) if analysis.ledger.scope == LedgerScope::Steps => {
            verdict(analysis, period, selected, style)
        }
        _ => no_steps(analysis, style),
    };
    out.push_str(&top_accounts(analysis, style));
    out.push_str(&how_sure(report, style));
    out.push_str(&dilation(analysis, style));
    out
}

fn refused(refusal: &Refusal, style: &TerminalStyle) -> String {
    let label = "NO VERDICT";
    format!(
        "{}  {}\n{}  {}\n",
        style.paint(Tone::Alarm, label),
        style.wrap(&printable(&refusal.reason), label.len() + 2),
        style.paint(Tone::Strong, "hint:"),
        style.wrap(&printable(&refusal.hint), 7),
    )
}

fn verdict(
    analysis: &Analysis,
    period: &Distribution,
    selected: &Selected,
    style: &TerminalStyle,
) -> String {
    let step = match selected.kind.as_str() {
        kind @ ("extend" | "idle") => format!("An {kind} step"),
        kind @ ("decode" | "mixed" | "verify" | "draft") => format!("A {kind} step"),
        kind if kind.ends_with("step") => format!("A {}", printable(&kind.replace('_', " "))),
        other => format!("A step \"{}\"", printable(other)),
    };
    let mut text = format!("{step} takes {}", duration(period.median));
    if period.n > 1 {
        // Accounts are means: where the mean is another, say so.
        let apart = (period.mean / period.median.max(1.0) - 1.0).abs() > 0.05;
        let mean = if apart { format!("mean {}, ", duration(period.mean)) } else { String::new() };
        text.push_str(&format!(
            " (median of {}; {mean}p90 {})",
            counted(period.n, "step"),
            duration(period.p90)
        ));
    } else {
        text.push_str(" (a single step)");
    }
    if selected.kind == "decode"
        && let Some(batch) = selected.batch_size.filter(|batch| *batch > 0)
        && period.median > 0.0
    {
        let rate = batch as f64 * 1e9 / period.median;
        text.push_str(&format!(": {} tokens/s at batch size {batch}", three_digits(rate)));
    }
    let mostly_idle = group_ratio(&analysis.ledger.accounts, AccountGroup::Idle);
    text.push_str(match (analysis.dilation, mostly_idle) {
        (None, Some(idle)) if idle > 0.5 && is_slowed(analysis) => {
            ", as profiled; without the profiler likely faster."
        }
        (None, Some(idle)) if idle > 0.5 => ", as profiled; without the profiler it may differ.",
        _ => ", as profiled.",
    });
    let mut out = style.paint(Tone::Strong, &style.wrap(&text, 0));
    out.push('\n');
    if let Some(dilation) = &analysis.dilation {
        out.push_str(&style.paint(Tone::Strong, &style.wrap(&without_profiler(dilation), 0)));
        out.push('\n');
    }
    out.push_str(&style.wrap(&shares(&analysis.ledger.accounts, "of the step"), 0));
    out.push('\n');
    out
}

fn no_steps(analysis: &Analysis, style: &TerminalStyle) -> String {
    let text = match analysis.ledger.scope {
        LedgerScope::Empty => "No GPU work to account for.".to_owned(),
        _ => format!(
            "{}: what follows is about the whole window of GPU work ({}), not about a step.",
            if analysis.steps.kinds.is_empty() { "No steps" } else { "No complete step" },
            duration(mean_window(analysis)),
        ),
    };
    let mut out = style.paint(Tone::Strong, &style.wrap(&text, 0));
    out.push('\n');
    if analysis.ledger.scope != LedgerScope::Empty {
        out.push_str(&style.wrap(&shares(&analysis.ledger.accounts, "of the window"), 0));
        out.push('\n');
    }
    out
}

/// Mean length of a window (or step) of the ledger.
pub(super) fn mean_window(analysis: &Analysis) -> f64 {
    analysis.ledger.accounts.iter().map(|account| account.ns_per_step).sum()
}

/// `GPU: compute 20 %, copies 1 %, idle 79 % of the step.`
fn shares(accounts: &[Account], of_what: &str) -> String {
    let groups = [
        (AccountGroup::Compute, "compute"),
        (AccountGroup::Communication, "communication"),
        (AccountGroup::Memory, "copies"),
        (AccountGroup::OpaqueGraph, "graph replays of unknown content"),
        (AccountGroup::Idle, "idle"),
    ];
    let shown: Vec<String> = groups
        .into_iter()
        .filter_map(|(group, name)| {
            let share = group_ratio(accounts, group)?;
            Some(format!("{name} {}", percent_rough(share)))
        })
        .collect();
    format!("The GPU: {} {of_what}.", shown.join(", "))
}

/// Share of all accounts of a group; `None` when it has none.
fn group_ratio(accounts: &[Account], group: AccountGroup) -> Option<f64> {
    let mut ratios =
        accounts.iter().filter(|account| account.group == group).map(|account| account.ratio);
    let first = ratios.next()?;
    Some(ratios.fold(first, |sum, ratio| sum + ratio))
}

/// The largest accounts with what they mean.
fn top_accounts(analysis: &Analysis, style: &TerminalStyle) -> String {
    let top: Vec<&Account> = analysis
        .ledger
        .accounts
        .iter()
        .filter(|account| account.ratio >= 0.005)
        .take(TOP_ACCOUNTS)
        .collect();
    let widest = top.iter().map(|account| account.account.chars().count()).max().unwrap_or(0);
    let lines: Vec<(String, String)> = top
        .iter()
        .map(|account| {
            let start = format!(
                "  {:>5}  {:>7}  {:widest$}  ",
                percent_rough(account.ratio),
                duration(account.ns_per_step),
                printable(&account.account),
            );
            (start, printable(&format!("{}{}", account.meaning, rank_spread(account))))
        })
        .collect();
    // Meanings stand beside their accounts where there is room for all of them, else below.
    let beside = lines.iter().all(|(start, meaning)| {
        let indent = start.chars().count();
        indent + meaning.chars().count().min(60) <= style.columns()
    });
    let mut out = String::new();
    for (start, meaning) in lines {
        if beside {
            let indent = start.chars().count();
            out.push_str(&format!("{start}{}\n", style.wrap(&meaning, indent)));
        } else {
            out.push_str(&format!("{}\n         {}\n", start.trim_end(), style.wrap(&meaning, 9)));
        }
    }
    out
}

/// How far the ranks are apart, where that changes what the mean says.
fn rank_spread(account: &Account) -> String {
    match account.rank_range_ns {
        Some((least, most)) if most > 2.0 * least => {
            format!(" ({} to {} by rank)", duration(least), duration(most))
        }
        _ => String::new(),
    }
}

/// How the steps were found, how many there are, and the grade.
fn how_sure(report: &Report, style: &TerminalStyle) -> String {
    let analysis = &report.analysis;
    let steps = &analysis.steps;
    let kinds: Vec<String> =
        steps.kinds.iter().map(|(kind, n)| format!("{} {n}", printable(kind))).collect();
    let mut found = sentence(&steps.explanation);
    if !kinds.is_empty() {
        found.push_str(&format!(" Found: {}", kinds.join(", ")));
        for (why, n) in [
            ("cut off by the window", steps.cut_count),
            ("waiting for a rank whose recording began later", steps.window_start_count),
            ("over 3 times the median", steps.outlier_count),
        ] {
            if n > 0 {
                found.push_str(&format!("; left out, {why}: {n}"));
            }
        }
        found.push('.');
    }
    let by = match steps.confidence {
        Confidence::None => String::new(),
        _ => {
            let confidence = format!("{:?}", steps.confidence).to_lowercase();
            format!("{}, confidence {confidence}. ", printable(&steps.detected_by))
        }
    };
    let warnings =
        analysis.quality.checks.iter().filter(|check| check.status == CheckStatus::Warn).count();
    let damage = report.input.issues.iter().any(|issue| issue.severity > Severity::Info);
    let quality = match warnings {
        0 if damage => format!("{:?}; the input has defects: see INPUT.", analysis.quality.grade),
        0 => format!("{:?}, no warnings.", analysis.quality.grade),
        n => format!(
            "{:?}, {} about the numbers: see QUALITY.",
            analysis.quality.grade,
            counted(n as u64, "warning")
        ),
    };
    format!(
        "{}  {}\n{}  {}\n",
        style.paint(Tone::Strong, "steps  "),
        style.wrap(&format!("{by}{found}"), 9),
        style.paint(Tone::Strong, "quality"),
        style.wrap(&quality, 9)
    )
}

/// `text` with a full stop.
fn sentence(text: &str) -> String {
    let text = printable(text.trim());
    if text.is_empty() || text.ends_with('.') { text } else { format!("{text}.") }
}

/// The true step, and what of the profiled one is the profiler's doing.
fn without_profiler(dilation: &Dilation) -> String {
    let mut text = format!("Without the profiler it takes {} (TPOT)", duration(dilation.tpot_ns));
    if let Some(rate) = dilation.tokens_per_s {
        text.push_str(&format!(", {} tokens/s", three_digits(rate)));
    }
    if let (Some(busy), Some(idle)) = (dilation.gpu_busy_ns, dilation.idle_ns) {
        text.push_str(&format!(
            ", of which the GPU is busy {} and idle {}",
            duration(busy.min(dilation.tpot_ns)),
            duration(idle)
        ));
    }
    let advice = if dilation.ratio > DILATED {
        "idle time below is stretched by that, GPU times are not"
    } else {
        "idle time below can be taken as it is"
    };
    text.push_str(&format!(
        ". The profiler makes it {} times as long: {advice}.",
        three_digits(dilation.ratio)
    ));
    text
}

/// Whether what recording adds at least is known to be something. Eager steps vary by more from
/// request to request.
fn is_slowed(analysis: &Analysis) -> bool {
    analysis.findings.profiler_cost.as_ref().is_some_and(|cost| cost.least_ns_per_step > 0.0)
}

/// The warning that a profiler stretches what the host does, where nobody measured by how much.
fn dilation(analysis: &Analysis, style: &TerminalStyle) -> String {
    let idle = group_ratio(&analysis.ledger.accounts, AccountGroup::Idle).unwrap_or(0.0);
    let is_known = analysis.dilation.is_some();
    if analysis.ledger.scope != LedgerScope::Steps || idle <= MOSTLY_IDLE || is_known {
        return String::new();
    }
    let label = "CAUTION";
    let text = if is_slowed(analysis) {
        "most of the step is idle, and a profiler slows the host: without it the idle time and the \
         period are shorter, by up to a few times. Take idle as an upper bound, GPU times as they \
         are, and measure TPOT without the profiler before acting on idle."
    } else {
        "most of the step is idle, and a profiler slows the host: without it the idle time and the \
         period may be shorter, by up to a few times, or hardly differ. Take GPU times as they are, \
         and measure TPOT without the profiler before acting on idle."
    };
    format!("{}  {}\n", style.paint(Tone::Warning, label), style.wrap(text, label.len() + 2))
}
