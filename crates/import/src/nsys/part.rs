//! What one reader makes of its rows: one trace under construction per process.

use std::borrow::Cow;

use hashbrown::HashMap;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};
use steptally_trace_model::{
    Issues, Nanos, OptionalId, ProcessId, Severity, Stream, StreamId, StringId, ThreadId,
    Timestamp, TraceBuilder,
};

use super::cells;
use super::source::{GlobalPid, Names, Source};

/// What the name of a copy or fill is made from: operation, memory kinds of source and target.
pub(super) type Label = (Option<i64>, Option<i64>, Option<i64>);

/// The rows of one process, as one reader saw them.
pub(super) struct Part {
    pub(super) builder: TraceBuilder,
    pid: String,
    process: Option<ProcessId>,
    strings: HashMap<i64, StringId>,
    labels: HashMap<Label, StringId>,
    threads: HashMap<i64, ThreadId>,
    last_thread: Option<(i64, ThreadId)>,
    /// Names that the recorder gave to threads by NVTX.
    pub(super) named_threads: Vec<(ThreadId, StringId)>,
}

impl Part {
    fn new(process: GlobalPid) -> Self {
        Self {
            builder: TraceBuilder::default(),
            pid: process.os_pid(),
            process: None,
            strings: HashMap::new(),
            labels: HashMap::new(),
            threads: HashMap::new(),
            last_thread: None,
            named_threads: Vec::new(),
        }
    }

    /// The thread of a `globalTid`.
    pub(super) fn thread(&mut self, global: Option<i64>) -> ThreadId {
        let key = global.unwrap_or(i64::MIN);
        if let Some((last, id)) = self.last_thread
            && last == key
        {
            return id;
        }
        let (builder, pid) = (&mut self.builder, &self.pid);
        let id = *self.threads.entry(key).or_insert_with(|| match global {
            None => builder.thread(pid, ""),
            // A thread that belongs to another process (the end of a range) keeps its own id.
            Some(global) => builder
                .thread(&GlobalPid::of(Some(global)).os_pid(), &(global & 0xFF_FFFF).to_string()),
        });
        self.last_thread = Some((key, id));
        id
    }

    /// The name for a label, made on first sight.
    pub(super) fn label(&mut self, label: Label, make: impl FnOnce() -> String) -> StringId {
        let strings = &mut self.builder.strings;
        *self.labels.entry(label).or_insert_with(|| strings.intern(&make()))
    }

    /// The stream of a row's device, context and stream cells at `index`, `index + 1`, `index + 2`.
    pub(super) fn stream(&mut self, row: &Row<'_>, index: usize) -> StreamId {
        let process = match self.process {
            Some(process) => process,
            None => *self.process.insert(self.builder.process(&self.pid)),
        };
        self.builder.streams.intern(Stream {
            process,
            device: cells::small(row, index),
            context: cells::id(row, index + 1).into(),
            stream: cells::id(row, index + 2).into(),
        })
    }
}

/// One reader: its connection's strings, the parts it makes, and what it finds wrong.
pub(super) struct Reader<'s> {
    pub(super) source: &'s Source,
    names: Names<'s>,
    parts: Vec<(GlobalPid, Part)>,
    last: usize,
    pub(super) issues: Issues,
    pub(super) partial: bool,
}

/// How a name from `StringIds` is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NameStyle {
    /// As recorded.
    Plain,
    /// Without the suffixes that tell versions of an API's entry point.
    Api,
    /// Without the numbers that PyTorch gives to each call.
    Range,
}

impl<'s> Reader<'s> {
    pub(super) fn new(source: &'s Source, connection: &'s Connection) -> Self {
        Self {
            source,
            names: source.names(connection),
            parts: Vec::new(),
            last: 0,
            issues: Issues::default(),
            partial: false,
        }
    }

    /// What was read, in order of first appearance.
    pub(super) fn finish(mut self) -> (Vec<(GlobalPid, Part)>, Issues, bool) {
        for (_, part) in &mut self.parts {
            part.builder.meta.partial = self.partial;
        }
        (self.parts, self.issues, self.partial)
    }

    /// The part of a process.
    pub(super) fn part(&mut self, process: GlobalPid) -> &mut Part {
        if self.parts.get(self.last).is_none_or(|(owner, _)| *owner != process) {
            self.last = match self.parts.iter().position(|(owner, _)| *owner == process) {
                Some(index) => index,
                None => {
                    self.parts.push((process, Part::new(process)));
                    self.parts.len() - 1
                }
            };
        }
        &mut self.parts[self.last].1
    }

    /// The name in column `index`: an id of `StringIds`, or (in derived databases) the text itself.
    pub(super) fn name(
        &mut self,
        process: GlobalPid,
        row: &Row<'_>,
        index: usize,
        style: NameStyle,
    ) -> StringId {
        match row.get_ref(index) {
            Ok(ValueRef::Integer(id)) => self.string(process, id, style),
            Ok(ValueRef::Text(bytes) | ValueRef::Blob(bytes)) => {
                self.intern_bytes(process, bytes, style)
            }
            _ => StringId::default(),
        }
    }

    /// The string with an id, read from the database on first sight.
    pub(super) fn string(&mut self, process: GlobalPid, id: i64, style: NameStyle) -> StringId {
        if let Some(&known) = self.part(process).strings.get(&id) {
            return known;
        }
        let interned = match self.names.fetch(id) {
            Some(bytes) => self.intern_bytes(process, &bytes, style),
            None => {
                self.issues.note("missing_string", Severity::Warning, None, || {
                    format!("StringIds has no string {id}")
                });
                self.part(process).builder.strings.intern(&format!("string {id}"))
            }
        };
        self.part(process).strings.insert(id, interned);
        interned
    }

    /// Interns text that may not be UTF-8.
    pub(super) fn intern_bytes(
        &mut self,
        process: GlobalPid,
        bytes: &[u8],
        style: NameStyle,
    ) -> StringId {
        let text = String::from_utf8_lossy(bytes);
        if matches!(text, Cow::Owned(_)) {
            self.issues.note("not_utf8", Severity::Warning, None, || shorten(&text));
        }
        let shown = match style {
            NameStyle::Plain => Cow::Borrowed(&*text),
            NameStyle::Api => Cow::Borrowed(api_name(&text)),
            NameStyle::Range => without_call_numbers(&text),
        };
        self.part(process).builder.strings.intern(&shown)
    }

    /// Start and duration of the cells 0 and 1; `None` (with an issue) for a row without times.
    pub(super) fn times(&mut self, table: &str, row: &Row<'_>) -> Option<(Timestamp, Nanos)> {
        let (Some(start), Some(end)) = (cells::int(row, 0), cells::int(row, 1)) else {
            self.issues.note("row_without_time", Severity::Warning, None, || {
                format!("{table}: a row without start or end")
            });
            return None;
        };
        let (start, end) = (Timestamp::from_ns(start), Timestamp::from_ns(end));
        if end < start {
            self.issues.note("negative_duration", Severity::Warning, None, || {
                format!("{table}: start {}, end {}", start.as_ns(), end.as_ns())
            });
        }
        Some((start, (end - start).clamp_to_zero()))
    }
}

/// A correlation id cell.
pub(super) fn correlation(row: &Row<'_>, index: usize) -> OptionalId {
    cells::id(row, index).into()
}

/// At most 80 characters of a text, for an issue.
pub(super) fn shorten(text: &str) -> String {
    text.chars().take(80).collect()
}

/// An API function's name as users know it: without the suffix that tells the version of its
/// entry point (`_v7000`) or its default stream (`_ptsz`, `_ptds`). The driver's `_v2` is part of
/// the name.
pub(super) fn api_name(name: &str) -> &str {
    let mut name = name;
    loop {
        let versioned = name.rsplit_once("_v").filter(|(_, version)| {
            version.len() >= 4 && version.bytes().all(|digit| digit.is_ascii_digit())
        });
        name = match versioned {
            Some((stem, _)) if !stem.is_empty() => stem,
            _ => match name.strip_suffix("_ptsz").or_else(|| name.strip_suffix("_ptds")) {
                Some(stem) if !stem.is_empty() => stem,
                _ => return name,
            },
        };
    }
}

/// A range's text without what differs at every call: PyTorch's `emit_nvtx` writes
/// `aten::mm, seq = 7, op_id = 12, sizes = [[2, 3]], input_op_ids = [(11,0)]`. The sizes stay.
fn without_call_numbers(text: &str) -> Cow<'_, str> {
    let first = text.find(" = ").and_then(|value| text[..value].rfind(", "));
    let Some(first) = first else { return text.into() };
    let (name, mut rest) = text.split_at(first);
    for key in [", seq = ", ", op_id = "] {
        let after = rest.strip_prefix(key).and_then(|number| {
            let after = number.trim_start_matches(|digit: char| digit.is_ascii_digit());
            let whole = after.len() < number.len() && (after.is_empty() || after.starts_with(','));
            whole.then_some(after)
        });
        rest = after.unwrap_or(rest);
    }
    let inputs = rest.find(", input_op_ids = [").filter(|_| rest.ends_with(']'));
    rest = inputs.map_or(rest, |inputs| &rest[..inputs]);
    if rest.is_empty() { name.into() } else { [name, rest].concat().into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_lose_the_numbers_of_their_calls() {
        for (recorded, shown) in [
            ("aten::mm, seq = 7, op_id = 12", "aten::mm"),
            ("aten::mm, op_id = 12", "aten::mm"),
            ("aten::mm, seq = 7", "aten::mm"),
            (
                "aten::mm, seq = 7, op_id = 12, sizes = [[2, 3], []], input_op_ids = [(11,0), (9,1)]",
                "aten::mm, sizes = [[2, 3], []]",
            ),
            ("aten::mm, op_id = 12, input_op_ids = []", "aten::mm"),
            // Not PyTorch's: kept.
            ("step, seq = last", "step, seq = last"),
            ("step, seq = 4a", "step, seq = 4a"),
            ("step, seq = ", "step, seq = "),
            ("decode, bs = 8", "decode, bs = 8"),
            ("", ""),
        ] {
            assert_eq!(without_call_numbers(recorded), shown);
        }
    }

    #[test]
    fn api_names_lose_their_entry_points_version() {
        for (recorded, shown) in [
            ("cudaLaunchKernel_v7000", "cudaLaunchKernel"),
            ("cudaLaunchKernelExC_v11060", "cudaLaunchKernelExC"),
            ("cudaMemcpyAsync_ptsz_v7000", "cudaMemcpyAsync"),
            ("cuMemcpyHtoDAsync_v2_ptsz", "cuMemcpyHtoDAsync_v2"),
            ("cudaStreamGetCaptureInfo_v3_v12030", "cudaStreamGetCaptureInfo_v3"),
            ("cuLaunchKernelEx", "cuLaunchKernelEx"),
            ("_v7000", "_v7000"),
            ("", ""),
        ] {
            assert_eq!(api_name(recorded), shown);
        }
    }
}
