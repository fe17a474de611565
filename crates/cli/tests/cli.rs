//! The program from outside: exit codes, what goes where, and every error once.

#![allow(clippy::unwrap_used)] // in the tests' own functions

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const GRAPHS: &str = "sglang-h200/decode-graphs-TP-0.trace.json.gz";

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

fn steptally(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steptally"));
    command.args(args).env_remove("COLUMNS").env_remove("NO_COLOR");
    command
}

fn run(args: &[&str]) -> (i32, String, String) {
    let output = steptally(args).output().unwrap();
    texts(output)
}

fn texts(output: Output) -> (i32, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// Runs `analyze FIXTURE args..`, which must succeed and say nothing on stderr.
fn analyze(name: &str, args: &[&str]) -> String {
    let path = fixture(name);
    let (code, stdout, stderr) = run(&[&["analyze", path.to_str().unwrap()], args].concat());
    assert_eq!((code, stderr.as_str()), (0, ""));
    stdout
}

/// Runs `args`, which must fail with `code`, and with an error and a hint that hold these texts.
fn fails(args: &[&str], code: i32, error: &str, hint: &str) {
    let (actual, stdout, stderr) = run(args);
    assert_eq!((actual, stdout.as_str()), (code, ""), "{stderr}");
    assert!(stderr.starts_with("error: ") && stderr.contains(error), "{stderr}");
    if !hint.is_empty() {
        assert!(stderr.contains("hint: ") && stderr.contains(hint), "{stderr}");
    }
}

fn graphs() -> String {
    fixture(GRAPHS).to_str().unwrap().to_owned()
}

/// The graphs fixture cut at half of its compressed bytes.
fn truncated(folder: &Path) -> String {
    let bytes = std::fs::read(fixture(GRAPHS)).unwrap();
    let path = folder.join("cut.trace.json.gz");
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn text_for_a_pipe_has_a_headline_no_colour_and_no_bars() {
    let text = analyze(GRAPHS, &[]);
    // The capture's table says 2.39 ms: 1 / 2.39 ms = 418.4, from unrounded values 419.
    assert!(text.contains("A decode step takes 2.39 ms (median of 4 steps"), "{text}");
    assert!(text.contains("tokens/s at batch size 1"), "{text}");
    assert!(text.contains("CAUTION"), "{text}");
    assert!(!text.contains('\u{1b}') && !text.contains('█'), "{text}");
}

#[test]
fn no_color_changes_nothing_in_a_pipe() {
    let path = graphs();
    let mut command = steptally(&["analyze", &path]);
    let (code, plain, _) = texts(command.env("NO_COLOR", "1").output().unwrap());
    assert_eq!((code, plain), (0, analyze(GRAPHS, &[])));
}

#[test]
fn lines_fit_the_columns() {
    for width in [60, 80, 120] {
        // The path is printed whole, however long.
        let mut command = steptally(&["analyze", GRAPHS]);
        command.current_dir(fixture(""));
        let (_, text, _) = texts(command.env("COLUMNS", width.to_string()).output().unwrap());
        // A command to copy is not broken.
        let is_command =
            |line: &&str| line.trim_start_matches("next:").trim().starts_with("steptally ");
        for line in text.lines().filter(|line| !is_command(line)) {
            assert!(line.chars().count() <= width, "{width}: {line}");
        }
    }
}

#[test]
fn json_has_the_promised_keys() {
    let json: Value = serde_json::from_str(&analyze(GRAPHS, &["--format", "json"])).unwrap();
    for path in [
        "/schema_version",
        "/input/files/0/path",
        "/input/files/0/bytes",
        "/input/files/0/format",
        "/input/files/0/partial",
        "/input/issues",
        "/quality/grade",
        "/quality/checks/0/code",
        "/ranks/0/rank",
        "/ranks/0/device",
        "/ranks/0/gpu_name",
        "/devices/0/kernel_count",
        "/devices/0/kernel_sum_ns",
        "/devices/0/kernel_busy_ns",
        "/devices/0/gpu_busy_ns",
        "/devices/0/gpu_span_ns",
        "/steps/detected_by",
        "/steps/confidence",
        "/steps/kinds/decode",
        "/steps/selected/kind",
        "/steps/selected/n",
        "/steps/period_ns/n",
        "/steps/period_ns/median",
        "/steps/period_ns/p90",
        "/steps/period_ns/p99",
        "/steps/period_ns/min",
        "/steps/period_ns/max",
        "/steps/period_ns/mean",
        "/ledger/accounts/0/account",
        "/ledger/accounts/0/group",
        "/ledger/accounts/0/ns_per_step",
        "/ledger/accounts/0/ratio",
        "/ledger/uncategorised_ratio",
        "/ledger/unknown_idle_ratio",
        "/ledger/sum_ns",
        "/ledger/period_sum_ns",
        "/kernels/0/name",
        "/kernels/0/category",
        "/kernels/0/calls",
        "/kernels/0/calls_per_step",
        "/kernels/0/total_ns",
        "/kernels/0/ns_per_step",
        "/kernels/0/ratio",
        "/ops",
    ] {
        assert!(json.pointer(path).is_some(), "{path}");
    }
    assert_eq!(json["partial"], false);
    assert_eq!(json["ledger"]["sum_ns"], json["ledger"]["period_sum_ns"]);
    let again = analyze(GRAPHS, &["--format", "json", "--threads", "1"]);
    assert_eq!(serde_json::from_str::<Value>(&again).unwrap(), json);
}

#[test]
fn the_schema_needs_no_path_and_names_what_reports_have() {
    let (code, text, _) = run(&["analyze", "--json-schema"]);
    let schema: Value = serde_json::from_str(&text).unwrap();
    let json: Value = serde_json::from_str(&analyze(GRAPHS, &["--format", "json"])).unwrap();
    assert_eq!(code, 0);
    for key in schema["required"].as_array().unwrap() {
        assert!(json.get(key.as_str().unwrap()).is_some(), "{key}");
    }
    for key in json.as_object().unwrap().keys() {
        assert!(schema["properties"].get(key).is_some(), "{key}");
    }
}

#[test]
fn a_selection_narrows_what_is_shown() {
    let json = |args: &[&str]| -> Value {
        serde_json::from_str(&analyze("sglang-h200-tp2/eager", args)).unwrap()
    };
    let all = json(&["--format", "json"]);
    let one = json(&["--format", "json", "--rank", "1", "--steps", "1..3"]);
    // 5 steps a rank, the last of each without a period.
    assert_eq!(all["steps"]["selected"]["n"], 8);
    assert_eq!(one["steps"]["selected"]["n"], 2);
    let top = analyze(GRAPHS, &["--top", "3"]);
    assert!(top.contains("KERNELS  top 3 of "), "{top}");
}

#[test]
fn a_report_can_go_to_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    let stdout = analyze(GRAPHS, &["--format", "json", "-o", file.to_str().unwrap()]);
    assert_eq!(stdout, "");
    let json: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(json["schema_version"], 1);

    let nowhere = folder.path().join("no/such/folder/report.json");
    let path = graphs();
    fails(
        &["analyze", &path, "-o", nowhere.to_str().unwrap()],
        3,
        "cannot write",
        "folder that exists",
    );
}

#[test]
fn user_rules_come_first_and_bad_ones_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.toml");
    let rules = file.to_str().unwrap();
    let rule = "[[rule]]\ncategory = \"my.moe\"\npattern = '^fused_moe'\nexamples = ['fused_moe_kernel']\n";
    std::fs::write(&file, rule).unwrap();
    let text = analyze(GRAPHS, &["--rules", rules]);
    assert!(text.contains("my.moe") && !text.contains("moe.gemm"), "{text}");

    let path = graphs();
    std::fs::write(&file, "[[rule]]\ncategory = 7").unwrap();
    fails(&["analyze", &path, "--rules", rules], 3, "rules.toml", "[[rule]]");
    fails(&["analyze", &path, "--rules", "/no/such.toml"], 3, "cannot read the rules", "");
}

#[test]
fn partial_input_has_its_own_exit_code_and_says_so_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    let path = truncated(folder.path());
    let (code, text, _) = run(&["analyze", &path]);
    assert_eq!(code, 5, "{text}");
    assert!(text.contains("PARTIAL") && text.contains("cut.trace.json.gz"), "{text}");
    let (code, text, _) = run(&["analyze", &path, "--format", "json"]);
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &json["partial"]), (5, &Value::Bool(true)));
    assert_eq!(json["input"]["files"][0]["partial"], true);
    let (code, text, _) = run(&["inspect", &path]);
    assert!(code == 5 && text.contains("PARTIAL"), "{text}");
}

#[test]
fn inspect_says_what_a_file_is() {
    let path = graphs();
    let (code, text, stderr) = run(&["inspect", &path]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    for part in ["torch.profiler", "RANK 0", "NVIDIA H200", "kernels", "cuda_runtime_version"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (_, json, _) = run(&["inspect", &path, "--format", "json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    let truth: Value =
        serde_json::from_slice(&std::fs::read(fixture("truth.json")).unwrap()).unwrap();
    let device = &truth[GRAPHS]["devices"]["0"];
    assert_eq!(json["traces"][0]["counts"]["kernels"], device["kernels"], "{truth}");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let path = graphs();
    for args in [vec!["analyze", &path, "--format", "json"], vec!["analyze", "--json-schema"]] {
        let mut child =
            steptally(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // Reads one byte and closes the pipe; the rest is more than a pipe holds, or is written
        // after the end was closed.
        let mut first = [0];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let (code, _, stderr) = texts(child.wait_with_output().unwrap());
        assert_eq!((code, stderr.as_str()), (0, ""));
    }
}

#[test]
fn arguments_that_make_no_sense_are_usage_errors() {
    let path = graphs();
    fails(&["analyze"], 2, "required arguments", "");
    fails(&["analyze", &path, "--steps", "5..2"], 2, "expected A..B with A < B", "");
    fails(&["analyze", &path, "--step-pattern", "("], 2, "allowed: Rust regular expressions", "");
    fails(
        &["analyze", &path, "--kind", "prefill"],
        2,
        "kind \"prefill\"",
        "kinds present: decode (5)",
    );
    fails(&["analyze", &path, "--rank", "7"], 2, "there is no rank 7", "ranks present: 0");
    fails(&["analyze", &path, "--steps", "10.."], 2, "no complete step in 10..", "5 decode");
    fails(&["analyze", &path, "--threads", "0"], 2, "--threads", "");
}

#[test]
fn a_rank_cannot_be_asked_for_when_none_is_known() {
    let path = fixture("torch-h200/pool-cast.trace.json.gz");
    let path = path.to_str().unwrap();
    fails(&["analyze", path, "--rank", "0"], 2, "there is no rank 0", "leave --rank out");
}

#[test]
fn a_kind_cannot_be_asked_for_without_steps() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("one.json");
    let kernel = r#"{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":10,"dur":5,"args":{"device":0,"stream":7,"correlation":1}}"#;
    std::fs::write(&file, format!("{{\"traceEvents\":[{kernel}]}}")).unwrap();
    let path = file.to_str().unwrap();
    fails(&["analyze", path, "--kind", "decode"], 2, "no step of kind", "leave --kind out");
}

#[test]
fn input_that_cannot_be_read_is_an_input_error() {
    fails(&["analyze", "/no/such/trace.json"], 3, "/no/such/trace.json", "hint: ");
    fails(&["inspect", "/no/such/trace.json"], 3, "/no/such/trace.json", "hint: ");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("page.html");
    std::fs::File::create(&file).unwrap().write_all(b"<!DOCTYPE html><html></html>").unwrap();
    fails(&["analyze", file.to_str().unwrap()], 3, "page.html", "");
}

#[test]
fn help_and_version_are_no_errors() {
    let (code, text, _) = run(&["--version"]);
    assert_eq!((code, text.trim()), (0, concat!("steptally ", env!("CARGO_PKG_VERSION"))));
    let (code, text, _) = run(&["analyze", "--help"]);
    assert_eq!(code, 0);
    assert!(text.contains("Examples:") && text.contains("5  PARTIAL"), "{text}");
    let (code, _, text) = run(&[]);
    assert_eq!(code, 2);
    assert!(text.contains("Usage: steptally"), "{text}");
}

#[test]
fn a_dash_is_standard_input() {
    for command in ["analyze", "inspect"] {
        let mut piped = steptally(&[command, "-"]);
        let mut child = piped.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let bytes = std::fs::read(fixture(GRAPHS)).unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || stdin.write_all(&bytes));
        let (code, stdout, _) = texts(child.wait_with_output().unwrap());
        writer.join().unwrap().unwrap();
        // fixtures/truth.json: 584 kernels
        assert!(code == 0 && stdout.contains("584"), "{command}: {stdout}");
    }
}

#[test]
fn counts_of_nothing_are_refused() {
    let path = graphs();
    let url = "http://127.0.0.1:9";
    for (args, option) in [
        (&["analyze", &path, "--layers", "0"][..], "--layers"),
        (&["analyze", &path, "--kv-tokens", "0"], "--kv-tokens"),
        (&["profile", "--url", url, "--steps", "0"], "--steps"),
        (&["profile", "--url", url, "--batch-size", "0"], "--batch-size"),
        (&["profile", "--url", url, "--input-len", "0"], "--input-len"),
        (&["profile", "--url", url, "--output-len", "1"], "--output-len"),
        (&["profile", "--url", url, "--rounds", "0"], "--rounds"),
        (&["profile", "--url", url, "--ranks", "0"], "--ranks"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let output = steptally(args).current_dir(folder.path()).output().unwrap();
        let (code, stdout, stderr) = texts(output);
        assert_eq!((code, stdout.as_str()), (2, ""), "{args:?}: {stderr}");
        assert!(stderr.contains(option), "{stderr}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{args:?}");
    }
}

#[test]
fn steps_without_requests_have_no_rate() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("idle.json");
    let mut text = String::new();
    let file = std::fs::File::open(fixture(GRAPHS)).unwrap();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    assert!(text.contains("step[DECODE bs=1"));
    std::fs::write(&path, text.replace("step[DECODE bs=1", "step[DECODE bs=0")).unwrap();
    let (_, stdout, _) = run(&["analyze", path.to_str().unwrap()]);
    assert!(stdout.contains("A decode step takes 2.39 ms"), "{stdout}");
    assert!(!stdout.contains("tokens/s"), "{stdout}");
}
