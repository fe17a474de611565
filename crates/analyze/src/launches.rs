//! What the host asked of the GPU: launches, graph launches, waits, allocations, and how far ahead.
//!
//! ```text
//!   host   [call]                 delay: from the start of the call to the start of the work;
//!   GPU    ####|    |NNNN         launch latency when the GPU stood idle at the call
//! ```

use hashbrown::HashMap;
use steptally_trace_model::{StringId, Timestamp};

use crate::links::ApiClass;
use crate::results::{ApiSummary, Launches};
use crate::stats::{self, distribution};
use crate::view::{LaneView, extent};

/// Whether a function allocates or frees device memory (stream-ordered pools do not count: their
/// calls are cheap and do not synchronise).
pub(crate) fn allocates(name: &str) -> bool {
    ["cudaMalloc", "cudaFree", "cuMemAlloc", "cuMemFree", "hipMalloc", "hipFree"]
        .iter()
        .any(|function| name.starts_with(function))
        && !name.contains("Async")
        && !name.contains("Host")
}

fn class_code(class: ApiClass, name: &str) -> &'static str {
    match class {
        ApiClass::Launch => "launch",
        ApiClass::GraphLaunch => "graph_launch",
        ApiClass::AsyncCopy => "copy",
        ApiClass::BlockingCopy => "blocking_copy",
        ApiClass::Sync => "sync",
        ApiClass::Other if allocates(name) => "allocation",
        ApiClass::BeginCapture | ApiClass::EndCapture | ApiClass::Other => "other",
    }
}

/// Sums the API calls of the accounted steps.
pub(crate) fn launches(views: &[LaneView<'_>]) -> Launches {
    let (n, _) = extent(views);
    let n = n.max(1) as f64;
    let mut calls: HashMap<&str, (ApiClass, Vec<i64>)> = HashMap::new();
    let (mut blocking, mut steps, mut graph_steps) = (0usize, 0usize, 0usize);
    let mut seen_traces: Vec<*const steptally_trace_model::Trace> = Vec::new();
    for view in views {
        // Lanes of one trace share its host: count its calls once.
        let trace: *const _ = view.lane.trace;
        if !seen_traces.contains(&trace) {
            seen_traces.push(trace);
            let counted = count_calls(view, &mut calls);
            blocking += counted.blocking;
            steps += counted.steps;
            graph_steps += counted.graph_steps;
        }
    }
    let per_step = |wanted: &dyn Fn(ApiClass, &str) -> bool| {
        let count = |(name, (class, durations)): (&&str, &(ApiClass, Vec<i64>))| {
            if wanted(*class, name) { durations.len() } else { 0 }
        };
        calls.iter().map(count).sum::<usize>() as f64 / n
    };
    let depths = queue(views);
    let mut launches = Launches {
        kernel_launches_per_step: per_step(&|class, _| class == ApiClass::Launch),
        graph_launches_per_step: per_step(&|class, _| class == ApiClass::GraphLaunch),
        graph_step_ratio: (steps > 0).then(|| graph_steps as f64 / steps as f64),
        graph_time_ratio: (steps > 0 && depths.work_ns > 0)
            .then(|| depths.graph_ns as f64 / depths.work_ns as f64),
        syncs_per_step: blocking as f64 / n,
        allocations_per_step: per_step(&|_, name| allocates(name)),
        api_ns_per_step: calls.values().flat_map(|(_, d)| d).sum::<i64>() as f64 / n,
        host_bound_ratio: (!depths.delays.is_empty())
            .then(|| depths.latencies.len() as f64 / depths.delays.len() as f64),
        delay_ns: distribution(depths.delays),
        latency_ns: distribution(depths.latencies),
        queue_depth: distribution(depths.depths),
        calls: Vec::new(),
    };
    launches.calls = calls
        .into_iter()
        .map(|(name, (class, mut durations))| ApiSummary {
            name: name.to_owned(),
            class: class_code(class, name).to_owned(),
            calls_per_step: durations.len() as f64 / n,
            ns_per_step: durations.iter().sum::<i64>() as f64 / n,
            median_ns: stats::median(&mut durations).unwrap_or(0.0),
        })
        .collect();
    launches
        .calls
        .sort_by(|a, b| b.ns_per_step.total_cmp(&a.ns_per_step).then_with(|| a.name.cmp(&b.name)));
    launches
}

#[derive(Default)]
struct Counted {
    blocking: usize,
    steps: usize,
    graph_steps: usize,
}

fn count_calls<'a>(
    view: &LaneView<'a>,
    calls: &mut HashMap<&'a str, (ApiClass, Vec<i64>)>,
) -> Counted {
    let trace = view.lane.trace;
    let blocking = view.api.blocking_calls();
    let windows = view.host_windows();
    let mut counted = Counted::default();
    let mut by_name: HashMap<StringId, Vec<i64>> = HashMap::new();
    let table = &trace.api_calls;
    let mut row = 0;
    for window in &windows {
        row += table.start[row..].partition_point(|start| *start < window.start);
        let mut has_graph = false;
        while row < table.len() && table.start[row] < window.end {
            let name = table.name[row];
            by_name.entry(name).or_default().push(table.duration[row].as_ns());
            counted.blocking += usize::from(blocking[row]);
            has_graph |= view.api.class(name) == ApiClass::GraphLaunch;
            row += 1;
        }
        counted.graph_steps += usize::from(has_graph);
    }
    counted.steps = if table.is_empty() { 0 } else { windows.len() };
    for (name, durations) in by_name {
        let entry = calls.entry(trace.text(name));
        entry.or_insert_with(|| (view.api.class(name), Vec::new())).1.extend(durations);
    }
    counted
}

#[derive(Default)]
struct Queue {
    delays: Vec<i64>,
    latencies: Vec<i64>,
    depths: Vec<i64>,
    /// Durations of all work, and of what graph launches asked for.
    work_ns: i64,
    graph_ns: i64,
}

/// Delays and queue depths of the work in the accounted windows, first work of each launch only.
fn queue(views: &[LaneView<'_>]) -> Queue {
    let mut queue = Queue::default();
    for view in views {
        let trace = view.lane.trace;
        let (mut hint, mut reached) = (0, Timestamp::MIN);
        // By row of the launching call.
        let mut begun = vec![false; trace.api_calls.len()];
        let (mut last, mut in_graph) = (None, false);
        let (mut called, mut started): (Vec<Timestamp>, Vec<Timestamp>) = (Vec::new(), Vec::new());
        let mut windows = view.windows.iter().peekable();
        for op in &view.lane.ops {
            while windows.next_if(|window| window.end <= op.start).is_some() {}
            let inside = windows.peek().is_some_and(|window| window.start <= op.start);
            let correlation = op.correlation(trace);
            // Nodes of a graph mostly follow one another: the call is looked up only at a change.
            let mut first = None;
            if last != Some(correlation) {
                let call = view.api.call_near(correlation, &mut hint).map(|call| call as usize);
                let class = call.map(|call| view.api.class(trace.api_calls.name[call]));
                in_graph = class == Some(ApiClass::GraphLaunch);
                first = call.filter(|&call| !std::mem::replace(&mut begun[call], true));
            }
            last = Some(correlation);
            if inside {
                let length = (op.end - op.start).as_ns();
                queue.work_ns += length;
                queue.graph_ns += if in_graph { length } else { 0 };
            }
            if let Some(call) = first.filter(|_| inside) {
                let at = trace.api_calls.start[call];
                let delay = (op.start - at).as_ns().max(0);
                queue.delays.push(delay);
                if reached <= at {
                    queue.latencies.push(delay);
                }
                called.push(at);
                started.push(op.start);
            }
            reached = reached.max(op.end);
        }
        called.sort_unstable();
        started.sort_unstable();
        let depth = |(launched, at): (usize, &Timestamp)| {
            (launched as i64 + 1) - started.partition_point(|start| start <= at) as i64
        };
        queue.depths.extend(called.iter().enumerate().map(depth));
    }
    queue
}
