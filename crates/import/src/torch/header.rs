//! The top-level members of the file: versions, devices, rank.

use serde_json::Value;
use steptally_trace_model::{
    DeviceProperties, Issues, ProcessGroup, Rank, RankSource, Severity, TraceMeta,
};

use super::issue::excerpt;

/// How many messages of the recorder are kept.
const MAX_DIAGNOSTICS: usize = 50;

/// Whether the value of a top-level key is read at all.
pub(super) fn is_kept(key: &[u8]) -> bool {
    matches!(
        key,
        b"schemaVersion"
            | b"deviceProperties"
            | b"distributedInfo"
            | b"record_shapes"
            | b"with_stack"
            | b"with_modules"
            | b"with_flops"
            | b"profile_memory"
            | b"baseTimeNanoseconds"
            | b"trace_id"
            | b"WARNING"
            | b"ERROR"
    ) || key.ends_with(b"_version")
}

/// Takes the value of a top-level key that is kept.
pub(super) fn take(
    meta: &mut TraceMeta,
    issues: &mut Issues,
    key: &[u8],
    value: &[u8],
    offset: u64,
) {
    let key = String::from_utf8_lossy(key);
    let text = String::from_utf8_lossy(value);
    let Ok(value) = serde_json::from_str::<Value>(&text) else {
        issues.note("bad_header", Severity::Warning, Some(offset), || {
            format!("{key}: {}", excerpt(value))
        });
        return;
    };
    match &*key {
        "deviceProperties" => take_devices(meta, &value),
        "distributedInfo" => take_distributed(meta, &value),
        "record_shapes" => meta.record_shapes = flag(&value),
        "with_stack" => meta.with_stack = flag(&value),
        "baseTimeNanoseconds" => meta.base_time_ns = integer(&value),
        "ERROR" | "WARNING" => {
            let messages = value.as_array().into_iter().flatten().filter_map(Value::as_str);
            let room = MAX_DIAGNOSTICS.saturating_sub(meta.diagnostics.len());
            meta.diagnostics.extend(messages.take(room).map(Into::into));
        }
        _ => add_version(meta, &key, &value),
    }
}

fn add_version(meta: &mut TraceMeta, key: &str, value: &Value) {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(_) | Value::Bool(_) => value.to_string(),
        _ => return,
    };
    if meta.versions.iter().all(|(known, _)| known != key) {
        meta.versions.push((key.into(), text));
    }
}

fn take_devices(meta: &mut TraceMeta, value: &Value) {
    for device in value.as_array().into_iter().flatten() {
        let number =
            |key: &str| device.get(key).and_then(integer).and_then(|n| u32::try_from(n).ok());
        let Some(ordinal) = number("id") else {
            continue;
        };
        if meta.device(ordinal).is_some() {
            continue;
        }
        meta.devices.push(DeviceProperties {
            device: ordinal,
            name: device.get("name").and_then(Value::as_str).unwrap_or_default().into(),
            total_memory_bytes: device.get("totalGlobalMem").and_then(Value::as_u64),
            sm_count: number("numSms"),
            compute_capability: number("computeMajor").zip(number("computeMinor")),
            memory_bandwidth_bytes_per_s: None,
        });
    }
}

fn take_distributed(meta: &mut TraceMeta, value: &Value) {
    let number = |key: &str| value.get(key).and_then(integer).and_then(|n| u32::try_from(n).ok());
    if let Some(rank) = number("rank") {
        let source = RankSource::DistributedInfo;
        meta.rank = Some(Rank { number: rank, source, label: String::new() });
    }
    meta.world_size = number("world_size").or(meta.world_size);
    for key in ["nccl_version", "backend"] {
        if let Some(text) = value.get(key) {
            add_version(meta, key, text);
        }
    }
    let text = |group: &Value, key: &str| match group.get(key) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => String::new(),
    };
    for group in value.get("pg_config").and_then(Value::as_array).into_iter().flatten() {
        let ranks = group.get("ranks").and_then(Value::as_array).into_iter().flatten();
        meta.process_groups.push(ProcessGroup {
            name: text(group, "pg_name"),
            description: text(group, "pg_desc"),
            ranks: ranks.filter_map(integer).filter_map(|n| u32::try_from(n).ok()).collect(),
        });
    }
}

fn integer(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str().and_then(|text| text.trim().parse().ok()))
}

fn flag(value: &Value) -> Option<bool> {
    value.as_bool().or_else(|| integer(value).map(|number| number != 0))
}
