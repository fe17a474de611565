//! Reports of a hand-made analysis: what a reader must find in them, and in which order.

#![allow(clippy::unwrap_used)] // in the tests' own functions

use steptally_analyze::results::{
    Account, AccountGroup, Analysis, Check, CheckStatus, Collectives, Confidence, Copies,
    DeviceUse, Dilation, Distribution, Findings, Grade, HostActivity, KernelSummary, Launches,
    Ledger, LedgerScope, LeftOut, OpSummary, Quality, RankSummary, Refusal, Selected, StepTable,
};
use steptally_analyze::{Section, Sections};
use steptally_report::{
    Example, Input, InputFile, InputIssue, Report, Severity, TerminalStyle, Tool, json_schema,
    terminal, to_json,
};

const STYLE: TerminalStyle = TerminalStyle { width: 100, color: false, bars: false, top: 10 };

fn every(value: f64, n: u64) -> Distribution {
    Distribution { n, median: value, p90: value, p99: value, min: value, max: value, mean: value }
}

fn account(name: &str, group: AccountGroup, ns: f64, meaning: &str) -> Account {
    Account {
        account: name.into(),
        group,
        ns_per_step: ns,
        ratio: ns / 2_400_000.0,
        total_ns: (ns * 4.0) as i64,
        per_step_ns: every(ns, 4),
        rank_range_ns: None,
        meaning: meaning.into(),
    }
}

/// Four decode steps at batch 2 of 2.4 ms each: 0.5 ms compute, 0.1 ms copies, 1.8 ms idle.
fn analysis() -> Analysis {
    Analysis {
        sections: Sections::default(),
        gaps: Vec::new(),
        dilation: None,
        findings: Findings::default(),
        launches: Launches::default(),
        replays: Vec::new(),
        quality: Quality {
            grade: Grade::B,
            refused: None,
            checks: vec![
                check("launches_without_gpu_work", CheckStatus::Warn, "first step is short"),
                check("stray_events", CheckStatus::Pass, "all is well here"),
                check("clock_skew", CheckStatus::NotApplicable, "no launches"),
            ],
        },
        ranks: vec![RankSummary {
            rank: Some(0),
            rank_source: Some("distributed_info".into()),
            label: None,
            device: Some(0),
            gpu_name: Some("NVIDIA H200".into()),
            world_size: Some(1),
            process_name: None,
            event_count: 100,
            partial: false,
        }],
        devices: vec![DeviceUse {
            rank: Some(0),
            device: Some(0),
            kernel_count: 123_456,
            copy_count: 6,
            kernel_sum_ns: 2_000_000,
            kernel_busy_ns: 2_000_000,
            gpu_busy_ns: 2_400_000,
            gpu_span_ns: 9_600_000,
            opaque_graph_count: 0,
            opaque_graph_sum_ns: 0,
            left_out: LeftOut::default(),
        }],
        steps: StepTable {
            detected_by: "marks.sglang".into(),
            confidence: Confidence::High,
            explanation: "the engine marked them".into(),
            kinds: [("decode".to_owned(), 5), ("extend".to_owned(), 1)].into(),
            selected: Some(Selected { kind: "decode".into(), n: 4, batch_size: Some(2) }),
            cut_count: 1,
            window_start_count: 0,
            outlier_count: 0,
            period_ns: Some(Distribution { p90: 2_450_000.0, ..every(2_400_000.0, 4) }),
            gpu_busy_ns: Some(every(600_000.0, 4)),
            ranks: Vec::new(),
            steps: Vec::new(),
        },
        ledger: Ledger {
            scope: LedgerScope::Steps,
            n: 4,
            accounts: vec![
                account("idle.between_steps", AccountGroup::Idle, 1_800_000.0, "scheduler at work"),
                account("gemm", AccountGroup::Compute, 499_000.0, "matrix products"),
                account("memcpy.dtoh", AccountGroup::Memory, 100_000.0, "results to the host"),
                account("norm", AccountGroup::Compute, 600.0, "normalisation"),
                account("memset", AccountGroup::Memory, 400.0, "fills"),
            ],
            uncategorised_ratio: Some(0.003),
            unknown_idle_ratio: Some(0.0),
            sum_ns: 9_600_000,
            period_sum_ns: 9_600_000,
            hidden_communication_ns_per_step: 0.0,
            hidden_copy_ns_per_step: 2_000.0,
            host_activity: vec![HostActivity {
                account: "idle.between_steps".into(),
                kind: "api".into(),
                name: "cudaEventSynchronize".into(),
                within: "scheduler.process_batch_result".into(),
                ns_per_step: 900_000.0,
            }],
        },
        collectives: Collectives::default(),
        kernels: vec![KernelSummary {
            name: "void at::native::vectorized_elementwise_kernel<8, \
                   at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul> >(int)"
                .into(),
            category: "gemm".into(),
            calls: 48,
            calls_per_step: 12.0,
            total_ns: 1_996_000,
            ns_per_step: 499_000.0,
            ratio: 0.208,
            median_ns: 41_583.0,
            grid: Some([132, 1, 1]),
            block: Some([128, 1, 1]),
            config_count: 2,
            first_position: Some(0),
            bytes: None,
            op: Some("aten::add".into()),
            op_dims: Some("[[2, 2048], []]".into()),
        }],
        layers: None,
        copies: Copies::default(),
        ranges: Vec::new(),
        ops: vec![OpSummary {
            name: "aten::add".into(),
            dims: "[[2, 2048], []]".into(),
            types: "[\"c10::BFloat16\", \"\"]".into(),
            calls: 48,
            calls_per_step: 12.0,
            host_total_ns: 400_000,
            host_self_ns: 200_000,
            gpu_self_ns: 1_996_000,
            gpu_total_ns: 1_996_000,
            gpu_self_ns_per_step: 499_000.0,
        }],
    }
}

fn check(code: &str, status: CheckStatus, effect: &str) -> Check {
    Check { code: code.into(), status, count: 14, of: Some(2_000), effect: effect.into() }
}

fn report(analysis: Analysis) -> Report {
    let input = Input {
        files: vec![InputFile {
            path: "runs/one.trace.json.gz".into(),
            bytes: 231_000,
            format: "torch.profiler JSON (gzip)".into(),
            partial: false,
            left_out: None,
        }],
        issues: Vec::new(),
    };
    Report::new(Tool { name: "steptally".into(), version: "1.2.3".into() }, input, analysis)
}

/// Asserts that `parts` occur in `text` in this order.
fn in_order(text: &str, parts: &[&str]) {
    let mut rest = text;
    for part in parts {
        let found = rest.find(part);
        assert!(found.is_some(), "{part:?} not found in order in:\n{text}");
        rest = &rest[found.unwrap() + part.len()..];
    }
}

#[test]
fn the_headline_comes_first() {
    let text = terminal(&report(analysis()), &STYLE);
    in_order(
        &text,
        &[
            "one.trace.json.gz (torch.profiler JSON (gzip), 231 KB), rank 0, NVIDIA H200",
            // 2 tokens in 2.4 ms.
            "A decode step takes 2.40 ms (median of 4 steps; p90 2.45 ms): 833 tokens/s at batch \
             size 2",
            "compute 21 %, copies 4 %, idle 75 % of the step",
            "75 %  1.80 ms  idle.between_steps  scheduler at work",
            "21 %   499 us  gemm                matrix products",
            "4 %   100 us  memcpy.dtoh",
            "steps    marks.sglang, confidence high. the engine marked them. Found: decode 5,",
            "quality  B, 1 warning about the numbers",
            "CAUTION",
            "WHERE THE STEP GOES",
            "KERNELS",
            "OPERATORS",
            "QUALITY",
            "next:",
            "--kind extend",
        ],
    );
    assert!(!text.contains("DEVICES") && !text.contains("PARTIAL"), "{text}");
}

#[test]
fn a_step_without_the_profiler_follows_the_profiled_one() {
    let mut analysis = analysis();
    // 2.4 ms against 1.2: twice. 0.6 ms busy, 0.6 ms idle; 2 tokens in 1.2 ms.
    analysis.dilation = Some(Dilation {
        period_ns: 2.4e6,
        tpot_ns: 1.2e6,
        ratio: 2.0,
        added_ns: 1.2e6,
        gpu_busy_ns: Some(0.6e6),
        idle_ns: Some(0.6e6),
        tokens_per_s: Some(2e9 / 1.2e6),
    });
    let wide = TerminalStyle { width: 400, ..STYLE };
    let text = terminal(&report(analysis), &wide);
    in_order(
        &text,
        &[
            "A decode step takes 2.40 ms",
            "as profiled.\n\
             Without the profiler it takes 1.20 ms (TPOT), 1667 tokens/s, of which the GPU is busy \
             600 us and idle 600 us. The profiler makes it 2.00 times as long: idle time below is \
             stretched by that, GPU times are not.\n",
            "WHERE THE STEP GOES",
        ],
    );
    // It was measured: nobody is told to measure it.
    assert!(!text.contains("CAUTION"), "{text}");
}

#[test]
fn ranks_that_differ_are_said_in_the_headline() {
    let mut analysis = analysis();
    analysis.ledger.accounts[1].rank_range_ns = Some((100_000.0, 898_000.0));
    analysis.ledger.accounts[2].rank_range_ns = Some((99_000.0, 101_000.0));
    let text = terminal(&report(analysis), &STYLE);
    in_order(
        &text,
        &["matrix products (100 us to 898 us by rank)", "results to the host\n", "100.0..898.0"],
    );
}

#[test]
fn the_ledger_names_its_unit_once_and_sums() {
    let text = terminal(&report(analysis()), &STYLE);
    // In us per step: 1800.0 + 499.0 + 100.0 + (0.6 + 0.4) = 2400.0.
    in_order(
        &text,
        &[
            "us/step    share     p90\n",
            "idle.between_steps                                               1800.0   75.0 %  1800.0\n",
            "  host: cudaEventSynchronize in scheduler.process_batch_result  (900.0)\n",
            "  499.0   20.8 %   499.0\n",
            "  100.0    4.2 %   100.0\n",
            "norm                                                                0.6   <0.1 %     0.6\n",
            "sum                                                              2400.0  100.0 %\n",
            "to the nanosecond: 9,600,000 ns over 4 steps",
            "idle without a known cause 0.0 %; kernels without a category 0.3 % of GPU time",
            "compute, in no account, 2.0 us",
        ],
    );
}

#[test]
fn many_accounts_are_added_up_below_those_that_matter() {
    let mut analysis = analysis();
    let tiny = |index| account(&format!("tiny.{index}"), AccountGroup::Compute, 100.0, "");
    analysis.ledger.accounts.extend((0..20).map(tiny));
    let text = terminal(&report(analysis), &STYLE);
    // 25 accounts, 12 shown: 13 x 0.1 us in one row.
    in_order(&text, &["memset", "tiny.6 ", "13 more accounts (--top N)", "   1.3    0.1 %"]);
    assert!(!text.contains("tiny.7"), "{text}");
}

#[test]
fn kernels_and_operators_show_how_they_were_called() {
    let wide = TerminalStyle { width: 160, ..STYLE };
    let text = terminal(&report(analysis()), &wide);
    in_order(
        &text,
        &[
            "per step",
            "us/step",
            "vectorized_elementwise_kernel<8, CUDAFunctor_add<bf16>>    499.0  20.8 %",
            "   12    41.58  gemm      aten::add [2,2048]  (132) x (128) +1",
            "GPU us  host us  calls  input shapes",
            "aten::add   499.0     50.0     12  bf16[2,2048]",
        ],
    );
}

#[test]
fn what_passed_is_counted_and_what_did_not_is_shown() {
    let text = terminal(&report(analysis()), &STYLE);
    in_order(
        &text,
        &[
            "B; 1 check passed; not applicable: clock_skew",
            "warn  launches_without_gpu_work: 14 of 2,000. first step is short",
        ],
    );
    assert!(!text.contains("all is well here"), "{text}");
}

#[test]
fn a_kind_is_written_in_words() {
    let mut analysis = analysis();
    let selected = Selected { kind: "profiler_step".into(), n: 4, batch_size: None };
    analysis.steps.selected = Some(selected);
    let text = terminal(&report(analysis), &STYLE);
    assert!(text.contains("A profiler step takes 2.40 ms"), "{text}");
    assert!(text.contains("mean of 4 profiler steps"), "{text}");
}

#[test]
fn a_window_is_never_called_a_step() {
    let mut analysis = analysis();
    analysis.ledger.scope = LedgerScope::WholeWindow;
    analysis.ledger.n = 1;
    analysis.steps.period_ns = None;
    analysis.steps.selected = None;
    analysis.steps.kinds.clear();
    analysis.steps.confidence = Confidence::None;
    analysis.steps.explanation = "no marks and no pattern".into();
    let text = terminal(&report(analysis), &STYLE);
    in_order(
        &text,
        &[
            "No steps:",
            "not about a step",
            "WHERE THE WINDOW GOES  NOT A STEP",
            "us/window",
            "DEVICES",
        ],
    );
    assert!(text.contains("123,456"), "{text}");
    assert!(!text.contains("us/step") && !text.contains("tokens/s"), "{text}");
}

#[test]
fn a_refusal_replaces_the_verdict() {
    let mut analysis = analysis();
    analysis.quality.grade = Grade::F;
    analysis.quality.refused = Some(Refusal {
        code: "no_load".into(),
        reason: "the server was idle".into(),
        hint: "send requests while profiling".into(),
    });
    let text = terminal(&report(analysis), &STYLE);
    in_order(&text, &["NO VERDICT  the server was idle", "hint:  send requests", "DEVICES"]);
    assert!(!text.contains("tokens/s") && !text.contains("WHERE THE STEP GOES"), "{text}");
}

#[test]
fn partial_input_is_said_at_the_top_with_what_was_wrong() {
    let mut report = report(analysis());
    report.partial = true;
    report.input.files[0].partial = true;
    report.input.issues.push(InputIssue {
        code: "truncated".into(),
        severity: Severity::Error,
        count: 1,
        example: Example { byte_offset: Some(77), text: "ends in the middle".into() },
        file: "runs/one.trace.json.gz".into(),
    });
    assert!(report.input.is_partial());
    let text = terminal(&report, &STYLE);
    in_order(
        &text,
        &[
            "PARTIAL  part of one.trace.json.gz could not be read",
            "A decode step",
            "INPUT  1 kind of issue",
            "error  truncated: 1; first at byte 77: ends in the middle",
        ],
    );
}

#[test]
fn a_sum_that_is_wrong_is_not_hidden() {
    let mut analysis = analysis();
    analysis.ledger.sum_ns -= 1;
    let text = terminal(&report(analysis), &STYLE);
    assert!(text.contains("THE SUM IS NOT THE PERIOD: 9599999 ns against 9600000 ns"), "{text}");
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    for width in [60, 80, 120] {
        let text = terminal(&report(analysis()), &TerminalStyle { width, bars: true, ..STYLE });
        for line in text.lines() {
            assert!(line.chars().count() <= width, "{width} columns: {line:?}");
        }
    }
}

#[test]
fn bars_and_colours_only_when_asked_for() {
    let plain = terminal(&report(analysis()), &STYLE);
    assert!(!plain.contains('█') && !plain.contains('\u{1b}'), "{plain}");
    let rich = terminal(&report(analysis()), &TerminalStyle { color: true, bars: true, ..STYLE });
    // 75 % of 24 columns.
    assert!(rich.contains(&"█".repeat(18)) && rich.contains("\u{1b}[1m"), "{rich}");
}

#[test]
fn json_has_the_promised_keys_and_fits_its_schema() {
    let json: serde_json::Value = serde_json::from_str(&to_json(&report(analysis()))).unwrap();
    let schema: serde_json::Value = serde_json::from_str(&json_schema()).unwrap();
    for key in [
        "schema_version",
        "tool",
        "input",
        "partial",
        "quality",
        "ranks",
        "devices",
        "steps",
        "ledger",
        "kernels",
        "ops",
    ] {
        assert!(json.get(key).is_some(), "{key}");
        assert!(schema["properties"].get(key).is_some(), "schema: {key}");
        let section = Section::all().any(|section| section.name() == key);
        let required = schema["required"].as_array().unwrap().iter().any(|name| name == key);
        assert_eq!(required, !section, "{key}");
    }
    assert_eq!(json["schema_version"], 1);
    assert_eq!(json["steps"]["period_ns"]["p90"], 2_450_000.0);
    assert_eq!(json["ledger"]["accounts"][0]["group"], "idle");
    assert_eq!(json["input"]["files"][0]["left_out"], serde_json::Value::Null);
    assert_eq!(to_json(&report(analysis())), to_json(&report(analysis())));
}

#[test]
fn a_number_that_is_not_finite_is_null() {
    let mut analysis = analysis();
    analysis.kernels[0].ratio = f64::NAN;
    let json: serde_json::Value = serde_json::from_str(&to_json(&report(analysis))).unwrap();
    assert!(json["kernels"][0]["ratio"].is_null());
}
