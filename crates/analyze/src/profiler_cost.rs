//! What recording adds to a step.
//!
//! A TPOT that was measured without a profiler tells it: period less TPOT. Without one it is what each
//! recorded event costs the host,
//!
//! ```text
//!   added = factor * sum over kinds of (events per step * cost of one)
//! ```
//!
//! with the costs of [`Costs::TORCH_H200`], measured in loops that do nothing else. In a real program
//! the same events cost more (caches, other threads, buffers that are handed over), and how much more
//! was measured too: 14 captures whose TPOT is known give [`EAGER`] and [`GRAPHS`].

use steptally_trace_model::{Trace, TraceFormat};

use crate::results::{Baseline, EventCost, ProfilerCost, ProfilerCostBasis};
use crate::view::LaneView;

/// The host's time that the profiler added over the loops' costs, of eager steps: likely, least, most.
/// Median of 8 captures, and their extremes without those that came out faster than without profiler.
const EAGER: [f64; 3] = [2.0, 0.0, 9.0];
/// The same of steps that launch a graph: 6 captures.
const GRAPHS: [f64; 3] = [6.0, 3.0, 11.0];

/// A TPOT is not known better than to this share of it: another run gives another.
const ONE_RUN: f64 = 0.05;

/// What recording one event costs the host, in ns.
struct Costs {
    measured_on: &'static str,
    operator: f64,
    operator_with_shapes: f64,
    /// A call that enqueues one piece of work, the record of that work included.
    launch: f64,
    other_call: f64,
    graph_node: f64,
    frame: f64,
    range: f64,
}

impl Costs {
    /// Medians of five loops; see `docs/measurements.md`.
    const TORCH_H200: Self = Self {
        measured_on: "NVIDIA H200, PyTorch 2.11, CUDA 13.0",
        operator: 1_060.0,
        operator_with_shapes: 1_350.0,
        launch: 1_800.0,
        other_call: 200.0,
        graph_node: 740.0,
        frame: 270.0,
        range: 1_300.0,
    };
}

/// What recording adds to a step, and to what.
pub(crate) struct Cost {
    pub(crate) result: ProfilerCost,
    /// What the recorded events add to the host's time of a step: likely, least, most ns.
    pub(crate) host_ns: Option<[f64; 3]>,
}

/// What recording adds to the selected steps of mean `period_ns`; `None` when nothing tells.
/// `tpot` is the TPOT of these steps without a profiler; `graphs` whether most of their work is in graphs.
pub(crate) fn profiler_cost(
    views: &[LaneView<'_>],
    period_ns: f64,
    tpot: Option<&Baseline>,
    graphs: bool,
) -> Option<Cost> {
    let mut events = event_costs(views).unwrap_or_default();
    let loops: f64 = events.iter().map(|kind| kind.per_step * kind.ns_each).sum();
    let host_ns = (loops > 0.0).then(|| {
        let factors = if graphs { GRAPHS } else { EAGER };
        factors.map(|factor| (factor * loops).min(period_ns))
    });
    let (basis, source, [likely, least, most]) = match (tpot, host_ns) {
        (Some(Baseline { tpot_ns, source, .. }), _) => {
            let spread = ONE_RUN * tpot_ns.median;
            let slowest = tpot_ns.max.max(tpot_ns.median + spread);
            let fastest = tpot_ns.min.min(tpot_ns.median - spread);
            let added = [tpot_ns.median, slowest, fastest].map(|tpot| period_ns - tpot);
            (ProfilerCostBasis::Baseline, source.clone(), added)
        }
        (None, Some(host_ns)) => {
            (ProfilerCostBasis::EventCosts, Costs::TORCH_H200.measured_on.to_owned(), host_ns)
        }
        (None, None) => return None,
    };
    let scale = if loops > 0.0 { likely.max(0.0) / loops } else { 1.0 };
    for kind in &mut events {
        kind.ns_each *= scale;
    }
    let result = ProfilerCost {
        basis,
        source,
        added_ns_per_step: likely,
        least_ns_per_step: least,
        most_ns_per_step: most,
        events,
    };
    Some(Cost { result, host_ns })
}

/// Events per step and what one costs in a loop; `None` of recorders that were not measured.
fn event_costs(views: &[LaneView<'_>]) -> Option<Vec<EventCost>> {
    let is_torch = |view: &LaneView<'_>| view.lane.trace.meta.format == TraceFormat::TorchProfiler;
    if views.is_empty() || !views.iter().all(is_torch) {
        return None;
    }
    let (mut operators, mut launches, mut calls, mut nodes) = (0usize, 0usize, 0usize, 0usize);
    let (mut frames, mut ranges, mut steps) = (0usize, 0usize, 0usize);
    for view in views {
        let trace = view.lane.trace;
        let windows = view.host_windows();
        steps += view.windows.len();
        let within = |starts: &[steptally_trace_model::Timestamp]| -> usize {
            let at = |time| starts.partition_point(|start| *start < time);
            windows.iter().map(|window| at(window.end) - at(window.start)).sum()
        };
        operators += within(&trace.cpu_ops.start);
        calls += within(&trace.api_calls.start);
        frames += within(&trace.frames.start);
        ranges += within(&trace.ranges.start);
        let (mut last, mut hint) = (None, 0);
        crate::kernels::for_each_in(view.lane, &view.windows, |_, op| {
            let call = view.api.call_near(op.correlation(trace), &mut hint);
            // Work of the same call as the work before it: another node of a graph.
            let is_node = call.is_some() && call == last;
            (nodes, launches) = (nodes + usize::from(is_node), launches + usize::from(!is_node));
            last = call;
        });
    }
    let has_shapes = views.iter().any(|view| records_shapes(view.lane.trace));
    let costs = Costs::TORCH_H200;
    let operator = if has_shapes { costs.operator_with_shapes } else { costs.operator };
    let kinds = [
        ("cpu_op", operators, operator),
        ("launch", launches, costs.launch),
        ("other_api_call", calls.saturating_sub(launches), costs.other_call),
        ("graph_node", nodes, costs.graph_node),
        ("python_frame", frames, costs.frame),
        ("range", ranges, costs.range),
    ];
    let kinds = kinds.into_iter().filter(|(_, count, _)| *count > 0);
    let per_step = |count: usize| count as f64 / steps.max(1) as f64;
    Some(
        kinds
            .map(|(kind, count, ns_each)| EventCost {
                kind: kind.to_owned(),
                per_step: per_step(count),
                ns_each,
            })
            .collect(),
    )
}

fn records_shapes(trace: &Trace) -> bool {
    trace.inputs.iter().any(|(_, inputs)| !trace.text(inputs.dims).is_empty())
}
