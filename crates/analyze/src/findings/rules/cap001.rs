//! CAP001: the capture is of the wrong thing.

use crate::findings::saving::Remedy;
use crate::findings::{Draft, Facts, Outcome, Rule, evidence};

/// Names that only occur while graphs are captured or the server warms up.
const CAPTURE_MARKS: [&str; 5] = [
    "cudaStreamBeginCapture",
    "cuStreamBeginCapture",
    "hipStreamBeginCapture",
    "_capture_graph",
    "_dummy_run",
];

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
The trace has calls that capture graphs (`cudaStreamBeginCapture`) or ranges and frames of a warm-up
(`_capture_graph`, `_dummy_run`), or there was no load during the capture.

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
            .map(|(_, text)| CAPTURE_MARKS.iter().any(|mark| text.contains(mark)))
            .collect();
        let names = [&trace.api_calls.name, &trace.ranges.name, &trace.frames.name];
        marks += names.into_iter().flatten().filter(|name| is_mark[name.index()]).count();
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
    use crate::findings::testing::{clear, found, no_steps, not_applicable};
    use steptally_testkit::TraceDsl;

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

    #[test]
    fn without_gpu_work_it_does_not_apply() {
        not_applicable(TraceDsl::new().op("aten::mul", 0..10, "").build(), "CAP001");
    }
}
