//! HOST002: the host waits for the GPU inside the step.

use crate::findings::saving::Remedy;
use crate::findings::{Draft, Facts, Outcome, Rule, evidence};

/// The GPU idles because of it at least this share of the period.
const LEAST_RATIO: f64 = 0.02;

pub(super) const RULE: Rule = Rule {
    code: "HOST002",
    name: "host synchronises in the step",
    check,
    doc: "\
## What it is
The host waits for the GPU in the middle of its work: a `cudaStreamSynchronize`, a blocking copy, an
`.item()` or `.cpu()`, a device-to-host copy into pageable memory. When the wait ends the queue is
empty, and the GPU idles until the next launch arrives.

## Why it costs
Every wait drains the queue; the host loses its head start and the GPU waits for the whole chain of
launches behind it.

## How it is found
`idle.host_blocked` takes at least 2 % of the period: time in which the GPU had nothing to do while
the launching thread was in such a call.

## What to do
Find who asks for the value: `host_activity` names the call and the range around it. Keep the value on
the GPU, copy it without waiting into pinned memory and look at it a step later (overlap scheduling),
or move the wait to the end of the step.",
};

fn check(facts: &Facts<'_>) -> Outcome {
    let launches = facts.launches;
    if launches.calls.is_empty() {
        return Outcome::not_applicable("no API calls were recorded");
    }
    let blocked = facts.account_ns(|account| account == "idle.host_blocked");
    if blocked < LEAST_RATIO * facts.period_ns() {
        return Outcome::Clear;
    }
    let worst = facts.ledger.host_activity.iter().find(|a| a.account == "idle.host_blocked");
    let place = worst.map_or(String::new(), |activity| {
        let within = if activity.within.is_empty() {
            String::new()
        } else {
            format!(" in {}", activity.within)
        };
        format!(", most in {}{within}", activity.name)
    });
    Outcome::Found(Box::new(Draft {
        headline: format!(
            "the host waits for the GPU {:.1} times per step{place}",
            launches.syncs_per_step
        ),
        evidence: vec![
            evidence("idle while the host waits", blocked, "ns"),
            evidence("blocking calls", launches.syncs_per_step, "per_step"),
        ],
        advice:
            "keep the value on the GPU, or copy it without waiting into pinned memory and look \
                 at it a step later"
                .to_owned(),
        remedy: Remedy::LessIdle { period_ns: blocked },
    }))
}

#[cfg(test)]
mod tests {
    use crate::findings::testing::{clear, found, no_steps, not_applicable, steps};
    use steptally_trace_model::Trace;

    /// Five steps of 100 us: a kernel ends at 40 us, the host waits until `until` us.
    fn waits(until: i64) -> Trace {
        steps(5, 100_000, |dsl, at, id| {
            dsl.launch("cudaLaunchKernel", at + 1000..at + 2000, id)
                .kernel("nvjet_tst", at + 10_000..at + 40_000)
                .correlation(id)
                .api("cudaStreamSynchronize", at + 3000..at + until * 1000)
                .launch("cudaLaunchKernel", at + 60_000..at + 61_000, id + 1)
                .kernel("rmsnorm", at + 65_000..at + 99_000)
                .correlation(id + 1)
        })
    }

    #[test]
    fn a_wait_that_drains_the_queue_is_found() {
        // Blocked 40-50 us: 10 us of 100.
        let finding = found(waits(50), "HOST002");
        assert_eq!(finding.evidence[0].value, 10_000.0);
        assert_eq!(finding.saving.period_after_ns, Some(90_000.0));
    }

    #[test]
    fn a_wait_that_ends_with_the_work_is_not() {
        clear(waits(41), "HOST002");
    }

    #[test]
    fn without_steps_it_does_not_apply() {
        not_applicable(no_steps(), "HOST002");
    }
}
