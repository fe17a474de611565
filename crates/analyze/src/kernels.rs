//! Kernels and copies by name over the accounted windows.

use hashbrown::HashMap;
use steptally_trace_model::interval::Interval;
use steptally_trace_model::{InputsId, LaunchConfigId, StringId, Trace};

use crate::categories::{KernelCategories, copy_account};
use crate::gpu::{GpuKind, GpuOp, Lane};
use crate::links::NO_OP;
use crate::results::KernelSummary;
use crate::stats;
use crate::view::{LaneView, extent};

/// What is summed for one name.
#[derive(Default)]
struct Sums {
    category: String,
    durations: Vec<i64>,
    configs: HashMap<Config, u64>,
    ops: HashMap<(String, String), u64>,
    bytes: Option<u64>,
    first_position: Option<u64>,
}

type Config = ([u32; 3], [u32; 3]);

/// Sums kernels and copies that start within the windows, most time first.
pub(crate) fn summarise(views: &[LaneView<'_>]) -> Vec<KernelSummary> {
    let mut by_name: HashMap<String, Sums> = HashMap::new();
    for view in views {
        let trace = view.lane.trace;
        for (name, of_lane) in lane_sums(view) {
            let sums = by_name.entry(trace.text(name).to_owned()).or_default();
            of_lane.add_to(trace, &view.categories, name, sums);
        }
    }
    let (n, period) = extent(views);
    let mut rows: Vec<_> =
        by_name.into_iter().map(|(name, sums)| summary(name, sums, n as f64, period)).collect();
    rows.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.name.cmp(&b.name)));
    rows
}

/// Calls `visit` with each piece of work that starts within the windows.
pub(crate) fn for_each_in(
    lane: &Lane<'_>,
    windows: &[Interval],
    mut visit: impl FnMut(usize, GpuOp),
) {
    let mut windows = windows.iter().peekable();
    for (index, op) in lane.ops.iter().enumerate() {
        while windows.next_if(|window| window.end <= op.start).is_some() {}
        let Some(window) = windows.peek() else { break };
        if op.start >= window.start {
            visit(index, *op);
        }
    }
}

/// The same sums by the ids of one trace.
#[derive(Default)]
struct LaneSums {
    is_kernel: bool,
    copy_kind: steptally_trace_model::CopyKind,
    durations: Vec<i64>,
    configs: Vec<(LaunchConfigId, u64)>,
    ops: Vec<((StringId, InputsId), u64)>,
    bytes: Option<u64>,
    first_position: Option<u64>,
}

fn lane_sums(view: &LaneView<'_>) -> HashMap<StringId, LaneSums> {
    let trace = view.lane.trace;
    let mut sums: HashMap<StringId, LaneSums> = HashMap::new();
    let mut hint = 0;
    let mut windows = view.windows.iter().peekable();
    let mut position = 0;
    for_each_in(view.lane, &view.windows, |_, op| {
        while windows.next_if(|window| window.end <= op.start).is_some() {
            position = 0;
        }
        let here = position;
        position += 1;
        let row = op.row as usize;
        let name = match op.kind {
            GpuKind::Kernel => trace.kernels.name[row],
            GpuKind::Copy => trace.copies.name[row],
            GpuKind::OpaqueGraph => return,
        };
        let entry = sums.entry(name).or_default();
        entry.first_position.get_or_insert(here);
        entry.durations.push((op.end - op.start).as_ns());
        if op.kind == GpuKind::Kernel {
            entry.is_kernel = true;
            count(&mut entry.configs, trace.kernels.config[row]);
        } else {
            entry.copy_kind = trace.copies.kind[row];
            let bytes = trace.copies.bytes[row].value();
            entry.bytes = bytes.map_or(entry.bytes, |b| Some(entry.bytes.unwrap_or(0) + b));
        }
        if let Some(op) = launching_op(view, op, &mut hint) {
            count(&mut entry.ops, (trace.cpu_ops.name[op], trace.cpu_ops.inputs[op]));
        }
    });
    sums
}

/// The operator that launched a piece of work: the innermost one around its API call.
pub(crate) fn launching_op(view: &LaneView<'_>, op: GpuOp, hint: &mut usize) -> Option<usize> {
    let call = view.api.call_near(op.correlation(view.lane.trace), hint)?;
    let op = view.tree.op_of_call[call as usize];
    (op != NO_OP).then_some(op as usize)
}

/// Few distinct keys, the same one mostly many times in a row: a list is faster than a map.
fn count<K: PartialEq>(counts: &mut Vec<(K, u64)>, key: K) {
    match counts.iter_mut().rev().find(|(other, _)| *other == key) {
        Some((_, n)) => *n += 1,
        None => counts.push((key, 1)),
    }
}

impl LaneSums {
    fn add_to(self, trace: &Trace, names: &KernelCategories<'_>, name: StringId, sums: &mut Sums) {
        let category = if self.is_kernel { names.of(name) } else { copy_account(self.copy_kind) };
        sums.category = category.to_owned();
        sums.first_position = match (sums.first_position, self.first_position) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        sums.durations.extend(self.durations);
        for (id, n) in self.configs {
            let config = trace.configs[id];
            *sums.configs.entry((config.grid, config.block)).or_default() += n;
        }
        for ((op, inputs), n) in self.ops {
            let dims = trace.text(trace.inputs[inputs].dims).to_owned();
            *sums.ops.entry((trace.text(op).to_owned(), dims)).or_default() += n;
        }
        sums.bytes = match (sums.bytes, self.bytes) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (a, b) => a.or(b),
        };
    }
}

fn summary(name: String, mut sums: Sums, n: f64, period: i64) -> KernelSummary {
    let total_ns: i64 = sums.durations.iter().sum();
    let calls = sums.durations.len() as u64;
    let config = most_frequent(&sums.configs).filter(|(grid, _)| *grid != [0; 3]);
    let op = most_frequent(&sums.ops);
    KernelSummary {
        name,
        category: sums.category,
        calls,
        calls_per_step: calls as f64 / n,
        total_ns,
        ns_per_step: total_ns as f64 / n,
        ratio: if period == 0 { 0.0 } else { total_ns as f64 / period as f64 },
        median_ns: stats::median(&mut sums.durations).unwrap_or(0.0),
        grid: config.map(|(grid, _)| grid),
        block: config.map(|(_, block)| block),
        config_count: sums.configs.len() as u64,
        first_position: sums.first_position,
        bytes: sums.bytes,
        op_dims: op.clone().map(|(_, dims)| dims).filter(|dims| !dims.is_empty()),
        op: op.map(|(op, _)| op),
    }
}

fn most_frequent<K: Clone + Ord + std::hash::Hash>(counts: &HashMap<K, u64>) -> Option<K> {
    // Ties go to the smaller key, so that the answer does not depend on the map's order.
    let most = counts.iter().max_by(|a, b| a.1.cmp(b.1).then_with(|| b.0.cmp(a.0)));
    most.map(|(key, _)| key.clone())
}
