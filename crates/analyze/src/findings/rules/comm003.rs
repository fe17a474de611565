//! COMM003: expert dispatch and combine are not hidden behind compute.

use crate::findings::saving::Remedy;
use crate::findings::{Draft, Facts, Outcome, Rule, evidence};

/// Exposed all-to-all takes at least this share of the period.
const LEAST_RATIO: f64 = 0.05;

pub(super) const RULE: Rule = Rule {
    code: "COMM003",
    name: "exposed all-to-all",
    check,
    doc: "\
## What it is
Under expert parallelism tokens are sent to their experts and back (dispatch, combine), and no compute
runs meanwhile.

## Why it costs
Two all-to-alls per layer lie on the critical path.

## How it is found
`comm.alltoall` time that no compute kernel hides takes at least 5 % of the period.

## What to do
Overlap two micro-batches (SGLang `--enable-two-batch-overlap`), use DeepEP's low-latency mode for
decode, or fewer, larger expert groups.",
};

fn check(facts: &Facts<'_>) -> Outcome {
    let all_to_all = |account: &str| account.starts_with("comm.alltoall");
    let exists = facts.kernels.iter().any(|kernel| all_to_all(&kernel.category));
    if !exists {
        return Outcome::not_applicable("no all-to-all in the steps");
    }
    // The ledger gives time to communication only where no compute runs: this is the exposed part.
    let exposed = facts.account_ns(all_to_all);
    if exposed < LEAST_RATIO * facts.period_ns() {
        return Outcome::Clear;
    }
    Outcome::Found(Box::new(Draft {
        headline: format!(
            "expert dispatch and combine take {:.0} % of the step with no compute beside them",
            100.0 * exposed / facts.period_ns()
        ),
        evidence: vec![evidence("exposed all-to-all", exposed, "ns")],
        advice:
            "overlap two micro-batches (SGLang --enable-two-batch-overlap), DeepEP low-latency \
                 mode for decode"
                .to_owned(),
        remedy: Remedy::UpperBound { period_ns: exposed, gpu_ns: 0.0 },
    }))
}

#[cfg(test)]
mod tests {
    use crate::findings::testing::{clear, found, not_applicable, steps};
    use steptally_trace_model::Trace;

    /// Steps of 100 us with a kernel from 10 to 30 us, and a GEMM on another stream over it or after.
    fn dispatch(name: &str, hidden: bool) -> Trace {
        steps(5, 100_000, |dsl, at, id| {
            let gemm = if hidden { at + 9_000 } else { at + 30_000 };
            dsl.launch("cudaLaunchKernel", at + 500..at + 600, id)
                .kernel(name, at + 10_000..at + 30_000)
                .correlation(id)
                .launch("cudaLaunchKernel", at + 700..at + 800, id + 1)
                .kernel("nvjet_tst", gemm..gemm + 60_000)
                .correlation(id + 1)
                .on_stream(9)
        })
    }

    const DISPATCH: &str = "void deep_ep::internode_ll::dispatch<true, 3, 10, 7168>(void*)";

    #[test]
    fn an_exposed_dispatch_is_found() {
        assert_eq!(found(dispatch(DISPATCH, false), "COMM003").evidence[0].value, 20_000.0);
    }

    #[test]
    fn a_hidden_one_is_not() {
        clear(dispatch(DISPATCH, true), "COMM003");
    }

    #[test]
    fn without_all_to_all_it_does_not_apply() {
        not_applicable(dispatch("rmsnorm", false), "COMM003");
    }
}
