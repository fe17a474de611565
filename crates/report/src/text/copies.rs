//! Copies and casts as a table.

use steptally_analyze::Section;
use steptally_analyze::results::{Analysis, CopySummary, SizeTrend};

use super::shapes::shapes;
use super::style::{TerminalStyle, Tone, printable};
use super::table::{Fit, Table};
use super::units::{TimeUnit, bytes, calls, percent, percent_rough, three_digits};
use super::{per, title};

/// Shares of the period below this are not worth a row, unless a whole pool is moved, or copies were
/// asked for.
const SHOWN: f64 = 0.001;

pub(super) fn copies(analysis: &Analysis, style: &TerminalStyle) -> String {
    let all = &analysis.copies.rows;
    let least = if analysis.sections.names(Section::Copies) { 0.0 } else { SHOWN };
    let shown: Vec<&CopySummary> =
        all.iter().filter(|row| row.pool_sized || row.ratio >= least).take(style.top).collect();
    let Some(first) = shown.first() else {
        return String::new();
    };
    let unit = TimeUnit::for_largest(first.ns_per_step);
    let mut table = Table::default()
        .column("what", Fit::Flexible(14))
        .column(format!("{}/{}", unit.name, per(analysis)), Fit::Number)
        .column("share", Fit::Number)
        .column("calls", Fit::Number)
        .column("moved/call", Fit::Number)
        .column("TB/s", Fit::Number)
        .column("types", Fit::Flexible(10))
        .column("", Fit::Flexible(10))
        .column("shapes", Fit::Flexible(14));
    for row in &shown {
        let tone = if row.pool_sized { Tone::Warning } else { Tone::Plain };
        table.row(
            tone,
            vec![
                printable(&row.category),
                unit.format(row.ns_per_step),
                percent(row.ratio),
                calls(row.calls_per_step),
                moved(row),
                row.achieved_bytes_per_s.map_or_else(String::new, |rate| three_digits(rate / 1e12)),
                types(row),
                remark(row),
                row.op_dims.as_deref().map_or_else(String::new, |dims| shapes(dims, "")),
            ],
        );
    }
    let limit = analysis.copies.memory_bandwidth_bytes_per_s.map_or_else(String::new, |peak| {
        format!("; the device's memory does {} TB/s", three_digits(peak / 1e12))
    });
    let note = format!("{} of {}, most time first{limit}", shown.len(), all.len());
    let mut text = format!("{}{}", title(style, "COPIES", &note), table.render(style));
    for reason in shown.iter().filter_map(|row| Some((row, row.pool_reason.as_deref()?))) {
        let (row, reason) = reason;
        let layers = match row.layers.len() {
            0 => String::new(),
            n => format!(", in {n} layers"),
        };
        let share = row.bandwidth_ratio.map_or_else(String::new, |ratio| {
            format!(", at {} of the memory's bandwidth", percent_rough(ratio))
        });
        let line = format!("{} of a whole pool{layers}{share}: {reason}", row.category);
        text.push_str(&format!("  {}\n", style.wrap(&printable(&line), 2)));
    }
    text
}

/// Bytes read and written by a call.
fn moved(row: &CopySummary) -> String {
    match (row.read_bytes, row.written_bytes) {
        (Some(read), Some(written)) => bytes((read + written).round() as u64),
        _ => "?".to_owned(),
    }
}

/// `float8_e5m2 > bfloat16`; one name when both are the same.
fn types(row: &CopySummary) -> String {
    match (row.source_dtype.as_deref(), row.destination_dtype.as_deref()) {
        (Some(from), Some(to)) if from == to => from.to_owned(),
        (Some(from), Some(to)) => format!("{from} > {to}"),
        (None, Some(to)) => format!("? > {to}"),
        (Some(from), None) => format!("{from} > ?"),
        (None, None) => String::new(),
    }
}

fn remark(row: &CopySummary) -> String {
    let mut remarks = Vec::new();
    if row.pool_sized {
        remarks.push("whole pool");
    }
    match row.size_trend {
        Some(SizeTrend::Growing) => remarks.push("grows"),
        Some(SizeTrend::Varying) => remarks.push("varies"),
        _ => {}
    }
    remarks.join(", ")
}
