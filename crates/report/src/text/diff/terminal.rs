//! A diff for the terminal.

use steptally_analyze::results::{AccountDiff, Verdict, Waterfall};

use super::super::style::{TerminalStyle, Tone, printable};
use super::super::table::{Fit, Table};
use super::super::title;
use super::super::units::{TimeUnit, calls};
use super::{
    SMALL, bound, changed_kernels, comparability, deciding, fate, gate_line, kernel_fate, measures,
    side, sign, verdict,
};
use crate::{DiffReport, short_kernel_name};

/// The diff as text for a terminal, a pipe or a file.
#[must_use]
pub fn diff_text(report: &DiffReport, style: &TerminalStyle) -> String {
    let mut sections = vec![
        opening(report, style),
        headline(report, style),
        measured(report, style),
        comparable(report, style),
    ];
    sections.extend(report.diff.waterfall.as_ref().map(|of| waterfall(of, style)));
    sections.push(kernels(report, style));
    sections.push(gates(report, style));
    sections.retain(|section| !section.is_empty());
    sections.join("\n")
}

fn opening(report: &DiffReport, style: &TerminalStyle) -> String {
    let mut out = String::new();
    let sides = [("A", &report.source_a, &report.diff.a), ("B", &report.source_b, &report.diff.b)];
    for (name, source, of) in sides {
        let saved = if source.saved_report { " (saved report)" } else { "" };
        let text = format!("{}{saved}: {}", source.path, side(of));
        out.push_str(&line(style, name, &printable(&text), Tone::Strong));
    }
    if report.partial {
        let text = "part of the input could not be read: the results are about the rest";
        out.push_str(&line(style, "PARTIAL", text, Tone::Alarm));
    }
    out
}

/// `label  text`, wrapped under the text.
fn line(style: &TerminalStyle, label: &str, text: &str, tone: Tone) -> String {
    let indent = label.chars().count() + 2;
    format!("{}  {}\n", style.paint(tone, label), style.wrap(text, indent))
}

fn headline(report: &DiffReport, style: &TerminalStyle) -> String {
    let diff = &report.diff;
    let tone = match diff.verdict {
        Verdict::Regression => Tone::Alarm,
        Verdict::Inconclusive => Tone::Warning,
        Verdict::Improvement | Verdict::Neutral => Tone::Strong,
    };
    let mut text = deciding(diff).unwrap_or_default();
    for reason in &diff.reasons {
        let separator = if text.is_empty() { "" } else { "; " };
        text.push_str(&format!("{separator}{}", reason.text));
    }
    text.push('.');
    let mut out = line(style, &verdict(diff.verdict).to_uppercase(), &printable(&text), tone);
    for caution in &diff.cautions {
        let text = format!("{}.", caution.text);
        out.push_str(&line(style, "CAUTION", &printable(&text), Tone::Warning));
    }
    out
}

fn measured(report: &DiffReport, style: &TerminalStyle) -> String {
    let diff = &report.diff;
    let rows = measures(diff);
    let mut out = String::new();
    if !rows.is_empty() {
        let mut table = Table::default()
            .column("median of a step", Fit::Text)
            .column("A", Fit::Number)
            .column("B", Fit::Number)
            .column("change", Fit::Number)
            .column("95 % interval", Fit::Number)
            .column("noise", Fit::Number);
        for row in rows {
            table.row(Tone::Plain, row.to_vec());
        }
        out.push_str(&table.render(style));
    }
    for (name, of) in [("A", &diff.a), ("B", &diff.b)] {
        if of.bound.is_some() {
            out.push_str(&line(style, &format!("  {name} is bound by"), &bound(of), Tone::Plain));
        }
    }
    out
}

fn comparable(report: &DiffReport, style: &TerminalStyle) -> String {
    let name = if report.diff.comparability.comparable { "COMPARABLE" } else { "NOT COMPARABLE" };
    let mut lines = comparability(&report.diff).into_iter();
    let mut out = title(style, name, &lines.next().unwrap_or_default());
    for text in lines {
        out.push_str(&format!("  {}\n", style.wrap(&printable(&text), 2)));
    }
    out
}

fn waterfall(of: &Waterfall, style: &TerminalStyle) -> String {
    let mean = |total: i64, n: u64| total as f64 / n as f64;
    let (a, b) = (mean(of.a_sum_ns, of.a_n), mean(of.b_sum_ns, of.b_n));
    let unit = TimeUnit::for_largest(a.max(b));
    let (rows, small) = fold_small(&of.rows, style.top.max(12));
    let mut changes: Vec<f64> = rows.iter().map(|row| row.change_ns as f64).collect();
    let small_change: i64 = small.iter().map(|row| row.change_ns).sum();
    changes.extend((!small.is_empty()).then_some(small_change as f64));
    let mut shown = unit.format_parts(&changes).into_iter().zip(changes).map(|(text, change)| {
        let plus = if change > 0.0 && !text.starts_with('-') { "+" } else { "" };
        format!("{plus}{text}")
    });
    let mut table = Table::default()
        .column("account", Fit::Flexible(24))
        .column(format!("change {}", unit.name), Fit::Number)
        .column("A", Fit::Number)
        .column("B", Fit::Number)
        .column("", Fit::Text);
    for row in rows {
        table.row(
            Tone::Plain,
            vec![
                printable(&row.account),
                shown.next().unwrap_or_default(),
                unit.format(mean(row.a_total_ns, of.a_n)),
                unit.format(mean(row.b_total_ns, of.b_n)),
                fate(row.fate).to_owned(),
            ],
        );
    }
    if !small.is_empty() {
        let name = format!("{} more accounts (--top N)", small.len());
        let sum = |total: fn(&AccountDiff) -> i64| small.iter().map(total).sum::<i64>();
        let (small_a, small_b) = (sum(|row| row.a_total_ns), sum(|row| row.b_total_ns));
        let cells = vec![
            name,
            shown.next().unwrap_or_default(),
            unit.format(mean(small_a, of.a_n)),
            unit.format(mean(small_b, of.b_n)),
        ];
        table.row(Tone::Faint, cells);
    }
    let change = of.change_ns as f64;
    let plus = if change > 0.0 { "+" } else { "" };
    let sum = format!("{plus}{}", unit.format(change));
    table.row(Tone::Strong, vec!["sum".to_owned(), sum, unit.format(a), unit.format(b)]);
    let note = format!("mean per step; the changes add up to {} ns exactly", of.change_ns);
    format!("{}{}", title(style, "WHERE THE CHANGE IS", &note), table.render(style))
}

/// Rows to show, and rows to add up.
pub(super) fn fold_small(rows: &[AccountDiff], top: usize) -> (&[AccountDiff], &[AccountDiff]) {
    let largest = rows.first().map_or(0, |row| row.change_ns.unsigned_abs()) as f64;
    let large = |row: &&AccountDiff| row.change_ns.unsigned_abs() as f64 >= SMALL * largest;
    let shown = rows.iter().take_while(large).count().min(top);
    if shown + 1 < rows.len() { rows.split_at(shown) } else { (rows, &[]) }
}

fn kernels(report: &DiffReport, style: &TerminalStyle) -> String {
    let all = changed_kernels(&report.diff);
    if all.is_empty() || style.top == 0 {
        return String::new();
    }
    let shown = &all[..all.len().min(style.top)];
    let time = |of: &Option<_>| {
        of.as_ref().map_or(0.0, |of: &steptally_analyze::results::KernelSide| of.ns_per_step)
    };
    let largest = shown.iter().map(|row| time(&row.a).max(time(&row.b))).fold(0.0, f64::max);
    let unit = TimeUnit::for_largest(largest);
    let mut table = Table::default()
        .column("kernel", Fit::Names(30))
        .column(format!("change {}", unit.name), Fit::Number)
        .column("A", Fit::Number)
        .column("B", Fit::Number)
        .column("calls", Fit::Number)
        .column("", Fit::Flexible(20));
    for row in shown {
        let Some(named) = row.b.as_ref().or(row.a.as_ref()) else { continue };
        let count = |of: &Option<steptally_analyze::results::KernelSide>| {
            of.as_ref().map_or_else(|| "-".to_owned(), |of| calls(of.calls_per_step))
        };
        let (calls_a, calls_b) = (count(&row.a), count(&row.b));
        let calls = if calls_a == calls_b { calls_a } else { format!("{calls_a} -> {calls_b}") };
        let plus = if sign(row.change_ns_per_step) == "+" { "+" } else { "" };
        table.row(
            Tone::Plain,
            vec![
                printable(&short_kernel_name(&named.name)),
                format!("{plus}{}", unit.format(row.change_ns_per_step)),
                row.a.as_ref().map_or_else(|| "-".to_owned(), |of| unit.format(of.ns_per_step)),
                row.b.as_ref().map_or_else(|| "-".to_owned(), |of| unit.format(of.ns_per_step)),
                calls,
                printable(&kernel_fate(row)),
            ],
        );
    }
    let note = format!(
        "top {} of {} that changed, per step; {} in all; times are sums of durations",
        shown.len(),
        all.len(),
        report.diff.kernels.len()
    );
    format!("{}{}", title(style, "KERNELS", &note), table.render(style))
}

fn gates(report: &DiffReport, style: &TerminalStyle) -> String {
    if report.gates.is_empty() {
        return String::new();
    }
    let failed = report.gates.iter().filter(|gate| gate.holds).count();
    let mut out = title(style, "GATES", &format!("{failed} of {} failed", report.gates.len()));
    for gate in &report.gates {
        let tone = if gate.holds { Tone::Alarm } else { Tone::Plain };
        out.push_str(&format!("  {}\n", style.paint(tone, &printable(&gate_line(gate)))));
    }
    out
}
