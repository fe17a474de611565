//! HOST001: the host cannot launch as fast as the GPU works.

use crate::findings::saving::Remedy;
use crate::findings::{Draft, Facts, Outcome, Rule, evidence};

/// Fewer launches than this are no burden.
const LEAST_LAUNCHES: f64 = 50.0;
/// The GPU waits for launches at least this share of the period.
const LEAST_RATIO: f64 = 0.15;

pub(super) const RULE: Rule = Rule {
    code: "HOST001",
    name: "launch-bound decode",
    check,
    doc: "\
## What it is
Each kernel is launched by a call of its own, and the GPU runs dry between them: the host is slower
than the GPU.

## Why it costs
A launch through Python and the framework costs 5 to 20 us of host time, a decode kernel often less
than 5 us of GPU time. The GPU idles for the difference, several hundred times per step.

## How it is found
At least 50 single kernel launches per step, most of the GPU's time not in graphs, and
`idle.host_launched_late` with `idle.launch_latency` take at least 15 % of the period.

## What to do
Turn CUDA graphs on for decode: in SGLang drop `--disable-cuda-graph` and include the batch size in
`--cuda-graph-bs`; in vLLM drop `--enforce-eager`. The figure is an upper bound: a profiler slows
launches, so measure TPOT without it as well.",
};

fn check(facts: &Facts<'_>) -> Outcome {
    let launches = facts.launches;
    if launches.calls.is_empty() {
        return Outcome::not_applicable("no API calls were recorded");
    }
    let waiting = facts.account_ns(|account| {
        account == "idle.host_launched_late" || account == "idle.launch_latency"
    });
    if launches.kernel_launches_per_step < LEAST_LAUNCHES
        || waiting < LEAST_RATIO * facts.period_ns()
        || facts.mostly_in_graphs()
    {
        return Outcome::Clear;
    }
    Outcome::Found(Box::new(Draft {
        headline: format!(
            "{:.0} launches per step and {}: the GPU waits for the host {:.0} % of the step",
            launches.kernel_launches_per_step,
            if launches.graph_launches_per_step > 0.0 { "few graphs" } else { "no graph" },
            100.0 * waiting / facts.period_ns()
        ),
        evidence: vec![
            evidence("kernel launches", launches.kernel_launches_per_step, "per_step"),
            evidence("graph launches", launches.graph_launches_per_step, "per_step"),
            evidence("idle for a late launch or its latency", waiting, "ns"),
            evidence(
                "launches made when the GPU stood idle",
                launches.host_bound_ratio.unwrap_or(0.0),
                "ratio",
            ),
        ],
        advice:
            "capture decode in CUDA graphs (SGLang: no --disable-cuda-graph, the batch size in \
                 --cuda-graph-bs; vLLM: no --enforce-eager)"
                .to_owned(),
        remedy: Remedy::LessIdle { period_ns: waiting },
    }))
}

#[cfg(test)]
mod tests {
    use crate::findings::testing::{clear, found, not_applicable, steps};
    use steptally_testkit::TraceDsl;
    use steptally_trace_model::Trace;

    /// Five steps; in each `launches` kernels of 1 us, one every `every` ns.
    fn launched(launches: i64, every: i64) -> Trace {
        steps(5, launches * every, |mut dsl, at, id| {
            for k in 0..launches {
                let call = at + k * every;
                dsl = dsl
                    .launch("cudaLaunchKernel", call..call + 500, id + k as u64)
                    .kernel("nvjet_tst", call + 900..call + 1900)
                    .correlation(id + k as u64);
            }
            dsl
        })
    }

    #[test]
    fn many_late_launches_are_found() {
        // 60 launches 10 us apart: of each 10 us the GPU works 1, waits 8.1 for the call (not at the
        // step's boundary) and 0.9 after it.
        let finding = found(launched(60, 10_000), "HOST001");
        let waiting = finding.evidence.iter().find(|e| e.unit == "ns").unwrap().value;
        assert_eq!(waiting, 59.0 * 8_100.0 + 60.0 * 900.0);
        assert_eq!(finding.saving.period_after_ns, Some(600_000.0 - waiting));
    }

    #[test]
    fn a_graph_among_many_launches_does_not_hide_them() {
        let mixed = steps(5, 600_000, |mut dsl, at, id| {
            for k in 0..60 {
                let (call, id) = (at + k * 10_000, id + k as u64);
                let function = if k == 0 { "cudaGraphLaunch" } else { "cudaLaunchKernel" };
                dsl = dsl
                    .launch(function, call..call + 500, id)
                    .kernel("nvjet_tst", call + 900..call + 1900)
                    .correlation(id);
            }
            dsl
        });
        let headline = found(mixed, "HOST001").headline;
        assert!(headline.starts_with("59 launches per step and few graphs"), "{headline}");
    }

    #[test]
    fn a_host_that_keeps_up_is_not() {
        // A launch every 1.05 us keeps a GPU busy that works 1 us for each.
        clear(launched(60, 1_050), "HOST001");
    }

    #[test]
    fn without_api_calls_it_does_not_apply() {
        let mut dsl = TraceDsl::rank(0);
        for step in 0..5 {
            dsl = dsl.kernel("embedding", step * 1000..step * 1000 + 10);
            dsl = dsl.kernel("nvjet_a", step * 1000 + 20..step * 1000 + 50);
        }
        not_applicable(dsl.build(), "HOST001");
    }
}
