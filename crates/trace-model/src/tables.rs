//! Event tables, one per kind of event, as structs of arrays.

use crate::{
    CollectiveId, InputsId, LaunchConfigId, Nanos, OptionalId, StreamId, StringId, ThreadId,
    Timestamp,
};

/// Which table a row is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TableKind {
    /// [`KernelTable`].
    Kernel,
    /// [`CopyTable`].
    Copy,
    /// [`ApiTable`].
    Api,
    /// [`CpuOpTable`].
    CpuOp,
    /// [`RangeTable`].
    Range,
    /// [`FrameTable`].
    Frame,
}

macro_rules! tables {
    ($(
        $(#[$doc:meta])*
        $table:ident of $row:ident { $( $(#[$field_doc:meta])* $field:ident: $ty:ty, )* }
    )*) => {$(
        #[doc = concat!("One row of [`", stringify!($table), "`].")]
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $row { $( $(#[$field_doc])* pub $field: $ty, )* }

        $(#[$doc])*
        ///
        /// Rows of a finished trace are sorted by start, longer rows first among equal starts.
        #[derive(Clone, Debug, Default)]
        pub struct $table { $( $(#[$field_doc])* pub $field: Vec<$ty>, )* }

        impl $table {
            /// Number of rows.
            #[must_use]
            pub fn len(&self) -> usize {
                self.start.len()
            }

            /// Whether there is no row.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.start.is_empty()
            }

            /// Adds a row.
            pub fn push(&mut self, row: $row) {
                $( self.$field.push(row.$field); )*
            }

            /// Row `index`.
            ///
            /// # Panics
            /// When `index` is not below [`len`](Self::len).
            #[must_use]
            pub fn row(&self, index: usize) -> $row {
                $row { $( $field: self.$field[index], )* }
            }

            /// All rows in order.
            pub fn rows(&self) -> impl ExactSizeIterator<Item = $row> + '_ {
                (0..self.len()).map(|index| self.row(index))
            }

            /// The end of row `index`: start plus duration.
            #[must_use]
            pub fn end(&self, index: usize) -> Timestamp {
                self.start[index] + self.duration[index]
            }

            /// Sorts by start, longer first, keeping the order of equals. Returns where each row
            /// went (`result[old] = new`), or `None` when the rows were in order already.
            pub(crate) fn sort(&mut self) -> Option<Vec<u32>> {
                let key = |row: usize| {
                    (self.start[row], std::cmp::Reverse(self.duration[row]))
                };
                if (1..self.len()).all(|row| key(row - 1) <= key(row)) {
                    return None;
                }
                let mut order: Vec<u32> = (0..self.len() as u32).collect();
                order.sort_by_key(|&row| key(row as usize));
                $( self.$field = order.iter().map(|&row| self.$field[row as usize]).collect(); )*
                let mut moved_to = vec![0; order.len()];
                for (new, &old) in order.iter().enumerate() {
                    moved_to[old as usize] = new as u32;
                }
                Some(moved_to)
            }

            pub(crate) fn shrink(&mut self) {
                $( self.$field.shrink_to_fit(); )*
            }
        }
    )*};
}

/// What a copy-engine operation did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CopyKind {
    /// Host to device.
    HostToDevice,
    /// Device to host.
    DeviceToHost,
    /// Within one device.
    DeviceToDevice,
    /// Between devices.
    PeerToPeer,
    /// Host to host.
    HostToHost,
    /// A fill (memset).
    Memset,
    /// A copy whose direction was not recorded.
    #[default]
    Unknown,
}

/// What a range of the host is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RangeKind {
    /// `record_function` / user annotation of torch.profiler.
    #[default]
    Annotation,
    /// NVTX push/pop: nested within its thread.
    NvtxPushPop,
    /// NVTX start/end: may end on another thread.
    NvtxStartEnd,
    /// NVTX mark: a point; its duration is zero.
    NvtxMark,
}

/// Which end of a flow arrow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FlowPhase {
    /// `ph: s`.
    #[default]
    Start,
    /// `ph: t`.
    Step,
    /// `ph: f`.
    End,
}

tables! {
    /// Kernels as they ran on the GPU.
    KernelTable of KernelRow {
        /// When it began to run.
        start: Timestamp,
        /// How long it ran.
        duration: Nanos,
        /// Demangled name.
        name: StringId,
        /// Where it ran.
        stream: StreamId,
        /// Correlation id: that of the API call which launched it. All kernels of a graph replay
        /// share the one of the graph launch. Unique within a process only.
        correlation: OptionalId,
        /// External id: the CPU op (or range) that the recorder ties it to.
        external: OptionalId,
        /// Grid, block, registers, shared memory.
        config: LaunchConfigId,
        /// Graph node id, for a kernel of a graph replay recorded by node.
        graph_node: OptionalId,
        /// Graph id (exec or template, as recorded).
        graph: OptionalId,
        /// What a communication kernel communicates.
        collective: CollectiveId,
    }

    /// Copies and fills as they ran on the GPU.
    CopyTable of CopyRow {
        /// When it began.
        start: Timestamp,
        /// How long it took.
        duration: Nanos,
        /// As recorded, `Memcpy DtoD (Device -> Device)`.
        name: StringId,
        /// What it did.
        kind: CopyKind,
        /// Whether the host side is pageable memory; `None` when not recorded or no host side.
        pageable: Option<bool>,
        /// Where it ran.
        stream: StreamId,
        /// Correlation id, as for kernels.
        correlation: OptionalId,
        /// External id, as for kernels.
        external: OptionalId,
        /// Bytes moved or filled.
        bytes: OptionalId,
        /// Graph node id, as for kernels.
        graph_node: OptionalId,
    }

    /// A graph replay recorded as a whole (nsys `--cuda-graph-trace=graph`): busy time of unknown
    /// content.
    GraphTraceTable of GraphTraceRow {
        /// When the first node began.
        start: Timestamp,
        /// Until the last node ended.
        duration: Nanos,
        /// Where it ran.
        stream: StreamId,
        /// Correlation id of the launch.
        correlation: OptionalId,
        /// Graph id.
        graph: OptionalId,
    }

    /// Calls of the CUDA (or HIP) runtime and driver on the host.
    ApiTable of ApiRow {
        /// When the call began.
        start: Timestamp,
        /// Until it returned.
        duration: Nanos,
        /// Function name, `cudaLaunchKernel`.
        name: StringId,
        /// The calling thread.
        thread: ThreadId,
        /// Correlation id, shared with the GPU work it enqueued.
        correlation: OptionalId,
        /// External id: the CPU op it was made for.
        external: OptionalId,
    }

    /// Calls into the operating system's libraries (`poll`, `pthread_cond_timedwait`), apart from
    /// [`ApiTable`] so that they do not disturb the account of CUDA calls.
    OsCallTable of OsCallRow {
        /// When the call began.
        start: Timestamp,
        /// Until it returned.
        duration: Nanos,
        /// Function name.
        name: StringId,
        /// The calling thread.
        thread: ThreadId,
    }

    /// Operators of the framework on the host (`aten::copy_`).
    CpuOpTable of CpuOpRow {
        /// When the operator began.
        start: Timestamp,
        /// Until it returned.
        duration: Nanos,
        /// Operator name.
        name: StringId,
        /// The calling thread.
        thread: ThreadId,
        /// External id.
        external: OptionalId,
        /// Input shapes, types and concrete values, when recorded.
        inputs: InputsId,
        /// Autograd sequence number.
        sequence: OptionalId,
        /// What it communicates (`record_param_comms`, `nccl:all_reduce`).
        collective: CollectiveId,
    }

    /// Ranges that the user or the engine marked on the host.
    RangeTable of RangeRow {
        /// When the range was opened.
        start: Timestamp,
        /// Until it was closed; see `open`.
        duration: Nanos,
        /// Its text.
        name: StringId,
        /// NVTX domain; empty for the default domain and for annotations.
        domain: StringId,
        /// The thread that opened it.
        thread: ThreadId,
        /// External id, for annotations.
        external: OptionalId,
        /// What kind of range it is.
        kind: RangeKind,
        /// Whether no end was recorded. The duration is then up to the end of the trace.
        open: bool,
    }

    /// Ranges as the recorder mirrored them onto a GPU stream (`gpu_user_annotation`).
    GpuRangeTable of GpuRangeRow {
        /// When the first GPU work of the range began.
        start: Timestamp,
        /// Until its last ended.
        duration: Nanos,
        /// Its text.
        name: StringId,
        /// On which stream.
        stream: StreamId,
        /// External id of the range on the host.
        external: OptionalId,
    }

    /// Python frames (`with_stack`), including `nn.Module` calls.
    FrameTable of FrameRow {
        /// When the function was entered.
        start: Timestamp,
        /// Until it returned.
        duration: Nanos,
        /// `path(line): function`, or `nn.Module: Linear_0`.
        name: StringId,
        /// The thread.
        thread: ThreadId,
        /// `Python id`.
        python: OptionalId,
        /// `Python parent id`.
        parent: OptionalId,
    }

    /// Synchronisation as the GPU side records it (`cuda_sync`).
    SyncTable of SyncRow {
        /// When it began.
        start: Timestamp,
        /// How long it took.
        duration: Nanos,
        /// `Stream Synchronize`, `Event Synchronize`, `Stream Wait Event`, ...
        name: StringId,
        /// The stream it is on.
        stream: StreamId,
        /// Correlation id of the API call.
        correlation: OptionalId,
        /// The stream waited on, for an event wait.
        wait_on_stream: OptionalId,
        /// Correlation id of the event record waited on.
        wait_on_correlation: OptionalId,
    }

    /// Time that the recorder itself took (`overhead`).
    OverheadTable of OverheadRow {
        /// When it began.
        start: Timestamp,
        /// How long it took.
        duration: Nanos,
        /// `Activity Buffer Request`, `CUPTI overhead`, ...
        name: StringId,
        /// The thread it is attributed to.
        thread: ThreadId,
    }

    /// Nodes of graphs as they were created on the host (`graph_host_node`, nsys graph node
    /// events).
    GraphNodeTable of GraphNodeRow {
        /// When the node was created.
        start: Timestamp,
        /// How long creating it took.
        duration: Nanos,
        /// Name, when recorded.
        name: StringId,
        /// The thread.
        thread: ThreadId,
        /// Node id: that of its kernels in a replay.
        graph_node: OptionalId,
        /// Graph id.
        graph: OptionalId,
        /// The node it was cloned from.
        original_node: OptionalId,
        /// Correlation id.
        correlation: OptionalId,
    }

    /// Samples of counters.
    CounterTable of CounterRow {
        /// When it was sampled.
        start: Timestamp,
        /// Always zero: a sample is a point.
        duration: Nanos,
        /// Counter and series, `[GPU 0] DRAM read`.
        name: StringId,
        /// The value; not a number where the input had none.
        value: f64,
        /// The device it is about.
        device: OptionalId,
    }

    /// Flow arrows, other than `ac2g` ones that only repeat correlation ids.
    FlowTable of FlowRow {
        /// Where the arrow's end is.
        start: Timestamp,
        /// Always zero: an end of an arrow is a point.
        duration: Nanos,
        /// Category, `fwdbwd`, `async_npu`.
        category: StringId,
        /// The track (thread or stream, as a thread) it is on.
        thread: ThreadId,
        /// Flow id.
        id: OptionalId,
        /// Which end.
        phase: FlowPhase,
    }
}
