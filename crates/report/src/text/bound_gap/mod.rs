//! From the bound to the captured step, as text.

mod markdown;
mod terminal;

pub use markdown::gap_markdown;
pub use terminal::gap_text;
pub(super) use terminal::{headline, sections};

use steptally_analyze::results::{BoundGap, GapComponent, GapCopy, GapKind, GapLayer, GapRow};

use super::roofline::words;
use super::units::{TimeUnit, bytes, counted, duration, percent_rough, three_digits};

/// How long the step takes, in one sentence.
fn measured(gap: &BoundGap) -> String {
    let without = gap.unprofiled.as_ref().map_or_else(String::new, |step| {
        format!(
            ", {} without the profiler (TPOT, {})",
            duration(step.ns_per_step),
            if step.baseline.source == "manifest" { "from the manifest" } else { "as given" }
        )
    });
    let step = if gap.kind == "decode" { "A decode step" } else { "A step" };
    format!(
        "{step} takes {} as profiled (mean of {}){without}.",
        duration(gap.captured_ns_per_step),
        counted(gap.n, "step"),
    )
}

/// How long it could take, in one sentence.
fn allowed(gap: &BoundGap) -> String {
    let (step, name) = match &gap.unprofiled {
        Some(step) => (step.ns_per_step, "the step without the profiler"),
        None => (gap.captured_ns_per_step, "the step"),
    };
    format!(
        "The hardware would allow {}, {} tokens/s: {} of {name}.",
        duration(gap.bound_ns as f64),
        three_digits(gap.roofline.tokens_per_s),
        percent_rough(gap.bound_ns as f64 / step.max(1.0)),
    )
}

/// A row's kind and its name.
fn label(row: &GapRow) -> (&'static str, &str) {
    match row.kind {
        GapKind::Bound => ("bound", "what the hardware allows"),
        GapKind::Kernels => ("+ kernels", &row.name),
        GapKind::Communication => ("+ communication", "beyond its bound"),
        GapKind::Copies => ("+ copies", &row.name),
        GapKind::Idle => ("+ idle", &row.name),
        GapKind::Remainder => ("+ remainder", &row.name),
    }
}

/// The rows as cells: kind, name, time and its share, time without the profiler if known; each
/// column adds up as shown. The last row is the sum.
fn waterfall(gap: &BoundGap, unit: TimeUnit) -> Vec<Vec<String>> {
    let per_step = |total: i64| total as f64 / gap.n.max(1) as f64;
    let captured: Vec<f64> = gap.rows.iter().map(|row| row.ns_per_step).collect();
    let captured = unit.format_parts(&captured);
    let unprofiled = gap.unprofiled.as_ref().map(|step| {
        let parts: Vec<f64> =
            gap.rows.iter().map(|row| per_step(row.unprofiled_total_ns.unwrap_or(0))).collect();
        (unit.format_parts(&parts), unit.format(per_step(step.total_ns)))
    });
    // Adding 0 turns what rounds to -0 into 0.
    let share = |ns: f64| {
        let thousandths = (1000.0 * ns / gap.captured_ns_per_step.max(1.0)).round() + 0.0;
        format!("{:.1} %", thousandths / 10.0)
    };
    let mut rows: Vec<Vec<String>> = Vec::new();
    for (at, row) in gap.rows.iter().enumerate() {
        let (kind, name) = label(row);
        let mut cells = vec![kind.to_owned(), name.to_owned(), captured[at].clone()];
        cells.push(share(row.ns_per_step));
        cells.extend(unprofiled.iter().map(|(parts, _)| parts[at].clone()));
        rows.push(cells);
    }
    let mut sum = vec!["=".to_owned(), "the step".to_owned()];
    sum.push(unit.format(gap.captured_ns_per_step));
    sum.push(share(gap.captured_ns_per_step));
    sum.extend(unprofiled.map(|(_, step)| step));
    rows.push(sum);
    rows
}

/// The titles of the columns of [`waterfall`].
fn waterfall_titles(gap: &BoundGap, unit: TimeUnit) -> Vec<String> {
    let mut titles = vec![String::new(), "what".to_owned(), format!("{}/step", unit.name)];
    titles.push("share".to_owned());
    titles.extend(gap.unprofiled.as_ref().map(|_| "without profiler".to_owned()));
    titles
}

/// `sum of the rows: 19,280,126 ns over 4 steps; unexplained: 0 ns`.
fn proof(gap: &BoundGap) -> String {
    format!(
        "the step's period, to the nanosecond: {} ns over {}; unexplained: {} ns",
        super::units::count(u64::try_from(gap.captured_total_ns).unwrap_or(0)),
        counted(gap.n, "step"),
        gap.unexplained_ns,
    )
}

/// A component's name, time, bound, how often that fits in, and what it took alone.
fn component_cells(of: &GapComponent) -> Vec<String> {
    let us = |ns: f64| TimeUnit::CALL.format(ns);
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    vec![
        words(&of.component),
        us(of.ns_per_step),
        us(of.bound_ns as f64),
        or_dash(of.times_bound.map(three_digits)),
        or_dash(of.alone_ns_per_step.map(us)),
    ]
}

/// A copy against the memory's bandwidth, in one sentence.
fn copy_line(copy: &GapCopy, bytes_per_s: f64) -> String {
    let pool = if copy.pool_sized { ", over a whole pool" } else { "" };
    format!(
        "{} by {} moves {} per step{pool}: at least {} at {} TB/s; it takes {}",
        copy.category,
        copy.name,
        bytes(copy.bytes_per_step.round() as u64),
        duration(copy.least_ns),
        three_digits(bytes_per_s / 1e12),
        duration(copy.ns_per_step),
    )
}

/// How the profiler's part was taken out, or that it was not.
fn note(gap: &BoundGap) -> String {
    let mean = format!("mean of {}", counted(gap.n, "step"));
    match &gap.unprofiled {
        None => format!("{mean}; idle is an upper bound, as no TPOT without the profiler is known"),
        Some(step) => format!(
            "{mean}; the profiler makes it {} times as long: without it GPU times are kept, and idle \
             is cut down in proportion to TPOT",
            three_digits(step.dilation_ratio)
        ),
    }
}

/// Neighbouring layers with the same bound are one row: first and last index, and means.
struct LayerGroup {
    name: String,
    ns_per_step: f64,
    idle_ns_per_step: f64,
    bound_ns: i64,
    times_bound: f64,
    most_times_bound: f64,
}

fn layer_groups(gap: &BoundGap) -> Vec<LayerGroup> {
    let alike =
        |a: &GapLayer, b: &GapLayer| (a.bound_ns - b.bound_ns).abs() <= 1 + a.bound_ns / 100;
    let groups = gap.layers.rows.chunk_by(alike).map(|layers| {
        let mean = |value: fn(&GapLayer) -> f64| {
            layers.iter().map(value).sum::<f64>() / layers.len() as f64
        };
        let (first, last) = (layers[0].index, layers[layers.len() - 1].index);
        LayerGroup {
            name: match first == last {
                true => format!("layer {first}"),
                false => format!("layers {first}-{last}"),
            },
            ns_per_step: mean(|layer| layer.ns_per_step),
            idle_ns_per_step: mean(|layer| layer.idle_ns_per_step),
            bound_ns: mean(|layer| layer.bound_ns as f64).round() as i64,
            times_bound: mean(|layer| layer.times_bound),
            most_times_bound: layers.iter().map(|layer| layer.times_bound).fold(0.0, f64::max),
        }
    });
    let mut groups: Vec<LayerGroup> = groups.collect();
    if !groups.is_empty() {
        let (ns_per_step, bound_ns) = (gap.layers.outside_ns_per_step, gap.layers.outside_bound_ns);
        let times_bound = ns_per_step / bound_ns.max(1) as f64;
        groups.push(LayerGroup {
            name: "outside".to_owned(),
            ns_per_step,
            idle_ns_per_step: f64::NAN,
            bound_ns,
            times_bound,
            most_times_bound: times_bound,
        });
    }
    groups
}

/// What single operations add up to, in one sentence.
fn alone_line(gap: &BoundGap) -> Option<String> {
    let alone = gap.alone.as_ref()?;
    if let Some(reason) = &alone.not_comparable {
        return Some(format!("not comparable: {reason}"));
    }
    Some(format!(
        "{} of {}: single operations as measured on {}, times their number in a step; the rest only \
         shows in the live trace",
        duration(alone.ns_per_step),
        duration(gap.captured_ns_per_step),
        alone.device.as_deref().unwrap_or("a GPU"),
    ))
}
