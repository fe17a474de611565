//! However a text is cut into blocks and on however many threads, the same is read.

use std::fmt::Write as _;
use std::io::Read;
use std::path::PathBuf;

use super::pipeline::Plan;
use super::{TorchRead, read_planned};
use crate::ImportOptions;

/// Everything that was read, as text. Strings by their text, as ids depend on the order of reading.
fn dump(read: &TorchRead) -> String {
    let mut out = String::new();
    for lane in &read.lanes {
        let trace = &lane.trace;
        let _ = writeln!(out, "lane {} {:?}", lane.prefix, trace.meta);
        macro_rules! table {
            ($($table:ident $([$($id:ident)*])?;)*) => {$(
                for row in trace.$table.rows() {
                    let _ = writeln!(out, "{} {row:?}", stringify!($table));
                    $($( let _ = write!(out, " {}", trace.text(row.$id)); )*)?
                }
            )*};
        }
        table! {
            kernels [name]; copies [name]; api_calls [name]; cpu_ops [name]; ranges [name];
            gpu_ranges [name]; frames [name]; syncs [name]; overheads [name]; graph_nodes [name];
            counters [name]; flows [category];
        }
        for pool in [
            format!("{:?}", trace.streams.iter().collect::<Vec<_>>()),
            format!("{:?}", trace.threads.iter().collect::<Vec<_>>()),
            format!("{:?}", trace.configs.iter().collect::<Vec<_>>()),
            format!("{:?}", trace.inputs.iter().collect::<Vec<_>>()),
            format!("{:?}", trace.collectives.iter().collect::<Vec<_>>()),
        ] {
            let _ = writeln!(out, "{pool}");
        }
        let mut names: Vec<_> = trace.thread_names.iter().collect();
        names.sort_unstable();
        let _ = writeln!(out, "{names:?} {:?}", trace.strings.iter().collect::<Vec<_>>());
    }
    for issue in read.issues.iter() {
        // What is shown of an example may end where its block ends.
        let at = issue.first.byte_offset;
        let _ = writeln!(out, "{} {:?} {} {at:?}", issue.code, issue.severity, issue.count);
    }
    out
}

fn read(text: &[u8], threads: usize, block_size: usize) -> String {
    match read_planned(text, Plan { threads, block_size }, &ImportOptions::default()) {
        Ok(read) => dump(&read),
        Err(error) => error.to_string(),
    }
}

#[track_caller]
fn check(name: &str, text: &[u8], sizes: &[usize]) {
    let whole = read(text, 1, text.len() + 1);
    for &size in sizes {
        for threads in [1, 2, 4] {
            let found = read(text, threads, size);
            if found != whole {
                let line = found.lines().zip(whole.lines()).position(|(a, b)| a != b);
                let at = line.unwrap_or_default();
                panic!(
                    "{name}: blocks of {size} on {threads} threads, line {at}:\n{:?}\n{:?}",
                    found.lines().nth(at),
                    whole.lines().nth(at)
                );
            }
        }
    }
}

fn traces(folder: PathBuf) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![folder];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.to_string_lossy().into_owned();
            if path.is_dir() {
                folders.push(path);
            } else if name.ends_with(".json.gz") || name.ends_with(".json") {
                let raw = std::fs::read(&path).unwrap();
                let mut text = Vec::new();
                if raw.starts_with(&[0x1f, 0x8b]) {
                    flate2::read::MultiGzDecoder::new(&raw[..]).read_to_end(&mut text).unwrap();
                } else {
                    text = raw;
                }
                found.push((name, text));
            }
        }
    }
    found
}

#[test]
fn fixtures_are_read_alike_in_blocks_of_any_size() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let traces = traces(folder);
    assert!(traces.len() > 10);
    for (name, text) in traces {
        check(&name, &text, &[1_009, 65_536]);
    }
}

#[test]
fn public_traces_are_read_alike_in_blocks_of_any_size() {
    let folder = std::env::var_os("STEPTALLY_SHARED").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
        PathBuf::from,
    );
    if !folder.join("traces").is_dir() {
        eprintln!("SKIPPED: no folder of public traces at {}", folder.display());
        return;
    }
    for (name, text) in traces(folder.join("traces")) {
        check(&name, &text, &[50_021]);
    }
}

#[test]
fn small_texts_are_read_alike_byte_by_byte() {
    let texts = [
        r#"{"schemaVersion": 1, "x": [{"name": 1}, {"name": "]"}], "traceEvents": [
        {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 2, "ts": 1.5, "dur": 2,
         "args": {"Ev Idx": 1, "list": [{"name": 1}, {"name": 2}]}},
        {"ph": "B", "name": "b", "pid": 1, "tid": 2, "ts": 3},
        {"ph": "X", "cat": "kernel", "name": "k}, {\"ph\":", "pid": 0, "tid": 7, "ts": 2, "dur": 1},
        {"ph": "E", "name": "b", "pid": 1, "tid": 2, "ts": 4}
        ], "samples": [{"name": "n"}, {"ph": "X"}], "record_shapes": 1}"#,
        r#"[{"ph":"X","cat":"kernel","name":"a","ts":1,"dur":1},
        {"ph":"X","cat":"kernel","name":"b "q" c","ts":2,"dur":1},
        {"ph":"X","cat":"kernel","name":"c","ts":3,"dur":nan,"args":{"a":inf}},,
        {"ph":"X","cat":"kernel","name":"d","ts":4,"dur":1}
        {"ph":"X","cat":"kernel","name":"e","ts":5,"dur":1}"#,
    ];
    for text in texts {
        let sizes: Vec<usize> = (1..40).chain([64, 100, 150, 200, 300]).collect();
        check(text, text.as_bytes(), &sizes);
    }
}
