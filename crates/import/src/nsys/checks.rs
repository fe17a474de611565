//! What the data say about a capture that went wrong: GPUs without work, replays without rows.

use std::collections::{BTreeSet, HashSet};

use steptally_trace_model::{Issues, OptionalId, Severity, Trace};

use super::rank::rank_in_title;
use super::target::Target;

/// GPUs that are known to the recorder and did nothing. Where other ranks are known to exist, or
/// several processes show that the job has more than one, the remark becomes the first diagnostic of
/// every trace; one process alone on a machine of several GPUs is ordinary.
pub(super) fn idle_gpus(
    traces: &mut [Trace],
    used: &BTreeSet<u32>,
    target: &Target,
    issues: &mut Issues,
) {
    let known = target.gpus_known();
    if used.is_empty() || known <= used.len() {
        return;
    }
    let titles: BTreeSet<u32> =
        target.processes.values().filter_map(|title| rank_in_title(title)).collect();
    let missing = titles.len() > traces.len();
    let found = format!("{known} GPUs known, kernels on {}", used.len());
    let advice = "nsys profile --trace-fork-before-exec=true follows forks";
    let text = if missing {
        let ranks = titles.len();
        format!(
            "{found}: the workers were not traced ({ranks} ranks by the titles of processes; {advice})"
        )
    } else if traces.len() > 1 {
        format!("{found}: if the job uses more, its workers were not traced ({advice})")
    } else {
        format!("{found}, by one process; no title of a process tells of other ranks")
    };
    let severity = if missing { Severity::Warning } else { Severity::Info };
    issues.note("gpus_without_kernels", severity, None, || text.clone());
    if missing || traces.len() > 1 {
        for trace in traces {
            trace.meta.diagnostics.insert(0, text.clone());
        }
    }
}

/// Graph launches of which no GPU work was recorded, and replays recorded as a whole.
pub(super) fn graphs(trace: &mut Trace, issues: &mut Issues) {
    let advice = "record with --cuda-graph-trace=node to see the kernels of graphs";
    let opaque = trace.graph_traces.len();
    if opaque > 0 {
        let text = || format!("graph replays recorded as a whole; {advice}");
        issues.note_many("opaque_graph_replay", Severity::Info, opaque as u64, None, text);
        trace
            .meta
            .diagnostics
            .push(format!("{opaque} graph replays recorded as a whole; {advice}"));
    }
    let is_launch =
        |name: &str| name.starts_with("cudaGraphLaunch") || name.starts_with("cuGraphLaunch");
    let names: HashSet<_> =
        trace.strings.iter().filter(|(_, text)| is_launch(text)).map(|(id, _)| id).collect();
    if names.is_empty() {
        return;
    }
    let calls = &trace.api_calls;
    let mut launches: HashSet<OptionalId> = (0..calls.len())
        .filter(|&row| names.contains(&calls.name[row]) && calls.correlation[row].is_some())
        .map(|row| calls.correlation[row])
        .collect();
    let work =
        [&trace.kernels.correlation, &trace.copies.correlation, &trace.graph_traces.correlation];
    for correlation in work.into_iter().flatten() {
        launches.remove(correlation);
    }
    let lost = launches.len();
    if lost > 0 {
        let text = format!("{lost} graph launches without any recorded GPU work; {advice}");
        issues.note_many("graph_replay_not_recorded", Severity::Warning, lost as u64, None, || {
            format!("graph launches without any recorded GPU work; {advice}")
        });
        trace.meta.diagnostics.push(text);
    }
}

/// A capture of the host only.
pub(super) fn no_gpu_work(trace: &mut Trace, issues: &mut Issues) {
    let text = "GPU not traced: no kernel, copy or graph replay was recorded";
    issues.note("gpu_not_traced", Severity::Warning, None, || text.into());
    trace.meta.diagnostics.insert(0, text.into());
}
