//! The gaps of the GPU, by what runs before and after them.

use steptally_analyze::Section;
use steptally_analyze::results::{Analysis, Gap};

use super::ledger::activity_name;
use super::style::{TerminalStyle, Tone, printable};
use super::table::{Fit, Table};
use super::units::{TimeUnit, calls};
use super::{per, title};
use crate::short_kernel_name;

/// Gaps that are shown when they were not asked for.
const SHOWN: usize = 5;

pub(super) fn gaps(analysis: &Analysis, style: &TerminalStyle) -> String {
    let all = &analysis.gaps;
    let limit = if analysis.sections.names(Section::Gaps) { style.top } else { SHOWN };
    let shown = &all[..all.len().min(limit).min(style.top)];
    let Some(first) = shown.first() else {
        return String::new();
    };
    let unit = TimeUnit::for_largest(first.ns_per_step);
    let per = per(analysis);
    let mut table = Table::default()
        .column("after", Fit::Names(16))
        .column("before", Fit::Names(16))
        .column(format!("{}/{per}", unit.name), Fit::Number)
        .column("gaps", Fit::Number)
        .column("us/gap", Fit::Number)
        .column("max us", Fit::Number)
        .column("mostly", Fit::Flexible(18))
        .column("host", Fit::Flexible(18));
    for gap in shown {
        let mut before = name(&gap.before, "the end");
        if gap.ends_step {
            before.push_str(" (next step)");
        }
        table.row(
            Tone::Plain,
            vec![
                name(&gap.after, "the start"),
                before,
                unit.format(gap.ns_per_step),
                calls(gap.count_per_step),
                TimeUnit::CALL.format(gap.median_ns),
                TimeUnit::CALL.format(gap.max_ns as f64),
                gap.causes.first().map_or_else(String::new, |cause| printable(&cause.account)),
                host(gap),
            ],
        );
    }
    let note = format!(
        "top {} of {} that make up 95 % of the idle time, per {per}; us/gap is the median",
        shown.len(),
        all.len()
    );
    format!("{}{}", title(style, "GAPS", &note), table.render(style))
}

fn name(work: &str, none: &str) -> String {
    if work.is_empty() { format!("({none})") } else { printable(&short_kernel_name(work)) }
}

/// What the host did most of the time.
fn host(gap: &Gap) -> String {
    gap.host_activity.first().map_or_else(String::new, activity_name)
}
