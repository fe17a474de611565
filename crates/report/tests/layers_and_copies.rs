//! The sections about layers and copies, from real captures.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;

use steptally_analyze::results::{Analysis, LedgerScope};
use steptally_analyze::{Config, analyze};
use steptally_import::{ImportOptions, import_path};
use steptally_report::{Input, Report, TerminalStyle, Tool, terminal};

/// The lines of a section of a fixture's report, title included.
fn section(fixture: &str, title: &str, config: &Config) -> Vec<String> {
    section_of(analysis(fixture, config), title)
}

fn analysis(fixture: &str, config: &Config) -> Analysis {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(fixture);
    let import = import_path(&path, &ImportOptions::default()).unwrap();
    analyze(&import.traces, config)
}

fn section_of(analysis: Analysis, title: &str) -> Vec<String> {
    let report = Report::new(
        Tool { name: "t".into(), version: "1".into() },
        Input { files: Vec::new(), issues: Vec::new() },
        analysis,
    );
    let style = TerminalStyle { width: 120, color: false, bars: false, top: 10 };
    let text = terminal(&report, &style);
    let lines = text.lines().skip_while(|line| !line.starts_with(title));
    lines.take_while(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn alike_layers_are_one_row() {
    // Sums over 4 steps, in ns: layer 0 309977, layers 1-5 together 1525448, of 2136288 busy.
    let text =
        section("sglang-h200/decode-graphs-TP-0.trace.json.gz", "LAYERS", &Config::default());
    assert_eq!(
        text[..5],
        [
            "LAYERS  6 layers found by the repeat in the sequence of kernels; time of the GPU per step",
            "  part           GPU us  of busy  kernels  idle us",
            "  before layers    10.9    2.0 %        7    572.3",
            "  layer 0          77.5   14.5 %       16      8.3  other kernels than most",
            "  layers 1-5       76.3   14.3 %       16      8.1  mean of each",
        ]
    );
    // With the last rows, idle is the ledger's: 572.3 + 8.3 + 5 x 8.1 + 1033.8 + 211.2 = 1866.1.
    assert_eq!(
        text[6],
        "  end of step                                211.2  nothing runs until the next step"
    );
    assert_eq!(text.len(), 7);
}

#[test]
fn an_expectation_that_does_not_hold_is_said() {
    let config = Config { num_layers: Some(12), ..Config::default() };
    let lines = section("sglang-h200/decode-graphs-TP-0.trace.json.gz", "LAYERS", &config);
    let words: Vec<&str> = lines.iter().flat_map(|line| line.split_whitespace()).collect();
    let text = words.join(" ");
    assert!(text.contains("the model has 12: each repeat holds 2 of them"), "{text}");
}

#[test]
fn copies_of_a_window_are_not_called_per_step() {
    let mut analysis = analysis("torch-h200/pool-cast.trace.json.gz", &Config::default());
    assert!(section_of(analysis.clone(), "COPIES")[1].contains("us/step"));
    analysis.ledger.scope = LedgerScope::WholeWindow;
    let text = section_of(analysis, "COPIES");
    assert!(text[1].contains("us/window") && !text[1].contains("us/step"), "{text:?}");
}

#[test]
fn a_pool_that_is_cast_comes_first_with_its_reason() {
    let text = section("torch-h200/pool-cast.trace.json.gz", "COPIES", &Config::default());
    // 67108864 elements x 3 bytes = 201 MB; 16 calls a step, 4.8 TB/s at most.
    assert!(text[0].ends_with("the device's memory does 4.80 TB/s"), "{text:?}");
    for part in ["copy.cast", " 16 ", "201 MB", "1.04", "float8_e5m2 > bfloat16", "whole pool"] {
        assert!(text[2].contains(part), "{part}: {}", text[2]);
    }
    let reason = text[5..].join(" ");
    assert!(reason.contains("in 8 layers, at 22 % of the memory's bandwidth"), "{reason}");
}
