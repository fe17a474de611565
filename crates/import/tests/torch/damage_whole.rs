//! Damage to the file as a whole: not closed, cut off, several writers, something else altogether.

use std::io::Read;

use steptally_import::ImportOptions;
use steptally_import::torch::read_torch;

use crate::support::{check, check_error, lines};

const GOOD: &str = r#"{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1,"dur":2}"#;
const KERNEL: &str = "kernel `k` 1000+2000 device 0 stream 7";

/// Gives a text, then fails.
struct Failing<'a>(&'a [u8]);

impl Read for Failing<'_> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        match self.0.read(to)? {
            0 => Err(std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "unexpected end")),
            count => Ok(count),
        }
    }
}

#[test]
fn an_array_need_not_be_closed() {
    check(format!("[{GOOD},{GOOD}"), &[KERNEL, KERNEL, "Info not_closed x1 at 136"]);
    check(format!("[{GOOD},\n"), &[KERNEL, "Info not_closed x1 at 70"]);
}

#[test]
fn an_object_that_is_not_closed_is_noted() {
    let head = r#"{"traceEvents":["#;
    check(format!("{head}{GOOD}"), &[KERNEL, "Warning not_closed x1 at 83"]);
    check(format!("{head}{GOOD}]"), &[KERNEL, "Warning not_closed x1 at 84"]);
    check(format!("{head}{GOOD}],\"traceN"), &[KERNEL, "Warning not_closed x1 at 92"]);
}

#[test]
fn an_event_cut_off_is_lost() {
    check(
        format!(r#"[{GOOD},{{"ph":"X","na"#),
        &[KERNEL, "Error lost_event x1 at 69", "Info not_closed x1 at 82"],
    );
}

#[test]
fn a_source_that_fails_keeps_what_came_before() {
    let text = format!(r#"{{"traceEvents":[{GOOD},{{"ph":"X","na"#);
    let read = read_torch(Failing(text.as_bytes()), &ImportOptions::default()).unwrap();
    assert_eq!(lines(&read), [KERNEL, "Error source_truncated x1 at 97"]);
    assert_eq!(read.issues.find("source_truncated").unwrap().first.text, "unexpected end");
    assert!(read.lanes[0].trace.meta.partial);
    assert_eq!(read.bytes, 97);
}

#[test]
fn a_source_that_fails_at_once_is_an_error() {
    let error = read_torch(Failing(b""), &ImportOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "cannot read the trace");
    let error =
        read_torch(Failing(b"{\"schemaVersion\": 1,"), &ImportOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "no events: source_truncated at byte 20: unexpected end");
}

#[test]
fn an_empty_text_is_called_so() {
    check_error("", "empty trace (0 bytes)");
    check_error(" \n\t", "empty trace (3 bytes of white space)");
}

#[test]
fn what_is_no_json_is_named() {
    check_error(
        "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
        "not JSON: a Git LFS pointer (the file itself was not fetched)",
    );
    check_error("<!DOCTYPE html><html>", "not JSON: an HTML page");
    check_error("SQLite format 3\0", "not JSON: an SQLite database");
    check_error("\x01\x02junk", r"not JSON: it begins with `\u{1}\u{2}junk`");
}

#[test]
fn json_of_another_kind_is_named() {
    check_error(
        r#"{"schema": "1.0.1", "pid": 1, "nodes": [{"id": 1, "name": "x"}, {"id": 2}]}"#,
        "JSON without `traceEvents`, looks like a PyTorch execution trace (Chakra) \
         (top-level keys: schema, pid, nodes)",
    );
    check_error("{}", "JSON without `traceEvents` (top-level keys: none)");
    check_error(
        r#"{"schemaVersion": 1, "devicePr"#,
        "JSON that is cut off before `traceEvents` (top-level keys: schemaVersion)",
    );
}

#[test]
fn trace_events_within_trace_events_are_unwrapped() {
    check(
        format!(r#"{{"traceEvents":{{"traceEvents":[{GOOD}]}}}}"#),
        &[KERNEL, "Warning nested_trace_events x1 at 31"],
    );
}

#[test]
fn utf16_is_read() {
    let text = format!("[{}]", GOOD.replace("\"k\"", "\"k\u{e9}\u{1F600}\""));
    let units: Vec<u16> = text.encode_utf16().collect();
    let little: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
    let big: Vec<u8> = units.iter().flat_map(|unit| unit.to_be_bytes()).collect();
    let expected =
        ["kernel `k\u{e9}\u{1F600}` 1000+2000 device 0 stream 7", "Info utf16_text x1 at 0"];
    check([&b"\xff\xfe"[..], &little].concat(), &expected);
    check([&b"\xfe\xff"[..], &big].concat(), &expected);
    check(little, &expected);
}

#[test]
fn a_utf8_mark_is_skipped() {
    check(format!("\u{feff}[{GOOD}]"), &[KERNEL]);
}

#[test]
fn two_files_in_one_are_noticed() {
    let file = |name: &str| {
        let event = |ts: usize| {
            format!(
                r#"{{"ph":"X","cat":"kernel","name":"{name}","pid":0,"tid":7,"ts":{ts},"dur":1}}"#
            )
        };
        let events: Vec<String> = (0..300).map(event).collect();
        format!(
            r#"{{"schemaVersion":1,"deviceProperties":[],"traceEvents":[{}],"traceName":"t"}}"#,
            events.join(",")
        )
    };
    let (a, b) = (file("aaaa"), file("bbbb"));
    let mut mixed = Vec::new();
    for (a, b) in a.as_bytes().chunks(4096).zip(b.as_bytes().chunks(4096)) {
        mixed.extend_from_slice(a);
        mixed.extend_from_slice(b);
    }
    let read = read_torch(&mixed[..], &ImportOptions::default()).unwrap();
    assert!(read.lanes[0].trace.meta.partial);
    assert!(read.issues.find("interleaved_writers").is_some());
    let (kept, pieces) = (read.lanes[0].trace.kernels.len(), mixed.len() / 4096 + 1);
    // At each seam at most one event of either file is lost.
    assert!(kept <= 600 && kept >= 600 - 2 * pieces, "{kept} of 600, {pieces} pieces");
}

#[test]
fn a_second_document_is_read_and_noted() {
    let file = format!(r#"{{"schemaVersion":1,"traceEvents":[{GOOD}]}}"#);
    check(
        format!("{file}\n{file}"),
        &[KERNEL, KERNEL, &format!("Error interleaved_writers x1 at {}", file.len() + 35)],
    );
}

#[test]
fn junk_behind_the_end_is_noted() {
    check(format!("[{GOOD}] \0\0\0"), &[KERNEL, "Warning trailing_data x1 at 70"]);
}
