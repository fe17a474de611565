//! `analyze --only` and `--skip`: text and JSON show what was asked for, with the same figures.

#![allow(clippy::unwrap_used)] // in the tests' own functions

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// Sections by key, and how each begins in text.
const SECTIONS: [(&str, &str); 13] = [
    ("devices", "DEVICES  "),
    ("steps", "RANKS  "),
    ("findings", "FINDINGS  "),
    ("ledger", "WHERE THE STEP GOES  "),
    ("gaps", "GAPS  "),
    ("launches", "LAUNCHES  "),
    ("replays", "GRAPH REPLAYS  "),
    ("kernels", "KERNELS  "),
    ("collectives", "COLLECTIVES  "),
    ("layers", "LAYERS  "),
    ("copies", "COPIES  "),
    ("ranges", "RANGES  "),
    ("ops", "OPERATORS  "),
];

/// Keys that every report has.
const ALWAYS: [&str; 7] =
    ["schema_version", "tool", "input", "partial", "baseline", "sections", "quality"];

/// Two ranks with CUDA graphs: every section has something to say.
fn analyze(args: &[&str]) -> Output {
    analyze_run("graphs", args)
}

fn analyze_run(run: &str, args: &[&str]) -> Output {
    let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/sglang-h200-tp2");
    let path = runs.join(run);
    let mut command = Command::new(env!("CARGO_BIN_EXE_steptally"));
    command.arg("analyze").arg(path).args(args).env_remove("COLUMNS").output().unwrap()
}

fn text(args: &[&str]) -> String {
    let output = analyze(args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&text(&[&["--format", "json"], args].concat())).unwrap()
}

/// Checks that the report shows these sections and no others, with the figures of the whole report.
/// Those `in_json` only have nothing in text unless they are asked for.
#[track_caller]
fn check(args: &[&str], expected: &[&str], in_json: &[&str]) {
    let (whole, some) = (json(&[]), json(args));
    assert_eq!(some["sections"], serde_json::json!(expected));
    for key in ALWAYS {
        assert!(some.get(key).is_some(), "{key}");
    }
    let text = text(args);
    for (key, title) in SECTIONS {
        let is_expected = expected.contains(&key);
        assert_eq!(some.get(key).is_some(), is_expected, "{key}");
        let in_text = is_expected && !in_json.contains(&key);
        assert_eq!(text.lines().any(|line| line.starts_with(title)), in_text, "{title}: {text}");
        if is_expected {
            assert_eq!(some[key], whole[key], "{key}");
        }
    }
    assert!(text.contains("A decode step takes ") && text.contains("QUALITY  "), "{text}");
}

#[test]
fn only_shows_what_is_named() {
    for (key, _) in SECTIONS {
        check(&["--only", key], &[key], &[]);
    }
    check(&["--only", "ops,findings", "--only", "layers"], &["findings", "layers", "ops"], &[]);
}

#[test]
fn skip_shows_the_rest() {
    let rest = [
        "devices",
        "steps",
        "gaps",
        "launches",
        "replays",
        "kernels",
        "collectives",
        "layers",
        "copies",
    ];
    check(&["--skip", "findings,ledger,ops", "--skip", "ranges"], &rest, &[]);
}

#[test]
fn a_report_is_whole_unless_asked_otherwise() {
    let whole = json(&[]);
    for (key, _) in SECTIONS {
        assert!(whole.get(key).is_some(), "{key}");
    }
    assert_eq!(whole["sections"].as_array().unwrap().len(), SECTIONS.len());
}

#[test]
fn an_unknown_section_is_a_usage_error_that_lists_the_known_ones() {
    for option in ["--only", "--skip"] {
        let output = analyze(&[option, "ledger,kernel"]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{stderr}");
        assert!(stderr.contains("'kernel'"), "{stderr}");
        for (key, _) in SECTIONS {
            assert!(stderr.contains(key), "{key}: {stderr}");
        }
    }
    let all: Vec<&str> = SECTIONS.iter().map(|(key, _)| *key).collect();
    let nothing_left = analyze(&["--skip", &all.join(",")]);
    assert_eq!(nothing_left.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&nothing_left.stderr).contains("--skip leaves nothing"));
    assert_eq!(analyze(&["--only", "ops", "--skip", "ledger"]).status.code(), Some(2));
}

#[test]
fn a_tpot_can_be_given() {
    let text = |args: &[&str]| String::from_utf8(analyze_run("eager", args).stdout).unwrap();
    let baseline = text(&["--baseline-tpot", "19.4ms", "--format", "json"]);
    let baseline: Value = serde_json::from_str(&baseline).unwrap();
    assert_eq!(baseline["baseline"]["tpot_ns"]["median"], 19.4e6);
    assert_eq!(baseline["findings"]["profiler_cost"]["basis"], "baseline");
    let without = text(&["--baseline-tpot", "19.4ms", "--only", "findings"]);
    assert!(without.contains("without the profiler: it adds 10.7 ms to a step"), "{without}");
    assert!(text(&["--only", "findings"]).contains("without the profiler: an estimate"));
    assert_eq!(analyze(&["--baseline-tpot", "fast"]).status.code(), Some(2));
}

#[test]
fn help_lists_the_sections() {
    let output = analyze(&["--help"]);
    let help = String::from_utf8(output.stdout).unwrap();
    for (key, _) in SECTIONS {
        assert!(help.contains(key), "{key}: {help}");
    }
}

#[test]
fn a_report_without_its_ledger_cannot_be_compared() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    let path = file.to_str().unwrap();
    text(&["--skip", "ledger", "--format", "json", "-o", path]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_steptally"));
    let output = command.args(["diff", path, path]).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("saved without its ledger") && stderr.contains("--skip"), "{stderr}");
}
