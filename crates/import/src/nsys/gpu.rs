//! Work on the GPU: kernels, copies, fills, and graph replays recorded as a whole.

use rusqlite::{Connection, Row};
use steptally_trace_model::{
    CollectiveId, CopyKind, CopyRow, GraphTraceRow, KernelRow, LaunchConfig, OptionalId, Severity,
};

use super::cells;
use super::part::{NameStyle, Reader, correlation};
use super::source::{Enumeration, GlobalPid};
use super::tasks::{Rows, scan};

pub(super) const KERNEL: &str = "CUPTI_ACTIVITY_KIND_KERNEL";
pub(super) const MEMCPY: &str = "CUPTI_ACTIVITY_KIND_MEMCPY";
pub(super) const MEMSET: &str = "CUPTI_ACTIVITY_KIND_MEMSET";
pub(super) const GRAPH_TRACE: &str = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE";

/// The first columns of all of them.
const COMMON: [&str; 7] =
    ["start", "end", "globalPid", "deviceId", "contextId", "streamId", "correlationId"];

fn columns(more: &[&'static str]) -> Vec<&'static str> {
    COMMON.iter().chain(more).copied().collect()
}

pub(super) fn kernels(reader: &mut Reader<'_>, connection: &Connection, rows: Rows) {
    let schema = &reader.source.schema;
    let name = ["demangledName", "shortName", "mangledName"]
        .into_iter()
        .find(|name| schema.column(KERNEL, name))
        .unwrap_or("demangledName");
    let columns = columns(&[
        name,
        "gridX",
        "gridY",
        "gridZ",
        "blockX",
        "blockY",
        "blockZ",
        "registersPerThread",
        "staticSharedMemory",
        "dynamicSharedMemory",
        "graphNodeId",
        "graphId",
        // Looked at only where the name is NULL.
        "shortName",
    ]);
    scan(reader, connection, KERNEL, &columns, rows, kernel);
}

fn kernel(reader: &mut Reader<'_>, row: &Row<'_>) {
    let Some((start, duration)) = reader.times(KERNEL, row) else {
        return;
    };
    let process = GlobalPid::of(cells::int(row, 2));
    let mut name = reader.name(process, row, 7, NameStyle::Plain);
    if name.0 == 0 {
        name = reader.name(process, row, 19, NameStyle::Plain);
    }
    let size = |index| cells::small(row, index).unwrap_or(0);
    let config = LaunchConfig {
        grid: [size(8), size(9), size(10)],
        block: [size(11), size(12), size(13)],
        registers: cells::small(row, 14),
        shared_memory_bytes: match (cells::small(row, 15), cells::small(row, 16)) {
            (None, None) => None,
            (fixed, dynamic) => Some(fixed.unwrap_or(0).saturating_add(dynamic.unwrap_or(0))),
        },
        occupancy_percent: None,
    };
    let part = reader.part(process);
    let stream = part.stream(row, 3);
    let config = part.builder.configs.intern(config);
    part.builder.kernels.push(KernelRow {
        start,
        duration,
        name,
        stream,
        correlation: correlation(row, 6),
        external: OptionalId::NONE,
        config,
        graph_node: cells::id(row, 17).into(),
        graph: cells::id(row, 18).filter(|&graph| graph != 0).into(),
        collective: CollectiveId::default(),
    });
}

pub(super) fn copies(reader: &mut Reader<'_>, connection: &Connection, rows: Rows) {
    let columns = columns(&["bytes", "copyKind", "srcKind", "dstKind", "graphNodeId"]);
    scan(reader, connection, MEMCPY, &columns, rows, copy);
}

fn copy(reader: &mut Reader<'_>, row: &Row<'_>) {
    let Some((start, duration)) = reader.times(MEMCPY, row) else {
        return;
    };
    let process = GlobalPid::of(cells::int(row, 2));
    let source = reader.source;
    let direction = cells::int(row, 8)
        .map_or("", |kind| source.copy_kinds.name(kind).rsplit("KIND_").next().unwrap_or(""));
    let (kind, label) = copy_kind(direction);
    let place = |index| cells::int(row, index).map(|kind| memory(&source.memory_kinds, kind));
    let (from, to) = (place(9), place(10));
    let host = match kind {
        CopyKind::HostToDevice => [from, None],
        CopyKind::DeviceToHost => [to, None],
        CopyKind::HostToHost => [from, to],
        _ => [None, None],
    };
    let part = reader.part(process);
    let stream = part.stream(row, 3);
    let key = (cells::int(row, 8), cells::int(row, 9), cells::int(row, 10));
    let name = part.label(key, || match (from, to) {
        (Some(from), Some(to)) => format!("Memcpy {label} ({from} -> {to})"),
        _ => format!("Memcpy {label}"),
    });
    part.builder.copies.push(CopyRow {
        start,
        duration,
        name,
        kind,
        pageable: pageable(host),
        stream,
        correlation: correlation(row, 6),
        external: OptionalId::NONE,
        bytes: cells::int(row, 7).and_then(|bytes| u64::try_from(bytes).ok()).into(),
        graph_node: cells::id(row, 11).into(),
    });
}

/// Whether one of the host sides is pageable; `None` when that is not known.
fn pageable(host: [Option<&str>; 2]) -> Option<bool> {
    if host.contains(&Some("Pageable")) {
        return Some(true);
    }
    host.contains(&Some("Pinned")).then_some(false)
}

/// Kind and label of a direction such as `HTOD`.
fn copy_kind(direction: &str) -> (CopyKind, &'static str) {
    match direction {
        "HTOD" => (CopyKind::HostToDevice, "HtoD"),
        "DTOH" => (CopyKind::DeviceToHost, "DtoH"),
        "HTOA" => (CopyKind::HostToDevice, "HtoA"),
        "ATOH" => (CopyKind::DeviceToHost, "AtoH"),
        "ATOA" => (CopyKind::DeviceToDevice, "AtoA"),
        "ATOD" => (CopyKind::DeviceToDevice, "AtoD"),
        "DTOA" => (CopyKind::DeviceToDevice, "DtoA"),
        "DTOD" => (CopyKind::DeviceToDevice, "DtoD"),
        "HTOH" => (CopyKind::HostToHost, "HtoH"),
        "PTOP" => (CopyKind::PeerToPeer, "PtoP"),
        "UVM_HTOD" => (CopyKind::HostToDevice, "unified HtoD"),
        "UVM_DTOH" => (CopyKind::DeviceToHost, "unified DtoH"),
        "UVM_DTOD" => (CopyKind::DeviceToDevice, "unified DtoD"),
        _ => (CopyKind::Unknown, "Unknown"),
    }
}

/// The word for a kind of memory, as torch.profiler has it.
fn memory(kinds: &Enumeration, kind: i64) -> &'static str {
    match kinds.name(kind).rsplit("KIND_").next().unwrap_or("") {
        "PAGEABLE" => "Pageable",
        "PINNED" => "Pinned",
        "DEVICE" => "Device",
        "ARRAY" => "Array",
        "MANAGED" => "Managed",
        "DEVICE_STATIC" => "Device Static",
        "MANAGED_STATIC" => "Managed Static",
        _ => "Unknown",
    }
}

pub(super) fn fills(reader: &mut Reader<'_>, connection: &Connection, rows: Rows) {
    let columns = columns(&["bytes", "memKind", "graphNodeId"]);
    scan(reader, connection, MEMSET, &columns, rows, fill);
}

fn fill(reader: &mut Reader<'_>, row: &Row<'_>) {
    let Some((start, duration)) = reader.times(MEMSET, row) else {
        return;
    };
    let process = GlobalPid::of(cells::int(row, 2));
    let source = reader.source;
    let kind = cells::int(row, 8);
    let part = reader.part(process);
    let stream = part.stream(row, 3);
    let name = part.label((kind, None, None), || match kind {
        Some(kind) => format!("Memset ({})", memory(&source.memory_kinds, kind)),
        None => "Memset".into(),
    });
    part.builder.copies.push(CopyRow {
        start,
        duration,
        name,
        kind: CopyKind::Memset,
        pageable: None,
        stream,
        correlation: correlation(row, 6),
        external: OptionalId::NONE,
        bytes: cells::int(row, 7).and_then(|bytes| u64::try_from(bytes).ok()).into(),
        graph_node: cells::id(row, 9).into(),
    });
}

pub(super) fn graph_traces(reader: &mut Reader<'_>, connection: &Connection, rows: Rows) {
    let columns = columns(&["graphExecId", "graphId"]);
    scan(reader, connection, GRAPH_TRACE, &columns, rows, graph_trace);
}

fn graph_trace(reader: &mut Reader<'_>, row: &Row<'_>) {
    let Some((start, duration)) = reader.times(GRAPH_TRACE, row) else {
        return;
    };
    if start.as_ns() == 0 && duration.as_ns() == 0 {
        reader.issues.note("graph_replay_without_time", Severity::Warning, None, || {
            "the recorder did not collect the time of a graph replay".into()
        });
        return;
    }
    let part = reader.part(GlobalPid::of(cells::int(row, 2)));
    let stream = part.stream(row, 3);
    part.builder.graph_traces.push(GraphTraceRow {
        start,
        duration,
        stream,
        correlation: correlation(row, 6),
        graph: cells::id(row, 7).or_else(|| cells::id(row, 8)).into(),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_side_decides_about_pageable() {
        assert_eq!(pageable([Some("Pageable"), None]), Some(true));
        assert_eq!(pageable([Some("Pinned"), Some("Pageable")]), Some(true));
        assert_eq!(pageable([Some("Pinned"), None]), Some(false));
        assert_eq!(pageable([Some("Managed"), None]), None);
        assert_eq!(pageable([None, None]), None);
    }
}
