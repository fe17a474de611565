//! Layers as a table: alike neighbours are one row.

use steptally_analyze::results::{Analysis, LayerTime, Layers};

use super::style::{TerminalStyle, Tone};
use super::table::{Fit, Table};
use super::title;
use super::units::{TimeUnit, calls, counted, percent};

/// Layers that differ by less than this share of the median are alike.
const ALIKE: f64 = 0.1;

pub(super) fn layers(analysis: &Analysis, style: &TerminalStyle) -> String {
    let Some(found) = analysis.layers.as_ref().filter(|found| found.count > 0) else {
        return String::new();
    };
    let rows = rows(found);
    let unit = TimeUnit::for_largest(found.gpu_busy_ns as f64 / found.n.max(1) as f64);
    let mut table = Table::default()
        .column("part", Fit::Text)
        .column(format!("GPU {}", unit.name), Fit::Number)
        .column("of busy", Fit::Number)
        .column("kernels", Fit::Number)
        .column(format!("idle {}", unit.name), Fit::Number)
        .column("", Fit::Flexible(10));
    for row in rows {
        let slow = row.layers.iter().any(|layer| found.slow_layers.contains(layer));
        let tone = if slow { Tone::Warning } else { Tone::Plain };
        let mut remarks = Vec::new();
        if row.layers.len() > 1 {
            remarks.push("mean of each".to_owned());
        }
        if slow {
            remarks.push("slow".to_owned());
        }
        if row.odd {
            remarks.push("other kernels than most".to_owned());
        }
        let of = |value: fn(&LayerTime) -> f64| {
            row.times.iter().map(|time| value(time)).sum::<f64>() / row.times.len() as f64
        };
        table.row(
            tone,
            vec![
                row.name(),
                unit.format(of(|time| time.ns_per_step)),
                percent(of(|time| time.ratio)),
                calls(of(|time| time.kernels_per_step)),
                found.idle_after_ns_per_step.map_or_else(String::new, |_| {
                    unit.format(of(|time| time.idle_ns_per_step + time.idle_before_ns_per_step))
                }),
                remarks.join(", "),
            ],
        );
    }
    if let Some(idle) = found.idle_after_ns_per_step.filter(|idle| *idle > 0.0) {
        let nothing = String::new;
        let cells = ["end of step".to_owned(), nothing(), nothing(), nothing(), unit.format(idle)];
        let remark = "nothing runs until the next step".to_owned();
        table.row(Tone::Plain, cells.into_iter().chain([remark]).collect());
    }
    format!("{}{}", title(style, "LAYERS", &note(found)), table.render(style))
}

/// What the numbers are, and what qualifies them.
fn note(found: &Layers) -> String {
    let how = match found.detected_by.as_str() {
        "kernel_sequence" => "by the repeat in the sequence of kernels",
        "module_marks" => "by module marks",
        "layer_ranges" => "by ranges named after layers",
        _ => "by nn.Module calls",
    };
    let mut parts =
        vec![format!("{} found {how}; time of the GPU per step", counted(found.count, "layer"))];
    match (found.matches_expected, found.layers_per_repeat, found.expected_count) {
        (Some(false), Some(each), Some(expected)) => {
            parts.push(format!("the model has {expected}: each repeat holds {each} of them"));
        }
        (Some(false), None, Some(expected)) => parts.push(format!("the model has {expected}")),
        _ => {}
    }
    if found.irregular_steps > 0 {
        parts.push(format!(
            "{} without the pattern left out",
            counted(found.irregular_steps, "step")
        ));
    }
    if let Some(modules) = found.modules.as_ref().filter(|m| m.same_layer_count == Some(false)) {
        parts.push(format!("the modules name {}", counted(modules.layer_count, "layer")));
    }
    parts.join("; ")
}

/// Neighbours that are alike.
struct Row<'a> {
    label: &'static str,
    layers: Vec<u64>,
    times: Vec<&'a LayerTime>,
    odd: bool,
}

impl Row<'_> {
    fn name(&self) -> String {
        match self.layers[..] {
            [] => self.label.to_owned(),
            [only] => format!("layer {only}"),
            [first, .., last] => format!("layers {first}-{last}"),
        }
    }
}

fn rows(found: &Layers) -> Vec<Row<'_>> {
    let beside = |label, time| Row { label, layers: Vec::new(), times: vec![time], odd: false };
    let mut rows: Vec<Row<'_>> =
        found.prologue.iter().map(|time| beside("before layers", time)).collect();
    let tolerance = ALIKE * found.median_ns_per_step;
    for time in &found.layers {
        let index = time.index.unwrap_or(0);
        let slow = found.slow_layers.contains(&index);
        if let Some(row) = rows.last_mut()
            && let Some(first) = row.times.first()
            && !row.layers.is_empty()
            && row.odd == time.odd
            && row.layers.iter().any(|layer| found.slow_layers.contains(layer)) == slow
            && (first.ns_per_step - time.ns_per_step).abs() <= tolerance
        {
            row.layers.push(index);
            row.times.push(time);
        } else {
            rows.push(Row { label: "", layers: vec![index], times: vec![time], odd: time.odd });
        }
    }
    rows.extend(found.epilogue.iter().map(|time| beside("after layers", time)));
    rows
}
