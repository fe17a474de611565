//! Each layer against its bound.

use super::GapInputs;
use crate::results::{GapLayer, GapLayers, LayerTime, Layers};
use crate::roofline::layer_bounds;

/// Holds the layers that were found against those of the model. A repeat that holds several of the
/// model's layers is held against all of them.
pub(super) fn layers(found: Option<&Layers>, inputs: &GapInputs<'_>) -> GapLayers {
    let not = |reason: String| GapLayers { not_compared: Some(reason), ..GapLayers::default() };
    let Some(found) = found.filter(|found| !found.layers.is_empty()) else {
        return not("no layers were found in the trace".to_owned());
    };
    let bounds = layer_bounds(inputs.model, inputs.gpu, inputs.deployment, inputs.measured);
    let (count, wanted) = (found.layers.len(), bounds.layers_ns.len());
    if count == 0 || !wanted.is_multiple_of(count) {
        return not(format!("{count} layers were found, and the model has {wanted}"));
    }
    if inputs.deployment.speculation.is_some() {
        return not("with speculation a step's bound is not one pass through the layers".to_owned());
    }
    let each = bounds.layers_ns.chunks(wanted / count).map(|chunk| chunk.iter().sum::<i64>());
    let rows = found.layers.iter().zip(each).enumerate().map(|(at, (time, bound_ns))| GapLayer {
        index: at as u64,
        ns_per_step: time.ns_per_step,
        idle_ns_per_step: time.idle_ns_per_step + time.idle_before_ns_per_step,
        bound_ns,
        times_bound: time.ns_per_step / bound_ns.max(1) as f64,
    });
    let outside = |time: &Option<LayerTime>| time.as_ref().map_or(0.0, |time| time.ns_per_step);
    GapLayers {
        not_compared: None,
        rows: rows.collect(),
        outside_bound_ns: bounds.outside_ns,
        outside_ns_per_step: outside(&found.prologue) + outside(&found.epilogue),
    }
}
