//! Each layer against its bound.

use super::GapInputs;
use crate::results::{GapLayer, GapLayers, LayerTime, Layers};
use crate::roofline::layer_bounds;

/// Holds the layers that were found against those of the model. Where the analysis knows that a repeat
/// holds several of the model's layers, it is held against all of them.
pub(super) fn layers(found: Option<&Layers>, inputs: &GapInputs<'_>) -> GapLayers {
    let not = |reason: String| GapLayers { not_compared: Some(reason), ..GapLayers::default() };
    let Some(found) = found.filter(|found| !found.layers.is_empty()) else {
        return not("no layers were found in the trace".to_owned());
    };
    let bounds = layer_bounds(inputs.model, inputs.gpu, inputs.deployment, inputs.measured);
    let (count, wanted) = (found.layers.len(), bounds.layers_ns.len());
    let each = if count == wanted { Some(1) } else { found.layers_per_repeat };
    let Some(each) = each.filter(|each| *each * count as u64 == wanted as u64) else {
        return not(format!("{count} layers were found, and the model has {wanted}"));
    };
    if inputs.deployment.speculation.is_some() {
        return not("with speculation a step's bound is not one pass through the layers".to_owned());
    }
    let each = bounds.layers_ns.chunks(each as usize).map(|chunk| chunk.iter().sum::<i64>());
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
