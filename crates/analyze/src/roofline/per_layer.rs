//! The bound of each layer.

use super::collectives::collectives;
use super::step::Step;
use super::{Deployment, Gpu, Limits, Measured, ModelConfig};

/// The bound of a step, layer by layer. Speculation is not in it: one token per request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerBounds {
    /// Bound of each layer in nanoseconds, first to last, collectives included.
    pub layers_ns: Vec<i64>,
    /// Bound of what is in no layer: embedding, last norm, output head.
    pub outside_ns: i64,
}

/// The bound of each layer: that of a model with this layer alone, less that of a model without any.
///
/// The layers' bounds and `outside_ns` add up to [`Roofline::step_ns`](super::Roofline::step_ns) but
/// for rounding (half a nanosecond for each component of each layer) and for components that memory
/// bounds in some layers and FLOP in others.
#[must_use]
pub fn layer_bounds(
    model: &ModelConfig,
    gpu: &Gpu,
    deployment: &Deployment,
    measured: &Measured,
) -> LayerBounds {
    let limits = Limits::new(gpu, deployment, measured);
    let bound = |model: &ModelConfig| -> i64 {
        let components = limits.components(Step::rows(model, deployment, 1.0));
        let collectives = collectives(model, gpu, deployment, measured, 1.0);
        let times = components.iter().map(|component| component.time_ns);
        times.chain(collectives.iter().map(|collective| collective.time_ns)).sum()
    };
    let mut part = ModelConfig { layers: Vec::new(), ..model.clone() };
    let outside_ns = bound(&part);
    let layers = model.layers.iter().enumerate().map(|(at, layer)| {
        part.layers = vec![*layer];
        part.first_layer = model.first_layer + at;
        bound(&part) - outside_ns
    });
    LayerBounds { layers_ns: layers.collect(), outside_ns }
}
