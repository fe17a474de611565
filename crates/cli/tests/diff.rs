//! `steptally diff` from outside: verdicts on real captures, gates, exit codes, every error.

#![allow(clippy::unwrap_used)] // in the tests' own functions

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

const BAD: &str = "torch-h200/pool-cast.trace.json.gz";
const GOOD: &str = "torch-h200/pool-cast-fixed.trace.json.gz";
const EAGER: &str = "sglang-h200/decode-eager-TP-0.trace.json.gz";
const GRAPHS: &str = "sglang-h200/decode-graphs-TP-0.trace.json.gz";

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name);
    path.to_str().unwrap().to_owned()
}

fn run(args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steptally"));
    let output = command.args(args).env_remove("COLUMNS").output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// Runs `diff A B args..` on two fixtures.
fn diff(a: &str, b: &str, args: &[&str]) -> (i32, String, String) {
    run(&[&["diff", &fixture(a), &fixture(b)], args].concat())
}

/// The same as JSON; must succeed and say nothing on stderr.
fn diff_json(a: &str, b: &str, args: &[&str]) -> Value {
    let (code, stdout, stderr) = diff(a, b, &[args, &["--format", "json"]].concat());
    assert_eq!((code, stderr.as_str()), (0, ""));
    serde_json::from_str(&stdout).unwrap()
}

/// Runs `args`, which must fail with `code`, and with an error and a hint that hold these texts.
fn fails(args: &[&str], code: i32, error: &str, hint: &str) {
    let (actual, stdout, stderr) = run(args);
    assert_eq!((actual, stdout.as_str()), (code, ""), "{stderr}");
    assert!(stderr.starts_with("error: ") && stderr.contains(error), "{stderr}");
    assert!(stderr.contains(hint), "{stderr}");
}

/// The analysis of a fixture, saved in `folder`.
fn saved(folder: &Path, name: &str) -> PathBuf {
    let file = folder.join("report.json");
    let out = file.to_str().unwrap();
    let (code, _, stderr) = run(&["analyze", &fixture(name), "--format", "json", "-o", out]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    file
}

#[test]
fn equal_periods_with_less_gpu_time_are_inconclusive_without_tpot() {
    let (code, text, stderr) = diff(BAD, GOOD, &[]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("but GPU busy time does: "), "{text}");
    for part in [
        "INCONCLUSIVE  profiled period 5.26 ms -> 5.62 ms (+6.8 %)",
        "3.81 ms",
        "COMPARABLE  score 1.00 of 1",
        "WHERE THE CHANGE IS",
        "copy.cast",
        "KERNELS",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(flat.contains("the host or the profiler on it"), "{text}");
}

#[test]
fn tpot_given_by_hand_decides() {
    let tpot = ["--tpot-a", "4.2ms", "--tpot-b", "2.75ms"];
    let json = diff_json(BAD, GOOD, &tpot);
    assert_eq!(json["verdict"], "improvement");
    assert_eq!(json["decided_by"], "tpot");
    assert_eq!(json["tpot"]["change_ns"], -1_450_000.0);
    assert_eq!(json["a"]["baseline"]["source"], "given");
    let (_, text, _) = diff(BAD, GOOD, &tpot);
    assert!(text.contains("IMPROVEMENT  TPOT 4.20 ms -> 2.75 ms (-34.5 %)"), "{text}");
}

#[test]
fn the_json_adds_up_and_fits_its_schema() {
    let json = diff_json(EAGER, GRAPHS, &[]);
    assert_eq!(json["verdict"], "improvement");
    let rows = json["waterfall"]["rows"].as_array().unwrap();
    let sum: i64 = rows.iter().map(|row| row["change_ns"].as_i64().unwrap()).sum();
    assert_eq!(json["waterfall"]["change_ns"], sum);

    let (code, schema, _) = run(&["diff", "--json-schema"]);
    let schema: Value = serde_json::from_str(&schema).unwrap();
    assert_eq!(code, 0);
    for key in schema["required"].as_array().unwrap() {
        assert!(json.get(key.as_str().unwrap()).is_some(), "{key}");
    }
    for key in json.as_object().unwrap().keys() {
        assert!(schema["properties"].get(key).is_some(), "{key}");
    }
    let again = diff_json(EAGER, GRAPHS, &["--threads", "1"]);
    assert_eq!(again, json);
}

#[test]
fn the_same_capture_is_neutral_also_as_a_saved_report() {
    let (code, text, _) = diff(GRAPHS, GRAPHS, &[]);
    assert_eq!(code, 0);
    assert!(text.contains("NEUTRAL  both are the same capture."), "{text}");
    let folder = tempfile::tempdir().unwrap();
    let report = saved(folder.path(), GRAPHS);
    let args = ["diff", report.to_str().unwrap(), &fixture(GRAPHS), "--format", "json"];
    let (code, text, stderr) = run(&args);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["same_capture"], true);
    assert_eq!(json["source_a"]["saved_report"], true);
    assert_eq!(json["source_b"]["saved_report"], false);
}

#[test]
fn markdown_is_fit_for_a_comment() {
    let args = ["--format", "markdown", "--fail-if", "gpu_busy>+3%", "--top", "3"];
    let (code, text, _) = diff(BAD, GOOD, &args);
    assert_eq!(code, 0);
    assert!(text.starts_with("### steptally diff: inconclusive\n"), "{text}");
    assert!(text.contains("- :white_check_mark: gate `gpu_busy>+3%`: passed"), "{text}");
    assert!(text.contains("| median of a step | A | B | change |"), "{text}");
    assert_eq!(text.matches("<details>").count(), text.matches("</details>").count());
    // Every row of a table has as many cells as its head.
    let mut columns = None;
    for line in text.lines() {
        let cells = line.replace("\\|", "").matches('|').count();
        match columns {
            Some(expected) if line.starts_with('|') => assert_eq!(cells, expected, "{line}"),
            _ => columns = line.starts_with('|').then_some(cells),
        }
    }
}

#[test]
fn gates_that_hold_give_exit_code_1_and_a_line_each() {
    let gates =
        ["--fail-if", "copy.cast>100us", "--fail-if", "period>+3%", "--fail-if", "gpu_busy>+1us"];
    let (code, text, stderr) = diff(BAD, GOOD, &gates);
    assert_eq!(code, 1);
    let lines: Vec<&str> = stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{stderr}");
    assert!(lines[0].starts_with("gate copy.cast>100us: FAILED, 144 us (3.12 ms -> 144 us)"));
    assert!(lines[1].starts_with("gate period>+3%: FAILED, +6.8 % (5.26 ms -> 5.62 ms)"));
    assert!(text.contains("GATES  2 of 3 failed"), "{text}");
    let passed = ["--fail-if", "copy.cast>+50us", "--fail-if", "comm.allreduce.nccl>0ns"];
    assert_eq!(diff(BAD, GOOD, &passed).0, 0);
}

#[test]
fn gates_that_make_no_sense_are_usage_errors() {
    let (a, b) = (fixture(BAD), fixture(GOOD));
    let gate = |gate: &str, error: &str, hint: &str| {
        fails(&["diff", &a, &b, "--fail-if", gate], 2, error, hint);
    };
    gate("period", "it has no `<` or `>`", "allowed: a gate is MEASURE>LIMIT");
    gate("period>3%", "need a sign: +3% or -3%", "allowed: ");
    gate(
        "copy.csat>200us",
        "there is no account `copy.csat`",
        "hint: similar: copy.cat, copy.cast",
    );
    gate("tpot>+2%", "tpot of A and B is not known", "hint: give it by --tpot-a");
}

#[test]
fn captures_that_cannot_be_compared() {
    let (code, text, _) = diff(BAD, GRAPHS, &[]);
    assert_eq!(code, 0);
    assert!(text.contains("INCONCLUSIVE") && text.contains("NOT COMPARABLE"), "{text}");
    let (_, forced, _) = diff(BAD, GRAPHS, &["--force"]);
    assert!(forced.contains("forced"), "{forced}");
    assert!(!forced.contains("INCONCLUSIVE  the two cannot be compared"), "{forced}");
}

#[test]
fn saved_reports_that_cannot_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("old.json");
    let path = file.to_str().unwrap();
    let good = fixture(GRAPHS);
    let tool = json!({"name": "steptally", "version": "9.0.0"});
    let write = |value: Value| std::fs::write(&file, value.to_string()).unwrap();

    write(json!({"schema_version": 99, "tool": tool, "ledger": 1}));
    fails(&["diff", path, &good], 3, "schema version 99", "hint: use the steptally that wrote it");
    write(json!({"schema_version": 1, "tool": tool, "traces": []}));
    fails(&["diff", &good, path], 3, "not a report of `steptally analyze`", "--format json");
    write(json!({"schema_version": 1, "tool": tool, "ledger": {}}));
    fails(&["diff", &good, path], 3, "cannot be read: missing field", "--format json");

    let report = saved(folder.path(), GRAPHS);
    let report = report.to_str().unwrap();
    for option in [["--kind", "decode"], ["--steps", "1..3"], ["--rank", "0"]] {
        let args = [&["diff", report, &good], &option[..]].concat();
        fails(&args, 2, &format!("{} cannot be applied", option[0]), "hint: give it to");
    }
}

#[test]
fn other_input_errors() {
    let good = fixture(GRAPHS);
    fails(&["diff", "/no/such.json", &good], 3, "/no/such.json", "hint: ");
    fails(&["diff", &good], 2, "required arguments", "");
    fails(&["diff", &good, &good, "--tpot-a", "fast"], 2, "such as 3.01ms", "");
    fails(&["diff", &good, &good, "--kind", "extend"], 2, "no step of kind", "kinds present");
    fails(&["diff", &good, &good, "--rank", "5"], 2, "there is no rank 5", "ranks present");
    fails(&["diff", &good, &good, "-o", "/no/such/folder/x"], 3, "cannot write", "folder");
}

/// A capture's folder: a trace and a manifest with these values of TPOT before the capture.
fn capture(folder: &Path, trace: &str, version: u32, tpot_ns: f64) -> String {
    std::fs::create_dir_all(folder).unwrap();
    std::fs::copy(fixture(trace), folder.join("trace.json.gz")).unwrap();
    let spread = json!({"n": 3, "median": tpot_ns, "mean": tpot_ns, "min": tpot_ns, "p90": tpot_ns,
        "max": tpot_ns});
    let baseline = json!({"shape": {"batch_size": 1, "input_len": 512, "output_len": 64},
        "ttft_ns": spread, "itl_ns": spread, "tpot_ns": spread, "tokens_per_s": 1.0,
        "requests": 3, "failed_requests": 0});
    let manifest = json!({"manifest_version": version, "baseline_before": baseline,
        "files": [{"path": "trace.json.gz", "bytes": 1, "sha256": "", "rank": null,
        "complete": true}]});
    std::fs::write(folder.join("manifest.json"), manifest.to_string()).unwrap();
    folder.to_str().unwrap().to_owned()
}

#[test]
fn a_captures_manifest_has_the_tpot() {
    let root = tempfile::tempdir().unwrap();
    let a = capture(&root.path().join("a"), BAD, 1, 4.2e6);
    let b = capture(&root.path().join("b"), GOOD, 1, 2.75e6);
    let trace_of_b = format!("{b}/trace.json.gz");
    for b in [&b, &trace_of_b] {
        let (code, text, stderr) = run(&["diff", &a, b, "--format", "json"]);
        assert_eq!((code, stderr.as_str()), (0, ""));
        let json: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&json["verdict"], &json["decided_by"]),
            (&json!("improvement"), &json!("tpot"))
        );
        assert_eq!(json["b"]["baseline"]["input_len"], 512);
    }
    // A saved report keeps it.
    let report = root.path().join("b.json");
    let report = report.to_str().unwrap();
    assert_eq!(run(&["analyze", &b, "--format", "json", "-o", report]).0, 0);
    let (_, text, _) = run(&["diff", &a, report, "--format", "json"]);
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["tpot"]["b_ns"], 2.75e6);
    // What is given by hand goes first.
    let (_, text, _) = run(&["diff", &a, report, "--tpot-b", "4.21ms", "--format", "json"]);
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["verdict"], "neutral");

    let newer = capture(&root.path().join("newer"), GOOD, 99, 2.75e6);
    fails(&["diff", &a, &newer], 3, "the manifest has version 99", "hint: move the manifest");
    std::fs::write(
        root.path().join("newer/manifest.json"),
        r#"{"manifest_version": 1, "gpus": 3}"#,
    )
    .unwrap();
    fails(&["diff", &a, &newer], 3, "the manifest cannot be read", "hint: move the manifest");
    // Another program's file of that name is passed over.
    std::fs::write(root.path().join("newer/manifest.json"), r#"{"name": "app"}"#).unwrap();
    assert_eq!(run(&["diff", &a, &newer]).0, 0);
}

#[test]
fn partial_input_has_its_own_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = std::fs::read(fixture(GRAPHS)).unwrap();
    let cut = folder.path().join("cut.trace.json.gz");
    std::fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    let (code, text, _) = run(&["diff", &fixture(GRAPHS), cut.to_str().unwrap()]);
    assert_eq!(code, 5, "{text}");
    assert!(text.contains("PARTIAL"), "{text}");
}
