//! Activity of the host: API calls, OS runtime calls, the recorder's overhead, synchronisation and
//! graph nodes as they were created.

use std::collections::HashMap;

use rusqlite::{Connection, Row};
use steptally_trace_model::{
    ApiRow, GraphNodeRow, OptionalId, OsCallRow, OverheadRow, Severity, SyncRow,
};

use super::cells;
use super::part::{NameStyle, Reader, correlation};
use super::source::GlobalPid;
use super::tasks::{Rows, scan};

pub(super) const API: &str = "CUPTI_ACTIVITY_KIND_RUNTIME";
pub(super) const OS_CALLS: &str = "OSRT_API";
pub(super) const SYNCS: &str = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION";
pub(super) const OVERHEADS: [&str; 2] = ["PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD"];
pub(super) const GRAPH_EVENTS: [&str; 2] = ["CUDA_GRAPH_NODE_EVENTS", "CUDA_GRAPH_EVENTS"];

/// `eventClass` of rows that repeat an API call to carry its backtrace (2021).
const BACKTRACE: i64 = 67;

pub(super) fn api_calls(reader: &mut Reader<'_>, connection: &Connection, rows: Rows) {
    let columns = ["start", "end", "globalTid", "nameId", "correlationId", "eventClass"];
    scan(reader, connection, API, &columns, rows, api_call);
}

fn api_call(reader: &mut Reader<'_>, row: &Row<'_>) {
    if cells::int(row, 5) == Some(BACKTRACE) {
        reader.issues.note("backtrace_row", Severity::Info, None, || {
            "rows that repeat an API call for its backtrace are left out".into()
        });
        return;
    }
    let Some((start, duration)) = reader.times(API, row) else {
        return;
    };
    let thread = cells::int(row, 2);
    let process = GlobalPid::of(thread);
    let name = reader.name(process, row, 3, NameStyle::Api);
    let part = reader.part(process);
    let thread = part.thread(thread);
    part.builder.api_calls.push(ApiRow {
        start,
        duration,
        name,
        thread,
        correlation: correlation(row, 4),
        external: OptionalId::NONE,
    });
}

pub(super) fn os_calls(reader: &mut Reader<'_>, connection: &Connection, rows: Rows) {
    let columns = ["start", "end", "globalTid", "nameId"];
    scan(reader, connection, OS_CALLS, &columns, rows, |reader, row| {
        let Some((start, duration)) = reader.times(OS_CALLS, row) else {
            return;
        };
        let thread = cells::int(row, 2);
        let process = GlobalPid::of(thread);
        let name = reader.name(process, row, 3, NameStyle::Plain);
        let part = reader.part(process);
        let thread = part.thread(thread);
        part.builder.os_calls.push(OsCallRow { start, duration, name, thread });
    });
}

pub(super) fn overheads(
    reader: &mut Reader<'_>,
    connection: &Connection,
    table: &'static str,
    rows: Rows,
) {
    let columns = ["start", "end", "globalTid", "nameId"];
    scan(reader, connection, table, &columns, rows, |reader, row| {
        let Some((start, duration)) = reader.times(table, row) else {
            return;
        };
        let thread = cells::int(row, 2);
        let process = GlobalPid::of(thread);
        let name = reader.name(process, row, 3, NameStyle::Plain);
        let part = reader.part(process);
        let thread = part.thread(thread);
        part.builder.overheads.push(OverheadRow { start, duration, name, thread });
    });
}

/// Both generations of the graph tables: rows about nodes have `graphNodeId`, rows about whole
/// graphs have `graphId` (they become rows without a node).
pub(super) fn graph_nodes(
    reader: &mut Reader<'_>,
    connection: &Connection,
    table: &'static str,
    rows: Rows,
) {
    let columns = [
        "start",
        "end",
        "globalTid",
        "nameId",
        "graphNodeId",
        "originalGraphNodeId",
        "graphExecId",
        "graphId",
    ];
    scan(reader, connection, table, &columns, rows, |reader, row| {
        let Some((start, duration)) = reader.times(table, row) else {
            return;
        };
        let thread = cells::int(row, 2);
        let process = GlobalPid::of(thread);
        let name = reader.name(process, row, 3, NameStyle::Plain);
        let part = reader.part(process);
        let thread = part.thread(thread);
        part.builder.graph_nodes.push(GraphNodeRow {
            start,
            duration,
            name,
            thread,
            graph_node: cells::id(row, 4).into(),
            graph: cells::id(row, 6).or_else(|| cells::id(row, 7)).into(),
            original_node: cells::id(row, 5).into(),
            correlation: OptionalId::NONE,
        });
    });
}

/// A recorded CUDA event, for those who wait on it.
#[derive(Clone, Copy)]
struct Record {
    correlation: u64,
    stream: Option<u64>,
}

/// Recorded events: by the id that pairs record and wait (new exports), and by event id.
#[derive(Default)]
struct Records {
    by_sync: HashMap<(GlobalPid, u64), Record>,
    by_event: HashMap<(GlobalPid, u64, u64), Vec<Record>>,
}

impl Records {
    fn read(reader: &mut Reader<'_>, connection: &Connection) -> Self {
        let columns =
            ["globalPid", "contextId", "streamId", "correlationId", "eventId", "eventSyncId"];
        let mut records = Self::default();
        let table = "CUPTI_ACTIVITY_KIND_CUDA_EVENT";
        scan(reader, connection, table, &columns, None, |_, row| {
            let process = GlobalPid::of(cells::int(row, 0));
            let Some(correlation) = cells::id(row, 3) else {
                return;
            };
            let record = Record { correlation, stream: cells::id(row, 2) };
            if let Some(sync) = cells::id(row, 5).filter(|&sync| sync != 0) {
                records.by_sync.insert((process, sync), record);
            }
            if let Some(event) = cells::id(row, 4) {
                let context = cells::id(row, 1).unwrap_or(0);
                records.by_event.entry((process, context, event)).or_default().push(record);
            }
        });
        for record in records.by_event.values_mut() {
            record.sort_by_key(|record| record.correlation);
        }
        records
    }

    /// The record that a wait is for: the one it is paired with, else the last one of its event
    /// before it (correlation ids of a process grow).
    fn of_wait(
        &self,
        process: GlobalPid,
        context: u64,
        event: u64,
        sync: Option<u64>,
        wait: Option<u64>,
    ) -> Option<Record> {
        if let Some(record) = sync.and_then(|sync| self.by_sync.get(&(process, sync))) {
            return Some(*record);
        }
        let records = self.by_event.get(&(process, context, event))?;
        let before = records.partition_point(|record| record.correlation < wait.unwrap_or(0));
        before.checked_sub(1).map(|index| records[index])
    }
}

pub(super) fn syncs(reader: &mut Reader<'_>, connection: &Connection, rows: Rows) {
    let records = Records::read(reader, connection);
    let columns = [
        "start",
        "end",
        "globalPid",
        "deviceId",
        "contextId",
        "streamId",
        "correlationId",
        "eventId",
        "eventSyncId",
    ];
    scan(reader, connection, SYNCS, &columns, rows, |reader, row| {
        let Some((start, duration)) = reader.times(SYNCS, row) else {
            return;
        };
        let process = GlobalPid::of(cells::int(row, 2));
        let (stream, event) = (cells::id(row, 5), cells::id(row, 7));
        // The numbers of `syncType` changed their meaning between schema 3.24 and 3.25, and the
        // enumeration in older exports is wrong about them. Which ids a row has never changed.
        let name = match (stream.is_some(), event.is_some()) {
            (false, true) => "Event Synchronize",
            (true, true) => "Stream Wait Event",
            (true, false) => "Stream Synchronize",
            (false, false) => "Context Synchronize",
        };
        let wait = cells::id(row, 6);
        let context = cells::id(row, 4).unwrap_or(0);
        let sync = cells::id(row, 8).filter(|&sync| sync != 0);
        let record = event.and_then(|event| records.of_wait(process, context, event, sync, wait));
        let part = reader.part(process);
        let stream = part.stream(row, 3);
        let name = part.builder.strings.intern(name);
        part.builder.syncs.push(SyncRow {
            start,
            duration,
            name,
            stream,
            correlation: wait.into(),
            wait_on_stream: record.and_then(|record| record.stream).into(),
            wait_on_correlation: record.map(|record| record.correlation).into(),
        });
    });
}
