//! GRAPH001: some steps run by graph, others eagerly.

use crate::findings::saving::Remedy;
use crate::findings::{Draft, Facts, Outcome, Rule, evidence};

/// Both kinds have at least this share of the steps.
const LEAST_RATIO: f64 = 0.05;

pub(super) const RULE: Rule = Rule {
    code: "GRAPH001",
    name: "graph fallback",
    check,
    doc: "\
## What it is
Part of the steps of one kind are launched as a CUDA graph, the others kernel by kernel.

## Why it costs
The eager steps take several times as long, and the mean hides two populations.

## How it is found
Between 5 % and 95 % of the selected steps launch a graph.

## What to do
Capture graphs for the batch sizes that occur (SGLang `--cuda-graph-bs`, `--cuda-graph-max-bs`; vLLM
`cudagraph_capture_sizes`), and look in the server's log for `cuda graph: False`.",
};

fn check(facts: &Facts<'_>) -> Outcome {
    let Some(ratio) = facts.launches.graph_step_ratio else {
        return Outcome::not_applicable("no API calls were recorded");
    };
    if ratio <= 0.0 {
        return Outcome::not_applicable("no step launches a graph");
    }
    if !(LEAST_RATIO..=1.0 - LEAST_RATIO).contains(&ratio) {
        return Outcome::Clear;
    }
    Outcome::Found(Box::new(Draft {
        headline: format!("{:.0} % of the steps run by graph, the others eagerly", ratio * 100.0),
        evidence: vec![evidence("steps that launch a graph", ratio, "ratio")],
        advice: "capture graphs for the batch sizes that occur (SGLang --cuda-graph-bs, vLLM \
                 cudagraph_capture_sizes)"
            .to_owned(),
        remedy: Remedy::None,
    }))
}

#[cfg(test)]
mod tests {
    use crate::findings::testing::{clear, found, not_applicable, steps};
    use steptally_trace_model::Trace;

    /// Ten steps of which every one but the last `eager` launches a graph.
    fn graphs(eager: i64) -> Trace {
        let mut k = 0;
        steps(10, 10_000, move |dsl, at, id| {
            k += 1;
            let call = if k <= 10 - eager { "cudaGraphLaunch" } else { "cudaLaunchKernel" };
            dsl.launch(call, at + 100..at + 200, id)
                .kernel("nvjet_tst", at + 1000..at + 9000)
                .correlation(id)
        })
    }

    #[test]
    fn a_mixture_is_found() {
        // Nine accounted steps, six with a graph.
        let finding = found(graphs(4), "GRAPH001");
        assert_eq!(finding.evidence[0].value, 6.0 / 9.0);
    }

    #[test]
    fn graphs_in_every_step_are_not() {
        clear(graphs(0), "GRAPH001");
    }

    #[test]
    fn without_graphs_it_does_not_apply() {
        not_applicable(graphs(10), "GRAPH001");
    }
}
