//! One small export for each generation of the schema and each way in which parts are absent.

use steptally_import::nsys::NsysError;
use steptally_trace_model::{CopyKind, Nanos, RangeKind, Severity, TraceFormat};

use crate::support::{Export, global};

/// Tables of the newest schema that the tests fill, with all columns that are read.
pub(crate) fn tables() -> &'static str {
    "CREATE TABLE StringIds(id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
     CREATE TABLE META_DATA_EXPORT(name TEXT NOT NULL, value TEXT);
     CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INTEGER, end INTEGER, deviceId INTEGER,
        contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER,
        demangledName INTEGER, shortName INTEGER, mangledName INTEGER, registersPerThread INTEGER,
        gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER,
        staticSharedMemory INTEGER, dynamicSharedMemory INTEGER, graphNodeId INTEGER,
        graphId INTEGER);
     CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY(start INTEGER, end INTEGER, deviceId INTEGER,
        contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER,
        bytes INTEGER, copyKind INTEGER, srcKind INTEGER, dstKind INTEGER, graphNodeId INTEGER);
     CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start INTEGER, end INTEGER, eventClass INTEGER,
        globalTid INTEGER, correlationId INTEGER, nameId INTEGER);
     CREATE TABLE NVTX_EVENTS(start INTEGER, end INTEGER, eventType INTEGER, rangeId INTEGER,
        category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER,
        textId INTEGER, domainId INTEGER, uint64Value INTEGER, int64Value INTEGER,
        doubleValue REAL, uint32Value INTEGER, int32Value INTEGER, floatValue REAL,
        jsonTextId INTEGER, jsonText TEXT);
     CREATE TABLE TARGET_INFO_GPU(id INTEGER, name TEXT, totalMemory INTEGER,
        memoryBandwidth INTEGER, smCount INTEGER, cuDevice INTEGER);
     CREATE TABLE PROCESSES(globalPid INTEGER, pid INTEGER, name TEXT);
     CREATE TABLE ThreadNames(nameId INTEGER, priority INTEGER, globalTid INTEGER);
     INSERT INTO StringIds VALUES (1, 'gemm<float>(int)'), (2, 'gemm'), (3, 'cudaLaunchKernel_v7000'),
        (4, 'registered'), (5, 'main thread');
     INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.28.1'),
        ('EXPORT_PRODUCT_VERSION', '2026.4.1.1'), ('EXPORT_USER', 'ann');"
}

/// A kernel row of `tables()`: times, device, stream, correlation id, process.
pub(crate) fn kernel(at: [i64; 2], device: u32, correlation: u32, pid: i64) -> String {
    format!(
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({}, {}, {device}, 1, 7, {correlation}, {},
         1, 2, NULL, 32, 2, 3, 4, 128, 2, 1, 100, 24, NULL, NULL);",
        at[0],
        at[1],
        global(pid),
    )
}

/// A launch row of `tables()`: times, correlation id, process.
pub(crate) fn launch(at: [i64; 2], correlation: u32, pid: i64) -> String {
    format!(
        "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES ({}, {}, 0, {}, {correlation}, 3);",
        at[0],
        at[1],
        global(pid) + pid,
    )
}

#[test]
fn every_column_of_the_newest_schema() {
    let export = Export::new(&format!(
        "{} {} {} INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES
            (250, 260, 0, 1, 7, 12, {pid}, NULL, 2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
             NULL, NULL, 4294967299, 6);
         INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES
            (300, 340, 0, 1, 7, 13, {pid}, 4096, 1, 0, 2, NULL),
            (350, 351, 0, 1, 7, 14, {pid}, 8, 2, 2, 1, NULL),
            (360, 361, 0, 1, 7, 15, {pid}, 8, 8, 2, 2, NULL),
            (370, 371, 0, 1, 7, 16, {pid}, 8, 99, NULL, NULL, NULL);
         INSERT INTO PROCESSES VALUES ({pid}, 40, '/usr/bin/python3'), ({other}, 41, 'bash');
         INSERT INTO ThreadNames VALUES (5, 0, {pid} + 40);",
        tables(),
        kernel([200, 230], 0, 11, 40),
        launch([100, 105], 11, 40),
        pid = global(40),
        other = global(41),
    ));
    let read = export.read();
    assert_eq!(read.format, "nsys SQLite 3.28.1");
    assert!(read.issues.is_empty(), "{:?}", read.issues);
    let trace = &read.traces[0];
    assert_eq!(trace.meta.format, TraceFormat::NsysSqlite);
    let first = trace.kernels.row(0);
    assert_eq!(trace.text(first.name), "gemm<float>(int)");
    assert_eq!((first.start.as_ns(), first.duration.as_ns()), (200, 30));
    let config = trace.configs[first.config];
    assert_eq!((config.grid, config.block), ([2, 3, 4], [128, 2, 1]));
    assert_eq!((config.registers, config.shared_memory_bytes), (Some(32), Some(124)));
    let stream = trace.streams[first.stream];
    assert_eq!(
        (stream.device, stream.context.value(), stream.stream.value()),
        (Some(0), Some(1), Some(7))
    );
    let second = trace.kernels.row(1);
    assert_eq!(trace.text(second.name), "gemm");
    assert_eq!(second.graph_node.value(), Some(4_294_967_299));
    assert_eq!(second.graph.value(), Some(6));
    assert_eq!(trace.configs[second.config].registers, None);
    let call = trace.api_calls.row(0);
    assert_eq!((trace.text(call.name), call.correlation), ("cudaLaunchKernel", first.correlation));
    let copies: Vec<_> = trace
        .copies
        .rows()
        .map(|copy| (trace.text(copy.name), copy.kind, copy.pageable, copy.bytes.value()))
        .collect();
    assert_eq!(
        copies,
        [
            ("Memcpy HtoD (Pageable -> Device)", CopyKind::HostToDevice, Some(true), Some(4096)),
            ("Memcpy DtoH (Device -> Pinned)", CopyKind::DeviceToHost, Some(false), Some(8)),
            ("Memcpy DtoD (Device -> Device)", CopyKind::DeviceToDevice, None, Some(8)),
            ("Memcpy Unknown", CopyKind::Unknown, None, Some(8)),
        ]
    );
    let thread = trace.threads[call.thread];
    assert_eq!(
        (trace.text(trace.processes[thread.process].pid), trace.text(thread.tid)),
        ("40", "40")
    );
    assert_eq!(trace.text(trace.process_names[&thread.process]), "python3");
    assert_eq!(trace.text(trace.thread_names[&call.thread]), "main thread");
    // Names of processes that are not in the trace do not enter it, nor does the exporting user.
    assert!(trace.strings.find("bash").is_none());
    assert_eq!(
        trace.meta.versions,
        [
            ("nsys_schema_version".to_owned(), "3.28.1".to_owned()),
            ("nsys_version".to_owned(), "2026.4.1.1".to_owned()),
        ]
    );
}

#[test]
fn the_first_schema_without_metadata_and_process() {
    // 2.x as derived databases have it: no globalPid, no context, no enumerations, no metadata.
    let export = Export::new(
        "CREATE TABLE StringIds(id INTEGER, value TEXT);
         INSERT INTO StringIds VALUES (7, 'k'), (9, 'cudaLaunchKernel_v7000');
         CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INTEGER, end INTEGER, deviceId INTEGER,
            streamId INTEGER, correlationId INTEGER, shortName INTEGER);
         INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10, 15, 0, 7, 1, 7), (20, 24, 1, 7, 2, 7);
         CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY(start INTEGER, end INTEGER, copyKind INTEGER,
            bytes INTEGER);
         INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (30, 31, 1, 64);
         CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start INTEGER, end INTEGER, correlationId INTEGER,
            globalTid INTEGER, nameId INTEGER);
         INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (1, 2, 1, 281474976710657, 9);",
    );
    let read = export.read();
    assert_eq!(read.format, "nsys SQLite");
    let [trace] = read.traces.as_slice() else { panic!("{}", read.traces.len()) };
    assert_eq!((trace.kernels.len(), trace.copies.len(), trace.api_calls.len()), (2, 1, 1));
    assert_eq!(trace.text(trace.kernels.name[1]), "k");
    assert_eq!(trace.device_of(trace.kernels.stream[1]), Some(1));
    assert_eq!(trace.device_of(trace.copies.stream[0]), None);
    assert_eq!(trace.text(trace.copies.name[0]), "Memcpy HtoD");
    assert_eq!(trace.text(trace.api_calls.name[0]), "cudaLaunchKernel");
    assert_eq!((trace.rank(), trace.meta.devices.len()), (None, 0));
}

#[test]
fn without_string_table_kernels_stay_apart_by_their_ids() {
    let export = Export::new(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INTEGER, end INTEGER, demangledName INTEGER);
         INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 2, 34), (3, 4, 35), (5, 6, 34);",
    );
    let read = export.read();
    let trace = &read.traces[0];
    let names: Vec<_> = trace.kernels.name.iter().map(|name| trace.text(*name)).collect();
    assert_eq!(names, ["string 34", "string 35", "string 34"]);
    assert_eq!(read.issues.find("missing_string").unwrap().count, 2);
}

#[test]
fn names_stored_as_text_and_numbers_stored_as_text() {
    let export = Export::new(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start TEXT, end TEXT, demangledName TEXT,
            correlationId TEXT);
         INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES
            ('9007199254740993', '9007199254740995', 'gemm', '12'), (NULL, '4', 'x', '1'),
            ('7', 'soon', 'x', '1'), ('9', '8', 'late', '2');",
    );
    let read = export.read();
    let trace = &read.traces[0];
    assert_eq!(trace.kernels.len(), 2);
    let gemm = trace.kernels.row(1);
    assert_eq!((gemm.start.as_ns(), gemm.duration.as_ns()), (9_007_199_254_740_993, 2));
    assert_eq!((trace.text(gemm.name), gemm.correlation.value()), ("gemm", Some(12)));
    assert_eq!(trace.kernels.duration[0], Nanos::ZERO);
    let count = |code| read.issues.find(code).map(|issue| (issue.count, issue.severity));
    assert_eq!(count("row_without_time"), Some((2, Severity::Warning)));
    assert_eq!(count("negative_duration"), Some((1, Severity::Warning)));
}

#[test]
fn graph_replays_recorded_as_a_whole_are_gpu_work() {
    // Public report: an empty KERNEL table with a graphNodeId column, and only GRAPH_TRACE rows.
    let export = Export::new(&format!(
        "{} CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE(start INTEGER, end INTEGER,
            deviceId INTEGER, contextId INTEGER, streamId INTEGER, correlationId INTEGER,
            globalPid INTEGER, graphId INTEGER, graphExecId INTEGER);
         INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (100, 180, 0, 1, 7, 5, {pid}, 1, 2),
            (200, 290, 0, 1, 7, 6, {pid}, 1, 2), (0, 0, 0, 1, 7, 8, {pid}, 1, 2);",
        tables(),
        pid = global(40),
    ));
    let read = export.read();
    let trace = &read.traces[0];
    let rows: Vec<_> = trace
        .graph_traces
        .rows()
        .map(|row| {
            (row.start.as_ns(), row.duration.as_ns(), row.correlation.value(), row.graph.value())
        })
        .collect();
    assert_eq!(rows, [(100, 80, Some(5), Some(2)), (200, 90, Some(6), Some(2))]);
    assert_eq!(read.issues.find("opaque_graph_replay").unwrap().count, 2);
    assert_eq!(read.issues.find("graph_replay_without_time").unwrap().count, 1);
    assert_eq!(
        trace.meta.diagnostics,
        [
            "2 graph replays recorded as a whole; record with --cuda-graph-trace=node to see the kernels of graphs"
        ]
    );
}

#[test]
fn graph_nodes_of_both_generations() {
    let old = "CREATE TABLE CUDA_GRAPH_EVENTS(start INTEGER, end INTEGER, eventClass INTEGER,
            globalTid INTEGER, nameId INTEGER, graphNodeId INTEGER, originalGraphNodeId INTEGER);
        INSERT INTO CUDA_GRAPH_EVENTS VALUES (1, 1, 77, TID, 4, 21, NULL), (2, 3, 77, TID, 4, 22, 21);";
    let new = "CREATE TABLE CUDA_GRAPH_NODE_EVENTS(start INTEGER, end INTEGER, eventClass INTEGER,
            globalTid INTEGER, nameId INTEGER, graphNodeId INTEGER, originalGraphNodeId INTEGER);
        INSERT INTO CUDA_GRAPH_NODE_EVENTS VALUES (1, 1, 77, TID, 4, 21, NULL), (2, 3, 77, TID, 4, 22, 21);
        CREATE TABLE CUDA_GRAPH_EVENTS(start INTEGER, end INTEGER, eventClass INTEGER,
            globalTid INTEGER, nameId INTEGER, graphId INTEGER, originalGraphId INTEGER,
            graphExecId INTEGER);
        INSERT INTO CUDA_GRAPH_EVENTS VALUES (9, 9, 94, TID, 4, 1, NULL, 2);";
    for (sql, whole_graphs) in [(old, 0), (new, 1)] {
        let tid = (global(40) + 40).to_string();
        let sql = sql.replace("TID", &tid);
        let export = Export::new(&format!("{} {} {sql}", tables(), kernel([5, 6], 0, 1, 40)));
        let trace = export.trace();
        let nodes: Vec<_> = trace
            .graph_nodes
            .rows()
            .filter(|row| row.graph_node.is_some())
            .map(|row| {
                (
                    row.start.as_ns(),
                    row.duration.as_ns(),
                    row.graph_node.value(),
                    row.original_node.value(),
                )
            })
            .collect();
        assert_eq!(nodes, [(1, 0, Some(21), None), (2, 1, Some(22), Some(21))]);
        assert_eq!(trace.graph_nodes.len() - nodes.len(), whole_graphs);
        if whole_graphs == 1 {
            assert_eq!(trace.graph_nodes.row(2).graph.value(), Some(2));
        }
    }
}

#[test]
fn nvtx_of_every_kind() {
    let tid = global(40) + 41;
    let export = Export::new(&format!(
        "{} {} INSERT INTO NVTX_EVENTS(start, end, eventType, text, globalTid, endGlobalTid, textId,
            domainId, category, uint64Value, jsonText) VALUES
         (-5, NULL, 75, 'NCCL', {tid}, NULL, NULL, 3, NULL, NULL, NULL),
         (0, NULL, 33, 'phase', {tid}, NULL, NULL, 3, 2, NULL, NULL),
         (10, 30, 59, 'step 1', {tid}, NULL, NULL, 0, NULL, NULL, NULL),
         (12, 20, 59, NULL, {tid}, NULL, 4, 3, 2, 77, NULL),
         (14, NULL, 59, 'never popped', {tid}, NULL, NULL, 0, NULL, NULL, NULL),
         (15, 25, 60, 'across', {tid}, {tid} + 1, NULL, 0, 9, NULL, '{{\"a\": 1}}'),
         (16, NULL, 34, 'mark', {tid}, NULL, NULL, 0, NULL, NULL, NULL),
         (17, NULL, 39, 'loader', {tid}, NULL, NULL, 0, NULL, NULL, NULL),
         (18, 19, 97, 'device', {tid}, NULL, NULL, 0, NULL, NULL, NULL);",
        tables(),
        kernel([90, 100], 0, 1, 40),
    ));
    let read = export.read();
    let trace = &read.traces[0];
    let ranges: Vec<_> = trace
        .ranges
        .rows()
        .map(|row| {
            let times = (row.start.as_ns(), row.duration.as_ns());
            (trace.text(row.name), trace.text(row.domain), times, row.kind, row.open)
        })
        .collect();
    assert_eq!(
        ranges,
        [
            ("step 1", "", (10, 20), RangeKind::NvtxPushPop, false),
            ("registered", "NCCL", (12, 8), RangeKind::NvtxPushPop, false),
            // Open until the last event ends, the kernel at 100.
            ("never popped", "", (14, 86), RangeKind::NvtxPushPop, true),
            ("across", "", (15, 10), RangeKind::NvtxStartEnd, false),
            ("mark", "", (16, 0), RangeKind::NvtxMark, false),
        ]
    );
    let extras: Vec<_> = trace
        .extra_args
        .iter()
        .map(|arg| (arg.row, trace.text(arg.key), trace.text(arg.value)))
        .collect();
    assert_eq!(
        extras,
        [
            (1, "payload", "77"),
            (1, "category", "phase"),
            (3, "payload", "{\"a\": 1}"),
            (3, "category", "9"),
            (3, "end_thread", "42"),
        ]
    );
    assert_eq!(trace.text(trace.thread_names[&trace.ranges.thread[0]]), "loader");
    assert_eq!(read.issues.find("open_range").unwrap().count, 1);
    assert_eq!(read.issues.find("nvtx_event_ignored").unwrap().first.text, "NVTX event type 97");
}

#[test]
fn nvtx_without_registered_strings() {
    let tid = global(40) + 40;
    let export = Export::new(&format!(
        "CREATE TABLE NVTX_EVENTS(start INTEGER, end INTEGER, eventType INTEGER, text TEXT,
            globalTid INTEGER);
         INSERT INTO NVTX_EVENTS VALUES (1, 5, 59, 'a', {tid}), (2, NULL, 60, 'b', {tid}),
            (3, 0, 60, 'c', {tid});",
    ));
    let read = export.read();
    let trace = &read.traces[0];
    let names: Vec<_> = trace.ranges.name.iter().map(|name| trace.text(*name)).collect();
    assert_eq!(names, ["a", "b", "c"]);
    // Both without an end (0 is none) last until 5.
    let durations: Vec<_> = trace.ranges.duration.iter().map(|length| length.as_ns()).collect();
    assert_eq!((durations, &trace.ranges.open[..]), (vec![4, 3, 2], &[false, true, true][..]));
    assert!(read.issues.find("gpu_not_traced").is_some());
}

#[test]
fn waits_are_paired_with_the_records_of_their_events() {
    let pid = global(40);
    let syncs = "CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION(start INTEGER, end INTEGER,
        deviceId INTEGER, contextId INTEGER, streamId INTEGER, correlationId INTEGER,
        globalPid INTEGER, syncType INTEGER, eventId INTEGER, eventSyncId INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_CUDA_EVENT(deviceId INTEGER, contextId INTEGER,
        streamId INTEGER, correlationId INTEGER, globalPid INTEGER, eventId INTEGER,
        eventSyncId INTEGER);";
    let export = Export::new(&format!(
        "{} {} {syncs}
         INSERT INTO CUPTI_ACTIVITY_KIND_CUDA_EVENT VALUES
            (0, 1, 7, 10, {pid}, 3, NULL), (0, 1, 8, 20, {pid}, 3, NULL), (0, 1, 9, 30, {pid}, 3, 44);
         INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES
            (1, 2, 0, 1, 5, 15, {pid}, 2, 3, NULL), (3, 4, 0, 1, 5, 25, {pid}, 3, 3, 44),
            (5, 6, 0, 1, 5, 5, {pid}, 3, 3, NULL), (7, 8, 0, 1, 4294967295, 26, {pid}, 2, 3, NULL),
            (9, 9, 0, 1, 5, 27, {pid}, 2, 4294967295, NULL),
            (10, 10, 0, 1, 4294967295, 28, {pid}, 1, 4294967295, NULL);",
        tables(),
        kernel([1, 2], 0, 1, 40),
    ));
    let trace = export.trace();
    let waits: Vec<_> = trace
        .syncs
        .rows()
        .map(|row| {
            (trace.text(row.name), row.wait_on_stream.value(), row.wait_on_correlation.value())
        })
        .collect();
    assert_eq!(
        waits,
        [
            // The last record of event 3 before the wait 15 is the one with 10.
            ("Stream Wait Event", Some(7), Some(10)),
            // Paired by its own id, whatever the order.
            ("Stream Wait Event", Some(9), Some(30)),
            ("Stream Wait Event", None, None),
            ("Event Synchronize", Some(8), Some(20)),
            ("Stream Synchronize", None, None),
            ("Context Synchronize", None, None),
        ]
    );
}

#[test]
fn a_shifted_or_normalised_clock() {
    let clock = "CREATE TABLE TARGET_INFO_SESSION_START_TIME(utcEpochNs INTEGER);
        INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1000000);
        CREATE TABLE ANALYSIS_DETAILS(globalVid INTEGER, duration INTEGER);
        INSERT INTO ANALYSIS_DETAILS VALUES (281474976710656, 500);";
    let base = tables().to_owned() + &kernel([1, 2], 0, 1, 40) + clock;
    let clock = |more: &str| {
        let meta = Export::new(&(base.clone() + more)).trace().meta;
        let window = meta.window.unwrap();
        (meta.base_time_ns, window.start.as_ns(), window.end.unwrap().as_ns())
    };
    assert_eq!(clock(""), (Some(1_000_000), 0, 500));
    let shift = "INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PARAM_TIME_SHIFT', '-100');";
    assert_eq!(clock(shift), (Some(1_000_100), -100, 400));
    let normalise = "INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PARAM_TIME_NORMALIZE', 'true');";
    assert_eq!(clock(normalise), (None, 1_000_000, 1_000_500));
}

#[test]
fn texts_that_are_not_utf8() {
    let export = Export::new(&format!(
        "{} {} UPDATE StringIds SET value = CAST(x'6bff' AS TEXT) WHERE id = 1;",
        tables(),
        kernel([1, 2], 0, 1, 40),
    ));
    let read = export.read();
    assert_eq!(read.traces[0].text(read.traces[0].kernels.name[0]), "k\u{fffd}");
    assert_eq!(read.issues.find("not_utf8").unwrap().first.text, "k\u{fffd}");
}

#[test]
fn os_calls_stay_apart_from_api_calls_and_backtraces_are_not_calls() {
    let tid = global(40) + 40;
    let export = Export::new(&format!(
        "{} {} {} CREATE TABLE OSRT_API(start INTEGER, end INTEGER, globalTid INTEGER,
            nameId INTEGER);
         INSERT INTO OSRT_API VALUES (1, 9, {tid}, 4);
         INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (0, 2, 67, {tid}, 1, 3);
         CREATE TABLE PROFILER_OVERHEAD(start INTEGER, end INTEGER, globalTid INTEGER,
            nameId INTEGER);
         INSERT INTO PROFILER_OVERHEAD VALUES (3, 4, {tid}, 4);",
        tables(),
        kernel([1, 2], 0, 1, 40),
        launch([0, 1], 1, 40),
    ));
    let read = export.read();
    let trace = &read.traces[0];
    assert_eq!((trace.api_calls.len(), trace.os_calls.len(), trace.overheads.len()), (1, 1, 1));
    assert_eq!(trace.os_calls.duration[0].as_ns(), 8);
    assert_eq!(read.issues.find("backtrace_row").unwrap().count, 1);
}

#[test]
fn other_databases_are_named() {
    let nvprof = Export::new(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(_id_ INTEGER, start INTEGER, name INTEGER);
         CREATE TABLE StringTable(_id_ INTEGER, value TEXT);",
    );
    let error = nvprof.error();
    assert!(matches!(error, NsysError::Nvprof { .. }));
    assert!(error.to_string().ends_with("is an nvprof database, not an nsys export"), "{error}");
    assert!(error.hint().unwrap().contains("nsys profile"));
    let other = Export::new("CREATE TABLE moz_places(id INTEGER); CREATE TABLE urls(id INTEGER);");
    let error = other.error();
    assert!(matches!(error, NsysError::Unrelated { .. }));
    assert!(error.to_string().ends_with("(its tables: moz_places, urls)"), "{error}");
    let error = Export::new("CREATE TABLE t(a); DROP TABLE t;").error();
    assert!(error.to_string().ends_with("(its tables: none)"), "{error}");
    let empty = Export::new(tables());
    let error = empty.error();
    assert!(matches!(error, NsysError::NoEvents { .. }), "{error}");
    assert_eq!(error.hint().unwrap(), "record with -t cuda,nvtx, and while the server works");
}

#[test]
fn a_log_beside_the_export_is_told() {
    let export = Export::new(&(tables().to_owned() + &kernel([1, 2], 0, 1, 40)));
    std::fs::write(export.path().with_extension("sqlite-wal"), b"log").unwrap();
    assert!(export.read().issues.find("write_ahead_log").is_some());
}
