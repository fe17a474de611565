//! Writes built traces as an SQLite export of nsys would hold them.

use std::collections::HashMap;
use std::path::Path;

use rusqlite::{Connection, Transaction, params};
use steptally_trace_model::{CopyKind, RangeKind, Stream, StreamId, StringId, ThreadId, Trace};

/// `eventType` of ranges and marks.
const fn event_type(kind: RangeKind) -> i64 {
    match kind {
        RangeKind::NvtxMark => 34,
        RangeKind::Annotation | RangeKind::NvtxPushPop => 59,
        RangeKind::NvtxStartEnd => 60,
    }
}

/// Of the columns that exports have, those that the importer reads.
const TABLES: &str = "
    CREATE TABLE StringIds(id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE META_DATA_EXPORT(name TEXT NOT NULL, value TEXT);
    INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.24.0');
    CREATE TABLE PROCESSES(globalPid INTEGER NOT NULL, pid INTEGER, name TEXT);
    CREATE TABLE ThreadNames(nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER);
    CREATE TABLE TARGET_INFO_GPU(id INTEGER NOT NULL, name TEXT, totalMemory INTEGER,
        memoryBandwidth INTEGER, smCount INTEGER, computeMajor INTEGER, computeMinor INTEGER);
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INTEGER NOT NULL, end INTEGER NOT NULL,
        deviceId INTEGER NOT NULL, contextId INTEGER, streamId INTEGER, correlationId INTEGER,
        globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL,
        gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER,
        blockZ INTEGER, registersPerThread INTEGER, staticSharedMemory INTEGER,
        dynamicSharedMemory INTEGER, graphNodeId INTEGER, graphId INTEGER);
    CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY(start INTEGER NOT NULL, end INTEGER NOT NULL,
        deviceId INTEGER NOT NULL, contextId INTEGER, streamId INTEGER, correlationId INTEGER,
        globalPid INTEGER, bytes INTEGER, copyKind INTEGER, srcKind INTEGER, dstKind INTEGER,
        graphNodeId INTEGER);
    CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET(start INTEGER NOT NULL, end INTEGER NOT NULL,
        deviceId INTEGER NOT NULL, contextId INTEGER, streamId INTEGER, correlationId INTEGER,
        globalPid INTEGER, bytes INTEGER, memKind INTEGER, graphNodeId INTEGER);
    CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE(start INTEGER NOT NULL, end INTEGER NOT NULL,
        deviceId INTEGER NOT NULL, contextId INTEGER, streamId INTEGER, correlationId INTEGER,
        globalPid INTEGER, graphId INTEGER);
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start INTEGER NOT NULL, end INTEGER NOT NULL,
        eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER,
        nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL);
    CREATE TABLE OSRT_API(start INTEGER NOT NULL, end INTEGER, globalTid INTEGER,
        nameId INTEGER NOT NULL);
    CREATE TABLE NVTX_EVENTS(start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL,
        text TEXT, globalTid INTEGER, domainId INTEGER);";

/// One nsys capture of all these traces, each of them one process, into the new file `path`.
///
/// What nsys does not record is lost: operators, Python frames, external ids, collectives, flows,
/// `distributedInfo` (the rank is left to the title of the process). Annotations become push/pop
/// ranges of the default domain, as `torch.autograd.profiler.emit_nvtx` makes them of
/// `record_function`. Not written either: synchronisation records, counters, graph node creation.
///
/// # Panics
/// When process ids are no numbers of 24 bits, or the file cannot be written.
pub fn write_nsys_sqlite(traces: &[Trace], path: &Path) {
    if let Err(error) = write(traces, path) {
        panic!("{}: {error}", path.display());
    }
}

fn write(traces: &[Trace], path: &Path) -> rusqlite::Result<()> {
    let mut database = Connection::open(path)?;
    let transaction = database.transaction()?;
    transaction.execute_batch(TABLES)?;
    let mut names = HashMap::new();
    for trace in traces {
        Writer { trace, out: &transaction, names: &mut names }.run()?;
    }
    for (name, id) in &names {
        transaction.execute("INSERT INTO StringIds VALUES (?1, ?2)", params![id, name])?;
    }
    transaction.commit()
}

struct Writer<'a> {
    trace: &'a Trace,
    out: &'a Transaction<'a>,
    /// Ids of strings, over all traces.
    names: &'a mut HashMap<String, i64>,
}

/// Device, context, stream, and `globalPid`.
type Place = (i64, Option<u64>, Option<u64>, i64);

impl Writer<'_> {
    fn run(mut self) -> rusqlite::Result<()> {
        self.processes()?;
        self.kernels()?;
        self.copies()?;
        self.graph_traces()?;
        self.calls()?;
        self.ranges()
    }

    fn name(&mut self, id: StringId) -> i64 {
        let next = self.names.len() as i64;
        *self.names.entry(self.trace.text(id).to_owned()).or_insert(next)
    }

    fn number(&self, id: StringId) -> i64 {
        let text = self.trace.text(id);
        match text.parse() {
            Ok(number @ 0..=0xFF_FFFF) => number,
            _ => panic!("nsys has process and thread ids of 24 bits: {text:?}"),
        }
    }

    /// `globalTid` of a thread of virtual machine 1.
    fn thread(&self, id: ThreadId) -> i64 {
        let thread = self.trace.threads[id];
        let process = self.number(self.trace.processes[thread.process].pid);
        (1 << 48) | (process << 24) | self.number(thread.tid)
    }

    /// torch.profiler does not say which process owns a stream; a rank has one.
    fn process(&self) -> i64 {
        let first = self.trace.threads.iter().next();
        first.map_or(1 << 48, |(id, _)| self.thread(id) & !0xFF_FFFF)
    }

    fn place(&self, id: StreamId) -> Place {
        let Stream { device, context, stream, .. } = self.trace.streams[id];
        (i64::from(device.unwrap_or(0)), context.value(), stream.value(), self.process())
    }

    fn processes(&mut self) -> rusqlite::Result<()> {
        for (&id, &name) in &self.trace.process_names {
            let pid = self.number(self.trace.processes[id].pid);
            let row = params![(1_i64 << 48) | (pid << 24), pid, self.trace.text(name)];
            self.out.execute("INSERT INTO PROCESSES VALUES (?1, ?2, ?3)", row)?;
        }
        for (&id, &name) in &self.trace.thread_names {
            let row = params![self.name(name), self.thread(id)];
            self.out.execute("INSERT INTO ThreadNames VALUES (?1, 0, ?2)", row)?;
        }
        for gpu in &self.trace.meta.devices {
            let (major, minor) = gpu.compute_capability.unzip();
            self.out.execute(
                "INSERT INTO TARGET_INFO_GPU VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![
                    gpu.device,
                    gpu.name,
                    gpu.total_memory_bytes,
                    gpu.memory_bandwidth_bytes_per_s,
                    gpu.sm_count,
                    major,
                    minor
                ],
            )?;
        }
        Ok(())
    }

    fn kernels(&mut self) -> rusqlite::Result<()> {
        let mut insert = self.out.prepare(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8,
             ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, 0, ?17, ?18)",
        )?;
        for row in self.trace.kernels.rows() {
            let (device, context, stream, process) = self.place(row.stream);
            let config = self.trace.configs.get(row.config).copied().unwrap_or_default();
            let ([x, y, z], [bx, by, bz]) = (config.grid, config.block);
            insert.execute(params![
                row.start.as_ns(),
                (row.start + row.duration).as_ns(),
                device,
                context,
                stream,
                row.correlation.value(),
                process,
                self.name(row.name),
                x,
                y,
                z,
                bx,
                by,
                bz,
                config.registers,
                config.shared_memory_bytes,
                row.graph_node.value(),
                row.graph.value()
            ])?;
        }
        Ok(())
    }

    fn copies(&mut self) -> rusqlite::Result<()> {
        let mut copy = self.out.prepare(
            "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        )?;
        let mut fill = self.out.prepare(
            "INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 2, ?9)",
        )?;
        for row in self.trace.copies.rows() {
            let (start, end) = (row.start.as_ns(), (row.start + row.duration).as_ns());
            let (device, context, stream, process) = self.place(row.stream);
            let (correlation, bytes) = (row.correlation.value(), row.bytes.value());
            let node = row.graph_node.value();
            let host = i64::from(row.pageable == Some(false));
            let (kind, from, to) = match row.kind {
                CopyKind::Memset => {
                    fill.execute(params![
                        start,
                        end,
                        device,
                        context,
                        stream,
                        correlation,
                        process,
                        bytes,
                        node
                    ])?;
                    continue;
                }
                CopyKind::HostToDevice => (1, host, 2),
                CopyKind::DeviceToHost => (2, 2, host),
                CopyKind::DeviceToDevice => (8, 2, 2),
                CopyKind::HostToHost => (9, host, host),
                CopyKind::PeerToPeer => (10, 2, 2),
                CopyKind::Unknown => (0, 2, 2),
            };
            copy.execute(params![
                start,
                end,
                device,
                context,
                stream,
                correlation,
                process,
                bytes,
                kind,
                from,
                to,
                node
            ])?;
        }
        Ok(())
    }

    fn graph_traces(&mut self) -> rusqlite::Result<()> {
        for row in self.trace.graph_traces.rows() {
            let (device, context, stream, process) = self.place(row.stream);
            self.out.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                params![
                    row.start.as_ns(),
                    (row.start + row.duration).as_ns(),
                    device,
                    context,
                    stream,
                    row.correlation.value(),
                    process,
                    row.graph.value()
                ],
            )?;
        }
        Ok(())
    }

    fn calls(&mut self) -> rusqlite::Result<()> {
        let mut call = self.out.prepare(
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0)",
        )?;
        for row in self.trace.api_calls.rows() {
            // 0: runtime, 1: driver.
            let class = i64::from(!self.trace.text(row.name).starts_with("cuda"));
            call.execute(params![
                row.start.as_ns(),
                (row.start + row.duration).as_ns(),
                class,
                self.thread(row.thread),
                row.correlation.value(),
                self.name(row.name)
            ])?;
        }
        let mut call = self.out.prepare("INSERT INTO OSRT_API VALUES (?1, ?2, ?3, ?4)")?;
        for row in self.trace.os_calls.rows() {
            let (start, end) = (row.start.as_ns(), (row.start + row.duration).as_ns());
            let (thread, name) = (self.thread(row.thread), self.name(row.name));
            call.execute(params![start, end, thread, name])?;
        }
        Ok(())
    }

    fn ranges(&mut self) -> rusqlite::Result<()> {
        let mut range =
            self.out.prepare("INSERT INTO NVTX_EVENTS VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
        let mut domains: HashMap<(StringId, i64), i64> = HashMap::new();
        for row in self.trace.ranges.rows() {
            let thread = self.thread(row.thread);
            let mut domain = 0;
            if row.domain != StringId::default() {
                let next = domains.len() as i64 + 1;
                let process = thread & !0xFF_FFFF;
                domain = *domains.entry((row.domain, process)).or_insert(next);
                if domain == next {
                    let name = self.trace.text(row.domain);
                    range.execute(params![0, None::<i64>, 75, name, thread, domain])?;
                }
            }
            let ended = !row.open && row.kind != RangeKind::NvtxMark;
            range.execute(params![
                row.start.as_ns(),
                ended.then(|| (row.start + row.duration).as_ns()),
                event_type(row.kind),
                self.trace.text(row.name),
                thread,
                domain
            ])?;
        }
        Ok(())
    }
}
