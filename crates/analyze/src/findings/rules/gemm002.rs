//! GEMM002: a quantised model computes products in a wider type.

use crate::findings::saving::Remedy;
use crate::findings::{Draft, Facts, Outcome, Rule, evidence};

/// Wide products take at least this share of all product time.
const LEAST_SHARE: f64 = 0.3;
/// and this share of the period.
const LEAST_RATIO: f64 = 0.05;

pub(super) const RULE: Rule = Rule {
    code: "GEMM002",
    name: "product in a wider type than the model's",
    check,
    doc: "\
## What it is
The model is quantised (there are FP4 or FP8 products), yet part of the products runs in BF16: layers
excluded from quantisation, or a fallback because a kernel for the type or shape is missing.

## Why it costs
In decode a product takes as long as its weights take to read: BF16 weights are twice as long as FP8,
almost four times as FP4.

## How it is found
There are FP4 or FP8 products, and BF16 ones take at least 30 % of all product time and 5 % of the
period.

## What to do
Compare with the checkpoint's `quantization_config` and its excluded modules: attention and lm_head are
often BF16 on purpose. If a layer should be quantised, look in the server's log for a fallback and
choose another backend (`--moe-runner-backend`, `--fp8-gemm-backend`).",
};

fn check(facts: &Facts<'_>) -> Outcome {
    let product = |account: &str| account.starts_with("gemm.") || account.starts_with("moe.gemm");
    let narrow = |account: &str| {
        product(account) && (account.ends_with(".fp8") || account.ends_with(".fp4"))
    };
    if facts.account_ns(narrow) == 0.0 {
        return Outcome::not_applicable("no FP8 or FP4 products in the steps");
    }
    let wide = facts.account_ns(|account| account == "gemm.bf16" || account == "moe.gemm");
    let all = facts.account_ns(product);
    if wide < LEAST_SHARE * all || wide < LEAST_RATIO * facts.period_ns() {
        return Outcome::Clear;
    }
    Outcome::Found(Box::new(Draft {
        headline: format!(
            "{:.0} % of the product time of a quantised model is in 16 bit",
            100.0 * wide / all
        ),
        evidence: vec![
            evidence("time in 16-bit products", wide, "ns"),
            evidence("time in all products", all, "ns"),
        ],
        advice: "compare with the checkpoint's excluded modules; look in the server's log for a \
                 fallback of the GEMM or expert backend"
            .to_owned(),
        // FP8 weights are half as many bytes.
        remedy: Remedy::UpperBound { period_ns: wide / 2.0, gpu_ns: wide / 2.0 },
    }))
}

#[cfg(test)]
mod tests {
    use crate::findings::testing::{clear, found, not_applicable, steps};
    use steptally_trace_model::Trace;

    /// Steps of 100 us with a narrow product of 30 us (if any) and a wide one of `wide` us.
    fn products(narrow: &str, wide: i64) -> Trace {
        steps(5, 100_000, |dsl, at, id| {
            dsl.launch("cudaLaunchKernel", at + 100..at + 200, id)
                .kernel(narrow, at + 1000..at + 31_000)
                .correlation(id)
                .launch("cudaLaunchKernel", at + 300..at + 400, id + 1)
                .kernel("nvjet_sm90_tst_64x8", at + 32_000..at + 32_000 + wide * 1000)
                .correlation(id + 1)
        })
    }

    #[test]
    fn wide_products_beside_narrow_ones_are_found() {
        let finding = found(products("nvjet_sm120_qqtst_mma", 20), "GEMM002");
        assert_eq!(finding.evidence[0].value, 20_000.0);
        assert_eq!(finding.saving.gpu_ns_per_step, 10_000.0);
    }

    #[test]
    fn a_small_wide_product_is_not() {
        clear(products("nvjet_sm120_qqtst_mma", 8), "GEMM002");
    }

    #[test]
    fn in_a_16_bit_model_it_does_not_apply() {
        not_applicable(products("rmsnorm", 20), "GEMM002");
    }
}
