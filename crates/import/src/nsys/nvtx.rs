//! NVTX ranges, marks and thread names.

use rusqlite::{Connection, Row};
use steptally_trace_model::{
    ExtraArg, Nanos, OptionalId, RangeKind, RangeRow, Severity, StringId, TableKind, Timestamp,
};

use super::cells;
use super::part::{NameStyle, Reader};
use super::source::GlobalPid;
use super::tasks::{Rows, scan};

pub(super) const NVTX: &str = "NVTX_EVENTS";

const COLUMNS: [&str; 17] = [
    "start",
    "end",
    "eventType",
    "globalTid",
    "endGlobalTid",
    "domainId",
    "text",
    "textId",
    "category",
    "uint64Value",
    "int64Value",
    "doubleValue",
    "uint32Value",
    "int32Value",
    "floatValue",
    "jsonText",
    "jsonTextId",
];

pub(super) fn ranges(reader: &mut Reader<'_>, connection: &Connection, rows: Rows) {
    scan(reader, connection, NVTX, &COLUMNS, rows, event);
}

fn event(reader: &mut Reader<'_>, row: &Row<'_>) {
    let source = reader.source;
    let event_type = cells::int(row, 2).unwrap_or(-1);
    let kind = match source.event_types.name(event_type) {
        "NvtxPushPopRange" | "NvtxtPushPopRange" => RangeKind::NvtxPushPop,
        "NvtxStartEndRange" | "NvtxtStartEndRange" => RangeKind::NvtxStartEnd,
        "NvtxMark" | "NvtxtMark" => RangeKind::NvtxMark,
        "NvtxThread" => return thread_name(reader, row),
        // Names of domains and categories were read before.
        "NvtxDomainCreate" | "NvtxDomainDestroy" | "NvtxCategory" | "NvtxtCategory" => return,
        _ => {
            reader.issues.note("nvtx_event_ignored", Severity::Info, None, || {
                format!("NVTX event type {event_type}")
            });
            return;
        }
    };
    let Some(start) = cells::int(row, 0).map(Timestamp::from_ns) else {
        reader.times(NVTX, row);
        return;
    };
    // Some writers have 0 where a range was never closed.
    let end =
        cells::int(row, 1).filter(|&end| end != 0 || start.as_ns() <= 0).map(Timestamp::from_ns);
    let mark = kind == RangeKind::NvtxMark;
    let duration = match end {
        Some(end) if !mark && end < start => {
            reader.times(NVTX, row);
            Nanos::ZERO
        }
        Some(end) if !mark => end - start,
        _ => Nanos::ZERO,
    };
    let thread = cells::int(row, 3);
    let process = GlobalPid::of(thread);
    let name = text(reader, process, row);
    let domain = cells::int(row, 5).and_then(|id| source.domains.get(&(process, id)));
    let part = reader.part(process);
    let thread = part.thread(thread);
    let domain = domain.map_or(StringId::default(), |name| part.builder.strings.intern(name));
    part.builder.ranges.push(RangeRow {
        start,
        duration,
        name,
        domain,
        thread,
        external: OptionalId::NONE,
        kind,
        open: end.is_none() && !mark,
    });
    extras(reader, process, row);
}

/// The range's own text, else the registered string.
fn text(reader: &mut Reader<'_>, process: GlobalPid, row: &Row<'_>) -> StringId {
    let own = reader.name(process, row, 6, NameStyle::Range);
    if own.0 == 0 { reader.name(process, row, 7, NameStyle::Range) } else { own }
}

fn thread_name(reader: &mut Reader<'_>, row: &Row<'_>) {
    let thread = cells::int(row, 3);
    let process = GlobalPid::of(thread);
    let name = text(reader, process, row);
    let part = reader.part(process);
    let thread = part.thread(thread);
    part.named_threads.push((thread, name));
}

/// What few ranges have: a payload, a category, an end on another thread. Kept as arguments of the
/// range pushed last.
fn extras(reader: &mut Reader<'_>, process: GlobalPid, row: &Row<'_>) {
    let source = reader.source;
    let payload = (9..=14).find_map(|index| cells::text(row, index));
    if let Some(payload) = payload {
        keep(reader, process, "payload", &payload);
    } else {
        let json = [15, 16].into_iter().find_map(|index| {
            let id = reader.name(process, row, index, NameStyle::Plain);
            (id.0 != 0).then_some(id)
        });
        if let Some(json) = json {
            keep_id(reader, process, "payload", json);
        }
    }
    if let Some(category) = cells::int(row, 8).filter(|&category| category != 0) {
        let domain = cells::int(row, 5).unwrap_or(0);
        let number = category.to_string();
        let name = source.categories.get(&(process, domain, category)).unwrap_or(&number);
        keep(reader, process, "category", name);
    }
    if let Some(end) = cells::int(row, 4) {
        keep(reader, process, "end_thread", &(end & 0xFF_FFFF).to_string());
    }
}

fn keep(reader: &mut Reader<'_>, process: GlobalPid, key: &str, value: &str) {
    let value = reader.part(process).builder.strings.intern(value);
    keep_id(reader, process, key, value);
}

fn keep_id(reader: &mut Reader<'_>, process: GlobalPid, key: &str, value: StringId) {
    let builder = &mut reader.part(process).builder;
    let row = builder.ranges.len() as u32 - 1;
    let key = builder.strings.intern(key);
    builder.extra_args.push(ExtraArg { table: TableKind::Range, row, key, value });
}
