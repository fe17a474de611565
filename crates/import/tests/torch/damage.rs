//! Damage within events: repaired where harmless, else the event alone is lost.

use crate::support::{check, check_error, check_events, read};

const GOOD: &str = r#"{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1,"dur":2}"#;
const KERNEL: &str = "kernel `k` 1000+2000 device 0 stream 7";

fn frame(name: &str) -> String {
    format!(
        r#"{{"ph":"X","cat":"python_function","name":"{name}","pid":1,"tid":2,"ts":5,"dur":1}}"#
    )
}

#[test]
fn an_unknown_escape_stands_for_itself() {
    let name = r"torch\cuda\__init__.py(219): _lazy_init";
    check_events(
        format!("{},{},{GOOD}", frame(name), frame(name)),
        &[
            KERNEL,
            r"frame `torch\cuda\__init__.py(219): _lazy_init` 5000+1000 on 1/2",
            r"frame `torch\cuda\__init__.py(219): _lazy_init` 5000+1000 on 1/2",
            "Warning invalid_escape x2 at 58",
        ],
    );
}

#[test]
fn raw_control_characters_are_kept_and_noted() {
    check_events(
        format!("{GOOD},{}", frame("a\nb")),
        &[KERNEL, "frame `a\nb` 5000+1000 on 1/2", "Warning raw_control_character x1 at 126"],
    );
}

#[test]
fn an_unescaped_quote_costs_one_event() {
    let bad = "{\"ph\":\"X\",\"name\": \"a = L(\"x\", \"y\")\n(1): m\", \"pid\": 1}";
    let lost = format!("Error lost_event x1 at {}", 16 + GOOD.len() + 1);
    check_events(format!("{GOOD},{bad},{GOOD}"), &[KERNEL, KERNEL, &lost]);
    let read = read(format!("[{bad},{GOOD}]"));
    assert!(read.lanes[0].trace.meta.partial);
    let first = &read.issues.find("lost_event").unwrap().first;
    assert_eq!(first.byte_offset, Some(1));
    assert!(first.text.starts_with(r#"{"ph":"X","name": "a = L("x", "y")\n(1)"#), "{}", first.text);
}

#[test]
fn a_name_that_looks_like_json_costs_one_event() {
    let bad = r#"{"ph":"X","name": "{"device": "cpu"}(12): run","ts":1,"dur":1}"#;
    check_events(format!("{bad},{GOOD},{bad}"), &[KERNEL, "Error lost_event x2 at 16"]);
}

#[test]
fn a_missing_bracket_costs_one_event() {
    let bad = r#"{"ph":"X","args":{"Input Dims":[[1,2],"Ev Idx":1}}"#;
    let open = r#"{"ph":"X","args":{"Ev Idx":1}"#;
    check_events(format!("{bad},{GOOD}"), &[KERNEL, "Error lost_event x1 at 16"]);
    check_events(format!("{open},{GOOD}"), &[KERNEL, "Error lost_event x1 at 16"]);
}

#[test]
fn numbers_that_are_not_finite_are_not_available() {
    let copy = |bandwidth: &str| {
        format!(
            r#"{{"ph":"X","cat":"gpu_memcpy","name":"Memcpy HtoD (Pageable -> Device)","pid":0,
            "tid":7,"ts":1,"dur":0,"args":{{"bytes":8,"memory bandwidth (GB/s)": {bandwidth}}}}}"#
        )
    };
    let words = ["inf", "-inf", "nan", "-nan", "NaN", "Infinity", "-Infinity"];
    let line = "copy `Memcpy HtoD (Pageable -> Device)` 1000+0 HostToDevice pageable device 0 \
                stream 7 bytes 8";
    let mut expected = vec![line; words.len()];
    let noted = format!("Info not_finite_number x7 at {}", 16 + copy("inf").find("inf").unwrap());
    expected.push(&noted);
    check_events(words.map(copy).join(","), &expected);
    assert!(!read(format!("[{}]", copy("inf"))).lanes[0].trace.meta.partial);
}

#[test]
fn a_counter_may_be_not_a_number() {
    check(
        r#"[{"ph":"C","ts":"1587074269993629","args":{"sys":nan,"user":0.5}}]"#,
        &[
            "counter `sys` 1587074269993629000+0 = NaN",
            "counter `user` 1587074269993629000+0 = 0.5",
            "Info not_finite_number x1 at 49",
        ],
    );
}

#[test]
fn a_key_without_its_opening_quote_is_repaired() {
    check(
        r#"[{"name":"a","ph":"f","cat":"fwdbwd","id":3,"ts":1,"pid":1, tid": 0}]"#,
        &["flow fwdbwd End 1000 on 1/0 id 3", "Warning unquoted_key x1 at 60"],
    );
}

#[test]
fn commas_may_be_missing_or_too_many() {
    check(
        format!("[,{GOOD}{GOOD},,{GOOD},]"),
        &[
            KERNEL,
            KERNEL,
            KERNEL,
            "Info stray_comma x3 at 1",
            &format!("Warning missing_comma x1 at {}", 2 + GOOD.len()),
        ],
    );
    check_events(
        r#"{"ph":"X" "cat":"kernel","name":"k","pid":0,"tid":7,"ts":1,"dur":2,}"#,
        &[KERNEL, "Warning missing_comma x1 at 26", "Info stray_comma x1 at 83"],
    );
}

#[test]
fn bytes_that_are_not_utf8_are_replaced() {
    let bad = [
        &br#"{"ph":"X","cat":"python_function","name":""#[..],
        b"\xf0\x28\x8c\x28",
        br#"","pid":1,"tid":2,"ts":5,"dur":1}"#,
    ]
    .concat();
    check_events(
        [&bad[..], b",", GOOD.as_bytes(), b",", &bad].concat(),
        &[
            KERNEL,
            "frame `\u{fffd}(\u{fffd}(` 5000+1000 on 1/2",
            "frame `\u{fffd}(\u{fffd}(` 5000+1000 on 1/2",
            "Warning invalid_utf8 x2 at 58",
        ],
    );
}

#[test]
fn what_is_no_event_is_skipped() {
    check(format!(r#"[1,"a",[{GOOD}],{GOOD}]"#), &[KERNEL, "Warning not_an_event x3 at 1"]);
    // What follows junk is only trusted where an event ends before it.
    check(format!("[{GOOD},@@,{GOOD},{GOOD}]"), &[KERNEL, KERNEL, "Error lost_event x1 at 69"]);
}

#[test]
fn when_no_event_can_be_read_the_error_says_where_and_why() {
    check_error(r#"[{"name":"a"b"}]"#, r#"no events: lost_event at byte 1: {"name":"a"b"}]"#);
    check_error("[]", "no events");
    check_error(r#"{"traceEvents": []}"#, "no events");
}
