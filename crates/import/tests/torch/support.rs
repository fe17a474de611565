//! One way to check what is read: the text of a trace in, its rows and issues as lines out.

use std::fmt::Write as _;
use std::io::Read;
use std::path::{Path, PathBuf};

use steptally_import::ImportOptions;
use steptally_import::torch::{Lane, TorchRead, read_torch};
use steptally_trace_model::{OptionalId, StreamId, ThreadId, Trace};

/// Reads a text.
pub(crate) fn read(text: impl AsRef<[u8]>) -> TorchRead {
    match read_torch(text.as_ref(), &ImportOptions::default()) {
        Ok(read) => read,
        Err(error) => panic!("{error}"),
    }
}

/// Checks rows and issues, one per line, in this order: kernels, copies, API calls, operators,
/// ranges on the host and on streams, frames, syncs, overheads, graph nodes, counters, flows, issues.
#[track_caller]
pub(crate) fn check(text: impl AsRef<[u8]>, expected: &[&str]) {
    assert_eq!(lines(&read(text)), expected);
}

/// As [`check`], for events in an object with nothing else in it.
#[track_caller]
pub(crate) fn check_events(events: impl AsRef<[u8]>, expected: &[&str]) {
    let text = [br#"{"traceEvents":["#, events.as_ref(), b"]}"].concat();
    check(text, expected);
}

/// Checks that nothing can be read, and what is said about it.
#[track_caller]
pub(crate) fn check_error(text: impl AsRef<[u8]>, expected: &str) {
    match read_torch(text.as_ref(), &ImportOptions::default()) {
        Ok(read) => panic!("read: {:?}", lines(&read)),
        Err(error) => assert_eq!(error.to_string(), expected),
    }
}

pub(crate) fn lines(read: &TorchRead) -> Vec<String> {
    let mut lines = Vec::new();
    for lane in &read.lanes {
        if !lane.prefix.is_empty() {
            lines.push(format!("lane {}", lane.prefix));
        }
        lane_lines(lane, &mut lines);
    }
    lines.extend(read.issues.iter().map(|issue| {
        let at = issue.first.byte_offset.map(|at| format!(" at {at}")).unwrap_or_default();
        format!("{:?} {} x{}{at}", issue.severity, issue.code, issue.count)
    }));
    lines
}

/// Optional values that are there, each with its word.
fn present<const N: usize>(values: [(&str, OptionalId); N]) -> String {
    values.iter().fold(String::new(), |mut text, (word, id)| {
        if let Some(id) = id.value() {
            let _ = write!(text, " {word} {id}");
        }
        text
    })
}

fn stream(trace: &Trace, id: StreamId) -> String {
    let stream = trace.streams[id];
    let device = OptionalId::from(stream.device.map(u64::from));
    present([("device", device), ("context", stream.context), ("stream", stream.stream)])
}

fn thread(trace: &Trace, id: ThreadId) -> String {
    let thread = trace.threads[id];
    format!("{}/{}", trace.text(trace.processes[thread.process].pid), trace.text(thread.tid))
}

fn lane_lines(lane: &Lane, lines: &mut Vec<String>) {
    let trace = &lane.trace;
    macro_rules! push {
        ($word:literal, $row:ident, $($rest:expr),*) => {{
            let mut line = format!(
                "{} `{}` {}+{}",
                $word,
                trace.text($row.name),
                $row.start.as_ns(),
                $row.duration.as_ns()
            );
            $( line.push_str(&$rest); )*
            lines.push(line);
        }};
    }
    for row in trace.kernels.rows() {
        let ids = [
            ("correlation", row.correlation),
            ("external", row.external),
            ("graph", row.graph),
            ("node", row.graph_node),
        ];
        push!("kernel", row, stream(trace, row.stream), present(ids));
    }
    for row in trace.copies.rows() {
        let kind = match row.pageable {
            None => format!(" {:?}", row.kind),
            Some(true) => format!(" {:?} pageable", row.kind),
            Some(false) => format!(" {:?} pinned", row.kind),
        };
        let ids =
            [("bytes", row.bytes), ("correlation", row.correlation), ("external", row.external)];
        push!("copy", row, kind, stream(trace, row.stream), present(ids));
    }
    for row in trace.api_calls.rows() {
        let ids = [("correlation", row.correlation), ("external", row.external)];
        push!("api", row, format!(" on {}", thread(trace, row.thread)), present(ids));
    }
    for row in trace.cpu_ops.rows() {
        let ids = [("external", row.external), ("sequence", row.sequence)];
        push!("op", row, format!(" on {}", thread(trace, row.thread)), present(ids));
    }
    for row in trace.ranges.rows() {
        let ids = [("external", row.external)];
        push!("range", row, format!(" on {}", thread(trace, row.thread)), present(ids));
    }
    for row in trace.gpu_ranges.rows() {
        push!("gpu range", row, stream(trace, row.stream), present([("external", row.external)]));
    }
    for row in trace.frames.rows() {
        let ids = [("id", row.python), ("parent", row.parent)];
        push!("frame", row, format!(" on {}", thread(trace, row.thread)), present(ids));
    }
    for row in trace.syncs.rows() {
        let ids = [
            ("correlation", row.correlation),
            ("waits on stream", row.wait_on_stream),
            ("waits on correlation", row.wait_on_correlation),
        ];
        push!("sync", row, stream(trace, row.stream), present(ids));
    }
    for row in trace.overheads.rows() {
        push!("overhead", row, format!(" on {}", thread(trace, row.thread)));
    }
    for row in trace.graph_nodes.rows() {
        let ids = [("graph", row.graph), ("node", row.graph_node)];
        push!("graph node", row, format!(" on {}", thread(trace, row.thread)), present(ids));
    }
    for row in trace.counters.rows() {
        push!("counter", row, format!(" = {}", row.value), present([("device", row.device)]));
    }
    for row in trace.flows.rows() {
        let category = trace.text(row.category);
        let on = thread(trace, row.thread);
        let id = present([("id", row.id)]);
        lines.push(format!("flow {category} {:?} {} on {on}{id}", row.phase, row.start.as_ns()));
    }
}

/// The workspace's folder.
pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A folder of public traces beside the workspace, if it is there.
pub(crate) fn shared() -> Option<PathBuf> {
    let folder = std::env::var_os("STEPTALLY_SHARED")
        .map_or_else(|| workspace().join("../shared"), PathBuf::from);
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("SKIPPED: no folder of public traces at {}", folder.display());
    None
}

/// The bytes of a file, decompressed.
pub(crate) fn decompressed(path: &Path) -> Vec<u8> {
    let raw = std::fs::read(path).unwrap();
    if !raw.starts_with(&[0x1f, 0x8b]) {
        return raw;
    }
    let mut text = Vec::new();
    flate2::read::MultiGzDecoder::new(&raw[..]).read_to_end(&mut text).unwrap();
    text
}

/// All torch traces among the fixtures.
pub(crate) fn fixtures() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![workspace().join("fixtures")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.to_string_lossy().ends_with(".trace.json.gz") {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(found.len() > 10, "fixtures are missing");
    found
}
