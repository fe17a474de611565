//! The text of `steptally roofline`.

use serde::Serialize;
use serde_json::Value;
use steptally_analyze::roofline::Roofline;

use super::style::{TerminalStyle, Tone, printable};
use super::table::{Fit, Table};
use super::title;
use super::units::{TimeUnit, bytes, count, counted, duration, percent, three_digits};
use crate::RooflineReport;

/// The bound as text: headline, components, collectives, totals, assumptions.
#[must_use]
pub fn roofline_text(report: &RooflineReport, style: &TerminalStyle) -> String {
    let bound = &report.roofline;
    let mut sections = vec![opening(report, style), headline(bound, style)];
    sections.push(components(bound, style));
    sections.push(collectives(bound, style));
    sections.push(assumptions(bound, style));
    sections.retain(|section| !section.is_empty());
    sections.join("\n")
}

fn opening(report: &RooflineReport, style: &TerminalStyle) -> String {
    let bound = &report.roofline;
    let served = &bound.deployment;
    let mut line =
        format!("{} ({}) on {} x {}", bound.model, report.files.join(", "), served.tp, bound.gpu);
    for (name, groups) in [("expert groups", served.ep), ("attention groups", served.attention_dp)]
    {
        if groups > 1 {
            line.push_str(&format!(", {groups} {name}"));
        }
    }
    line.push_str(&format!(
        ", batch {}, {} in the cache",
        count(served.batch),
        counted(served.context, "token")
    ));
    format!("{}\n", style.paint(Tone::Faint, &style.wrap(&printable(&line), 0)))
}

fn headline(bound: &Roofline, style: &TerminalStyle) -> String {
    let share = |ns: i64| percent(ratio(ns, bound.step_ns));
    let verdict = format!(
        "A decode step takes at least {}: {} tokens/s.",
        duration(bound.step_ns as f64),
        three_digits(bound.tokens_per_s),
    );
    let mut out = format!("{}\n", style.paint(Tone::Strong, &style.wrap(&verdict, 0)));
    let mut lines = vec![
        format!(
            "parts {} ({}): {} and {} FLOP on each rank",
            duration(bound.components_ns as f64),
            share(bound.components_ns),
            bytes(bound.memory_bytes),
            flop(bound.total_flops),
        ),
        format!(
            "collectives {} ({})",
            duration(bound.collectives_ns as f64),
            share(bound.collectives_ns)
        ),
        format!(
            "parameters {} B, {} B of them read per token; weights on each rank {}",
            billions(bound.parameters.total),
            billions(bound.parameters.active),
            bytes(bound.resident_weights_bytes),
        ),
    ];
    if let Some(plan) = &bound.speculation {
        lines.push(format!(
            "speculation: verifying {}, drafting {}, {} per accepted token of a request",
            duration(plan.verify_ns as f64),
            duration(plan.draft_ns as f64),
            duration(plan.accepted_token_ns),
        ));
    }
    for line in lines {
        out.push_str(&format!("  {}\n", style.wrap(&line, 2)));
    }
    out
}

fn components(bound: &Roofline, style: &TerminalStyle) -> String {
    let mut table = Table::default()
        .column("part", Fit::Text)
        .column("what", Fit::Flexible(12))
        .column("us", Fit::Number)
        .column("share", Fit::Number)
        .column("bound", Fit::Text)
        .column("bytes", Fit::Number)
        .column("format", Fit::Text)
        .column("layers", Fit::Number)
        .column("FLOP", Fit::Number)
        .column("placement", Fit::Text);
    for part in &bound.components {
        table.row(
            Tone::Plain,
            vec![
                words(&part.part),
                printable(&part.name),
                TimeUnit::CALL.format(part.time_ns as f64),
                percent(ratio(part.time_ns, bound.step_ns)),
                words(&part.bound),
                bytes(part.memory_bytes),
                printable(&part.format),
                part.layers.to_string(),
                flop(part.total_flops),
                words(&part.placement),
            ],
        );
    }
    table.row(
        Tone::Strong,
        vec![
            "all parts".to_owned(),
            String::new(),
            TimeUnit::CALL.format(bound.components_ns as f64),
            percent(ratio(bound.components_ns, bound.step_ns)),
            String::new(),
            bytes(bound.memory_bytes),
            String::new(),
            String::new(),
            flop(bound.total_flops),
        ],
    );
    let note = "one rank, summed over the layers that have it; share of the step";
    title(style, "PARTS", note) + &table.render(style)
}

fn collectives(bound: &Roofline, style: &TerminalStyle) -> String {
    if bound.collectives.is_empty() {
        return String::new();
    }
    let mut table = Table::default()
        .column("collective", Fit::Flexible(20))
        .column("us", Fit::Number)
        .column("share", Fit::Number)
        .column("bound", Fit::Text)
        .column("count", Fit::Number)
        .column("us each", Fit::Number)
        .column("message", Fit::Number)
        .column("payload MB", Fit::Number)
        .column("ring MB", Fit::Number)
        .column("ranks", Fit::Number);
    let mega = |n: u64| format!("{:.3}", n as f64 / 1e6);
    for collective in &bound.collectives {
        let each = collective.time_ns as f64 / collective.count.max(1) as f64;
        table.row(
            Tone::Plain,
            vec![
                printable(&collective.name),
                TimeUnit::CALL.format(collective.time_ns as f64),
                percent(ratio(collective.time_ns, bound.step_ns)),
                words(&collective.bound),
                count(collective.count),
                TimeUnit::CALL.format(each),
                bytes(collective.message_bytes),
                mega(collective.payload_bytes),
                mega(collective.ring_bytes),
                collective.ranks.to_string(),
            ],
        );
    }
    let note = "payload: count x message; ring: what each rank sends in a step";
    title(style, "COLLECTIVES", note) + &table.render(style)
}

pub(super) fn assumptions(bound: &Roofline, style: &TerminalStyle) -> String {
    let mut out = title(style, "ASSUMPTIONS", "the bound is worth what they are");
    for line in &bound.assumptions {
        out.push_str(&format!("  - {}\n", style.wrap(&printable(line), 4)));
    }
    out
}

fn ratio(part: i64, whole: i64) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn billions(n: u64) -> String {
    format!("{:.1}", n as f64 / 1e9)
}

/// A number of operations: `1.20 G`.
fn flop(n: u64) -> String {
    let value = n as f64;
    match value {
        0.0 => "0".to_owned(),
        x if x < 1e6 => format!("{} k", three_digits(value / 1e3)),
        x if x < 1e9 => format!("{} M", three_digits(value / 1e6)),
        x if x < 1e12 => format!("{} G", three_digits(value / 1e9)),
        _ => format!("{} T", three_digits(value / 1e12)),
    }
}

/// The JSON name of a value, in words: `kv_read` is `kv read`.
pub(super) fn words<T: Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(name)) => name.replace('_', " "),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steptally_analyze::roofline::{Bound, Part};

    #[test]
    fn names_are_those_of_the_json() {
        assert_eq!(words(&Part::KvRead), "kv read");
        assert_eq!(words(&Bound::Memory), "memory");
    }

    #[test]
    fn operations_have_a_prefix() {
        assert_eq!(
            [0, 1_500, 2_000_000, 81_660_000_000].map(flop),
            ["0", "1.50 k", "2.00 M", "81.7 G"]
        );
    }
}
