//! Writes a built trace as `torch.profiler` (Kineto) would.

use std::fmt::Write as _;

use steptally_trace_model::{
    CollectiveId, FlowPhase, Nanos, OptionalId, RangeKind, StreamId, TableKind, ThreadId,
    Timestamp, Trace,
};

/// The trace as Kineto-like JSON text: one event a line, times as decimal microseconds with up to
/// three decimals, exact to the nanosecond.
///
/// What the format cannot say is lost: the process of a stream, NVTX kinds and domains (written as
/// annotations), graph replays recorded as a whole. `ac2g` arrows are written for every API call
/// whose correlation id some GPU work shares. A rank is written as `distributedInfo` whatever its
/// source was.
#[must_use]
pub fn write_torch_json(trace: &Trace) -> String {
    let mut writer = Writer { trace, out: String::from("{\n  \"schemaVersion\": 1"), first: true };
    writer.header();
    writer.out.push_str(",\n  \"traceEvents\": [");
    writer.host_events();
    writer.gpu_events();
    writer.arrows();
    writer.names();
    writer.out.push_str("\n  ],\n  \"traceName\": \"synthetic.json\"\n}\n");
    writer.out
}

struct Writer<'a> {
    trace: &'a Trace,
    out: String,
    first: bool,
}

/// Nanoseconds as decimal microseconds without a float: 1234500 -> `1234.5`, -1 -> `-0.001`.
fn micros(ns: i64) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    let ns = ns.unsigned_abs();
    let (whole, rest) = (ns / 1000, ns % 1000);
    if rest == 0 {
        return format!("{sign}{whole}");
    }
    let decimals = format!("{rest:03}");
    format!("{sign}{whole}.{}", decimals.trim_end_matches('0'))
}

/// A JSON string.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            control if control < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

/// A number where the text is one, else a JSON string: how Kineto writes pids and tids.
fn number_or_quoted(text: &str) -> String {
    match text.parse::<i64>() {
        Ok(number) if number.to_string() == text => text.into(),
        _ => quoted(text),
    }
}

/// The arguments of an event, joined as they are added.
#[derive(Default)]
struct Args(String);

impl Args {
    fn raw(&mut self, key: &str, value: &str) {
        if !self.0.is_empty() {
            self.0.push_str(", ");
        }
        let _ = write!(self.0, "{}: {value}", quoted(key));
    }

    fn id(&mut self, key: &str, id: OptionalId) {
        if let Some(id) = id.value() {
            self.raw(key, &id.to_string());
        }
    }

    fn text(&mut self, key: &str, text: &str) {
        if !text.is_empty() {
            self.raw(key, &quoted(text));
        }
    }

    fn json(&mut self, key: &str, json: &str) {
        if !json.is_empty() {
            self.raw(key, json);
        }
    }
}

impl Writer<'_> {
    fn field(&mut self, key: &str, value: &str) {
        let _ = write!(self.out, ",\n  {}: {value}", quoted(key));
    }

    fn header(&mut self) {
        let meta = &self.trace.meta;
        let devices: Vec<_> = meta
            .devices
            .iter()
            .map(|device| {
                let mut properties = Args::default();
                properties.raw("id", &device.device.to_string());
                properties.raw("name", &quoted(&device.name));
                if let Some(bytes) = device.total_memory_bytes {
                    properties.raw("totalGlobalMem", &bytes.to_string());
                }
                if let Some((major, minor)) = device.compute_capability {
                    properties.raw("computeMajor", &major.to_string());
                    properties.raw("computeMinor", &minor.to_string());
                }
                if let Some(count) = device.sm_count {
                    properties.raw("numSms", &count.to_string());
                }
                format!("{{{}}}", properties.0)
            })
            .collect();
        self.field("deviceProperties", &format!("[{}]", devices.join(", ")));
        if meta.with_stack == Some(true) {
            self.field("with_stack", "1");
        }
        if meta.record_shapes == Some(true) {
            self.field("record_shapes", "1");
        }
        if let Some(rank) = &meta.rank {
            let world = meta.world_size.unwrap_or(rank.number + 1);
            let groups: Vec<_> = meta
                .process_groups
                .iter()
                .map(|group| {
                    format!(
                        "{{\"pg_name\": {}, \"pg_desc\": {}, \"pg_size\": {}, \"ranks\": {:?}}}",
                        quoted(&group.name),
                        quoted(&group.description),
                        group.ranks.len(),
                        group.ranks
                    )
                })
                .collect();
            self.field(
                "distributedInfo",
                &format!(
                    "{{\"backend\": \"nccl\", \"rank\": {}, \"world_size\": {world}, \
                     \"pg_count\": {}, \"pg_config\": [{}]}}",
                    rank.number,
                    groups.len(),
                    groups.join(", ")
                ),
            );
        }
        for (name, value) in &meta.versions {
            self.field(name, &number_or_quoted(value));
        }
        self.field("displayTimeUnit", "\"ms\"");
        if let Some(base) = meta.base_time_ns {
            self.field("baseTimeNanoseconds", &base.to_string());
        }
    }

    fn line(&mut self, event: &str) {
        self.out.push_str(if self.first { "\n    {" } else { ",\n    {" });
        self.first = false;
        self.out.push_str(event);
        self.out.push('}');
    }

    fn complete(
        &mut self,
        category: &str,
        name: &str,
        place: &str,
        at: (Timestamp, Nanos),
        args: &Args,
    ) {
        let mut event = format!(
            "\"ph\": \"X\", \"cat\": \"{category}\", \"name\": {}, {place}, \"ts\": {}, \"dur\": {}",
            quoted(name),
            micros(at.0.as_ns()),
            micros(at.1.as_ns())
        );
        if !args.0.is_empty() {
            let _ = write!(event, ", \"args\": {{{}}}", args.0);
        }
        self.line(&event);
    }

    fn thread(&self, id: ThreadId) -> String {
        let Some(thread) = self.trace.threads.get(id) else {
            return "\"pid\": 0, \"tid\": 0".into();
        };
        let process = self.trace.processes.get(thread.process).copied().unwrap_or_default();
        format!(
            "\"pid\": {}, \"tid\": {}",
            number_or_quoted(self.trace.text(process.pid)),
            number_or_quoted(self.trace.text(thread.tid))
        )
    }

    /// The track of a stream, and its arguments.
    fn stream(&self, id: StreamId) -> (String, Args) {
        let stream = self.trace.streams.get(id).copied().unwrap_or_default();
        let device = stream.device.unwrap_or(0);
        let number = stream.stream.value().unwrap_or(0);
        let mut args = Args::default();
        if let Some(device) = stream.device {
            args.raw("device", &device.to_string());
        }
        args.id("context", stream.context);
        args.id("stream", stream.stream);
        (format!("\"pid\": {device}, \"tid\": {number}"), args)
    }

    fn extra(&self, table: TableKind, row: usize, args: &mut Args) {
        for arg in &self.trace.extra_args {
            if arg.table == table && arg.row as usize == row {
                args.raw(self.trace.text(arg.key), self.trace.text(arg.value));
            }
        }
    }

    fn collective(&self, id: CollectiveId, args: &mut Args) {
        if id == CollectiveId::default() {
            return;
        }
        let Some(collective) = self.trace.collectives.get(id) else {
            return;
        };
        args.text("Collective name", self.trace.text(collective.name));
        args.id("In msg nelems", collective.in_elements);
        args.id("Out msg nelems", collective.out_elements);
        if let Some(size) = collective.group_size {
            args.raw("Group size", &size.to_string());
        }
        args.text("dtype", self.trace.text(collective.dtype));
        args.text("Process Group Name", self.trace.text(collective.process_group));
        args.text("Process Group Description", self.trace.text(collective.description));
        args.text("Process Group Ranks", self.trace.text(collective.ranks));
        args.id("Seq", collective.sequence);
    }

    fn host_events(&mut self) {
        let trace = self.trace;
        for (index, row) in trace.ranges.rows().enumerate() {
            let mut args = Args::default();
            args.id("External id", row.external);
            self.extra(TableKind::Range, index, &mut args);
            debug_assert!(row.kind != RangeKind::NvtxMark || row.duration == Nanos::ZERO);
            let (name, place) = (trace.text(row.name), self.thread(row.thread));
            self.complete("user_annotation", name, &place, (row.start, row.duration), &args);
        }
        for (index, row) in trace.cpu_ops.rows().enumerate() {
            let mut args = Args::default();
            args.id("External id", row.external);
            args.id("Sequence number", row.sequence);
            let inputs = trace.inputs.get(row.inputs).copied().unwrap_or_default();
            args.json("Concrete Inputs", trace.text(inputs.concrete));
            args.json("Input type", trace.text(inputs.types));
            args.json("Input Dims", trace.text(inputs.dims));
            self.collective(row.collective, &mut args);
            self.extra(TableKind::CpuOp, index, &mut args);
            let (name, place) = (trace.text(row.name), self.thread(row.thread));
            self.complete("cpu_op", name, &place, (row.start, row.duration), &args);
        }
        for (index, row) in trace.frames.rows().enumerate() {
            let mut args = Args::default();
            let parent = row.parent.value().map_or("null".into(), |id| id.to_string());
            args.raw("Python parent id", &parent);
            args.id("Python id", row.python);
            self.extra(TableKind::Frame, index, &mut args);
            let (name, place) = (trace.text(row.name), self.thread(row.thread));
            self.complete("python_function", name, &place, (row.start, row.duration), &args);
        }
        for (index, row) in trace.api_calls.rows().enumerate() {
            let name = trace.text(row.name);
            let driver = name.starts_with("cu") && !name.starts_with("cuda");
            let category = if driver { "cuda_driver" } else { "cuda_runtime" };
            let mut args = Args::default();
            args.id("External id", row.external);
            args.id("correlation", row.correlation);
            self.extra(TableKind::Api, index, &mut args);
            let place = self.thread(row.thread);
            self.complete(category, name, &place, (row.start, row.duration), &args);
        }
        for row in trace.overheads.rows() {
            let (name, place) = (trace.text(row.name), self.thread(row.thread));
            self.complete("overhead", name, &place, (row.start, row.duration), &Args::default());
        }
        for row in trace.graph_nodes.rows() {
            let mut args = Args::default();
            args.id("correlation", row.correlation);
            args.id("graph id", row.graph);
            args.id("graph node id", row.graph_node);
            args.id("original graph node id", row.original_node);
            let (name, place) = (trace.text(row.name), self.thread(row.thread));
            self.complete("graph_host_node", name, &place, (row.start, row.duration), &args);
        }
    }

    fn gpu_events(&mut self) {
        let trace = self.trace;
        for (index, row) in trace.kernels.rows().enumerate() {
            let (place, mut args) = self.stream(row.stream);
            args.id("External id", row.external);
            args.id("correlation", row.correlation);
            let config = trace.configs.get(row.config).copied().unwrap_or_default();
            if let Some(registers) = config.registers {
                args.raw("registers per thread", &registers.to_string());
            }
            if let Some(bytes) = config.shared_memory_bytes {
                args.raw("shared memory", &bytes.to_string());
            }
            if config.grid != [0; 3] {
                args.raw("grid", &format!("{:?}", config.grid));
            }
            if config.block != [0; 3] {
                args.raw("block", &format!("{:?}", config.block));
            }
            if let Some(percent) = config.occupancy_percent {
                args.raw("est. achieved occupancy %", &percent.to_string());
            }
            args.id("graph id", row.graph);
            args.id("graph node id", row.graph_node);
            self.collective(row.collective, &mut args);
            self.extra(TableKind::Kernel, index, &mut args);
            self.complete("kernel", trace.text(row.name), &place, (row.start, row.duration), &args);
        }
        for (index, row) in trace.copies.rows().enumerate() {
            let (place, mut args) = self.stream(row.stream);
            args.id("External id", row.external);
            args.id("correlation", row.correlation);
            args.id("bytes", row.bytes);
            args.id("graph node id", row.graph_node);
            self.extra(TableKind::Copy, index, &mut args);
            let memset = row.kind == steptally_trace_model::CopyKind::Memset;
            let category = if memset { "gpu_memset" } else { "gpu_memcpy" };
            self.complete(category, trace.text(row.name), &place, (row.start, row.duration), &args);
        }
        for row in trace.gpu_ranges.rows() {
            let (place, _) = self.stream(row.stream);
            let mut args = Args::default();
            args.id("External id", row.external);
            let (name, at) = (trace.text(row.name), (row.start, row.duration));
            self.complete("gpu_user_annotation", name, &place, at, &args);
        }
        for row in trace.syncs.rows() {
            let (place, mut args) = self.stream(row.stream);
            args.id("correlation", row.correlation);
            args.id("wait_on_stream", row.wait_on_stream);
            args.id("wait_on_cuda_event_record_corr_id", row.wait_on_correlation);
            let (name, at) = (trace.text(row.name), (row.start, row.duration));
            self.complete("cuda_sync", name, &place, at, &args);
        }
        for row in trace.counters.rows() {
            let device = row.device.value().unwrap_or(0);
            let event = format!(
                "\"ph\": \"C\", \"name\": {}, \"pid\": {device}, \"ts\": {}, \
                 \"args\": {{\"value\": {}}}",
                quoted(trace.text(row.name)),
                micros(row.start.as_ns()),
                row.value
            );
            self.line(&event);
        }
    }

    fn arrows(&mut self) {
        let trace = self.trace;
        let gpu_work = trace.kernels.correlation.iter().chain(&trace.copies.correlation);
        let enqueued: std::collections::HashSet<_> = gpu_work.copied().collect();
        let arrow = |phase: &str, id: OptionalId, place: &str, at: Timestamp, category: &str| {
            let end = if phase == "f" { ", \"bp\": \"e\"" } else { "" };
            format!(
                "\"ph\": \"{phase}\", \"id\": {}, {place}, \"ts\": {}, \"cat\": {category}, \
                 \"name\": {category}{end}",
                id.value().unwrap_or(0),
                micros(at.as_ns())
            )
        };
        for row in trace.api_calls.rows().filter(|row| enqueued.contains(&row.correlation)) {
            if row.correlation.is_some() {
                let place = self.thread(row.thread);
                self.line(&arrow("s", row.correlation, &place, row.start, "\"ac2g\""));
            }
        }
        let kernels = trace.kernels.rows().map(|row| (row.correlation, row.stream, row.start));
        let copies = trace.copies.rows().map(|row| (row.correlation, row.stream, row.start));
        for (correlation, stream, start) in kernels.chain(copies) {
            if correlation.is_some() {
                let (place, _) = self.stream(stream);
                self.line(&arrow("f", correlation, &place, start, "\"ac2g\""));
            }
        }
        for row in trace.flows.rows() {
            let phase = match row.phase {
                FlowPhase::Start => "s",
                FlowPhase::Step => "t",
                FlowPhase::End => "f",
            };
            let place = self.thread(row.thread);
            self.line(&arrow(phase, row.id, &place, row.start, &quoted(trace.text(row.category))));
        }
    }

    fn names(&mut self) {
        let trace = self.trace;
        for (id, process) in trace.processes.iter() {
            if let Some(&name) = trace.process_names.get(&id) {
                let pid = number_or_quoted(trace.text(process.pid));
                let place = format!("\"pid\": {pid}, \"tid\": 0");
                self.metadata("process_name", &place, "name", trace.text(name));
                self.metadata("process_labels", &place, "labels", "CPU");
            }
        }
        for (id, _) in trace.threads.iter() {
            if let Some(&name) = trace.thread_names.get(&id) {
                let place = self.thread(id);
                self.metadata("thread_name", &place, "name", trace.text(name));
            }
        }
        for (id, _) in trace.streams.iter() {
            let (place, _) = self.stream(id);
            let number = trace.streams[id].stream.value().unwrap_or(0);
            self.metadata("thread_name", &place, "name", &format!("stream {number} "));
        }
        let Some(window) = trace.meta.window else {
            return;
        };
        let end = window.end.unwrap_or(window.start);
        let place = "\"pid\": \"Spans\", \"tid\": \"PyTorch Profiler\"";
        let at = (window.start, end - window.start);
        self.complete("Trace", "PyTorch Profiler (0)", place, at, &Args::default());
    }

    fn metadata(&mut self, kind: &str, place: &str, key: &str, value: &str) {
        let value = quoted(value);
        self.line(&format!(
            "\"name\": \"{kind}\", \"ph\": \"M\", \"ts\": 0, {place}, \"args\": {{\"{key}\": {value}}}"
        ));
    }
}
