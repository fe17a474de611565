//! `steptally gap` from outside, and the same in the report of `analyze`.

#![allow(clippy::unwrap_used)] // in the tests' own functions

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Model and trace of the same server: fixtures/README.md.
const MODEL: &str = "qwen3-moe-6-layers";
const GRAPHS: &str = "sglang-h200/decode-graphs-TP-0.trace.json.gz";

fn fixture(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    root.join(name).to_str().unwrap().to_owned()
}

fn steptally(args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steptally"));
    let output = command.args(args).env("COLUMNS", "160").output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// Runs `gap` on the trace with graphs, which must succeed.
fn gap(args: &[&str]) -> String {
    let (trace, model) = (fixture(GRAPHS), fixture(MODEL));
    let (code, stdout, stderr) =
        steptally(&[&["gap", &trace, "--model", &model, "--context", "512"], args].concat());
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    stdout
}

/// The numbers of a line's cells.
fn numbers(line: &str) -> Vec<f64> {
    line.split([' ', '|']).filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn a_step_with_graphs_against_tpot() {
    let text = gap(&["--baseline-tpot", "1.14ms"]);
    assert!(text.contains("1 x H200 SXM, batch 1, 512 tokens in the cache"), "{text}");
    assert!(text.contains("1.14 ms without the profiler (TPOT, as given)"), "{text}");
    assert!(text.contains("unexplained: 0 ns"), "{text}");
    assert!(!text.contains("CAUTION"), "{text}");
    // Both columns add up as they are shown: captured, share, unprofiled.
    let rows = |line: &&str| line.starts_with("  + ") || line.starts_with("  bound  ");
    let sum = |column: usize| {
        let cells = text.lines().filter(rows).map(|line| numbers(line)[column]);
        (cells.sum::<f64>() * 10.0).round() / 10.0
    };
    let total = numbers(text.lines().find(|line| line.starts_with("  =    ")).unwrap());
    assert_eq!((sum(0), sum(2)), (total[0], total[2]), "{text}");
    assert_eq!(total[2], 1140.0);
    assert!(text.contains("layers 0-5"), "{text}");
    assert!(text.contains("  - memory bandwidth 4800 GB/s"), "{text}");
}

#[test]
fn lines_fit_the_columns() {
    let measured = fixture("qwen3-moe-6-layers/measured-h200.json");
    for columns in ["80", "120"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_steptally"));
        command.args(["gap", &fixture(GRAPHS), "--model", &fixture(MODEL)]);
        command.args(["--baseline-tpot", "1.14ms", "--measured", &measured]);
        let text = String::from_utf8(command.env("COLUMNS", columns).output().unwrap().stdout);
        let text = text.unwrap();
        let room: usize = columns.parse().unwrap();
        // A path has no place to break.
        let long = |line: &&str| line.chars().count() > room && !line.contains('/');
        assert_eq!(text.lines().find(long), None);
        assert!(text.contains("unexplained: 0 ns"), "{text}");
    }
}

#[test]
fn without_tpot_idle_is_an_upper_bound() {
    let text = gap(&[]);
    assert!(text.contains("CAUTION  idle time is an upper bound"), "{text}");
    assert!(!text.contains("without profiler"), "{text}");
}

#[test]
fn json_is_exact_and_follows_its_schema_version() {
    let report: Value =
        serde_json::from_str(&gap(&["--baseline-tpot", "1.14ms", "--format", "json"])).unwrap();
    assert_eq!(report["schema_version"], 1);
    let rows = report["rows"].as_array().unwrap();
    let sum = |key: &str| rows.iter().map(|row| row[key].as_i64().unwrap()).sum::<i64>();
    assert_eq!(sum("total_ns"), report["captured_total_ns"].as_i64().unwrap());
    assert_eq!(sum("unprofiled_total_ns"), 4 * 1_140_000);
    assert_eq!(report["unexplained_ns"], 0);
    let (code, schema, _) = steptally(&["gap", "--json-schema"]);
    let schema: Value = serde_json::from_str(&schema).unwrap();
    assert_eq!((code, &schema["title"]), (0, &"GapReport".into()));
}

#[test]
fn markdown_has_the_waterfall() {
    let text = gap(&["--baseline-tpot", "1.14ms", "--format", "markdown"]);
    assert!(text.starts_with("### steptally gap: `"), "{text}");
    assert!(text.contains("| + idle | idle.between\\_steps | "), "{text}");
    let last = text.lines().find(|line| line.starts_with("| = | the step")).unwrap();
    assert_eq!(numbers(last).last(), Some(&1140.0), "{text}");
}

#[test]
fn a_result_of_bench_is_shown_beside() {
    // Its medians by calls, added up by hand: 6 x (6,662 + 6,518 + 4,907 + 13,757 + 8,286 + 1,484 +
    // 5,592 + 1,437 + 1,167) + 33,787 + 13 x 1,380 = 350,587 ns. Dense products 142.31 us, experts
    // 181.44, norms 17.94, rotary positions 8.90.
    let text = gap(&["--measured", &fixture("qwen3-moe-6-layers/measured-h200.json")]);
    assert!(text.contains("MEASURED ALONE  351 us of 2.40 ms"), "{text}");
    assert!(text.contains("not measured: attention over the KV cache\n"), "{text}");
    for (component, alone) in
        [("dense gemm", 142.31), ("experts", 181.44), ("norms", 17.94), ("attention", 8.90)]
    {
        let line = text.lines().find(|line| line.starts_with(&format!("  {component}  "))).unwrap();
        assert!(numbers(line).contains(&alone), "{line}");
    }
    // The copy that was measured, 4212 GB/s, is the limit now.
    assert!(
        text.contains("  - memory bandwidth 4212 GB/s (measured copy on NVIDIA H200)"),
        "{text}"
    );
}

#[test]
fn a_result_of_bench_for_another_step_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("measured.json");
    let json = std::fs::read_to_string(fixture("qwen3-moe-6-layers/measured-h200.json")).unwrap();
    std::fs::write(&file, json.replace("\"batch\": 1", "\"batch\": 8")).unwrap();
    let text = gap(&["--measured", file.to_str().unwrap()]);
    assert!(text.contains("MEASURED ALONE  not comparable: they are for batch 8, not 1"), "{text}");
}

#[test]
fn analyze_takes_a_model_too() {
    let (trace, model) = (fixture(GRAPHS), fixture(MODEL));
    let (code, text, stderr) = steptally(&["analyze", &trace, "--model", &model]);
    assert_eq!(code, 0, "{stderr}");
    assert!(text.contains("FROM THE BOUND TO THE STEP  mean of 4 steps"), "{text}");
    assert!(
        text.contains("CAUTION  the context (--context) is not known, 1024 is assumed."),
        "{text}"
    );
    let args = ["analyze", &trace, "--model", &model, "--format", "json"];
    let report: Value = serde_json::from_str(&steptally(&args).1).unwrap();
    assert_eq!(report["bound_gap"]["unexplained_ns"], 0);
}

#[test]
fn errors_say_what_to_do() {
    let (trace, model) = (fixture(GRAPHS), fixture(MODEL));
    let fails = |args: &[&str], code: i32, error: &str, hint: &str| {
        let (actual, stdout, stderr) = steptally(args);
        assert_eq!((actual, stdout.as_str()), (code, ""), "{stderr}");
        assert!(stderr.contains(error) && stderr.contains(hint), "{stderr}");
    };
    fails(&["gap", &trace], 2, "nothing says which model was served", "hint: give --model");
    fails(&["gap", &trace, "--model", "none"], 3, "cannot read none", "hint: --model takes");
    let of = |more: &[&str], error: &str, hint: &str| {
        fails(&[&["gap", &trace, "--model", &model], more].concat(), 2, error, hint);
    };
    of(&["--gpu", "TPU"], "unknown GPU `TPU`", "--hardware FILE");
    of(&["--tp", "0"], "`tp` is 0", "hint: check --tp");
    of(&["--kind", "extend"], "no step of kind \"extend\"", "kinds present");
    of(&["--baseline-tpot", "3"], "such as 3.01ms", "");
    let extend = fixture("sglang-h200/stage-eager-TP-0-EXTEND.trace.json.gz");
    let args = ["gap", &extend, "--model", &model];
    fails(&args, 2, "", "hint: ");
}

#[test]
fn the_manifest_says_what_the_kv_cache_holds() {
    let folder = tempfile::tempdir().unwrap();
    let trace = "decode-graphs-fp8-kv-TP-0.trace.json.gz";
    std::fs::copy(fixture(&format!("sglang-h200/{trace}")), folder.path().join(trace)).unwrap();
    let bytes_read = |args: &[&str]| {
        let (folder, model) = (folder.path().to_str().unwrap(), fixture(MODEL));
        let (code, stdout, stderr) =
            steptally(&[&["gap", folder, "--model", &model, "--format", "json"], args].concat());
        assert_eq!(code, 0, "{stderr}");
        let gap: Value = serde_json::from_str(&stdout).unwrap();
        let parts = gap["roofline"]["components"].as_array().unwrap();
        parts.iter().find(|part| part["part"] == "kv_read").unwrap()["memory_bytes"].as_u64()
    };
    let manifest = |kv_cache_dtype: &str| {
        let load = r#"{"batch_size": 1, "input_len": 512, "output_len": 128}"#;
        let text = format!(
            r#"{{"manifest_version": 1, "load": {load}, "server": {{"args": {{"kv_cache_dtype": "{kv_cache_dtype}"}}}}}}"#
        );
        std::fs::write(folder.path().join("manifest.json"), text).unwrap();
    };
    // Keys and values of 4 heads of 128, 512 tokens, 6 layers: 3,145,728 values.
    manifest("fp8_e5m2");
    assert_eq!(bytes_read(&[]), Some(3_145_728));
    assert_eq!(bytes_read(&["--kv-dtype", "bf16"]), Some(2 * 3_145_728));
    // As the model has it.
    manifest("auto");
    assert_eq!(bytes_read(&[]), Some(2 * 3_145_728));
}
