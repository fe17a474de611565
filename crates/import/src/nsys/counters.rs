//! Sampled metrics of GPUs as counters.

use rusqlite::Connection;
use steptally_trace_model::{CounterRow, Nanos, Severity, Timestamp};

use super::cells;
use super::part::Reader;
use super::source::GlobalPid;
use super::tasks::{Rows, scan};

pub(super) const GPU_METRICS: &str = "GPU_METRICS";

/// Samples belong to a GPU, not to a process: `device` is the recorder's number of the GPU here,
/// and becomes the process's ordinal when the samples are handed to the process that used it.
pub(super) fn samples(reader: &mut Reader<'_>, connection: &Connection, rows: Rows) {
    let columns = ["timestamp", "typeId", "metricId", "value", "deviceId"];
    scan(reader, connection, GPU_METRICS, &columns, rows, |reader, row| {
        let (Some(start), Some(metric)) = (cells::int(row, 0), cells::int(row, 2)) else {
            reader.issues.note("row_without_time", Severity::Warning, None, || {
                format!("{GPU_METRICS}: a row without timestamp or metric")
            });
            return;
        };
        let source = reader.source;
        let kind = cells::int(row, 1).unwrap_or(-1);
        let name =
            source.metrics.get(&(kind, metric)).or_else(|| source.metrics.get(&(-1, metric)));
        let value = cells::real(row, 3).unwrap_or(f64::NAN);
        let gpu = cells::small(row, 4)
            .map(u64::from)
            .or_else(|| u64::try_from(kind).ok().map(|kind| kind & 0xFF));
        let strings = &mut reader.part(GlobalPid::UNKNOWN).builder.strings;
        let name = match name {
            Some(name) => strings.intern(name),
            None => strings.intern(&format!("metric {metric}")),
        };
        reader.part(GlobalPid::UNKNOWN).builder.counters.push(CounterRow {
            start: Timestamp::from_ns(start),
            duration: Nanos::ZERO,
            name,
            value,
            device: gpu.into(),
        });
    });
}
