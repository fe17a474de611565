//! Casts, copies, concatenations and fills of the selected steps: bytes, types, bandwidth, who asks
//! for them, and whether they go over a whole pool.

mod pool;
mod shapes;

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashMap;
use steptally_trace_model::{CopyKind, InputsId, LaunchConfigId, OptionalId, StringId, Trace};

use crate::Config;
use crate::categories::copy_account;
use crate::gpu::{GpuKind, GpuOp};
use crate::kernels::{for_each_in, launching_op};
use crate::layers::{Part, Parts};
use crate::links::ApiClass;
use crate::results::{Copies, CopySummary, Layers, SizeTrend, StepTable};
use crate::roofline::Hardware;
use crate::stats;
use crate::view::{LaneView, extent};
use shapes::Traffic;

/// How many elements the launch of a kernel goes over; `None` where its name does not tell.
pub(crate) fn elements_of_kernel(trace: &Trace, row: usize) -> Option<u64> {
    let config = trace.configs[trace.kernels.config[row]];
    shapes::elements_of_launch(trace.text(trace.kernels.name[row]), config.grid, config.block)
}

/// What else the copies are judged by.
pub(crate) struct Context<'c> {
    pub(crate) config: &'c Config,
    pub(crate) steps: &'c StepTable,
    pub(crate) layers: Option<&'c Layers>,
    pub(crate) parts: &'c Parts,
}

/// Whether a graph launch asked for it.
pub(crate) fn is_in_graph(view: &LaneView<'_>, op: GpuOp) -> bool {
    let trace = view.lane.trace;
    let class = view.api.class_of_launch(trace, op.correlation(trace));
    class == Some(ApiClass::GraphLaunch)
}

/// Name, operator and inputs; without an operator the launch configuration, which is all that says
/// how large the call is, and whether it is in a graph.
type Key = (StringId, Option<(StringId, InputsId)>, LaunchConfigId, bool);

/// Sums of one kind of copy.
struct Sums {
    category: String,
    kind: Option<CopyKind>,
    durations: Vec<i64>,
    /// Bytes recorded with the copies.
    bytes: Option<u64>,
    layers: BTreeSet<u64>,
    /// Step of all ranks: calls and recorded bytes.
    steps: BTreeMap<usize, (u64, u64)>,
}

impl Sums {
    fn new(category: &str, kind: Option<CopyKind>) -> Self {
        Self {
            category: category.to_owned(),
            kind,
            durations: Vec::new(),
            bytes: None,
            layers: BTreeSet::new(),
            steps: BTreeMap::new(),
        }
    }

    fn merge(&mut self, other: Self) {
        self.durations.extend(other.durations);
        self.bytes = match (self.bytes, other.bytes) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (a, b) => a.or(b),
        };
        self.layers.extend(other.layers);
        self.steps.extend(other.steps);
    }
}

/// The same for all traces, as text; empty when unknown.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Named<'a> {
    name: &'a str,
    op: &'a str,
    dims: &'a str,
    types: &'a str,
    grid: [u32; 3],
    block: [u32; 3],
    in_graph: bool,
}

impl Named<'_> {
    fn traffic(&self) -> Result<Traffic, String> {
        shapes::traffic(self.op, self.dims, self.types, self.name)
    }
}

/// Sums what moves data, most time first.
pub(crate) fn summarise(views: &[LaneView<'_>], context: &Context<'_>) -> Copies {
    let mut by_key: HashMap<Named<'_>, Sums> = HashMap::new();
    let mut first_step = 0;
    for (view, parts) in views.iter().zip(context.parts) {
        let trace = view.lane.trace;
        for ((name, op, config, in_graph), sums) in lane_sums(view, parts, first_step) {
            let text = |id| trace.text(id);
            let mut key = Named { name: text(name), in_graph, ..Named::default() };
            if let Some((op, inputs)) = op {
                let inputs = trace.inputs[inputs];
                key = Named {
                    op: text(op),
                    dims: text(inputs.dims),
                    types: text(inputs.types),
                    ..key
                };
            } else {
                let config = trace.configs[config];
                key = Named { grid: config.grid, block: config.block, ..key };
            }
            match by_key.get_mut(&key) {
                Some(known) => known.merge(sums),
                None => {
                    by_key.insert(key, sums);
                }
            }
        }
        first_step += view.windows.len();
    }
    let (n, period) = extent(views);
    let tokens = pool::tokens_in_flight(views, context.steps);
    let trends = trends(&by_key, n);
    let (bandwidth, bandwidth_source) = memory_bandwidth(views).unzip();
    let mut rows: Vec<CopySummary> = by_key
        .into_iter()
        .map(|(key, sums)| {
            let pool = pool::Judge { context, tokens, steps: n };
            let mut row = row(key, sums, n, period, bandwidth, &pool);
            row.size_trend = trends.get(&key).copied();
            row
        })
        .collect();
    rows.sort_by(|a, b| {
        b.total_ns.cmp(&a.total_ns).then_with(|| {
            (&a.name, &a.op, &a.op_dims, &a.op_types).cmp(&(
                &b.name,
                &b.op,
                &b.op_dims,
                &b.op_types,
            ))
        })
    });
    Copies {
        memory_bandwidth_bytes_per_s: bandwidth,
        memory_bandwidth_source: bandwidth_source.map(str::to_owned),
        tokens_in_flight: tokens,
        ns_per_step: rows.iter().map(|row| row.ns_per_step).sum(),
        rows,
    }
}

/// Whether a kernel of this category moves data without computing.
fn moves(category: &str) -> bool {
    category.starts_with("copy.") || category == "fill" || category == "kv.dequant"
}

fn lane_sums(view: &LaneView<'_>, parts: &[Part], first_step: usize) -> HashMap<Key, Sums> {
    let trace = view.lane.trace;
    let mut sums: HashMap<Key, Sums> = HashMap::new();
    let mut is_move: Vec<Option<bool>> = vec![None; trace.strings.len()];
    let (mut hint, mut window) = (0, 0);
    for_each_in(view.lane, &view.windows, |index, op| {
        let (name, category, kind) = match op.kind {
            GpuKind::Kernel => {
                let name = trace.kernels.name[op.row as usize];
                let category = view.categories.of(name);
                if !*is_move[name.index()].get_or_insert_with(|| moves(category)) {
                    return;
                }
                (name, category, None)
            }
            GpuKind::Copy => {
                let kind = trace.copies.kind[op.row as usize];
                (trace.copies.name[op.row as usize], copy_account(kind), Some(kind))
            }
            GpuKind::OpaqueGraph => return,
        };
        while view.windows.get(window).is_some_and(|within| within.end <= op.start) {
            window += 1;
        }
        let launcher = launching_op(view, op, &mut hint);
        let launcher = launcher.map(|row| (trace.cpu_ops.name[row], trace.cpu_ops.inputs[row]));
        let config = match (op.kind, launcher) {
            (GpuKind::Kernel, None) => trace.kernels.config[op.row as usize],
            _ => LaunchConfigId::default(),
        };
        let in_graph = launcher.is_none() && is_in_graph(view, op);
        let key = (name, launcher, config, in_graph);
        let entry = sums.entry(key).or_insert_with(|| Sums::new(category, kind));
        entry.add(trace, op, first_step + window, parts.get(index).copied());
    });
    sums
}

impl Sums {
    fn add(&mut self, trace: &Trace, op: GpuOp, step: usize, part: Option<Part>) {
        self.durations.push((op.end - op.start).as_ns());
        let bytes = match op.kind {
            GpuKind::Copy => trace.copies.bytes[op.row as usize],
            _ => OptionalId::NONE,
        };
        let bytes = bytes.value();
        let of_step = self.steps.entry(step).or_default();
        of_step.0 += 1;
        if let Some(bytes) = bytes {
            of_step.1 += bytes;
            self.bytes = Some(self.bytes.unwrap_or(0).saturating_add(bytes));
        }
        if let Some(Part::Layer(layer)) = part {
            self.layers.insert(u64::from(layer));
        }
    }
}

fn row(
    key: Named<'_>,
    mut sums: Sums,
    n: usize,
    period: i64,
    bandwidth: Option<f64>,
    pool: &pool::Judge<'_>,
) -> CopySummary {
    let total_ns: i64 = sums.durations.iter().sum();
    let calls = sums.durations.len() as u64;
    let traffic = match sums.kind {
        Some(kind) => recorded(kind, sums.bytes.map(|bytes| bytes as f64 / calls as f64)),
        None if key.op.is_empty() => Err(if key.in_graph {
            "no operator launched it: it is part of a graph replay".to_owned()
        } else {
            "the operator that launched it was not recorded".to_owned()
        }),
        None => key.traffic().map(Moved::from),
    };
    let (moved, bytes_unknown) = match traffic {
        Ok(moved) => (moved, None),
        Err(why) => (Moved::default(), Some(why)),
    };
    let by_name = if sums.kind.is_none() { shapes::written_by_kernel(key.name) } else { None };
    let partly = (moved.read.is_none() || moved.written.is_none()) && bytes_unknown.is_none();
    let bytes_unknown =
        bytes_unknown.or_else(|| partly.then(|| "the type of an operand is not known".to_owned()));
    let per_call = match (moved.read, moved.written) {
        (Some(read), Some(written)) => Some(read + written),
        _ => None,
    };
    let achieved =
        per_call.filter(|_| total_ns > 0).map(|b| b * calls as f64 * 1e9 / total_ns as f64);
    let on_device =
        sums.kind.is_none_or(|kind| matches!(kind, CopyKind::DeviceToDevice | CopyKind::Memset));
    let layers: Vec<u64> = sums.layers.iter().copied().collect();
    let every_step = sums.steps.len() == n;
    let elements = shapes::elements_of_launch(key.name, key.grid, key.block);
    let reach = pool::Reach { layers: &layers, every_step, calls, in_graph: key.in_graph };
    let pool_reason = match elements {
        Some(elements) => pool.reason_by_elements(elements, &reach),
        None => pool.reason(&moved.whole, &reach),
    };
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    CopySummary {
        name: key.name.to_owned(),
        category: sums.category,
        op: some(key.op),
        op_dims: some(key.dims),
        op_types: some(key.types),
        calls,
        calls_per_step: calls as f64 / n as f64,
        total_ns,
        ns_per_step: total_ns as f64 / n as f64,
        ratio: if period == 0 { 0.0 } else { total_ns as f64 / period as f64 },
        median_ns: stats::median(&mut sums.durations).unwrap_or(0.0),
        elements,
        in_graph: key.in_graph,
        read_bytes: moved.read,
        written_bytes: moved.written,
        bytes_unknown,
        source_dtype: moved.source.map(str::to_owned),
        destination_dtype: moved.destination.or(by_name).map(str::to_owned),
        achieved_bytes_per_s: achieved,
        bandwidth_ratio: achieved.filter(|_| on_device).zip(bandwidth).map(|(a, b)| a / b),
        size_trend: None,
        layers,
        pool_sized: pool_reason.is_some(),
        pool_reason,
    }
}

/// Mean bytes and types of a call.
#[derive(Default)]
struct Moved {
    read: Option<f64>,
    written: Option<f64>,
    source: Option<&'static str>,
    destination: Option<&'static str>,
    whole: Vec<Vec<u64>>,
}

impl From<Traffic> for Moved {
    fn from(traffic: Traffic) -> Self {
        Self {
            read: traffic.read_bytes.map(|bytes| bytes as f64),
            written: traffic.written_bytes.map(|bytes| bytes as f64),
            source: traffic.source,
            destination: traffic.destination,
            whole: traffic.whole,
        }
    }
}

/// A copy-engine operation: it says itself how much it moved.
fn recorded(kind: CopyKind, bytes: Option<f64>) -> Result<Moved, String> {
    let bytes = bytes.ok_or_else(|| "its size was not recorded".to_owned())?;
    let read = if kind == CopyKind::Memset { 0.0 } else { bytes };
    Ok(Moved { read: Some(read), written: Some(bytes), ..Moved::default() })
}

/// How sizes develop, for each kind of copy. Shapes that change make many rows of one name,
/// operator and type: those are judged together.
fn trends<'a>(by_key: &HashMap<Named<'a>, Sums>, n: usize) -> HashMap<Named<'a>, SizeTrend> {
    let mut families: HashMap<(&str, &str, &str), Vec<u64>> = HashMap::new();
    let size_of = |key: &Named<'_>, sums: &Sums| -> Option<u64> {
        if sums.kind.is_some() {
            return sums.bytes.map(|_| 0);
        }
        let moved = key.traffic().ok()?;
        moved.written_bytes.or(moved.read_bytes)
    };
    let sizes: HashMap<Named<'a>, u64> =
        by_key.iter().filter_map(|(key, sums)| Some((*key, size_of(key, sums)?))).collect();
    for (key, &size) in &sizes {
        let of_steps = families.entry((key.name, key.op, key.types)).or_insert_with(|| vec![0; n]);
        for (&step, &(calls, recorded)) in &by_key[key].steps {
            if let Some(total) = of_steps.get_mut(step) {
                *total += recorded + calls * size;
            }
        }
    }
    let trend = |totals: &[u64]| {
        let constant = totals.windows(2).all(|pair| pair[0] == pair[1]);
        let growing = totals.windows(2).all(|pair| pair[0] <= pair[1]);
        match (constant, growing) {
            (true, _) => SizeTrend::Constant,
            (_, true) => SizeTrend::Growing,
            _ => SizeTrend::Varying,
        }
    };
    if n < 2 {
        return HashMap::new();
    }
    sizes.keys().map(|key| (*key, trend(&families[&(key.name, key.op, key.types)]))).collect()
}

/// Peak memory bandwidth of the devices, when all are the same, and where it is from.
fn memory_bandwidth(views: &[LaneView<'_>]) -> Option<(f64, &'static str)> {
    let mut known: Option<(f64, &'static str)> = None;
    let hardware = Hardware::built_in().ok()?;
    for view in views {
        let device = view.lane.trace.meta.device(view.lane.device?)?;
        let found = match device.memory_bandwidth_bytes_per_s {
            Some(bandwidth) => (bandwidth as f64, "trace"),
            None => {
                let gpu = hardware.find(&device.name).ok()?;
                (gpu.memory_gb_s.value * 1e9, "hardware_table")
            }
        };
        if known.is_some_and(|known| known != found) {
            return None;
        }
        known = Some(found);
    }
    known
}
