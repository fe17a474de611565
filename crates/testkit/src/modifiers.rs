//! Modifiers: they change the event that was written last.

use steptally_trace_model::{Collective, ExtraArg, LaunchConfig, OpInputs, OptionalId, TableKind};

use crate::dsl::{AllReduce, Last, TraceDsl};

/// Sets a column of the last row, in whichever of these tables the last event is.
macro_rules! set {
    ($dsl:ident, $column:literal, $value:expr, $($last:ident => $table:ident.$field:ident),+) => {
        match $dsl.last {
            $(Last::$last => {
                let value = $value;
                if let Some(cell) = $dsl.builder.$table.$field.last_mut() {
                    *cell = value;
                }
            })+
            last => panic!("{} is not a column of {last:?}", $column),
        }
    };
}

/// Modifiers of the event just written.
impl TraceDsl {
    /// The correlation id.
    #[must_use]
    pub fn correlation(mut self, id: u64) -> Self {
        set!(self, "correlation", OptionalId::some(id), Kernel => kernels.correlation,
            Copy => copies.correlation, GraphTrace => graph_traces.correlation,
            Api => api_calls.correlation, Sync => syncs.correlation,
            GraphNode => graph_nodes.correlation);
        self
    }

    /// The external id.
    #[must_use]
    pub fn external(mut self, id: u64) -> Self {
        set!(self, "external id", OptionalId::some(id), Kernel => kernels.external,
            Copy => copies.external, Api => api_calls.external, CpuOp => cpu_ops.external,
            Range => ranges.external, GpuRange => gpu_ranges.external);
        self
    }

    /// Moves a GPU event to another stream of the current device.
    #[must_use]
    pub fn on_stream(mut self, stream: u64) -> Self {
        let id = self.stream_id(stream);
        set!(self, "stream", id, Kernel => kernels.stream, Copy => copies.stream,
            GraphTrace => graph_traces.stream, GpuRange => gpu_ranges.stream,
            Sync => syncs.stream);
        self
    }

    /// Blocks in x, y, z.
    #[must_use]
    pub fn grid(self, grid: [u32; 3]) -> Self {
        self.configure(|config| config.grid = grid)
    }

    /// Threads per block in x, y, z.
    #[must_use]
    pub fn block(self, block: [u32; 3]) -> Self {
        self.configure(|config| config.block = block)
    }

    /// Registers per thread.
    #[must_use]
    pub fn registers(self, registers: u32) -> Self {
        self.configure(|config| config.registers = Some(registers))
    }

    /// Shared memory per block, in bytes.
    #[must_use]
    pub fn shared_memory(self, bytes: u32) -> Self {
        self.configure(|config| config.shared_memory_bytes = Some(bytes))
    }

    /// The recorder's estimate of achieved occupancy, in percent.
    #[must_use]
    pub fn occupancy(self, percent: u32) -> Self {
        self.configure(|config| config.occupancy_percent = Some(percent))
    }

    fn configure(mut self, change: impl FnOnce(&mut LaunchConfig)) -> Self {
        let mut config = match (self.last, self.builder.kernels.config.last()) {
            (Last::Kernel, Some(&id)) => self.builder.configs[id],
            (last, _) => panic!("{last:?} has no launch configuration"),
        };
        change(&mut config);
        let id = self.builder.configs.intern(config);
        set!(self, "launch configuration", id, Kernel => kernels.config);
        self
    }

    /// Bytes moved or filled.
    #[must_use]
    pub fn bytes(mut self, bytes: u64) -> Self {
        set!(self, "bytes", OptionalId::some(bytes), Copy => copies.bytes);
        self
    }

    /// Whether the host side of a copy is pageable memory; the copy's name follows.
    #[must_use]
    pub fn pageable(mut self, pageable: bool) -> Self {
        set!(self, "pageable", Some(pageable), Copy => copies.pageable);
        let name = self.builder.copies.name.last().map(|&id| self.builder.text(id).to_owned());
        let name = name.unwrap_or_default();
        let name = match pageable {
            true => name.replace("Pinned", "Pageable"),
            false => name.replace("Pageable", "Pinned"),
        };
        let name = self.text(&name);
        set!(self, "name", name, Copy => copies.name);
        self
    }

    /// The graph node id.
    #[must_use]
    pub fn graph_node(mut self, id: u64) -> Self {
        set!(self, "graph node id", OptionalId::some(id), Kernel => kernels.graph_node,
            Copy => copies.graph_node, GraphNode => graph_nodes.graph_node);
        self
    }

    /// The graph id.
    #[must_use]
    pub fn graph(mut self, id: u64) -> Self {
        set!(self, "graph id", OptionalId::some(id), Kernel => kernels.graph,
            GraphTrace => graph_traces.graph, GraphNode => graph_nodes.graph);
        self
    }

    /// The node that a graph node was cloned from.
    #[must_use]
    pub fn cloned_from(mut self, node: u64) -> Self {
        set!(self, "original node", OptionalId::some(node), GraphNode => graph_nodes.original_node);
        self
    }

    /// An all-reduce.
    #[must_use]
    pub fn all_reduce(self, all_reduce: AllReduce) -> Self {
        self.collective("allreduce", all_reduce)
    }

    /// A collective of any name whose ranks give and receive the same number of elements.
    #[must_use]
    pub fn collective(mut self, name: &str, of: AllReduce) -> Self {
        let ranks: Vec<_> = (0..of.group_size).map(|rank| rank.to_string()).collect();
        let collective = Collective {
            name: self.text(name),
            process_group: self.text(of.process_group),
            description: self.text("undefined"),
            ranks: self.text(&format!("[{}]", ranks.join(", "))),
            dtype: self.text(of.dtype),
            in_elements: OptionalId::some(of.elements),
            out_elements: OptionalId::some(of.elements),
            group_size: Some(of.group_size),
            sequence: OptionalId::from(of.sequence),
        };
        let id = self.builder.collectives.intern(collective);
        set!(self, "collective", id, Kernel => kernels.collective, CpuOp => cpu_ops.collective);
        self
    }

    /// JSON text of an operator's `Input type`.
    #[must_use]
    pub fn input_types(self, types: &str) -> Self {
        self.change_inputs(types, |inputs, text| inputs.types = text)
    }

    /// JSON text of an operator's `Concrete Inputs`.
    #[must_use]
    pub fn concrete_inputs(self, concrete: &str) -> Self {
        self.change_inputs(concrete, |inputs, text| inputs.concrete = text)
    }

    fn change_inputs(
        mut self,
        text: &str,
        change: impl FnOnce(&mut OpInputs, steptally_trace_model::StringId),
    ) -> Self {
        let text = self.text(text);
        let mut inputs = match (self.last, self.builder.cpu_ops.inputs.last()) {
            (Last::CpuOp, Some(&id)) => self.builder.inputs[id],
            (last, _) => panic!("{last:?} has no inputs"),
        };
        change(&mut inputs, text);
        let id = self.builder.inputs.intern(inputs);
        set!(self, "inputs", id, CpuOp => cpu_ops.inputs);
        self
    }

    /// The autograd sequence number of an operator.
    #[must_use]
    pub fn sequence(mut self, number: u64) -> Self {
        set!(self, "sequence", OptionalId::some(number), CpuOp => cpu_ops.sequence);
        self
    }

    /// `Python id` and, for a frame that has a caller, `Python parent id`.
    #[must_use]
    pub fn python_ids(mut self, id: u64, parent: Option<u64>) -> Self {
        set!(self, "Python id", OptionalId::some(id), Frame => frames.python);
        set!(self, "Python parent id", OptionalId::from(parent), Frame => frames.parent);
        self
    }

    /// The NVTX domain of a range.
    #[must_use]
    pub fn domain(mut self, domain: &str) -> Self {
        let domain = self.text(domain);
        set!(self, "domain", domain, Range => ranges.domain);
        self
    }

    /// Marks a range as one whose end was not recorded.
    #[must_use]
    pub fn left_open(mut self) -> Self {
        set!(self, "open", true, Range => ranges.open);
        self
    }

    /// What a synchronisation waited for: a stream, and the call that recorded the event.
    #[must_use]
    pub fn waits_for(mut self, stream: u64, record_correlation: u64) -> Self {
        set!(self, "wait_on_stream", OptionalId::some(stream), Sync => syncs.wait_on_stream);
        set!(self, "wait_on_correlation", OptionalId::some(record_correlation),
            Sync => syncs.wait_on_correlation);
        self
    }

    /// An argument kept on demand, its value as JSON text.
    #[must_use]
    pub fn arg(mut self, key: &str, value: &str) -> Self {
        let (table, rows) = match self.last {
            Last::Kernel => (TableKind::Kernel, self.builder.kernels.len()),
            Last::Copy => (TableKind::Copy, self.builder.copies.len()),
            Last::Api => (TableKind::Api, self.builder.api_calls.len()),
            Last::CpuOp => (TableKind::CpuOp, self.builder.cpu_ops.len()),
            Last::Range => (TableKind::Range, self.builder.ranges.len()),
            Last::Frame => (TableKind::Frame, self.builder.frames.len()),
            last => panic!("{last:?} has no extra arguments"),
        };
        let (key, value) = (self.text(key), self.text(value));
        self.builder.extra_args.push(ExtraArg { table, row: (rows - 1) as u32, key, value });
        self
    }
}
