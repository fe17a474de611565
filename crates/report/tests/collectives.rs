//! The section on communication: what a reader must find in it.

#![allow(clippy::unwrap_used, clippy::panic)] // in the tests' own functions

use std::path::PathBuf;

use steptally_analyze::{Config, analyze};
use steptally_import::{ImportOptions, import_path};
use steptally_report::{Input, Report, TerminalStyle, Tool, terminal};
use steptally_testkit::{SlowRank, TraceDsl, many_ranks, read_captured};
use steptally_trace_model::Trace;

const STYLE: TerminalStyle = TerminalStyle { width: 100, color: false, bars: false, top: 3 };

/// The section, its lines joined so that sentences can be found whatever the line breaks.
fn section(traces: &[Trace], config: &Config) -> Option<String> {
    let tool = Tool { name: "steptally".into(), version: "0".into() };
    let report = Report::new(tool, Input::default(), analyze(traces, config));
    let text = terminal(&report, &STYLE);
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let from = text.find("COLLECTIVES")?;
    let section = text[from..].split("\n\n").next()?;
    Some(section.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn captured(name: &str, config: &Config) -> String {
    let fixtures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/sglang-h200-tp2");
    let import = import_path(&fixtures.join(name), &ImportOptions::default()).unwrap();
    section(&import.traces, config).unwrap()
}

fn check(text: &str, expected: &[&str]) {
    for part in expected {
        assert!(text.contains(part), "`{part}` is missing in: {text}");
    }
}

#[test]
fn the_late_rank_is_named_first_with_what_it_costs_and_why() {
    check(
        &captured("eager", &Config::default()),
        &[
            "112 kernels; 56 collectives matched over 2 ranks, clocks aligned to 398 ns",
            "Rank 1 arrives last at 100.0 % of its collectives, by 1.69 ms on average: the others \
             wait 23.7 ms per step for it",
            "is its host's, which launches later (",
            // Rank 0: 23.819 ms a step, of which 23.715 waiting and 0.104 transfer.
            "0 23.819 23.817 14 23.715 0.104 0.0 %",
            "comm.allreduce.nccl, first of step 4.10 KB 1",
        ],
    );
}

#[test]
fn of_eight_ranks_the_slowed_one_is_named() {
    // Rank 5 does what captured rank 1 did, but 50 us later at each of the step's 14 collectives.
    let fixtures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/sglang-h200-tp2");
    let captured = read_captured(&fixtures.join("eager")).unwrap();
    let slow = SlowRank { rank: 5, delay_ns: 50_000 };
    let folder = tempfile::tempdir().unwrap();
    for (rank, text) in many_ranks(&captured, 8, Some(slow)).unwrap().iter().enumerate() {
        std::fs::write(folder.path().join(format!("run-TP-{rank}.trace.json")), text).unwrap();
    }
    let import = import_path(folder.path(), &ImportOptions::default()).unwrap();
    check(
        &section(&import.traces, &Config::default()).unwrap(),
        &[
            "448 kernels; 56 collectives matched over 8 ranks, clocks aligned to 398 ns",
            "Rank 5 arrives last at 100.0 % of its collectives, by 50.0 us on average: the others \
             wait 700 us per step for it; its GPU takes longer before them.",
        ],
    );
}

#[test]
fn a_windows_start_is_told_apart_and_the_step_left_out() {
    check(
        &captured("graphs", &Config::default()),
        &[
            "112 kernels, 28 of them left out",
            "Rank 0's first collective waits 1.48 ms for rank 1 (later ones 63.8 us): their \
             recordings began at different times; step 0 is left out.",
        ],
    );
}

#[test]
fn one_rank_says_that_it_cannot_tell() {
    check(
        &captured("eager", &Config { rank: Some(1), ..Config::default() }),
        &[
            "durations include waiting for other ranks",
            "Who waits for whom is not known: one rank only: waiting cannot be told from transfer.",
        ],
    );
}

/// Three steps of 10 us; collectives at these starts within the step, all ending at 5 us.
fn steps(rank: u32, collectives: impl Fn(i64) -> Vec<i64>) -> Trace {
    let mut dsl = TraceDsl::rank(rank);
    for step in 0..3 {
        let (at, id) = (10_000 + step * 10_000, step as u64);
        dsl = dsl
            .range("step[DECODE bs=1]", at - 500..at - 10)
            .launch("cudaLaunchKernel", at - 400..at - 390, id)
            .kernel("nvjet_a", at..at + 100)
            .correlation(id);
        for start in collectives(step) {
            dsl = dsl.kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", at + start..at + 5000);
        }
    }
    dsl.build()
}

#[test]
fn what_could_not_be_matched_is_said() {
    let zero = steps(0, |_| vec![1000]);
    let one = steps(1, |step| if step == 1 { vec![1000, 2000] } else { vec![1000] });
    check(
        &section(&[zero, one], &Config::default()).unwrap(),
        &[
            "Not all could be compared: 3 kernels without a partner; numbers of \
             comm.allreduce.nccl differ in step 1 (rank 0: 1, rank 1: 2): not matched there.",
            "All ranks arrive together, as far as the clocks can tell.",
        ],
    );
}

#[test]
fn without_communication_there_is_no_section() {
    assert_eq!(section(&[steps(0, |_| Vec::new())], &Config::default()), None);
}
