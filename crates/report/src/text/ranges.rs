//! Ranges of the host projected onto the GPU, as a table.

use steptally_analyze::results::{Analysis, RangeSummary};

use super::style::{TerminalStyle, Tone, printable};
use super::table::{Fit, Table};
use super::title;
use super::units::{TimeUnit, count};

pub(super) fn ranges(analysis: &Analysis, style: &TerminalStyle) -> String {
    let shown = &analysis.ranges[..analysis.ranges.len().min(style.top)];
    let times = |range: &RangeSummary| [range.gpu_busy_ns, range.projected_ns, range.host_ns];
    let Some(largest) = shown.iter().flat_map(times).max() else {
        return String::new();
    };
    let unit = TimeUnit::for_largest(largest as f64);
    let mut table = Table::default()
        .column("range", Fit::Flexible(24))
        .column("kind", Fit::Text)
        .column("ranges", Fit::Number)
        .column(format!("GPU busy {}", unit.name), Fit::Number)
        .column("GPU span", Fit::Number)
        .column("host", Fit::Number)
        .column("GPU work", Fit::Number);
    for range in shown {
        let [busy, span, host] = times(range).map(|ns| unit.format(ns as f64));
        let row = vec![
            printable(&range.text),
            range.kind.replace('_', " "),
            count(range.calls),
            busy,
            span,
            host,
            count(range.gpu_ops),
        ];
        table.row(Tone::Plain, row);
    }
    let note = format!(
        "top {} of {} by GPU time, over the whole trace; GPU work was launched inside them",
        shown.len(),
        analysis.ranges.len()
    );
    format!("{}{}", title(style, "RANGES", &note), table.render(style))
}
