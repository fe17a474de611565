//! The ledger as a table: every account, what the host did under the idle ones, and the sum.

use steptally_analyze::results::{Account, Analysis, HostActivity, Ledger, LedgerScope};

use super::headline::mean_window;
use super::style::{TerminalStyle, Tone, printable};
use super::table::{Fit, Table};
use super::title;
use super::units::{TimeUnit, count, counted, percent};

/// Accounts from this share on are always shown.
const SMALL: f64 = 0.01;

/// So many accounts are shown whatever their share.
const LEAST_ROWS: usize = 12;

/// Activities of the host that are listed under an idle account.
const TOP_ACTIVITIES: usize = 4;

/// Activities below this share of their account are not listed.
const SMALL_ACTIVITY: f64 = 0.02;

const BAR_WIDTH: f64 = 24.0;

pub(super) fn ledger(analysis: &Analysis, style: &TerminalStyle) -> String {
    let ledger = &analysis.ledger;
    if ledger.scope == LedgerScope::Empty || ledger.accounts.is_empty() {
        return String::new();
    }
    let period = mean_window(analysis);
    let unit = TimeUnit::for_largest(period);
    let mut out = heading(analysis, style);
    let ranks = ledger.accounts.iter().any(|account| account.rank_range_ns.is_some());
    let mut table = Table::default()
        .column("account", Fit::Flexible(24))
        .column(per_step(ledger, unit), Fit::Number)
        .column("share", Fit::Number);
    if ledger.n > 1 {
        table = table.column("p90", Fit::Number);
    }
    if ranks {
        table = table.column("rank min..max", Fit::Number);
    }
    if style.bars {
        table = table.column("", Fit::Text);
    }
    let optional = |row: &mut Vec<String>, p90: String, range: String, bar: String| {
        row.extend((ledger.n > 1).then_some(p90));
        row.extend(ranks.then_some(range));
        row.extend(style.bars.then_some(bar));
    };

    let (rows, small) = fold_small(&ledger.accounts, style.top);
    let small_ns: f64 = small.iter().map(|account| account.ns_per_step).sum();
    let mut parts: Vec<f64> = rows.iter().map(|account| account.ns_per_step).collect();
    parts.extend((!small.is_empty()).then_some(small_ns));
    let mut times = unit.format_parts(&parts).into_iter();
    for account in rows {
        let mut row = vec![
            printable(&account.account),
            times.next().unwrap_or_default(),
            percent(account.ratio),
        ];
        let range = account.rank_range_ns.map_or_else(String::new, |(least, most)| {
            format!("{}..{}", unit.format(least), unit.format(most))
        });
        optional(&mut row, unit.format(account.per_step_ns.p90), range, bar(account.ratio));
        table.row(Tone::Plain, row);
        for (name, ns) in activities(ledger, account) {
            let cells = vec![format!("  host: {name}"), format!("({})", unit.format(ns))];
            table.row(Tone::Faint, cells);
        }
    }
    if !small.is_empty() {
        let ratio = small.iter().map(|account| account.ratio).sum();
        let name = format!("{} more accounts (--top N)", small.len());
        table.row(Tone::Plain, vec![name, times.next().unwrap_or_default(), percent(ratio)]);
    }
    table.row(Tone::Strong, vec!["sum".into(), unit.format(period), percent(1.0)]);
    out.push_str(&table.render(style));
    out.push_str(&foot(ledger, unit, style));
    out
}

fn per_step(ledger: &Ledger, unit: TimeUnit) -> String {
    let per = if ledger.scope == LedgerScope::Steps { "step" } else { "window" };
    format!("{}/{per}", unit.name)
}

fn heading(analysis: &Analysis, style: &TerminalStyle) -> String {
    let ledger = &analysis.ledger;
    if ledger.scope == LedgerScope::Steps {
        let kind = analysis.steps.selected.as_ref().map_or("", |selected| &selected.kind);
        let noun = match kind {
            "" => "step".to_owned(),
            kind if kind.ends_with("step") => printable(&kind.replace('_', " ")),
            kind => printable(&format!("{kind} step")),
        };
        let note = format!("mean of {}", counted(ledger.n, &noun));
        title(style, "WHERE THE STEP GOES", &note)
    } else {
        let note = format!(
            "NOT A STEP: from the first to the last GPU work, {}",
            match ledger.n {
                1 => "one device".to_owned(),
                n => format!("mean of {n} devices"),
            }
        );
        title(style, "WHERE THE WINDOW GOES", &note)
    }
}

/// Accounts to show, and those to add up in one row.
fn fold_small(accounts: &[Account], top: usize) -> (&[Account], &[Account]) {
    let large = accounts.iter().take_while(|account| account.ratio >= SMALL).count();
    let shown = large.max(top).max(LEAST_ROWS);
    // A single account needs no more room than its sum.
    if shown + 1 < accounts.len() { accounts.split_at(shown) } else { (accounts, &[]) }
}

/// What the host did during an idle account: name and time, the rest added up.
fn activities(ledger: &Ledger, account: &Account) -> Vec<(String, f64)> {
    let all: Vec<&HostActivity> =
        ledger.host_activity.iter().filter(|a| a.account == account.account).collect();
    let least = account.ns_per_step * SMALL_ACTIVITY;
    let large = all.iter().take_while(|activity| activity.ns_per_step >= least).count();
    let (shown, rest) = all.split_at(large.min(TOP_ACTIVITIES));
    let mut rows: Vec<_> =
        shown.iter().map(|activity| (activity_name(activity), activity.ns_per_step)).collect();
    let rest_ns: f64 = rest.iter().map(|activity| activity.ns_per_step).sum();
    if rest_ns >= least && rest_ns > 0.0 {
        rows.push((format!("{} more", rest.len()), rest_ns));
    }
    rows
}

pub(super) fn activity_name(activity: &HostActivity) -> String {
    let name = match activity.kind.as_str() {
        "nothing_recorded" => "nothing recorded",
        _ => &activity.name,
    };
    let within = if activity.within.is_empty() || activity.within == activity.name {
        String::new()
    } else {
        format!(" in {}", activity.within)
    };
    printable(&format!("{name}{within}"))
}

fn bar(ratio: f64) -> String {
    let halves = (ratio.clamp(0.0, 1.0) * BAR_WIDTH * 2.0).round() as usize;
    let mut bar = "█".repeat(halves / 2);
    bar.extend((halves % 2 == 1).then_some('▌'));
    bar
}

/// What the sum is, and what is shown beside it.
fn foot(ledger: &Ledger, unit: TimeUnit, style: &TerminalStyle) -> String {
    let (whose, of_what, noun) = match ledger.scope {
        LedgerScope::Steps => ("step", "period", "step"),
        _ => ("device", "window", "window"),
    };
    let sum = if ledger.sum_ns == ledger.period_sum_ns {
        format!(
            "= the {whose}'s {of_what}, to the nanosecond: {} ns over {}",
            count(ledger.sum_ns.unsigned_abs()),
            counted(ledger.n, noun),
        )
    } else {
        format!(
            "THE SUM IS NOT THE {}: {} ns against {} ns; please report this as a bug",
            of_what.to_uppercase(),
            ledger.sum_ns,
            ledger.period_sum_ns,
        )
    };
    let mut beside = Vec::new();
    if let Some(ratio) = ledger.unknown_idle_ratio {
        beside.push(format!("idle without a known cause {}", percent(ratio)));
    }
    if let Some(ratio) = ledger.uncategorised_ratio {
        beside.push(format!("kernels without a category {} of GPU time", percent(ratio)));
    }
    for (what, ns) in [
        ("communication", ledger.hidden_communication_ns_per_step),
        ("copies", ledger.hidden_copy_ns_per_step),
    ] {
        if ns > 0.0 {
            let time = unit.format(ns);
            beside.push(format!("{what} behind compute, in no account, {time} {}", unit.name));
        }
    }
    let mut out = String::new();
    for line in [sum, beside.join("; ")].into_iter().filter(|line| !line.is_empty()) {
        out.push_str(&format!("  {}\n", style.paint(Tone::Faint, &style.wrap(&line, 2))));
    }
    out
}
