//! FUSE001: hundreds of tiny kernels.

use crate::findings::saving::Remedy;
use crate::findings::{Draft, Facts, Outcome, Rule, evidence};

/// A kernel whose median is below this spends its time starting.
const TINY_NS: f64 = 4_000.0;
/// A step has at least this many of them.
const LEAST_CALLS: f64 = 100.0;
/// They make up at least this share of all calls,
const LEAST_CALL_RATIO: f64 = 0.5;
/// and, with the gaps between nodes, this share of the period.
const LEAST_RATIO: f64 = 0.10;

pub(super) const RULE: Rule = Rule {
    code: "FUSE001",
    name: "many tiny kernels",
    check,
    doc: "\
## What it is
Most kernels of the step take less than 4 us.

## Why it costs
A kernel cannot be faster than its start: about 2 us of launch, memory latency and drain, and a gap of
1 us or more to the next one, also inside a graph. Work that would fit into a third of the kernels
waits three times.

## How it is found
At least 100 calls per step of kernels whose median is below 4 us; they are at least half of all calls
and take, with the gaps inside graphs, at least 10 % of the period.

## What to do
Fuse them: `--enable-torch-compile` for small batches, fused norm, rope and quantisation kernels of the
engine, fused routing for experts. Programmatic dependent launch hides part of the start.",
};

fn check(facts: &Facts<'_>) -> Outcome {
    let kernels = || facts.kernels.iter().filter(|kernel| kernel.bytes.is_none());
    let all: f64 = kernels().map(|kernel| kernel.calls_per_step).sum();
    if all == 0.0 {
        return Outcome::not_applicable("no kernels in the steps");
    }
    let tiny = || kernels().filter(|kernel| kernel.median_ns < TINY_NS);
    let calls: f64 = tiny().map(|kernel| kernel.calls_per_step).sum();
    let ns: f64 = tiny().map(|kernel| kernel.ns_per_step).sum();
    let gaps = facts.account_ns(|account| account == "idle.graph_gap");
    let enough = calls >= LEAST_CALLS
        && calls >= LEAST_CALL_RATIO * all
        && ns + gaps >= LEAST_RATIO * facts.period_ns();
    if !enough {
        return Outcome::Clear;
    }
    Outcome::Found(Box::new(Draft {
        headline: format!(
            "{calls:.0} of {all:.0} kernels per step take less than 4 us: {:.0} us of work and {:.0} \
             us of gaps inside graphs",
            ns / 1000.0,
            gaps / 1000.0
        ),
        evidence: vec![
            evidence("kernels below 4 us", calls, "per_step"),
            evidence("GPU time in them", ns, "ns"),
            evidence("gaps inside graphs", gaps, "ns"),
        ],
        advice:
            "use the engine's fused kernels (norm, rope, quantisation, routing) or torch.compile"
                .to_owned(),
        remedy: Remedy::UpperBound { period_ns: ns + gaps, gpu_ns: ns },
    }))
}

#[cfg(test)]
mod tests {
    use crate::findings::testing::{clear, found, no_steps, not_applicable, steps};
    use steptally_trace_model::Trace;

    /// Steps of one graph of `nodes` kernels of 2 us and gaps of 1 us, in 600 us.
    fn graph(nodes: i64, ns: i64) -> Trace {
        steps(5, 600_000, |mut dsl, at, id| {
            dsl = dsl.graph_launch(at + 100..at + 900, id);
            for node in 0..nodes {
                let start = at + 1000 + node * (ns + 1000);
                dsl = dsl.kernel("elementwise_kernel", start..start + ns).correlation(id);
            }
            dsl
        })
    }

    #[test]
    fn a_graph_of_tiny_kernels_is_found() {
        let finding = found(graph(150, 2000), "FUSE001");
        let values: Vec<f64> = finding.evidence.iter().map(|e| e.value).collect();
        assert_eq!(values, [150.0, 300_000.0, 149_000.0]);
    }

    #[test]
    fn larger_kernels_are_not() {
        clear(graph(100, 4500), "FUSE001");
    }

    #[test]
    fn without_steps_it_does_not_apply() {
        not_applicable(no_steps(), "FUSE001");
    }
}
