//! GEMM001: matrix products with fewer blocks than the GPU has multiprocessors.

use crate::findings::saving::Remedy;
use crate::findings::{Draft, Facts, Outcome, Rule, evidence};
use crate::results::KernelSummary;

/// A product uses few blocks when they cover less than this share of the multiprocessors.
const FEW: f64 = 0.5;
/// Such products take at least this share of the period.
const LEAST_RATIO: f64 = 0.03;

pub(super) const RULE: Rule = Rule {
    code: "GEMM001",
    name: "matrix product with few blocks",
    check,
    doc: "\
## What it is
A matrix product is launched with fewer thread blocks than half the GPU's multiprocessors.

## Why it costs
In decode a product reads its weights once and is bound by memory bandwidth; with few blocks too few
multiprocessors issue loads, and the bandwidth cannot be reached.

## How it is found
Products (`gemm.*`, `moe.gemm*`) whose grid has fewer blocks than half the multiprocessors take at
least 3 % of the period. A persistent kernel has as many blocks as multiprocessors and is not meant.

## What to do
Let the library tune for the small batch (split-K, stream-K), merge products that share their input
(QKV, gate and up), or use a GEMV kernel.",
};

fn check(facts: &Facts<'_>) -> Outcome {
    let multiprocessors = facts
        .views
        .iter()
        .find_map(|view| view.lane.trace.meta.device(view.lane.device?)?.sm_count);
    let Some(multiprocessors) = multiprocessors else {
        return Outcome::not_applicable("the number of multiprocessors is not recorded");
    };
    let blocks = |kernel: &KernelSummary| {
        kernel.grid.map(|grid| grid.iter().map(|&side| u64::from(side.max(1))).product::<u64>())
    };
    let few: Vec<&KernelSummary> = (facts.kernels.iter())
        .filter(|k| k.category.starts_with("gemm.") || k.category.starts_with("moe.gemm"))
        .filter(|k| blocks(k).is_some_and(|b| (b as f64) < FEW * f64::from(multiprocessors)))
        .collect();
    let ns: f64 = few.iter().map(|kernel| kernel.ns_per_step).sum();
    if few.is_empty() || ns < LEAST_RATIO * facts.period_ns() {
        return Outcome::Clear;
    }
    let worst = few[0];
    let calls: f64 = few.iter().map(|kernel| kernel.calls_per_step).sum();
    Outcome::Found(Box::new(Draft {
        headline: format!(
            "{calls:.0} matrix products per step use fewer blocks than half of {multiprocessors} \
             multiprocessors, most time with {} blocks",
            blocks(worst).unwrap_or(0)
        ),
        evidence: vec![
            evidence("GPU time in them", ns, "ns"),
            evidence("calls", calls, "per_step"),
            evidence("blocks of the longest", blocks(worst).unwrap_or(0) as f64, "count"),
        ],
        advice:
            "tune for the small batch (split-K, GEMV), or merge products that share their input"
                .to_owned(),
        // With all multiprocessors at work it cannot take less than its share of blocks.
        remedy: Remedy::UpperBound { period_ns: ns * (1.0 - FEW), gpu_ns: ns * (1.0 - FEW) },
    }))
}

#[cfg(test)]
mod tests {
    use crate::findings::testing::{clear, found, no_steps, not_applicable, steps};
    use steptally_trace_model::{DeviceProperties, Trace};

    fn products(blocks: u32) -> Trace {
        let mut trace = steps(5, 100_000, |dsl, at, id| {
            dsl.launch("cudaLaunchKernel", at + 100..at + 200, id)
                .kernel("nvjet_tst", at + 1000..at + 21_000)
                .correlation(id)
                .grid([blocks, 1, 1])
                .block([128, 1, 1])
        });
        trace.meta.devices =
            vec![DeviceProperties { sm_count: Some(132), ..DeviceProperties::default() }];
        trace
    }

    #[test]
    fn a_product_with_few_blocks_is_found() {
        let finding = found(products(32), "GEMM001");
        assert_eq!(finding.evidence[0].value, 20_000.0);
    }

    #[test]
    fn one_with_enough_is_not() {
        clear(products(66), "GEMM001");
    }

    #[test]
    fn without_the_number_of_multiprocessors_it_does_not_apply() {
        let mut trace = products(32);
        trace.meta.devices.clear();
        not_applicable(trace, "GEMM001");
        not_applicable(no_steps(), "GEMM001");
    }
}
