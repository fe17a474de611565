//! CAST001: the same dtype casts in every layer.

use super::kv001::{asked_for, removes};
use crate::findings::{Draft, Facts, Outcome, Rule, evidence};
use crate::results::CopySummary;

/// A cast that runs this often in a step is one per layer.
const LEAST_CALLS: f64 = 4.0;
/// Together they take at least this share of the period.
const LEAST_RATIO: f64 = 0.02;

pub(super) const RULE: Rule = Rule {
    code: "CAST001",
    name: "dtype cast in every layer",
    check,
    doc: "\
## What it is
Small tensors are cast to another dtype several times per step, usually once or more per layer.

## Why it costs
Each cast is a kernel of its own: a launch, a read and a write of the tensor, for values that the
kernel before could have written in the right type.

## How it is found
Cast kernels (`copy.cast`) that are not pool-sized (KV001) and run at least 4 times per step take
together at least 2 % of the period.

## What to do
Let the producing kernel write the wanted type (fused norm + quantise, GEMM epilogue), keep
activations in one dtype, or let torch.compile fuse the cast.",
};

fn check(facts: &Facts<'_>) -> Outcome {
    if facts.copies.rows.is_empty() {
        return Outcome::not_applicable("no casts or copies in the steps");
    }
    let casts: Vec<&CopySummary> = (facts.copies.rows.iter())
        .filter(|row| row.category == "copy.cast" && !row.pool_sized)
        .filter(|row| row.calls_per_step >= LEAST_CALLS)
        .collect();
    let ns: f64 = casts.iter().map(|row| row.ns_per_step).sum();
    if casts.is_empty() || ns < LEAST_RATIO * facts.period_ns() {
        return Outcome::Clear;
    }
    let calls: f64 = casts.iter().map(|row| row.calls_per_step).sum();
    let largest = casts[0];
    Outcome::Found(Box::new(Draft {
        headline: format!(
            "{calls:.0} casts per step, most time in {}",
            asked_for(largest).trim_end_matches(',')
        ),
        evidence: vec![
            evidence("GPU time in casts", ns, "ns"),
            evidence("casts", calls, "per_step"),
        ],
        advice: "let the kernel before write the wanted type (fused norm and quantisation, GEMM \
                 epilogue), or keep activations in one dtype"
            .to_owned(),
        remedy: removes(&casts),
    }))
}

#[cfg(test)]
mod tests {
    use crate::findings::testing::{clear, found, no_steps, not_applicable, steps};
    use steptally_trace_model::Trace;

    const CAST: &str =
        "void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16_copy_kernel_cuda>";

    /// Five steps of 100 us with `casts` casts of 1 us and a GEMM.
    fn casts(casts: i64) -> Trace {
        steps(5, 100_000, |mut dsl, at, id| {
            for k in 0..casts {
                dsl = dsl
                    .launch("cudaLaunchKernel", at + k * 1000..at + k * 1000 + 500, id + k as u64)
                    .kernel(CAST, at + 20_000 + k * 3000..at + 21_000 + k * 3000)
                    .correlation(id + k as u64);
            }
            dsl.launch("cudaLaunchKernel", at + 15_000..at + 15_500, id + 90)
                .kernel("nvjet_tst", at + 60_000..at + 90_000)
                .correlation(id + 90)
        })
    }

    #[test]
    fn casts_in_every_layer_are_found() {
        let finding = found(casts(8), "CAST001");
        assert_eq!(finding.saving.gpu_ns_per_step, 8_000.0);
    }

    #[test]
    fn a_few_casts_are_not() {
        clear(casts(3), "CAST001");
    }

    #[test]
    fn without_steps_it_does_not_apply() {
        not_applicable(no_steps(), "CAST001");
    }
}
