//! JIT001: the period varies from step to step.

use crate::findings::saving::Remedy;
use crate::findings::{Draft, Facts, Outcome, Rule, evidence};
use crate::stats::distribution;

/// Fewer steps say nothing about variation.
const LEAST_STEPS: u64 = 10;
/// The slowest tenth takes this many times the median.
const LEAST_FACTOR: f64 = 1.3;

pub(super) const RULE: Rule = Rule {
    code: "JIT001",
    name: "step-time jitter",
    check,
    doc: "\
## What it is
Some steps of the same kind and batch size take much longer than the others.

## Why it costs
Users feel the slow tokens, and the mean is above what a steady server would give.

## How it is found
Of at least 10 steps the 90th percentile of the period is 1.3 times the median or more. Outliers, which
all other numbers leave out, count here.

## What to do
`steps.steps` lists every period: look at what the slow ones have in common (requests arriving, garbage
collection, logging, a batch that grows, another process on the CPU). Pin the scheduler's process, and
keep other work off its cores.",
};

fn check(facts: &Facts<'_>) -> Outcome {
    let all = facts.steps.steps.iter().filter(|step| step.selected || step.outlier);
    let all = distribution(all.filter_map(|step| step.period_ns));
    let Some(period) = all.filter(|period| period.n >= LEAST_STEPS) else {
        return Outcome::not_applicable("fewer than 10 steps");
    };
    let excess = facts.steps.period_ns.map_or(0.0, |kept| kept.mean - kept.median);
    if period.p90 < LEAST_FACTOR * period.median {
        return Outcome::Clear;
    }
    Outcome::Found(Box::new(Draft {
        headline: format!(
            "one step in ten takes {:.1} times the median or more",
            period.p90 / period.median
        ),
        evidence: vec![
            evidence("median period", period.median, "ns"),
            evidence("90th percentile", period.p90, "ns"),
            evidence("largest", period.max, "ns"),
        ],
        advice:
            "look at what the slow steps have in common (requests arriving, garbage collection, \
                 logging), pin the scheduler's process"
                .to_owned(),
        remedy: Remedy::LessIdle { period_ns: excess.max(0.0) },
    }))
}

#[cfg(test)]
mod tests {
    use crate::findings::testing::{clear, found, not_applicable};
    use steptally_testkit::TraceDsl;
    use steptally_trace_model::Trace;

    /// Steps of these periods in us.
    fn periods(periods: &[i64]) -> Trace {
        let mut dsl = TraceDsl::rank(0);
        let mut at = 0;
        for (id, period) in periods.iter().chain(&[100]).enumerate() {
            dsl = dsl
                .range("step[DECODE bs=1]", at..at + 5000)
                .launch("cudaLaunchKernel", at + 100..at + 200, id as u64)
                .kernel("nvjet_tst", at + 1000..at + 4000)
                .correlation(id as u64);
            at += period * 1000;
        }
        dsl.build()
    }

    #[test]
    fn slow_steps_among_fast_ones_are_found() {
        let mut mixed = [100; 20];
        mixed[3] = 200;
        mixed[9] = 210;
        mixed[15] = 190;
        let finding = found(periods(&mixed), "JIT001");
        // Of 20 values the 18th: 190.
        assert_eq!(finding.evidence[1].value, 190_000.0);
        // Mean (17 x 100 + 600) / 20 = 115.
        assert_eq!(finding.saving.period_after_ns, Some(100_000.0));
    }

    #[test]
    fn steady_steps_are_not() {
        clear(periods(&[100, 105, 110, 100, 102, 104, 108, 99, 101, 103, 107]), "JIT001");
    }

    #[test]
    fn with_few_steps_it_does_not_apply() {
        not_applicable(periods(&[100, 300, 100]), "JIT001");
    }
}
