//! A whole trace, and the builder that importers fill.

use std::collections::HashMap;

use crate::tables::{
    ApiTable, CopyTable, CounterTable, CpuOpTable, FlowTable, FrameTable, GpuRangeTable,
    GraphNodeTable, GraphTraceTable, KernelTable, OsCallTable, OverheadTable, RangeTable,
    SyncTable, TableKind,
};
use crate::{
    CollectiveId, InputsId, LaunchConfigId, OptionalId, Pool, ProcessId, StreamId, StringId,
    Strings, ThreadId, TraceMeta,
};

/// A process, by the text of its id (a number, or `CPU functions` in old traces).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Process {
    /// Process id as text, without a merged trace's rank prefix.
    pub pid: StringId,
}

/// A host thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Thread {
    /// Its process.
    pub process: ProcessId,
    /// Thread id as text.
    pub tid: StringId,
}

/// A GPU stream. Stream ids repeat over contexts, devices and processes, so all four identify it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stream {
    /// The process that launches into it. torch.profiler does not say; there it is a placeholder.
    pub process: ProcessId,
    /// Device ordinal as the process sees it.
    pub device: Option<u32>,
    /// CUDA context.
    pub context: OptionalId,
    /// Stream number.
    pub stream: OptionalId,
}

/// How a kernel was launched. All sizes in the units that CUDA uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LaunchConfig {
    /// Blocks in x, y, z; zeros when not recorded.
    pub grid: [u32; 3],
    /// Threads per block in x, y, z; zeros when not recorded.
    pub block: [u32; 3],
    /// Registers per thread.
    pub registers: Option<u32>,
    /// Shared memory per block, static and dynamic.
    pub shared_memory_bytes: Option<u32>,
    /// The recorder's estimate of achieved occupancy, in percent.
    pub occupancy_percent: Option<u32>,
}

/// What an operator was called with, each the JSON text as recorded, empty when not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OpInputs {
    /// `Input Dims`, `[[4, 2048], [], []]`.
    pub dims: StringId,
    /// `Input type`, `["c10::BFloat16", "", ""]`.
    pub types: StringId,
    /// `Concrete Inputs`, `["", "2", "[4, 1]"]`.
    pub concrete: StringId,
}

/// What a communication kernel or op communicates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Collective {
    /// `Collective name`, `allreduce`.
    pub name: StringId,
    /// `Process Group Name`.
    pub process_group: StringId,
    /// `Process Group Description`.
    pub description: StringId,
    /// `Process Group Ranks` as recorded.
    pub ranks: StringId,
    /// `dtype`, `BFloat16`.
    pub dtype: StringId,
    /// `In msg nelems`: elements given.
    pub in_elements: OptionalId,
    /// `Out msg nelems`: elements received.
    pub out_elements: OptionalId,
    /// `Group size`.
    pub group_size: Option<u32>,
    /// `Seq`: position within the process group.
    pub sequence: OptionalId,
}

/// An argument kept on demand (see the importer's options), as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtraArg {
    /// The row's table.
    pub table: TableKind,
    /// The row.
    pub row: u32,
    /// Argument name.
    pub key: StringId,
    /// Argument value, JSON text as recorded.
    pub value: StringId,
}

macro_rules! parts {
    ($($field:ident: $ty:ty, $doc:literal;)*) => {
        /// What one rank recorded, frozen: tables sorted by start, ids valid within this trace.
        ///
        /// Equality of ids means equality of what they stand for only within one trace.
        #[derive(Clone, Debug, Default)]
        pub struct Trace {
            /// What the trace says about itself.
            pub meta: TraceMeta,
            /// Every text of the trace.
            pub strings: Strings,
            /// Processes.
            pub processes: Pool<ProcessId, Process>,
            /// Host threads.
            pub threads: Pool<ThreadId, Thread>,
            /// GPU streams.
            pub streams: Pool<StreamId, Stream>,
            /// Launch configurations.
            pub configs: Pool<LaunchConfigId, LaunchConfig>,
            /// Operator inputs.
            pub inputs: Pool<InputsId, OpInputs>,
            /// Collectives.
            pub collectives: Pool<CollectiveId, Collective>,
            /// Names of processes, where recorded.
            pub process_names: HashMap<ProcessId, StringId>,
            /// Names of threads, where recorded.
            pub thread_names: HashMap<ThreadId, StringId>,
            /// Arguments kept on demand, by table and row.
            pub extra_args: Vec<ExtraArg>,
            $(#[doc = $doc] pub $field: $ty,)*
        }

        impl Trace {
            /// Number of events in all tables.
            #[must_use]
            pub fn event_count(&self) -> usize {
                0 $(+ self.$field.len())*
            }

            fn shrink(&mut self) {
                $(self.$field.shrink();)*
            }
        }
    };
}

parts! {
    kernels: KernelTable, "Kernels.";
    copies: CopyTable, "Copies and fills.";
    graph_traces: GraphTraceTable, "Graph replays recorded as a whole.";
    api_calls: ApiTable, "Runtime and driver calls.";
    os_calls: OsCallTable, "Calls into the operating system's libraries.";
    cpu_ops: CpuOpTable, "Operators.";
    ranges: RangeTable, "Ranges on the host.";
    gpu_ranges: GpuRangeTable, "Ranges mirrored onto streams.";
    frames: FrameTable, "Python frames.";
    syncs: SyncTable, "Synchronisation.";
    overheads: OverheadTable, "The recorder's own time.";
    graph_nodes: GraphNodeTable, "Graph nodes as created.";
    counters: CounterTable, "Counter samples.";
    flows: FlowTable, "Flow arrows.";
}

impl Trace {
    /// The text of a string id.
    #[must_use]
    pub fn text(&self, id: StringId) -> &str {
        self.strings.text(id)
    }

    /// The device of a stream, `None` when not recorded.
    #[must_use]
    pub fn device_of(&self, stream: StreamId) -> Option<u32> {
        self.streams.get(stream).and_then(|stream| stream.device)
    }

    /// The rank's number, if known.
    #[must_use]
    pub fn rank(&self) -> Option<u32> {
        self.meta.rank.as_ref().map(|rank| rank.number)
    }

    /// Number of events in all tables that represent GPU work.
    #[must_use]
    pub fn gpu_event_count(&self) -> usize {
        self.kernels.len() + self.copies.len() + self.graph_traces.len()
    }
}

/// A trace under construction. Parts of one file may be built apart (by several threads) and then
/// appended in file order.
#[derive(Clone, Debug)]
pub struct TraceBuilder {
    trace: Trace,
}

impl Default for TraceBuilder {
    fn default() -> Self {
        let mut trace = Trace::default();
        trace.configs.intern(LaunchConfig::default());
        trace.inputs.intern(OpInputs::default());
        trace.collectives.intern(Collective::default());
        Self { trace }
    }
}

impl std::ops::Deref for TraceBuilder {
    type Target = Trace;
    fn deref(&self) -> &Trace {
        &self.trace
    }
}

impl std::ops::DerefMut for TraceBuilder {
    fn deref_mut(&mut self) -> &mut Trace {
        &mut self.trace
    }
}

impl TraceBuilder {
    /// The thread `tid` of process `pid`, both as text.
    pub fn thread(&mut self, pid: &str, tid: &str) -> ThreadId {
        let process = self.process(pid);
        let tid = self.trace.strings.intern(tid);
        self.trace.threads.intern(Thread { process, tid })
    }

    /// The process `pid`, as text.
    pub fn process(&mut self, pid: &str) -> ProcessId {
        let pid = self.trace.strings.intern(pid);
        self.trace.processes.intern(Process { pid })
    }

    /// Appends the events of a later part. Its metadata (`meta`) is not taken over, but for
    /// `partial`.
    pub fn append(&mut self, part: Self) {
        let part = part.trace;
        self.trace.meta.partial |= part.meta.partial;
        let map = IdMap::new(&mut self.trace, &part);
        map.append_tables(&mut self.trace, part);
    }

    /// Sorts the tables and freezes the trace.
    #[must_use]
    pub fn finish(self) -> Trace {
        let mut trace = self.trace;
        let moved = [
            (TableKind::Kernel, trace.kernels.sort()),
            (TableKind::Copy, trace.copies.sort()),
            (TableKind::Api, trace.api_calls.sort()),
            (TableKind::CpuOp, trace.cpu_ops.sort()),
            (TableKind::Range, trace.ranges.sort()),
            (TableKind::Frame, trace.frames.sort()),
        ];
        for arg in &mut trace.extra_args {
            let table = moved.iter().find(|(table, _)| *table == arg.table);
            if let Some((_, Some(moved_to))) = table {
                arg.row = moved_to[arg.row as usize];
            }
        }
        trace.extra_args.sort_by_key(|arg| (arg.table, arg.row));
        trace.os_calls.sort();
        trace.graph_traces.sort();
        trace.gpu_ranges.sort();
        trace.syncs.sort();
        trace.overheads.sort();
        trace.graph_nodes.sort();
        trace.counters.sort();
        trace.flows.sort();
        trace.shrink();
        trace
    }
}

/// Where the ids of a part went in the whole.
struct IdMap {
    strings: Vec<StringId>,
    threads: Vec<ThreadId>,
    streams: Vec<StreamId>,
    configs: Vec<LaunchConfigId>,
    inputs: Vec<InputsId>,
    collectives: Vec<CollectiveId>,
}

impl IdMap {
    fn new(whole: &mut Trace, part: &Trace) -> Self {
        let strings: Vec<_> =
            part.strings.iter().map(|(_, text)| whole.strings.intern(text)).collect();
        let text = |id: StringId| strings[id.index()];
        let processes: Vec<_> = part
            .processes
            .iter()
            .map(|(_, process)| whole.processes.intern(Process { pid: text(process.pid) }))
            .collect();
        let threads: Vec<_> = part
            .threads
            .iter()
            .map(|(_, thread)| {
                whole.threads.intern(Thread {
                    process: processes[thread.process.index()],
                    tid: text(thread.tid),
                })
            })
            .collect();
        // A stream's process may be the placeholder 0 while no process is known.
        let process = |id: ProcessId| processes.get(id.index()).copied().unwrap_or_default();
        let streams = part
            .streams
            .iter()
            .map(|(_, stream)| {
                whole.streams.intern(Stream { process: process(stream.process), ..*stream })
            })
            .collect();
        let configs =
            part.configs.iter().map(|(_, config)| whole.configs.intern(*config)).collect();
        let inputs = part
            .inputs
            .iter()
            .map(|(_, inputs)| {
                whole.inputs.intern(OpInputs {
                    dims: text(inputs.dims),
                    types: text(inputs.types),
                    concrete: text(inputs.concrete),
                })
            })
            .collect();
        let collectives = part
            .collectives
            .iter()
            .map(|(_, collective)| {
                whole.collectives.intern(Collective {
                    name: text(collective.name),
                    process_group: text(collective.process_group),
                    description: text(collective.description),
                    ranks: text(collective.ranks),
                    dtype: text(collective.dtype),
                    ..*collective
                })
            })
            .collect();
        for (id, name) in &part.process_names {
            whole.process_names.insert(processes[id.index()], text(*name));
        }
        for (id, name) in &part.thread_names {
            whole.thread_names.insert(threads[id.index()], text(*name));
        }
        Self { strings, threads, streams, configs, inputs, collectives }
    }

    fn append_tables(&self, whole: &mut Trace, part: Trace) {
        let rows_before = |table| match table {
            TableKind::Kernel => whole.kernels.len(),
            TableKind::Copy => whole.copies.len(),
            TableKind::Api => whole.api_calls.len(),
            TableKind::CpuOp => whole.cpu_ops.len(),
            TableKind::Range => whole.ranges.len(),
            TableKind::Frame => whole.frames.len(),
        };
        let extra: Vec<_> = part
            .extra_args
            .iter()
            .map(|arg| ExtraArg {
                table: arg.table,
                row: arg.row + rows_before(arg.table) as u32,
                key: self.strings[arg.key.index()],
                value: self.strings[arg.value.index()],
            })
            .collect();
        whole.extra_args.extend(extra);
        // Column by column: plain columns are copied, id columns mapped.
        macro_rules! append {
            ($($table:ident { $($plain:ident)* $(, $column:ident by $map:ident)* })*) => {$(
                $(whole.$table.$plain.extend_from_slice(&part.$table.$plain);)*
                $(whole.$table.$column.extend(
                    part.$table.$column.iter().map(|id| self.$map[id.index()])
                );)*
            )*};
        }
        append! {
            kernels { start duration correlation external graph_node graph,
                name by strings, stream by streams, config by configs, collective by collectives }
            copies { start duration kind pageable correlation external bytes graph_node,
                name by strings, stream by streams }
            graph_traces { start duration correlation graph, stream by streams }
            api_calls { start duration correlation external, name by strings, thread by threads }
            os_calls { start duration, name by strings, thread by threads }
            cpu_ops { start duration external sequence,
                name by strings, thread by threads, inputs by inputs, collective by collectives }
            ranges { start duration external kind open,
                name by strings, domain by strings, thread by threads }
            gpu_ranges { start duration external, name by strings, stream by streams }
            frames { start duration python parent, name by strings, thread by threads }
            syncs { start duration correlation wait_on_stream wait_on_correlation,
                name by strings, stream by streams }
            overheads { start duration, name by strings, thread by threads }
            graph_nodes { start duration graph_node graph original_node correlation,
                name by strings, thread by threads }
            counters { start duration value device, name by strings }
            flows { start duration id phase, category by strings, thread by threads }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KernelRow, Nanos, Timestamp};

    fn kernel(builder: &mut TraceBuilder, start: i64, name: &str) {
        let name = builder.strings.intern(name);
        let stream = builder.streams.intern(Stream { device: Some(0), ..Stream::default() });
        builder.kernels.push(KernelRow {
            start: Timestamp::from_ns(start),
            duration: Nanos::from_ns(5),
            name,
            stream,
            correlation: OptionalId::NONE,
            external: OptionalId::NONE,
            config: LaunchConfigId::default(),
            graph_node: OptionalId::NONE,
            graph: OptionalId::NONE,
            collective: CollectiveId::default(),
        });
    }

    #[test]
    fn parts_are_joined_by_what_ids_stand_for() {
        let mut whole = TraceBuilder::default();
        kernel(&mut whole, 20, "gemm");
        let mut part = TraceBuilder::default();
        kernel(&mut part, 10, "norm");
        kernel(&mut part, 30, "gemm");
        let key = part.strings.intern("k");
        part.extra_args.push(ExtraArg { table: TableKind::Kernel, row: 0, key, value: key });
        whole.append(part);
        let trace = whole.finish();
        let names: Vec<_> = trace.kernels.name.iter().map(|&id| trace.text(id)).collect();
        assert_eq!(names, ["norm", "gemm", "gemm"]);
        assert_eq!(trace.kernels.name[1], trace.kernels.name[2]);
        assert_eq!(trace.streams.len(), 1);
        // The extra argument followed its row: part row 0 -> whole row 1 -> sorted row 0.
        assert_eq!(trace.extra_args[0].row, 0);
        assert_eq!(trace.text(trace.extra_args[0].key), "k");
    }

    #[test]
    fn a_parent_sorts_before_a_child_with_the_same_start() {
        let mut builder = TraceBuilder::default();
        kernel(&mut builder, 10, "short");
        kernel(&mut builder, 10, "long");
        builder.kernels.duration[1] = Nanos::from_ns(9);
        let trace = builder.finish();
        assert_eq!(trace.text(trace.kernels.name[0]), "long");
    }
}
