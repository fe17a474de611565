//! MOE001: some ranks have more expert work than others.

use crate::findings::saving::Remedy;
use crate::findings::{Draft, Facts, Outcome, Rule, evidence};

/// The busiest rank has this many times the mean.
const LEAST_FACTOR: f64 = 1.25;
/// and the difference is at least this share of the period.
const LEAST_RATIO: f64 = 0.01;

pub(super) const RULE: Rule = Rule {
    code: "MOE001",
    name: "expert imbalance",
    check,
    doc: "\
## What it is
Under expert parallelism some ranks hold the experts that most tokens choose.

## Why it costs
The combine waits for the busiest rank; the others idle inside it.

## How it is found
Time in expert products (`moe.gemm*`) of the busiest rank is at least 1.25 times the mean over ranks,
and the difference at least 1 % of the period.

## What to do
Balance: redundant experts (SGLang `--enable-eplb`, `--ep-num-redundant-experts`), another placement, or
larger batches, over which the choice evens out.",
};

fn check(facts: &Facts<'_>) -> Outcome {
    let expert = |account: &str| account.starts_with("moe.gemm");
    let ranges: Vec<(f64, f64, f64)> = (facts.ledger.accounts.iter())
        .filter(|account| expert(&account.account))
        .filter_map(|a| a.rank_range_ns.map(|(least, most)| (least, a.ns_per_step, most)))
        .collect();
    if ranges.is_empty() {
        return Outcome::not_applicable("no expert products on several ranks");
    }
    let mean: f64 = ranges.iter().map(|(_, mean, _)| mean).sum();
    let most: f64 = ranges.iter().map(|(_, _, most)| most).sum();
    if most < LEAST_FACTOR * mean || most - mean < LEAST_RATIO * facts.period_ns() {
        return Outcome::Clear;
    }
    Outcome::Found(Box::new(Draft {
        headline: format!(
            "the busiest rank has {:.2} times the mean time in expert products",
            most / mean
        ),
        evidence: vec![
            evidence("mean time in expert products", mean, "ns"),
            evidence("on the busiest rank", most, "ns"),
        ],
        advice: "balance the experts (SGLang --enable-eplb, --ep-num-redundant-experts)".to_owned(),
        remedy: Remedy::UpperBound { period_ns: most - mean, gpu_ns: 0.0 },
    }))
}

#[cfg(test)]
mod tests {
    use crate::findings::testing::{no_steps, outcome_of};
    use steptally_testkit::TraceDsl;
    use steptally_trace_model::Trace;

    /// Steps of 100 us of two ranks with expert products of these lengths in us.
    fn ranks(lengths: [i64; 2]) -> [Trace; 2] {
        [0usize, 1].map(|rank| {
            let mut dsl = TraceDsl::rank(rank as u32);
            for step in 0..5i64 {
                let at = step * 100_000;
                dsl = dsl
                    .range("step[DECODE bs=1]", at..at + 99_000)
                    .launch("cudaLaunchKernel", at + 100..at + 200, step as u64)
                    .kernel("fused_moe_kernel", at + 1000..at + 1000 + lengths[rank] * 1000)
                    .correlation(step as u64);
            }
            dsl.build()
        })
    }

    #[test]
    fn a_busier_rank_is_found() {
        let (outcome, finding) = outcome_of(&ranks([20, 60]), "MOE001");
        assert_eq!(outcome, "found");
        // Mean 40, most 60.
        let values: Vec<f64> = finding.unwrap().evidence.iter().map(|e| e.value).collect();
        assert_eq!(values, [40_000.0, 60_000.0]);
    }

    #[test]
    fn even_ranks_are_not() {
        assert_eq!(outcome_of(&ranks([50, 60]), "MOE001").0, "clear");
    }

    #[test]
    fn with_one_rank_it_does_not_apply() {
        let [rank, _] = ranks([20, 60]);
        assert_eq!(outcome_of(&[rank], "MOE001").0, "not_applicable");
        assert_eq!(outcome_of(&[no_steps()], "MOE001").0, "not_applicable");
    }
}
