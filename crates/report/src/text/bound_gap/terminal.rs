//! The gap for a terminal.

use steptally_analyze::results::{Alone, BoundGap, GapComponent};

use super::super::roofline::{assumptions, words};
use super::super::style::{TerminalStyle, Tone, printable};
use super::super::table::{Fit, Table};
use super::super::title;
use super::super::units::{TimeUnit, count, counted, duration, three_digits};
use super::{
    allowed, alone_line, component_cells, copy_line, layer_groups, measured, note, proof,
    waterfall, waterfall_titles,
};
use crate::GapReport;

/// The gap as text: verdict, waterfall, components, layers, what was measured alone, assumptions.
#[must_use]
pub fn gap_text(report: &GapReport, style: &TerminalStyle) -> String {
    let served = &report.gap.roofline.deployment;
    let line = format!(
        "{}, against {} ({}) on {} x {}, batch {}, {} in the cache",
        report.trace,
        report.gap.roofline.model,
        report.model_files.join(", "),
        served.tp,
        report.gap.roofline.gpu,
        count(served.batch),
        counted(served.context, "token"),
    );
    let mut all =
        vec![format!("{}\n", style.paint(Tone::Faint, &style.wrap(&printable(&line), 0)))];
    if report.partial {
        let text = style.paint(Tone::Alarm, "PARTIAL");
        all.push(format!("{text}  part of the trace could not be read\n"));
    }
    let verdict = format!("{} {}", measured(&report.gap), allowed(&report.gap));
    all.push(format!("{}\n", style.paint(Tone::Strong, &style.wrap(&verdict, 0))));
    all.extend(sections(&report.gap, style));
    all.retain(|section| !section.is_empty());
    all.join("\n")
}

/// What the hardware would allow: a line for the headline of a report.
pub(in crate::text) fn headline(gap: &BoundGap, style: &TerminalStyle) -> String {
    format!("{}\n", style.paint(Tone::Strong, &style.wrap(&allowed(gap), 0)))
}

/// What qualifies the numbers, all tables, and the assumptions.
pub(in crate::text) fn sections(gap: &BoundGap, style: &TerminalStyle) -> Vec<String> {
    vec![
        cautions(gap, style),
        waterfall_table(gap, style),
        components(gap, style),
        layers(gap, style),
        alone(gap, style),
        assumptions(&gap.roofline, style),
    ]
}

fn cautions(gap: &BoundGap, style: &TerminalStyle) -> String {
    let label = style.paint(Tone::Warning, "CAUTION");
    let lines = gap
        .cautions
        .iter()
        .map(|caution| format!("{label}  {}\n", style.wrap(&printable(&format!("{caution}.")), 9)));
    lines.collect()
}

fn waterfall_table(gap: &BoundGap, style: &TerminalStyle) -> String {
    let unit = TimeUnit::for_largest(gap.captured_ns_per_step);
    let mut table = Table::default();
    for (at, name) in waterfall_titles(gap, unit).into_iter().enumerate() {
        table = table.column(name, if at < 2 { Fit::Text } else { Fit::Number });
    }
    let rows = waterfall(gap, unit);
    let last = rows.len() - 1;
    for (at, cells) in rows.into_iter().enumerate() {
        let tone = if at == 0 || at == last { Tone::Strong } else { Tone::Plain };
        table.row(tone, cells.iter().map(|cell| printable(cell)).collect());
    }
    let mut out = title(style, "FROM THE BOUND TO THE STEP", &note(gap));
    out.push_str(&table.render(style));
    out.push_str(&format!("  = {}\n", style.wrap(&proof(gap), 4)));
    for copy in &gap.copies {
        let line = copy_line(copy, gap.roofline.memory_bytes_per_s);
        out.push_str(&format!("  {}\n", style.wrap(&printable(&line), 2)));
    }
    out
}

fn components(gap: &BoundGap, style: &TerminalStyle) -> String {
    let mut table = Table::default()
        .column("component", Fit::Text)
        .column("us/step", Fit::Number)
        .column("bound us", Fit::Number)
        .column("times", Fit::Number);
    let alone = gap.components.iter().any(|of| of.alone_ns_per_step.is_some());
    if alone {
        table = table.column("alone us", Fit::Number);
    }
    table = table.column("kernels of", Fit::Flexible(20)).column("against", Fit::Flexible(12));
    for of in &gap.components {
        let mut cells = component_cells(of);
        if !alone {
            cells.pop();
        }
        cells.push(accounts(of));
        cells.push(of.parts.iter().map(words).collect::<Vec<_>>().join(", "));
        table.row(Tone::Plain, cells.iter().map(|cell| printable(cell)).collect());
    }
    let mut note =
        "GPU time of a step against its part of the bound; times: how often the bound fits in"
            .to_owned();
    if alone {
        note.push_str("; alone: its operations that were measured alone");
    }
    title(style, "COMPONENTS", &note) + &table.render(style)
}

/// `moe.gemm 170.7, moe.align_permute 26.8`, in microseconds.
fn accounts(of: &GapComponent) -> String {
    let shown = of.accounts.iter().map(|account| {
        format!("{} {}", account.account, TimeUnit::CALL.format(account.ns_per_step))
    });
    shown.collect::<Vec<_>>().join(", ")
}

fn layers(gap: &BoundGap, style: &TerminalStyle) -> String {
    if let Some(reason) = &gap.layers.not_compared {
        return title(style, "LAYERS AND THEIR BOUND", &format!("not compared: {reason}"));
    }
    let mut table = Table::default()
        .column("part", Fit::Text)
        .column("GPU us", Fit::Number)
        .column("bound us", Fit::Number)
        .column("times", Fit::Number)
        .column("most", Fit::Number)
        .column("idle us", Fit::Number);
    for group in layer_groups(gap) {
        let idle = group.idle_ns_per_step;
        table.row(
            Tone::Plain,
            vec![
                group.name,
                TimeUnit::CALL.format(group.ns_per_step),
                TimeUnit::CALL.format(group.bound_ns as f64),
                three_digits(group.times_bound),
                three_digits(group.most_times_bound),
                if idle.is_nan() { String::new() } else { TimeUnit::CALL.format(idle) },
            ],
        );
    }
    let note = "one layer's mean among neighbours of one bound; outside: embedding, last norm, output \
                head, sampling";
    title(style, "LAYERS AND THEIR BOUND", note) + &table.render(style)
}

fn alone(gap: &BoundGap, style: &TerminalStyle) -> String {
    let (Some(alone), Some(line)) = (&gap.alone, alone_line(gap)) else { return String::new() };
    let mut out = title(style, "MEASURED ALONE", &printable(&line));
    if alone.rows.is_empty() {
        return out;
    }
    out.push_str(&alone_table(alone, style));
    if !alone.not_measured.is_empty() {
        let line = format!("not measured: {}", alone.not_measured.join(", "));
        out.push_str(&format!("  {}\n", style.wrap(&printable(&line), 2)));
    }
    out
}

fn alone_table(alone: &Alone, style: &TerminalStyle) -> String {
    let mut table = Table::default()
        .column("operation", Fit::Flexible(16))
        .column("us/step", Fit::Number)
        .column("us each", Fit::Number)
        .column("calls", Fit::Number)
        .column("component", Fit::Text);
    for row in alone.rows.iter().take(style.top.max(1)) {
        table.row(
            Tone::Plain,
            vec![
                printable(&row.name),
                TimeUnit::CALL.format(row.ns_per_step),
                TimeUnit::CALL.format(row.each_ns),
                count(row.calls_per_step),
                words(&row.component),
            ],
        );
    }
    let mut out = table.render(style);
    let hidden = alone.rows.len().saturating_sub(style.top.max(1));
    if hidden > 0 {
        let rest: f64 = alone.rows.iter().rev().take(hidden).map(|row| row.ns_per_step).sum();
        out.push_str(&format!("  {hidden} more, {} together (--top N)\n", duration(rest)));
    }
    out
}
