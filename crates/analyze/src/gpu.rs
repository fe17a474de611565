//! The GPU work of one device of one rank, in time order, before and after the quality gate.

use steptally_trace_model::interval::{Interval, union_length_sorted};
use steptally_trace_model::{Nanos, OptionalId, StreamId, Timestamp, Trace};

use crate::results::{DeviceUse, LeftOut};

/// Which table a piece of GPU work is a row of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum GpuKind {
    Kernel,
    Copy,
    OpaqueGraph,
}

/// One piece of GPU work. `end` may have been cut by the quality gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GpuOp {
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
    pub(crate) kind: GpuKind,
    pub(crate) row: u32,
}

impl GpuOp {
    pub(crate) fn interval(self) -> Interval {
        Interval { start: self.start, end: self.end }
    }

    pub(crate) fn correlation(self, trace: &Trace) -> OptionalId {
        let row = self.row as usize;
        match self.kind {
            GpuKind::Kernel => trace.kernels.correlation[row],
            GpuKind::Copy => trace.copies.correlation[row],
            GpuKind::OpaqueGraph => trace.graph_traces.correlation[row],
        }
    }

    pub(crate) fn external(self, trace: &Trace) -> OptionalId {
        let row = self.row as usize;
        match self.kind {
            GpuKind::Kernel => trace.kernels.external[row],
            GpuKind::Copy => trace.copies.external[row],
            GpuKind::OpaqueGraph => OptionalId::NONE,
        }
    }

    pub(crate) fn stream(self, trace: &Trace) -> StreamId {
        let row = self.row as usize;
        match self.kind {
            GpuKind::Kernel => trace.kernels.stream[row],
            GpuKind::Copy => trace.copies.stream[row],
            GpuKind::OpaqueGraph => trace.graph_traces.stream[row],
        }
    }
}

/// One device of one rank: the unit that steps and the ledger are worked out for.
#[derive(Clone, Debug)]
pub(crate) struct Lane<'a> {
    pub(crate) trace: &'a Trace,
    pub(crate) device: Option<u32>,
    /// Sorted by start, longer first.
    pub(crate) ops: Vec<GpuOp>,
    pub(crate) left_out: LeftOut,
}

impl Lane<'_> {
    pub(crate) fn rank(&self) -> Option<u32> {
        self.trace.rank()
    }

    /// From the first start to the last end.
    pub(crate) fn span(&self) -> Option<Interval> {
        let start = self.ops.first()?.start;
        let end = self.ops.iter().map(|op| op.end).max()?;
        Some(Interval { start, end })
    }
}

/// The lanes of a trace as recorded, ordered by device, unknown devices last.
pub(crate) fn lanes(trace: &Trace) -> Vec<Lane<'_>> {
    let mut devices: Vec<Option<u32>> = Vec::new();
    let mut lane_of_stream = Vec::new();
    for (_, stream) in trace.streams.iter() {
        let lane = devices.iter().position(|device| *device == stream.device);
        lane_of_stream.push(lane.unwrap_or_else(|| {
            devices.push(stream.device);
            devices.len() - 1
        }));
    }
    let mut ops: Vec<Vec<GpuOp>> = vec![Vec::new(); devices.len()];
    if let [only] = ops.as_mut_slice() {
        only.reserve_exact(trace.gpu_event_count());
    }
    for op in in_time_order(trace) {
        ops[lane_of_stream[op.stream(trace).index()]].push(op);
    }
    let mut lanes: Vec<_> = devices
        .into_iter()
        .zip(ops)
        .filter(|(_, ops)| !ops.is_empty())
        .map(|(device, ops)| Lane { trace, device, ops, left_out: LeftOut::default() })
        .collect();
    lanes.sort_by_key(|lane| (lane.device.is_none(), lane.device));
    lanes
}

/// Merges the three tables of GPU work, each sorted by start.
fn in_time_order(trace: &Trace) -> impl Iterator<Item = GpuOp> + '_ {
    let tables = [
        (GpuKind::Kernel, &trace.kernels.start, &trace.kernels.duration),
        (GpuKind::Copy, &trace.copies.start, &trace.copies.duration),
        (GpuKind::OpaqueGraph, &trace.graph_traces.start, &trace.graph_traces.duration),
    ];
    let mut next = [0usize; 3];
    std::iter::from_fn(move || {
        let head = |table: usize| tables[table].1.get(next[table]).copied();
        let table = (0..3).filter(|&t| head(t).is_some()).min_by_key(|&t| head(t))?;
        let (kind, starts, durations) = tables[table];
        let row = next[table];
        next[table] += 1;
        Some(GpuOp { start: starts[row], end: starts[row] + durations[row], kind, row: row as u32 })
    })
}

/// GPU use of a lane, raw.
pub(crate) fn device_use(lane: &Lane<'_>) -> DeviceUse {
    let of_kind = |kind| lane.ops.iter().filter(move |op| op.kind == kind);
    let kernels = || of_kind(GpuKind::Kernel).map(|op| op.interval());
    let graphs = || of_kind(GpuKind::OpaqueGraph).map(|op| op.interval());
    let known = || lane.ops.iter().filter(|op| op.kind != GpuKind::OpaqueGraph);
    let sum = |intervals: &mut dyn Iterator<Item = Interval>| {
        intervals.map(Interval::length).sum::<Nanos>().as_ns()
    };
    let first = known().map(|op| op.start).next();
    let span = first.zip(known().map(|op| op.end).max()).map_or(0, |(a, b)| (b - a).as_ns());
    DeviceUse {
        rank: lane.rank(),
        device: lane.device,
        kernel_count: kernels().count() as u64,
        copy_count: of_kind(GpuKind::Copy).count() as u64,
        kernel_sum_ns: sum(&mut kernels()),
        kernel_busy_ns: union_length_sorted(kernels()).as_ns(),
        gpu_busy_ns: union_length_sorted(known().map(|op| op.interval())).as_ns(),
        gpu_span_ns: span,
        opaque_graph_count: graphs().count() as u64,
        opaque_graph_sum_ns: sum(&mut graphs()),
        left_out: LeftOut::default(),
    }
}
