//! What the host asks of the GPU.

use steptally_analyze::Section;
use steptally_analyze::results::{Analysis, Launches};

use super::style::{TerminalStyle, Tone, printable};
use super::table::{Fit, Table};
use super::units::{TimeUnit, calls, duration, percent_rough};
use super::{per, title};

/// API functions that are shown when launches were not asked for.
const SHOWN: usize = 5;

pub(super) fn launches(analysis: &Analysis, style: &TerminalStyle) -> String {
    let launches = &analysis.launches;
    let limit = if analysis.sections.names(Section::Launches) { style.top } else { SHOWN };
    let shown = &launches.calls[..launches.calls.len().min(limit).min(style.top)];
    let Some(first) = shown.first() else {
        return String::new();
    };
    let per = per(analysis);
    let unit = TimeUnit::for_largest(first.ns_per_step);
    let mut table = Table::default()
        .column("API call", Fit::Flexible(24))
        .column("what", Fit::Text)
        .column(format!("{}/{per}", unit.name), Fit::Number)
        .column("calls", Fit::Number)
        .column("us/call", Fit::Number);
    for call in shown {
        table.row(
            Tone::Plain,
            vec![
                printable(&call.name),
                call.class.replace('_', " "),
                unit.format(call.ns_per_step),
                calls(call.calls_per_step),
                TimeUnit::CALL.format(call.median_ns),
            ],
        );
    }
    let note = format!(
        "{} in API calls per {per}; top {} of {}, us/call is the median",
        duration(launches.api_ns_per_step),
        shown.len(),
        launches.calls.len()
    );
    let text = format!("{}{}", title(style, "LAUNCHES", &note), table.render(style));
    format!("{text}  {}\n", style.paint(Tone::Faint, &style.wrap(&foot(launches), 2)))
}

/// How many launches, how long they take, and who waits for whom.
fn foot(launches: &Launches) -> String {
    let mut parts = vec![format!(
        "{} kernel and {} graph launches, {} waits for the GPU, {} allocations",
        calls(launches.kernel_launches_per_step),
        calls(launches.graph_launches_per_step),
        calls(launches.syncs_per_step),
        calls(launches.allocations_per_step),
    )];
    if let Some(delay) = launches.delay_ns {
        parts.push(format!(
            "from a launch call to the start of its work {} (median; p99 {})",
            duration(delay.median),
            duration(delay.p99)
        ));
    }
    if let Some(latency) = launches.latency_ns {
        parts.push(format!("{} with nothing queued", duration(latency.median)));
    }
    if let Some(depth) = launches.queue_depth {
        parts.push(format!("{:.0} launches queued (median; most {:.0})", depth.median, depth.max));
    }
    if let Some(ratio) = launches.host_bound_ratio {
        parts.push(format!("{} of the launches found the GPU idle", percent_rough(ratio)));
    }
    parts.join("; ")
}
