//! FUSE002: norm, rope or activation made of elementwise kernels.

use crate::findings::saving::Remedy;
use crate::findings::{Draft, Facts, Outcome, Rule, evidence};
use crate::results::LayerRole;

/// A layer has at least this many kernels of such kinds in a row.
const LEAST_RUN: usize = 4;
/// They take at least this share of the period.
const LEAST_RATIO: f64 = 0.02;

pub(super) const RULE: Rule = Rule {
    code: "FUSE002",
    name: "unfused norm, rope or activation",
    check,
    doc: "\
## What it is
A layer computes its norm, rotary embedding or activation with a chain of elementwise, reduce and copy
kernels (pow, mean, rsqrt, mul, cat) instead of one fused kernel.

## Why it costs
Each link of the chain reads and writes the tensor and starts a kernel.

## How it is found
Within the repeating layer at least 4 kernels of the categories `elementwise`, `reduce`,
`copy.strided` and `copy.cat` follow one another, and such runs take at least 2 % of the period. Casts
are CAST001's.

## What to do
Use the engine's fused kernel for it (RMSNorm, rotary embedding, SiLU-and-mul); a model file that falls
back to plain PyTorch is often the reason. torch.compile fuses such chains, too.",
};

fn check(facts: &Facts<'_>) -> Outcome {
    let Some(layers) = facts.layers.filter(|layers| !layers.roles.is_empty()) else {
        return Outcome::not_applicable("no repeating layer was found");
    };
    let plain = |role: &LayerRole| {
        let category = role.category.as_str();
        ["elementwise", "reduce", "copy.strided", "copy.cat"].contains(&category)
    };
    let runs: Vec<&[LayerRole]> = (layers.roles.chunk_by(|a, b| plain(a) == plain(b)))
        .filter(|run| plain(&run[0]) && run.len() >= LEAST_RUN)
        .collect();
    let in_layer: f64 = runs.iter().flat_map(|run| run.iter()).map(|role| role.mean_ns).sum();
    let ns = in_layer * layers.count as f64;
    let Some(longest) = runs.iter().max_by_key(|run| run.len()) else { return Outcome::Clear };
    if ns < LEAST_RATIO * facts.period_ns() {
        return Outcome::Clear;
    }
    Outcome::Found(Box::new(Draft {
        headline: format!(
            "{} elementwise kernels in a row in each of {} layers, at position {} of the layer",
            longest.len(),
            layers.count,
            longest[0].position
        ),
        evidence: vec![
            evidence("GPU time in such chains", ns, "ns"),
            evidence("longest chain", longest.len() as f64, "count"),
        ],
        advice: "use the engine's fused kernel (RMSNorm, rotary embedding, SiLU-and-mul) or \
                 torch.compile"
            .to_owned(),
        remedy: Remedy::UpperBound { period_ns: ns, gpu_ns: ns },
    }))
}

#[cfg(test)]
mod tests {
    use crate::findings::testing::{clear, found, no_steps, not_applicable, steps};
    use steptally_trace_model::Trace;

    /// Five steps of an embedding, five layers of a GEMM and `chain` elementwise kernels, and a
    /// sampling kernel; 1 us each.
    fn layers(chain: i64) -> Trace {
        steps(5, 100_000, |mut dsl, at, id| {
            dsl = dsl.graph_launch(at + 100..at + 900, id);
            let mut start = at + 1000;
            let mut node = |name: &str| {
                dsl = std::mem::take(&mut dsl).kernel(name, start..start + 1000).correlation(id);
                start += 1100;
            };
            node("vectorized_gather_kernel");
            for _ in 0..5 {
                node("nvjet_tst");
                for k in 0..chain {
                    node(&format!("elementwise_kernel_{k}"));
                }
                node("fused_moe_kernel");
            }
            node("argmax");
            dsl
        })
    }

    #[test]
    fn a_chain_in_every_layer_is_found() {
        let finding = found(layers(6), "FUSE002");
        assert_eq!(finding.evidence[0].value, 5.0 * 6.0 * 1000.0);
    }

    #[test]
    fn a_short_chain_is_not() {
        clear(layers(2), "FUSE002");
    }

    #[test]
    fn without_layers_it_does_not_apply() {
        not_applicable(no_steps(), "FUSE002");
    }
}
