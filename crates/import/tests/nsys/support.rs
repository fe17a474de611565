//! Small exports written by the tests, and the way to the real ones.

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use steptally_import::ImportOptions;
use steptally_import::nsys::{NsysError, NsysRead, read_nsys};
use steptally_trace_model::Trace;
use tempfile::TempDir;

/// The folder with traces, or `None` (said aloud).
pub(crate) fn shared() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let folder = std::env::var_os("STEPTALLY_SHARED").map_or(beside, PathBuf::from);
    if folder.join("traces/truth.jsonl").exists() {
        return Some(folder);
    }
    eprintln!("SKIPPED: no traces in {}", folder.display());
    None
}

/// Reads an export with two threads, whatever the machine has.
pub(crate) fn read(path: &Path) -> Result<NsysRead, NsysError> {
    read_nsys(path, &ImportOptions { threads: Some(2), ..ImportOptions::default() })
}

/// A real capture that belongs to this project.
pub(crate) fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/nsys-h200/sglang-graph-by-node.sqlite")
}

/// An export that is made from SQL.
pub(crate) struct Export {
    folder: TempDir,
}

impl Export {
    /// Writes a database with these statements.
    pub(crate) fn new(sql: &str) -> Self {
        let export = Self { folder: TempDir::new().unwrap() };
        Connection::open(export.path()).unwrap().execute_batch(sql).unwrap();
        export
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("export.sqlite")
    }

    pub(crate) fn read(&self) -> NsysRead {
        read(&self.path()).unwrap_or_else(|error| panic!("{error}"))
    }

    pub(crate) fn error(&self) -> NsysError {
        read(&self.path()).expect_err("an error")
    }

    /// The only trace.
    pub(crate) fn trace(&self) -> Trace {
        let mut traces = self.read().traces;
        assert_eq!(traces.len(), 1);
        traces.remove(0)
    }
}

/// `globalPid` of an OS process id on virtual machine 1.
pub(crate) const fn global(pid: i64) -> i64 {
    (1 << 48) | (pid << 24)
}

/// A fingerprint of everything that was read: all tables with their names spelled out.
pub(crate) fn spelled(trace: &Trace) -> Vec<String> {
    let text = |id| trace.text(id).to_owned();
    let thread = |id| {
        let thread = trace.threads[id];
        format!("{}/{}", text(trace.processes[thread.process].pid), text(thread.tid))
    };
    let stream = |id| {
        let stream = trace.streams[id];
        let pid = text(trace.processes[stream.process].pid);
        format!("{pid} {:?} {:?} {:?}", stream.device, stream.context, stream.stream)
    };
    let mut lines = Vec::new();
    for row in trace.kernels.rows() {
        let name = text(row.name);
        lines.push(format!(
            "{name} {} {:?} {row:?}",
            stream(row.stream),
            trace.configs[row.config]
        ));
    }
    for row in trace.copies.rows() {
        lines.push(format!("{} {} {row:?}", text(row.name), stream(row.stream)));
    }
    for row in trace.graph_traces.rows() {
        lines.push(format!("{} {row:?}", stream(row.stream)));
    }
    for row in trace.syncs.rows() {
        lines.push(format!("{} {} {row:?}", text(row.name), stream(row.stream)));
    }
    for row in trace.api_calls.rows() {
        lines.push(format!("{} {} {row:?}", text(row.name), thread(row.thread)));
    }
    for row in trace.os_calls.rows() {
        lines.push(format!("{} {} {row:?}", text(row.name), thread(row.thread)));
    }
    for row in trace.ranges.rows() {
        let (name, domain) = (text(row.name), text(row.domain));
        lines.push(format!("{name} {domain} {} {row:?}", thread(row.thread)));
    }
    for row in trace.overheads.rows() {
        lines.push(format!("{} {} {row:?}", text(row.name), thread(row.thread)));
    }
    for row in trace.graph_nodes.rows() {
        lines.push(format!("{} {} {row:?}", text(row.name), thread(row.thread)));
    }
    for row in trace.counters.rows() {
        lines.push(format!("{} {row:?}", text(row.name)));
    }
    for arg in &trace.extra_args {
        lines.push(format!("{arg:?} {} {}", text(arg.key), text(arg.value)));
    }
    let mut names: Vec<String> =
        trace.process_names.iter().map(|(id, name)| format!("{id:?} {}", text(*name))).collect();
    names.extend(
        trace.thread_names.iter().map(|(id, name)| format!("{} is {}", thread(*id), text(*name))),
    );
    names.sort();
    lines.extend(names);
    lines.push(format!("{:?}", trace.meta));
    lines
}
