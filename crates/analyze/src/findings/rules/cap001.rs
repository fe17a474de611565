//! CAP001: the capture is of the wrong thing.

use crate::findings::saving::Remedy;
use crate::findings::{Draft, Facts, Outcome, Rule, evidence};

/// Calls, and functions in ranges and frames, that only occur while graphs are captured or the server
/// warms up.
const CAPTURE_CALLS: [&str; 3] =
    ["cudaStreamBeginCapture", "cuStreamBeginCapture", "hipStreamBeginCapture"];
const CAPTURE_FUNCTIONS: [&str; 2] = ["_capture_graph", "_dummy_run"];

/// Whether `text` names one of the functions: `runner.py(12): _dummy_run`, not `_dummy_run_size`.
fn is_capture_function(text: &str) -> bool {
    let part_of_name = |c: char| c.is_alphanumeric() || c == '_';
    CAPTURE_FUNCTIONS.iter().any(|function| {
        text.match_indices(function).any(|(at, _)| {
            let (before, after) = (&text[..at], &text[at + function.len()..]);
            !before.ends_with(part_of_name) && !after.starts_with(part_of_name)
        })
    })
}

pub(super) const RULE: Rule = Rule {
    code: "CAP001",
    name: "capture of the wrong thing",
    check,
    doc: "\
## What it is
The trace shows a server that is capturing its graphs, warming up, or idle, not one that decodes.

## Why it costs
Every number is right and none is about what users see.

## How it is found
In the steps (in the whole trace, when it has none) are calls that capture graphs
(`cudaStreamBeginCapture`) or ranges and frames of a warm-up (`_capture_graph`, `_dummy_run`), or there
was no load during the capture.

## What to do
Start the profiler after the server has answered some requests, and keep sending requests that outlast
the capture window. Of a folder, analyse the trace that is not below `capture_traces/` or
`graph_capture_profile/`.",
};

fn check(facts: &Facts<'_>) -> Outcome {
    if let Some(refused) = facts.quality.refused.as_ref().filter(|r| r.code == "no_load") {
        return found(refused.reason.clone(), Vec::new());
    }
    if facts.views.is_empty() {
        return Outcome::not_applicable("the trace has no GPU work");
    }
    let mut marks = 0usize;
    for view in facts.views {
        let trace = view.lane.trace;
        let is_mark: Vec<bool> = (trace.strings.iter())
            .map(|(_, text)| {
                CAPTURE_CALLS.iter().any(|call| text.starts_with(call)) || is_capture_function(text)
            })
            .collect();
        if !is_mark.contains(&true) {
            continue;
        }
        let windows = view.host_windows();
        let tables = [
            (&trace.api_calls.name, &trace.api_calls.start),
            (&trace.ranges.name, &trace.ranges.start),
            (&trace.frames.name, &trace.frames.start),
        ];
        for (names, starts) in tables {
            let rows = names.iter().zip(starts).filter(|(name, _)| is_mark[name.index()]);
            marks += rows
                .filter(|(_, start)| windows.iter().any(|w| w.start <= **start && **start < w.end))
                .count();
        }
    }
    if marks == 0 {
        return Outcome::Clear;
    }
    found(
        format!("{marks} events of graph capture or warm-up: this is not steady decode"),
        vec![evidence("events of graph capture or warm-up", marks as f64, "count")],
    )
}

fn found(headline: String, evidence: Vec<crate::results::Evidence>) -> Outcome {
    Outcome::Found(Box::new(Draft {
        headline,
        evidence,
        advice: "start the profiler after the server has answered requests, and keep sending \
                 requests that outlast the window"
            .to_owned(),
        remedy: Remedy::None,
    }))
}

#[cfg(test)]
mod tests {
    use crate::findings::testing::{clear, found, no_steps, not_applicable, steps};
    use steptally_testkit::TraceDsl;
    use steptally_trace_model::Trace;

    #[test]
    fn a_trace_of_graph_capture_is_found() {
        let trace = TraceDsl::rank(0)
            .api("cudaStreamBeginCapture_v10000", 0..10)
            .launch_kernel("nvjet_a", 20..30, 100..200)
            .build();
        assert_eq!(found(trace, "CAP001").evidence[0].value, 1.0);
    }

    #[test]
    fn a_trace_of_an_idle_server_is_found() {
        let mut dsl = TraceDsl::rank(0).window(0..5_000_000_000);
        dsl = dsl.launch_kernel("nvjet_a", 1000..1010, 1100..1200);
        let finding = found(dsl.build(), "CAP001");
        assert_eq!(finding.headline, "no load during the capture: 1 kernels in 5000 ms");
    }

    #[test]
    fn ordinary_work_is_not() {
        clear(no_steps(), "CAP001");
    }

    /// Five steps; what `more` adds is told the start of each.
    fn decode(more: impl Fn(TraceDsl, i64) -> TraceDsl) -> Trace {
        steps(5, 100_000, |dsl, at, id| {
            more(dsl, at)
                .launch("cudaLaunchKernel", at + 2500..at + 2600, id)
                .kernel("nvjet_tst", at + 3000..at + 90_000)
                .correlation(id)
        })
    }

    #[test]
    fn a_graph_captured_before_the_steps_is_not() {
        let call = "cudaStreamBeginCapture_v10000";
        let before = |dsl: TraceDsl, at| if at == 0 { dsl.api(call, -900..-800) } else { dsl };
        clear(decode(before), "CAP001");
        // In the steps it is: in four, as the last one has no end.
        let within = decode(|dsl, at| dsl.api(call, at + 10..at + 20));
        assert_eq!(found(within, "CAP001").evidence[0].value, 4.0);
    }

    #[test]
    fn a_function_of_a_longer_name_is_not() {
        let frame = |name: &'static str| {
            decode(move |dsl, at| dsl.frame(&format!("runner.py(448): {name}"), at + 10..at + 20))
        };
        clear(frame("_capture_graph_size"), "CAP001");
        assert_eq!(found(frame("_capture_graph"), "CAP001").evidence[0].value, 4.0);
    }

    #[test]
    fn without_gpu_work_it_does_not_apply() {
        not_applicable(TraceDsl::new().op("aten::mul", 0..10, "").build(), "CAP001");
    }
}
