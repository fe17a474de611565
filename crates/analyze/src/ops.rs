//! Operators by name and input shapes over the accounted steps, as
//! `key_averages(group_by_input_shape=True)` would list them.

use hashbrown::HashMap;
use steptally_trace_model::{InputsId, StringId};

use crate::kernels::launching_op;
use crate::links::NO_OP;
use crate::results::OpSummary;
use crate::view::{LaneView, extent};

#[derive(Clone, Copy, Default)]
struct Sums {
    calls: u64,
    host_total: i64,
    host_self: i64,
    gpu_self: i64,
    gpu_total: i64,
}

/// Sums the operators that the host ran for the accounted steps, most GPU time of its own first.
///
/// With marks, an operator belongs to a step when it starts between the step's mark and the next
/// step's mark; without, when it starts within the step's period.
pub(crate) fn summarise(views: &[LaneView<'_>]) -> Vec<OpSummary> {
    let mut by_key: HashMap<(&str, &str, &str), Sums> = HashMap::new();
    for view in views {
        let trace = view.lane.trace;
        for ((name, inputs), of_lane) in lane_sums(view) {
            let inputs = trace.inputs[inputs];
            let key = (trace.text(name), trace.text(inputs.dims), trace.text(inputs.types));
            let sums = by_key.entry(key).or_default();
            sums.calls += of_lane.calls;
            sums.host_total += of_lane.host_total;
            sums.host_self += of_lane.host_self;
            sums.gpu_self += of_lane.gpu_self;
            sums.gpu_total += of_lane.gpu_total;
        }
    }
    let n = extent(views).0 as f64;
    let mut rows: Vec<OpSummary> = by_key
        .into_iter()
        .map(|((name, dims, types), sums)| OpSummary {
            name: name.to_owned(),
            dims: dims.to_owned(),
            types: types.to_owned(),
            calls: sums.calls,
            calls_per_step: sums.calls as f64 / n,
            host_total_ns: sums.host_total,
            host_self_ns: sums.host_self,
            gpu_self_ns: sums.gpu_self,
            gpu_total_ns: sums.gpu_total,
            gpu_self_ns_per_step: sums.gpu_self as f64 / n,
        })
        .collect();
    rows.sort_by(|a, b| {
        (b.gpu_self_ns, b.host_self_ns)
            .cmp(&(a.gpu_self_ns, a.host_self_ns))
            .then_with(|| (&a.name, &a.dims, &a.types).cmp(&(&b.name, &b.dims, &b.types)))
    });
    rows
}

fn lane_sums(view: &LaneView<'_>) -> HashMap<(StringId, InputsId), Sums> {
    let trace = view.lane.trace;
    let ops = &trace.cpu_ops;
    let mut gpu_self = vec![0i64; ops.len()];
    let mut hint = 0;
    for op in &view.lane.ops {
        if let Some(row) = launching_op(view, *op, &mut hint) {
            gpu_self[row] += (op.end - op.start).as_ns();
        }
    }
    // Rows are sorted by start, parents before children: add up from the back.
    let mut gpu_total = gpu_self.clone();
    let mut in_children = vec![0i64; ops.len()];
    for row in (0..ops.len()).rev() {
        let parent = view.tree.parent[row];
        if parent != NO_OP {
            gpu_total[parent as usize] += gpu_total[row];
            in_children[parent as usize] += ops.duration[row].as_ns();
        }
    }
    let mut sums: HashMap<(StringId, InputsId), Sums> = HashMap::new();
    let mut host_windows = view.host_windows().into_iter().peekable();
    for row in 0..ops.len() {
        let start = ops.start[row];
        while host_windows.next_if(|window| window.end <= start).is_some() {}
        let Some(window) = host_windows.peek() else {
            break;
        };
        if start < window.start {
            continue;
        }
        let entry = sums.entry((ops.name[row], ops.inputs[row])).or_default();
        entry.calls += 1;
        entry.host_total += ops.duration[row].as_ns();
        entry.host_self += ops.duration[row].as_ns() - in_children[row];
        entry.gpu_self += gpu_self[row];
        entry.gpu_total += gpu_total[row];
    }
    sums
}
