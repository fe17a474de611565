//! Times: decimal microseconds to integer nanoseconds, whatever else the file says.

use crate::support::{check, check_events};

fn kernel(ts: &str, dur: &str) -> String {
    format!(r#"{{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":{ts},"dur":{dur}}}"#)
}

#[test]
fn whole_and_fractional_microseconds_are_exact() {
    // Old recorders: whole microseconds, so that neighbours overlap. New ones: three decimals.
    check_events(
        [kernel("10", "5"), kernel("14", "3"), kernel("5112626518189.922", "0.001")].join(","),
        &[
            "kernel `k` 10000+5000 device 0 stream 7",
            "kernel `k` 14000+3000 device 0 stream 7",
            "kernel `k` 5112626518189922+1 device 0 stream 7",
        ],
    );
}

#[test]
fn absolute_times_as_text_keep_every_digit() {
    check_events(
        [kernel(r#""1715580000123456.789""#, "1"), kernel(r#""1715580000123456.792""#, "\"2.5\"")]
            .join(","),
        &[
            "kernel `k` 1715580000123456789+1000 device 0 stream 7",
            "kernel `k` 1715580000123456792+2500 device 0 stream 7",
        ],
    );
}

#[test]
fn exponents_and_long_fractions_are_understood() {
    check_events(
        [kernel("1.5e3", "2E0"), kernel("-3.25", "1.00051"), kernel("7.", "1.25")].join(","),
        &[
            "kernel `k` -3250+1001 device 0 stream 7",
            "kernel `k` 7000+1250 device 0 stream 7",
            "kernel `k` 1500000+2000 device 0 stream 7",
        ],
    );
}

#[test]
fn the_display_unit_changes_nothing() {
    for unit in ["ns", "ms"] {
        check(
            format!(r#"{{"displayTimeUnit":"{unit}","traceEvents":[{}]}}"#, kernel("1.5", "2")),
            &["kernel `k` 1500+2000 device 0 stream 7"],
        );
    }
}

#[test]
fn what_is_no_time_keeps_the_event_out() {
    check_events(
        [
            kernel("1", "1"),
            kernel("\"soon\"", "1"),
            kernel("null", "1"),
            kernel("99999999999999999999", "1"),
            kernel("1", "true"),
            r#"{"ph":"X","cat":"kernel","name":"k","dur":1}"#.into(),
        ]
        .join(","),
        &["kernel `k` 1000+1000 device 0 stream 7", "Warning bad_time x5 at 84"],
    );
}

#[test]
fn durations_may_be_missing_but_not_negative() {
    check_events(
        [
            r#"{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1}"#.into(),
            kernel("2", "-1"),
        ]
        .join(","),
        &[
            "kernel `k` 1000+0 device 0 stream 7",
            "Warning missing_duration x1 at 16",
            "Warning negative_duration x1 at 76",
        ],
    );
}

#[test]
fn names_that_are_no_text_are_noted() {
    check_events(
        [
            kernel("1", "1"),
            kernel("2", "1").replace(r#""name":"k""#, r#""name":17"#),
            kernel("3", "1").replace(r#""name":"k""#, r#""name":null"#),
            kernel("4", "1").replace(r#""name":"k","#, ""),
        ]
        .join(","),
        &[
            "kernel `k` 1000+1000 device 0 stream 7",
            "kernel `17` 2000+1000 device 0 stream 7",
            "kernel `null` 3000+1000 device 0 stream 7",
            "kernel `` 4000+1000 device 0 stream 7",
            "Error bad_name x3 at 84",
        ],
    );
}

#[test]
fn a_stray_event_far_away_is_kept() {
    check_events(
        [kernel("0", "1"), kernel("1670000000000000", "1")].join(","),
        &[
            "kernel `k` 0+1000 device 0 stream 7",
            "kernel `k` 1670000000000000000+1000 device 0 stream 7",
        ],
    );
}
