//! The text of `steptally inspect`.

use unicode_width::UnicodeWidthStr;

use super::about;
use super::style::{TerminalStyle, Tone, printable};
use super::table::{Fit, Table};
use super::units::{bytes, count, counted, duration};
use super::{rank_name, title};
use crate::{DeviceInspection, Inspection, TraceInspection};

/// What the input is, as text.
#[must_use]
pub fn inspection_text(inspection: &Inspection, style: &TerminalStyle) -> String {
    let mut sections = vec![about::partial_banner(&inspection.input, inspection.partial, style)];
    sections.push(files(inspection, style));
    sections.extend(inspection.traces.iter().map(|trace| one_trace(trace, style)));
    sections.push(about::issues(&inspection.input, style));
    sections.retain(|section| !section.is_empty());
    sections.join("\n")
}

fn files(inspection: &Inspection, style: &TerminalStyle) -> String {
    let files = &inspection.input.files;
    let mut table = Table::default()
        .column("file", Fit::Flexible(30))
        .column("size", Fit::Number)
        .column("format", Fit::Text)
        .column("state", Fit::Text);
    for file in files {
        let state = match (file.left_out.is_some(), file.partial) {
            (true, _) => "left out",
            (false, true) => "PARTIAL",
            (false, false) => "complete",
        };
        table.row(
            if file.partial { Tone::Alarm } else { Tone::Plain },
            vec![
                printable(&file.path),
                bytes(file.bytes),
                printable(&file.format),
                state.to_owned(),
            ],
        );
    }
    let note = format!(
        "{}, {}",
        counted(files.len() as u64, "file"),
        counted(inspection.traces.len() as u64, "trace")
    );
    title(style, "FILES", &note) + &table.render(style)
}

fn one_trace(trace: &TraceInspection, style: &TerminalStyle) -> String {
    let mut lines: Vec<(&str, String)> = vec![("rank", rank(trace))];
    if !trace.processes.is_empty() {
        lines.push(("processes", trace.processes.join(", ")));
    }
    let versions: Vec<String> =
        trace.versions.iter().map(|v| format!("{} {}", v.name, v.value)).collect();
    if !versions.is_empty() {
        lines.push(("versions", versions.join(", ")));
    }
    lines.push(("shapes", switch(trace.record_shapes, "record_shapes")));
    lines.push(("stacks", switch(trace.with_stack, "with_stack")));
    lines.push(("window", window(trace)));
    lines.push(("events", counts(trace)));
    lines.push(("devices", devices(&trace.devices)));
    lines.extend(trace.diagnostics.iter().map(|note| ("recorder says", note.clone())));

    let name = format!("RANK {}", rank_name(trace.rank));
    let mut out = title(style, &name, &trace.format.replace('_', " "));
    let widest = lines.iter().map(|(name, _)| name.width()).max().unwrap_or(0);
    for (name, text) in lines {
        let label = style.paint(Tone::Faint, &format!("{name:widest$}"));
        out.push_str(&format!("  {label}  {}\n", style.wrap(&printable(&text), widest + 4)));
    }
    out
}

fn rank(trace: &TraceInspection) -> String {
    let Some(rank) = trace.rank else {
        return "unknown: nothing in the file says which".to_owned();
    };
    let mut text = rank.to_string();
    if let Some(world) = trace.world_size {
        text.push_str(&format!(" of {world}"));
    }
    if let Some(source) = &trace.rank_source {
        text.push_str(&format!(", from the {}", source.replace('_', " ")));
    }
    if let Some(label) = &trace.label {
        text.push_str(&format!(" ({label})"));
    }
    text
}

fn switch(on: Option<bool>, name: &str) -> String {
    match on {
        Some(true) => format!("recorded ({name})"),
        Some(false) => format!("not recorded ({name} off)"),
        None => format!("the file does not say ({name})"),
    }
}

fn window(trace: &TraceInspection) -> String {
    let spans = trace.events_span_ns.map_or_else(
        || "no events".to_owned(),
        |ns| format!("{} from the first event to the last", duration(ns as f64)),
    );
    match trace.window_ns {
        Some(ns) => format!("{} recorded; {spans}", duration(ns as f64)),
        None => spans,
    }
}

fn counts(trace: &TraceInspection) -> String {
    let named: Vec<String> = trace
        .counts
        .named()
        .into_iter()
        .filter(|(_, n)| *n > 0)
        .map(|(name, n)| format!("{} {}", count(n), events(name, n)))
        .collect();
    if named.is_empty() { "none".to_owned() } else { named.join(", ") }
}

/// The name of a table for `n` of its rows.
fn events(name: &str, n: u64) -> String {
    let one = match name {
        "copies" => "copy",
        _ => name.strip_suffix('s').unwrap_or(name),
    };
    if n == 1 { one } else { name }.replace('_', " ")
}

fn devices(devices: &[DeviceInspection]) -> String {
    let (used, idle): (Vec<_>, Vec<_>) =
        devices.iter().partition(|device| device.gpu_event_count > 0);
    let mut texts: Vec<String> = used
        .iter()
        .map(|device| {
            let mut text = format!("device {}", device.device);
            if let Some(name) = &device.name {
                text.push_str(&format!(": {name}"));
            }
            let facts: Vec<String> = [
                device.sm_count.map(|sms| format!("{sms} SMs")),
                device.total_memory_bytes.map(bytes),
                Some(counted(device.gpu_event_count, "GPU event")),
            ]
            .into_iter()
            .flatten()
            .collect();
            text.push_str(&format!(" ({})", facts.join(", ")));
            text
        })
        .collect();
    if !idle.is_empty() {
        texts.push(format!("{} more without GPU events", idle.len()));
    }
    if texts.is_empty() { "none recorded".to_owned() } else { texts.join("; ") }
}
