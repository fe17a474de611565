//! The shared data model of a GPU profiler trace.
//!
//! One [`Trace`] holds what one rank recorded: one columnar table per kind of event
//! ([`KernelTable`], [`ApiTable`], ...), sorted by start, with small integer ids for everything
//! that repeats (names, threads, streams, launch configurations). Importers fill a
//! [`TraceBuilder`]; [`TraceBuilder::finish`] sorts and freezes it.
//!
//! Time is `i64` nanoseconds in two types: [`Timestamp`] (a point on the trace's clock) and
//! [`Nanos`] (a signed length). Nothing here knows a file format, an engine or a model.

mod ids;
pub mod interval;
mod issue;
pub mod manifest;
mod meta;
mod pool;
mod strings;
mod tables;
mod time;
mod trace;

pub use ids::{
    CollectiveId, InputsId, LaunchConfigId, OptionalId, ProcessId, StreamId, StringId, ThreadId,
};
pub use issue::{Example, Issue, Issues, Severity};
pub use meta::{DeviceProperties, ProcessGroup, Rank, RankSource, TraceFormat, TraceMeta, Window};
pub use pool::Pool;
pub use strings::Strings;
pub use tables::{
    ApiRow, ApiTable, CopyKind, CopyRow, CopyTable, CounterRow, CounterTable, CpuOpRow, CpuOpTable,
    FlowPhase, FlowRow, FlowTable, FrameRow, FrameTable, GpuRangeRow, GpuRangeTable, GraphNodeRow,
    GraphNodeTable, GraphTraceRow, GraphTraceTable, KernelRow, KernelTable, OsCallRow, OsCallTable,
    OverheadRow, OverheadTable, RangeKind, RangeRow, RangeTable, SyncRow, SyncTable, TableKind,
};
pub use time::{Nanos, Timestamp};
pub use trace::{
    Collective, ExtraArg, LaunchConfig, OpInputs, Process, Stream, Thread, Trace, TraceBuilder,
};
