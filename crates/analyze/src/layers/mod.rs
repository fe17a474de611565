//! GPU time by layer: from the sequence of kernels within a step, which works inside CUDA graph
//! replays as well, and from modules where something marks them.

mod attribute;
mod module_mark;
mod modules;
mod pattern;
mod sequences;

use hashbrown::HashMap;

use crate::results::{LayerRole, LayerTime, Layers, Modules};
use crate::stats;
use crate::view::LaneView;
use attribute::{PartSums, Totals};
use pattern::{Alphabet, Segments};
use sequences::LaneSequences;

pub(crate) use attribute::Part;
pub use module_mark::{ModuleMark, parse_module_mark};

/// A layer is slow from this multiple of the median on...
const SLOW_RATIO: f64 = 1.5;
/// ... and this many median absolute deviations above it.
const SLOW_DEVIATIONS: f64 = 3.0;

/// Modules that hold less than this share of the GPU time do not tell the layers.
const LEAST_COVERED: f64 = 0.25;

/// In which part of its step each piece of GPU work is, one list per lane in the order of the
/// lane's work; empty lists when no layers are known.
pub(crate) type Parts = Vec<Vec<Part>>;

/// Finds the layers of the selected steps. `None` when there are no steps, or no layers in them.
pub(crate) fn layers(views: &[LaneView<'_>], expected: Option<u32>) -> (Option<Layers>, Parts) {
    let no_parts = || vec![Vec::new(); views.len()];
    if views.iter().all(|view| view.steps.is_none()) {
        return (None, no_parts());
    }
    let modules = modules::modules(views);
    match by_sequence(views, expected) {
        Some((mut layers, parts)) => {
            layers.modules = modules.map(|modules| modules.compared_with(&layers));
            (Some(layers), parts)
        }
        None => (modules.map(|found| from_modules(found, views, expected)), no_parts()),
    }
}

fn by_sequence(views: &[LaneView<'_>], expected: Option<u32>) -> Option<(Layers, Parts)> {
    let mut alphabet = Alphabet::default();
    let lanes: Vec<LaneSequences> =
        views.iter().map(|view| LaneSequences::new(view, &mut alphabet)).collect();
    let modal = sequences::modal(&lanes)?;
    let (word, segments) = pattern::find(modal, &alphabet, expected)?;
    let count = segments.layers.len();
    let odd: Vec<bool> = segments.layers.iter().map(|(_, odd)| *odd).collect();
    let in_layers: usize = (0..count).map(|layer| segments.layer(layer).len()).sum();

    let mut totals = Totals::new(count, word.len());
    let mut irregular = 0;
    let mut known: HashMap<u64, Option<Segments>> = HashMap::new();
    let mut parts = Vec::with_capacity(views.len());
    for (view, lane) in views.iter().zip(&lanes) {
        let mut of_lane = vec![Part::None; view.lane.ops.len()];
        for window in &lane.windows {
            let segments = known.entry(window.hash).or_insert_with(|| {
                pattern::segment(lane.symbols(window), &word, &alphabet)
                    .filter(|segments| segments.layers.len() == count)
            });
            match segments {
                Some(segments) => totals.add_step(view, lane, window, segments, &mut of_lane),
                None => irregular += 1,
            }
        }
        parts.push(of_lane);
    }
    let n = totals.steps as f64;
    let all = || totals.layers.iter().chain([&totals.prologue, &totals.epilogue]);
    let busy: i64 = all().map(|part| part.busy).sum();
    let time =
        |index: Option<u64>, sums: &PartSums, odd: bool| layer_time(index, sums, odd, n, busy);
    let layers: Vec<LayerTime> = (totals.layers.iter().zip(&odd).zip(0u64..))
        .map(|((sums, &odd), index)| time(Some(index), sums, odd))
        .collect();
    let (median, slow) = slow_layers(&layers);
    let roles = (word.iter().zip(&totals.roles).zip(0u64..))
        .map(|((&symbol, &(total, calls)), position)| LayerRole {
            position,
            name: alphabet.symbols[symbol as usize].name.to_owned(),
            category: alphabet.symbols[symbol as usize].category.to_owned(),
            mean_ns: if calls == 0 { 0.0 } else { total as f64 / calls as f64 },
            calls,
        })
        .collect();
    let found = Layers {
        detected_by: "kernel_sequence".to_owned(),
        count: count as u64,
        expected_count: expected.map(u64::from),
        matches_expected: expected.map(|expected| expected as usize == count),
        layers_per_repeat: layers_per_repeat(count as u64, expected),
        n: totals.steps,
        irregular_steps: irregular,
        covered_ratio: in_layers as f64 / modal.len() as f64,
        gpu_busy_ns: busy,
        prologue: Some(time(None, &totals.prologue, false)),
        layers,
        epilogue: Some(time(None, &totals.epilogue, false)),
        idle_after_ns_per_step: Some(totals.idle_after as f64 / n),
        median_ns_per_step: median,
        slow_layers: slow,
        roles,
        modules: None,
    };
    Some((found, parts))
}

fn layer_time(index: Option<u64>, sums: &PartSums, odd: bool, n: f64, busy: i64) -> LayerTime {
    LayerTime {
        index,
        gpu_busy_ns: sums.busy,
        ns_per_step: sums.busy as f64 / n,
        ratio: if busy == 0 { 0.0 } else { sums.busy as f64 / busy as f64 },
        kernels_per_step: sums.kernels as f64 / n,
        idle_ns_per_step: sums.idle_inside as f64 / n,
        idle_before_ns_per_step: sums.idle_before as f64 / n,
        odd,
    }
}

/// With an expectation that is a multiple of what was found, each repeat holds several layers.
fn layers_per_repeat(count: u64, expected: Option<u32>) -> Option<u64> {
    let expected = u64::from(expected?);
    (count > 0 && expected > count && expected.is_multiple_of(count)).then(|| expected / count)
}

/// The median over the layers, and which layers are far above it.
fn slow_layers(layers: &[LayerTime]) -> (f64, Vec<u64>) {
    let mut busy: Vec<i64> = layers.iter().map(|layer| layer.gpu_busy_ns).collect();
    let median = stats::median(&mut busy).unwrap_or(0.0);
    let mut deviations: Vec<i64> =
        busy.iter().map(|&busy| (busy as f64 - median).abs() as i64).collect();
    let deviation = stats::median(&mut deviations).unwrap_or(0.0);
    let limit = (SLOW_RATIO * median).max(SLOW_DEVIATIONS.mul_add(deviation, median));
    let slow = layers.iter().filter(|layer| layer.gpu_busy_ns as f64 > limit);
    let per_step = layers.iter().find(|layer| layer.gpu_busy_ns > 0);
    let n = per_step.map_or(1.0, |layer| layer.gpu_busy_ns as f64 / layer.ns_per_step);
    (median / n, slow.filter_map(|layer| layer.index).collect())
}

/// Layers as the modules name them: sums of durations, for no sequence says what lies beside. Few
/// or small ones are no layers, and only the tree is left.
fn from_modules(modules: Modules, views: &[LaneView<'_>], expected: Option<u32>) -> Layers {
    let mut times = modules.layer_times();
    if times.len() < 2 || modules.covered_ratio < LEAST_COVERED {
        times.clear();
    }
    let n: usize = views.iter().map(|view| view.windows.len()).sum();
    let all: f64 = times.iter().map(|(_, time, _)| time).sum();
    let layers: Vec<LayerTime> = times
        .iter()
        .map(|&(index, time, ops)| LayerTime {
            index: Some(index),
            gpu_busy_ns: (time * n as f64).round() as i64,
            ns_per_step: time,
            ratio: if all == 0.0 { 0.0 } else { time / all * modules.covered_ratio },
            kernels_per_step: ops,
            idle_ns_per_step: 0.0,
            idle_before_ns_per_step: 0.0,
            odd: false,
        })
        .collect();
    let (median, slow) = slow_layers(&layers);
    let count = layers.len() as u64;
    Layers {
        detected_by: modules.detected_by.clone(),
        count,
        expected_count: expected.map(u64::from),
        matches_expected: expected.map(|expected| u64::from(expected) == count),
        layers_per_repeat: layers_per_repeat(count, expected),
        n: n as u64,
        irregular_steps: 0,
        covered_ratio: modules.covered_ratio,
        gpu_busy_ns: (all * n as f64).round() as i64,
        prologue: None,
        layers,
        epilogue: None,
        idle_after_ns_per_step: None,
        median_ns_per_step: median,
        slow_layers: slow,
        roles: Vec::new(),
        modules: Some(modules),
    }
}
