//! PROF001: the profiler itself makes up much of the step.

use crate::findings::saving::Remedy;
use crate::findings::{Draft, Facts, Outcome, Rule, evidence};

/// With graphs the GPU should rarely wait; waiting this share of the period is the recorder's doing.
const IDLE_WITH_GRAPHS: f64 = 0.4;
/// The recorder says itself that it took this share.
const OVERHEAD_RATIO: f64 = 0.02;

pub(super) const RULE: Rule = Rule {
    code: "PROF001",
    name: "profiler dilates the step",
    check,
    doc: "\
## What it is
Recording slows the host: every operator, API call, graph node and Python frame costs it time. With
CUDA graphs, where an unprofiled host does little, the recorded step can be twice the real one.

## Why it costs
Nothing in production; but a diff of two recorded periods can hide a real gain, and idle accounts send
you hunting for time that is not there.

## How it is found
Every step launches a graph, most of the GPU's time is in graphs and the GPU is idle more than 40 % of
the period, or the recorder's own overhead events take at least 2 % of it.

## What to do
Measure TPOT without a profiler at the same batch size and compare: `(e2e - TTFT) / (N - 1)` per
request. Record fewer things: no stacks, no shapes, GPU activities only.",
};

fn check(facts: &Facts<'_>) -> Outcome {
    if facts.launches.calls.is_empty() {
        return Outcome::not_applicable("no API calls were recorded");
    }
    let idle = facts.account_ns(|account| account.starts_with("idle.")) / facts.period_ns();
    let every_step = facts.launches.graph_step_ratio.unwrap_or(0.0) > 0.95;
    let by_graph = every_step && facts.mostly_in_graphs();
    let recorder: f64 = (facts.ledger.host_activity.iter())
        .filter(|activity| activity.kind == "profiler")
        .map(|activity| activity.ns_per_step)
        .sum();
    let overhead = recorder / facts.period_ns();
    if !(by_graph && idle > IDLE_WITH_GRAPHS) && overhead < OVERHEAD_RATIO {
        return Outcome::Clear;
    }
    Outcome::Found(Box::new(Draft {
        headline: format!(
            "the GPU is idle {:.0} % of the recorded step{}: most of it is likely the recorder's",
            100.0 * idle,
            if by_graph { " although every step runs by graph" } else { "" }
        ),
        evidence: vec![
            evidence("idle share of the period", idle, "ratio"),
            evidence("the recorder's own events", recorder, "ns"),
        ],
        advice: "measure TPOT without a profiler before acting on idle time".to_owned(),
        remedy: Remedy::None,
    }))
}

#[cfg(test)]
mod tests {
    use crate::findings::testing::{clear, found, no_steps, not_applicable, steps};
    use steptally_trace_model::Trace;

    /// Steps of 100 us with one kernel of `busy` us, launched by `call`.
    fn run(call: &str, busy: i64) -> Trace {
        steps(5, 100_000, |dsl, at, id| {
            dsl.launch(call, at + 100..at + 200, id)
                .kernel("nvjet_tst", at + 1000..at + 1000 + busy * 1000)
                .correlation(id)
        })
    }

    #[test]
    fn idle_between_graphs_is_found() {
        assert_eq!(found(run("cudaGraphLaunch", 30), "PROF001").evidence[0].value, 0.7);
    }

    #[test]
    fn a_busy_gpu_or_eager_steps_are_not() {
        clear(run("cudaGraphLaunch", 70), "PROF001");
        clear(run("cudaLaunchKernel", 30), "PROF001");
    }

    #[test]
    fn a_graph_for_a_small_part_of_the_step_is_not() {
        // 2 of 30 us of work are a graph's.
        let mixed = steps(5, 100_000, |dsl, at, id| {
            dsl.launch("cudaGraphLaunch", at + 100..at + 200, id)
                .kernel("rmsnorm", at + 1000..at + 3000)
                .correlation(id)
                .launch("cudaLaunchKernel", at + 300..at + 400, id + 1)
                .kernel("nvjet_tst", at + 3000..at + 31_000)
                .correlation(id + 1)
        });
        clear(mixed, "PROF001");
    }

    #[test]
    fn without_steps_it_does_not_apply() {
        not_applicable(no_steps(), "PROF001");
    }
}
