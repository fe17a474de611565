//! Kernels and operators as tables.

use steptally_analyze::results::{Analysis, KernelSummary, OpSummary};

use super::shapes::shapes;
use super::style::{TerminalStyle, Tone, printable};
use super::table::{Fit, Table};
use super::units::{TimeUnit, calls, percent};
use super::{per, title};
use crate::short_kernel_name;

pub(super) fn kernels(analysis: &Analysis, style: &TerminalStyle) -> String {
    let all = &analysis.kernels;
    if all.is_empty() || style.top == 0 {
        return String::new();
    }
    let shown = &all[..all.len().min(style.top)];
    let largest = shown.iter().map(|kernel| kernel.ns_per_step).fold(0.0, f64::max);
    let unit = TimeUnit::for_largest(largest);
    let per = per(analysis);
    let mut table = Table::default()
        .column("kernel", Fit::Names(34))
        .column(format!("{}/{per}", unit.name), Fit::Number)
        .column("share", Fit::Number)
        .column("calls", Fit::Number)
        .column("us/call", Fit::Number)
        .column("category", Fit::Flexible(14));
    let launched = shown.iter().any(|kernel| kernel.op.is_some());
    if launched {
        table = table.column("launched by", Fit::Flexible(18));
    }
    table = table.column("grid x block", Fit::Text);
    for kernel in shown {
        let mut row = vec![
            printable(&short_kernel_name(&kernel.name)),
            unit.format(kernel.ns_per_step),
            percent(kernel.ratio),
            calls(kernel.calls_per_step),
            TimeUnit::CALL.format(kernel.median_ns),
            printable(&kernel.category),
        ];
        row.extend(launched.then(|| launched_by(kernel)));
        row.push(launch_config(kernel));
        table.row(Tone::Plain, row);
    }
    let note = format!(
        "top {} of {}, per {per}; times are sums of durations, shares of the {per}; us/call is the \
         median",
        shown.len(),
        all.len()
    );
    format!("{}{}", title(style, "KERNELS", &note), table.render(style))
}

pub(super) fn operators(analysis: &Analysis, style: &TerminalStyle) -> String {
    let all = &analysis.ops;
    if all.is_empty() || style.top == 0 {
        return String::new();
    }
    let shown = &all[..all.len().min(style.top)];
    let steps = analysis.ledger.n.max(1) as f64;
    let host = |op: &OpSummary| op.host_self_ns as f64 / steps;
    let largest =
        shown.iter().flat_map(|op| [op.gpu_self_ns_per_step, host(op)]).fold(0.0, f64::max);
    let unit = TimeUnit::for_largest(largest);
    let per = per(analysis);
    let mut table = Table::default()
        .column("operator", Fit::Names(24))
        .column(format!("GPU {}", unit.name), Fit::Number)
        .column(format!("host {}", unit.name), Fit::Number)
        .column("calls", Fit::Number)
        .column("input shapes", Fit::Flexible(16));
    for op in shown {
        table.row(
            Tone::Plain,
            vec![
                printable(&op.name),
                unit.format(op.gpu_self_ns_per_step),
                unit.format(host(op)),
                calls(op.calls_per_step),
                shapes(&op.dims, &op.types),
            ],
        );
    }
    let note = format!(
        "top {} of {} by GPU time, per {per}; own time, without child operators",
        shown.len(),
        all.len()
    );
    format!("{}{}", title(style, "OPERATORS", &note), table.render(style))
}

fn launched_by(kernel: &KernelSummary) -> String {
    let Some(op) = &kernel.op else {
        return String::new();
    };
    let shapes = kernel.op_dims.as_deref().map_or_else(String::new, |dims| shapes(dims, ""));
    printable(format!("{op} {shapes}").trim_end())
}

/// `1x1x64 x 128`, with `+2` when there are two more configurations.
fn launch_config(kernel: &KernelSummary) -> String {
    let (Some(grid), Some(block)) = (kernel.grid, kernel.block) else {
        return String::new();
    };
    let mut text = format!("{} x {}", extent(grid), extent(block));
    if kernel.config_count > 1 {
        text.push_str(&format!(" +{}", kernel.config_count - 1));
    }
    text
}

/// Three sizes without trailing ones: `64`, `1,4`, `2,1,8`.
pub(super) fn extent(sizes: [u32; 3]) -> String {
    let used = sizes.iter().rposition(|&size| size != 1).map_or(1, |last| last + 1);
    let sizes: Vec<String> = sizes[..used].iter().map(u32::to_string).collect();
    format!("({})", sizes.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_are_short() {
        assert_eq!(extent([64, 1, 1]), "(64)");
        assert_eq!(extent([1, 4, 1]), "(1,4)");
        assert_eq!(extent([2, 1, 8]), "(2,1,8)");
        assert_eq!(extent([1, 1, 1]), "(1)");
    }
}
