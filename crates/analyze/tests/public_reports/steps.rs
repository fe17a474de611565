//! Reports about steps: which there are, and which can be trusted.

use steptally_analyze::results::{Collectives, LedgerScope};
use steptally_analyze::{Config, analyze};
use steptally_testkit::TraceDsl;
use steptally_trace_model::Trace;

use crate::support::{accounts, run};

/// Every rank waits in its first custom all-reduce for the last rank's recording to begin.
fn staggered(rank: u32) -> Trace {
    let (last, reduce) = (7_000_000_000, "void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>");
    let mut dsl = TraceDsl::rank(rank);
    for step in 0..4i64 {
        let steady = last + step * 100_000;
        let at = if step == 0 { i64::from(rank) * 1_000_000_000 } else { steady };
        let id = step as u64 * 2;
        dsl = dsl
            .range("step[DECODE bs=1]", at - 500..at - 10)
            .launch("cudaLaunchKernel", at - 400..at - 390, id)
            .kernel("nvjet_a", at..at + 100)
            .correlation(id)
            .launch("cudaLaunchKernel", at - 380..at - 370, id + 1)
            .kernel(reduce, at + 1_000..steady + 15_300)
            .correlation(id + 1);
    }
    dsl.build()
}

/// One all-reduce of 17 s, others 14 us: ranks began to record at different times, and the waiting
/// of the first was sold as GPU work and as 96 % exposed communication.
#[test]
fn a_first_all_reduce_that_waits_for_another_ranks_recording_is_in_no_account() {
    let ranks: Vec<Trace> = (0..8).map(staggered).collect();
    let analysis = analyze(&ranks, &Config::default());
    let Collectives { window_starts, left_out_count, .. } = &analysis.collectives;
    let [start] = window_starts.as_slice() else { panic!("{window_starts:?}") };
    assert_eq!((start.rank, start.late_rank, start.step), (Some(0), Some(7), Some(0)));
    assert_eq!((start.window_start_wait_ns, *left_out_count), (7_000_000_000, 8));
    // Two steady steps of each rank, 100 us each with 14.3 us in the all-reduce.
    assert_eq!((analysis.steps.window_start_count, analysis.ledger.n), (8, 16));
    assert_eq!(analysis.ledger.period_sum_ns, 16 * 100_000);
    assert_eq!(accounts(&analysis)["comm.allreduce.custom"], 16 * 14_300);
    let reduce = analysis.kernels.iter().find(|k| k.name.contains("cross_device")).unwrap();
    assert_eq!(reduce.total_ns, 16 * 14_300);
    assert!(analysis.findings.findings.iter().all(|f| f.saving.gpu_ns_per_step < 100_000.0));
}

/// "Idle 0.04 %" of 32 steps, of which 30 held no GPU event at all.
#[test]
fn steps_without_gpu_events_get_no_verdict() {
    // 32 marks, kernels only in 2.
    let mut dsl = TraceDsl::rank(0);
    for step in 0..32i64 {
        dsl = dsl.range("step[DECODE bs=1]", step * 1000..step * 1000 + 500);
    }
    for step in 0..2u64 {
        let at = step as i64 * 1000;
        dsl = dsl
            .launch("cudaLaunchKernel", at + 10..at + 20, step)
            .kernel("nvjet_a", at + 100..at + 500)
            .correlation(step);
    }
    let analysis = run(dsl.build());
    let refused = analysis.quality.refused.as_ref().unwrap();
    assert_eq!(refused.code, "steps_without_gpu_events");
    assert_eq!(
        refused.reason,
        "30 of 32 steps have no GPU event: the GPU side was recorded in part"
    );
    let check = analysis.quality.checks.iter().find(|c| c.code == "steps_without_gpu_work");
    assert_eq!(check.unwrap().count, 30);
}

/// Three decode steps with these marks around the launch, outermost first.
fn marked(marks: impl Fn(i64) -> Vec<String>) -> Trace {
    let mut dsl = TraceDsl::rank(0);
    for step in 0..3i64 {
        let at = step * 200;
        for (depth, mark) in (0..).zip(marks(step)) {
            dsl = dsl.range(&mark, at + depth..at + 160 - depth);
        }
        dsl = dsl
            .launch("cudaLaunchKernel", at + 10..at + 15, step as u64)
            .kernel("nvjet_a", at + 40..at + 140)
            .correlation(step as u64);
    }
    dsl.build()
}

/// Marks of SGLang and of vLLM in one trace, one inside the other, made twice as many steps.
#[test]
fn marks_of_two_engines_inside_one_another_count_once() {
    let analysis = run(marked(|step| {
        let inner = ["execute_context_0(0)_generation_64(64)", "step[DECODE bs=64]"];
        let marks = inner.map(str::to_owned);
        [vec![format!("ProfilerStep#{step}")], marks.to_vec()].concat()
    }));
    assert_eq!(analysis.steps.detected_by, "marks.sglang");
    assert_eq!(analysis.steps.kinds, [("decode".to_owned(), 3)].into());
    assert_eq!(analysis.steps.selected.unwrap().batch_size, Some(64));
}

/// Marks that a tool did not know gave "zero steps", and numbers about something else.
#[test]
fn marks_of_an_unknown_grammar_are_no_steps_and_not_zero_steps() {
    let analysis = run(marked(|step| vec![format!("my_engine.tick {step} of 3")]));
    assert_eq!(analysis.steps.detected_by, "none");
    assert!(analysis.steps.kinds.is_empty() && analysis.steps.selected.is_none());
    assert!(!analysis.steps.explanation.is_empty());
    // What follows is said to be about the whole window.
    assert_eq!(analysis.ledger.scope, LedgerScope::WholeWindow);
}

/// An empty list of kernels from an idle server read like "nothing to optimise".
#[test]
fn a_capture_without_load_says_so_and_lists_no_advice() {
    // 5 s of the scheduler's frames and three kernels.
    let mut dsl = TraceDsl::rank(0).window(0..5_000_000_000);
    for n in 0..50i64 {
        let at = n * 100_000_000;
        dsl = dsl.frame("scheduler.py(900): event_loop_overlap", at..at + 99_000_000);
    }
    for n in 0..3i64 {
        let at = n * 1_000_000_000;
        dsl = dsl.launch_kernel("nvjet_a", at..at + 10, at + 50..at + 90);
    }
    let analysis = run(dsl.build());
    let refused = analysis.quality.refused.unwrap();
    assert_eq!(refused.code, "no_load");
    assert_eq!(refused.reason, "no load during the capture: 3 kernels in 5000 ms");
    let codes: Vec<_> = analysis.findings.findings.iter().map(|f| f.code.as_str()).collect();
    assert_eq!(codes, ["CAP001"]);
}
