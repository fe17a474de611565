//! For the rules' tests: run everything on a timeline, look at one rule's outcome.

use steptally_testkit::TraceDsl;
use steptally_trace_model::Trace;

use crate::results::Finding;
use crate::{Config, analyze};

/// The outcome of rule `code`, and its finding.
pub(crate) fn outcome_of(traces: &[Trace], code: &str) -> (String, Option<Finding>) {
    let findings = analyze(traces, &Config::default()).findings;
    let outcome = findings.rules.iter().find(|rule| rule.code == code).expect("a rule");
    let finding = findings.findings.iter().find(|finding| finding.code == code);
    (outcome.outcome.clone(), finding.cloned())
}

/// Checks that the rule finds something, and returns it.
#[track_caller]
pub(crate) fn found(trace: Trace, code: &str) -> Finding {
    let (outcome, finding) = outcome_of(&[trace], code);
    assert_eq!(outcome, "found");
    finding.expect("a finding")
}

/// Checks that the rule applies and finds nothing.
#[track_caller]
pub(crate) fn clear(trace: Trace, code: &str) {
    assert_eq!(outcome_of(&[trace], code).0, "clear");
}

/// Checks that the rule does not apply.
#[track_caller]
pub(crate) fn not_applicable(trace: Trace, code: &str) {
    assert_eq!(outcome_of(&[trace], code).0, "not_applicable");
}

/// `n` marked decode steps of `period` ns; `step` adds the events of one, given its start and the
/// first correlation id of a hundred that are its own.
pub(crate) fn steps(
    n: i64,
    period: i64,
    mut step: impl FnMut(TraceDsl, i64, u64) -> TraceDsl,
) -> Trace {
    let mut dsl = TraceDsl::rank(0).gpu("NVIDIA H200");
    for k in 0..n {
        let at = k * period;
        dsl = dsl.range("step[DECODE bs=1]", at..at + period - 1);
        dsl = step(dsl, at, k as u64 * 100);
    }
    dsl.build()
}

/// A trace of kernels without steps.
pub(crate) fn no_steps() -> Trace {
    TraceDsl::rank(0)
        .launch_kernel("nvjet_a", 0..10, 100..200)
        .launch_kernel("rmsnorm", 250..260, 300..350)
        .build()
}
