//! HOST003: the GPU idles between two steps.

use crate::findings::saving::Remedy;
use crate::findings::{Draft, Facts, Outcome, Rule, evidence};

/// The gap takes at least this share of the period.
const LEAST_RATIO: f64 = 0.10;

pub(super) const RULE: Rule = Rule {
    code: "HOST003",
    name: "scheduler gap between steps",
    check,
    doc: "\
## What it is
The GPU has finished a step and the host is still scheduling, sampling, detokenising, or preparing the
next batch.

## Why it costs
A decode step of a small batch takes a few milliseconds; a Python scheduler easily takes one of them,
and nothing runs meanwhile.

## How it is found
`idle.between_steps` takes at least 10 % of the period. `host_activity` names what the host did.

## What to do
Let scheduling overlap with the GPU (SGLang: no `--disable-overlap-schedule`; vLLM: async scheduling),
run several steps per schedule, move detokenisation to another process, cut what is logged or sampled
on the host. A profiler slows exactly this part: compare with TPOT measured without one first.",
};

fn check(facts: &Facts<'_>) -> Outcome {
    if facts.launches.calls.is_empty() {
        return Outcome::not_applicable("no API calls were recorded");
    }
    let between = facts.account_ns(|account| account == "idle.between_steps");
    if between < LEAST_RATIO * facts.period_ns() {
        return Outcome::Clear;
    }
    let doing: Vec<String> = (facts.ledger.host_activity.iter())
        .filter(|a| a.account == "idle.between_steps" && !a.name.is_empty())
        .take(3)
        .map(|a| format!("{} {:.0} us", a.name, a.ns_per_step / 1000.0))
        .collect();
    let doing = if doing.is_empty() { String::new() } else { format!(": {}", doing.join(", ")) };
    Outcome::Found(Box::new(Draft {
        headline: format!(
            "{:.0} % of the step the GPU waits between steps{doing}",
            100.0 * between / facts.period_ns()
        ),
        evidence: vec![evidence("idle between steps", between, "ns")],
        advice: "let scheduling overlap with the GPU (SGLang: no --disable-overlap-schedule), and \
                 measure TPOT without a profiler first: it slows exactly this"
            .to_owned(),
        remedy: Remedy::LessIdle { period_ns: between },
    }))
}

#[cfg(test)]
mod tests {
    use crate::findings::testing::{clear, found, no_steps, not_applicable, steps};
    use steptally_trace_model::Trace;

    /// Five steps of 100 us whose only kernel ends at `end` us; the next one is launched at 1 us.
    fn ends(end: i64) -> Trace {
        steps(5, 100_000, |dsl, at, id| {
            dsl.launch("cudaLaunchKernel", at + 1000..at + 2000, id)
                .kernel("nvjet_tst", at + 10_000..at + end * 1000)
                .correlation(id)
        })
    }

    #[test]
    fn a_gap_before_the_next_step_is_found() {
        // From 60 us to the next launch at 101 us: 41 us between, then 9 us latency.
        let finding = found(ends(60), "HOST003");
        assert_eq!(finding.evidence[0].value, 41_000.0);
    }

    #[test]
    fn a_short_gap_is_not() {
        clear(ends(95), "HOST003");
    }

    #[test]
    fn without_steps_it_does_not_apply() {
        not_applicable(no_steps(), "HOST003");
    }
}
