//! The single checks.

use steptally_trace_model::{Nanos, ThreadId, Timestamp, Trace};

use super::{Inputs, kernels};
use crate::gpu::{GpuKind, Lane};
use crate::links::{ApiClass, ApiIndex, NO_OP, OpTree};
use crate::results::{AccountGroup, Check, CheckStatus, LedgerScope, LeftOut, Step};
use crate::steps::{self, OUTLIER_FACTOR, count_marks};

/// Idle beyond this share of the period deserves a word about what a profiler does to it.
const IDLE_SHARE: f64 = 0.3;
/// So does a period of more than this many times the one without a profiler.
const DILATED: f64 = 1.1;
/// More idle time without a known cause than this leaves the ledger open.
const UNKNOWN_IDLE_SHARE: f64 = 0.1;
/// Outliers are grave when they pull the mean this far.
const OUTLIER_PULL: f64 = 1.2;
/// Clocks of CPU and GPU differ by microseconds; by more than this the file is torn.
const GRAVE_SKEW: Nanos = Nanos::from_ns(10_000_000);
/// More uncategorised kernel time than this deserves a rule.
const UNCATEGORISED_SHARE: f64 = 0.05;

pub(super) fn all(inputs: &Inputs<'_>) -> Vec<Check> {
    vec![
        partial_input(inputs),
        launches_without_gpu_work(inputs),
        gpu_work_without_launch(inputs),
        left_out(
            inputs,
            "timeless_events",
            "events at time zero are left out of all numbers but devices",
            |out| out.zero_time_count,
        ),
        left_out(
            inputs,
            "stray_events",
            "events far away from the rest are left out of all numbers but devices",
            |out| out.stray_count,
        ),
        left_out(inputs, "duplicate_events", "events that were recorded twice count once", |out| {
            out.duplicate_count
        }),
        impossible_durations(inputs),
        kernels::without_duration(inputs),
        kernels::without_name(inputs),
        clock_skew(inputs),
        missing_ranks(inputs),
        ranks_without_gpu_work(inputs),
        unknown_ranks(inputs),
        outlier_steps(inputs),
        unknown_idle(inputs),
        steps_without_gpu_work(inputs),
        window_edges(inputs),
        marks_beyond_gpu_work(inputs),
        mixed_batch_sizes(inputs),
        opaque_graphs(inputs),
        unused_devices(inputs),
        op_links(inputs),
        uncategorised(inputs),
        resolution(inputs),
        open_ranges(inputs),
        recorder_diagnostics(inputs),
        profiler_dilation(inputs),
    ]
}

fn check(code: &str, status: CheckStatus, count: u64, of: Option<u64>, effect: String) -> Check {
    Check { code: code.to_owned(), status, count, of, effect }
}

/// Fails with `status` when anything is counted, else passes.
pub(super) fn counted(
    code: &str,
    status: CheckStatus,
    count: u64,
    of: u64,
    effect: String,
) -> Check {
    if of == 0 {
        return check(code, CheckStatus::NotApplicable, 0, Some(0), String::new());
    }
    let status = if count == 0 { CheckStatus::Pass } else { status };
    let effect = if count == 0 { String::new() } else { effect };
    check(code, status, count, Some(of), effect)
}

fn partial_input(inputs: &Inputs<'_>) -> Check {
    let partial = inputs.traces.iter().filter(|trace| trace.meta.partial).count() as u64;
    let status = if partial > 0 { CheckStatus::Warn } else { CheckStatus::Pass };
    let effect = if partial > 0 {
        "part of the input could not be read: counts and sums are lower bounds".to_owned()
    } else {
        String::new()
    };
    check("partial_input", status, partial, None, effect)
}

/// Correlation ids of all GPU work, sorted.
fn gpu_correlations(trace: &Trace) -> Vec<u64> {
    let mut ids: Vec<u64> = (trace.kernels.correlation.iter())
        .chain(&trace.copies.correlation)
        .chain(&trace.graph_traces.correlation)
        .filter_map(|id| id.value())
        .collect();
    if !ids.is_sorted() {
        ids.sort_unstable();
    }
    ids.dedup();
    ids
}

fn launches_without_gpu_work(inputs: &Inputs<'_>) -> Check {
    let (mut launches, mut lost) = (0u64, Vec::new());
    for (trace, (api, _)) in inputs.traces.iter().zip(inputs.indexes) {
        if trace.gpu_event_count() == 0 {
            continue;
        }
        let on_gpu = gpu_correlations(trace);
        if on_gpu.is_empty() {
            // Nothing can be tied to its launch: `unknown_idle` and the steps say so.
            continue;
        }
        let calls = &trace.api_calls;
        let first = calls.start.first().copied().unwrap_or_default();
        let captured_at_all = api.has(ApiClass::BeginCapture) || !trace.graph_nodes.is_empty();
        let mut next = 0;
        let mut captures = captured_at_all.then(|| Captures::new(trace));
        for row in 0..calls.len() {
            let class = api.class(calls.name[row]);
            let captured = captures.as_mut().is_some_and(|of| of.holds(trace, row, class));
            let Some(id) = calls.correlation[row].value() else {
                continue;
            };
            if !captured && class.enqueues() {
                launches += 1;
                // Calls come nearly in the order of their ids: the next one is looked at first.
                if on_gpu.get(next) == Some(&id) {
                    next += 1;
                } else if let Ok(found) = on_gpu.binary_search(&id) {
                    next = found + 1;
                } else {
                    lost.push((calls.start[row] - first, trace));
                }
            }
        }
    }
    let effect = format!(
        "launched work that no GPU event shows is missing from all GPU numbers; {}",
        where_in_trace(&mut lost)
    );
    counted("launches_without_gpu_work", CheckStatus::Warn, lost.len() as u64, launches, effect)
}

/// Launches that graph capture takes in: they make nodes and put nothing on the GPU.
struct Captures<'a> {
    /// By thread: whether a stream is being captured.
    capturing: Vec<bool>,
    /// When each node was made, and by which thread; in order of time.
    nodes: std::iter::Peekable<Box<dyn Iterator<Item = (Timestamp, ThreadId)> + 'a>>,
    /// The last node made on each thread so far.
    last_node: Vec<Option<Timestamp>>,
}

impl<'a> Captures<'a> {
    fn new(trace: &'a Trace) -> Self {
        let nodes = &trace.graph_nodes;
        let nodes: Box<dyn Iterator<Item = _>> =
            Box::new(nodes.start.iter().copied().zip(nodes.thread.iter().copied()));
        let threads = trace.threads.len();
        Self {
            capturing: vec![false; threads],
            nodes: nodes.peekable(),
            last_node: vec![None; threads],
        }
    }

    /// Whether the API call of this row is taken in; rows must come in order of their starts.
    fn holds(&mut self, trace: &Trace, row: usize, class: ApiClass) -> bool {
        let calls = &trace.api_calls;
        let (start, thread) = (calls.start[row], calls.thread[row].index());
        match class {
            ApiClass::BeginCapture => self.capturing[thread] = true,
            ApiClass::EndCapture => self.capturing[thread] = false,
            _ => {}
        }
        while let Some((made, by)) = self.nodes.next_if(|(made, _)| *made < calls.end(row)) {
            self.last_node[by.index()] = Some(made);
        }
        self.capturing[thread] || self.last_node[thread].is_some_and(|made| made >= start)
    }
}

/// Where most of the lost launches are: `90 % of them in the first 3.2 ms`.
fn where_in_trace(lost: &mut [(Nanos, &&Trace)]) -> String {
    lost.sort_by_key(|(after_start, _)| *after_start);
    let Some(at) = (lost.len() * 9).div_ceil(10).checked_sub(1) else {
        return String::new();
    };
    let micros = lost[at].0.as_ns() / 1000;
    format!(
        "nine in ten of them within {}.{:03} ms of the first call",
        micros / 1000,
        micros % 1000
    )
}

fn gpu_work_without_launch(inputs: &Inputs<'_>) -> Check {
    let (mut work, mut orphans) = (0, 0);
    for lane in inputs.lanes.iter().filter(|lane| !lane.trace.api_calls.is_empty()) {
        let api = index_of(inputs, lane.trace);
        let mut hint = 0;
        work += lane.ops.len() as u64;
        orphans += lane
            .ops
            .iter()
            .filter(|op| api.0.call_near(op.correlation(lane.trace), &mut hint).is_none())
            .count() as u64;
    }
    counted(
        "gpu_work_without_launch",
        CheckStatus::Note,
        orphans,
        work,
        "GPU work without its API call counts as GPU time; the idle time before it has no known \
         cause and it belongs to no operator"
            .to_owned(),
    )
}

fn index_of<'a>(inputs: &Inputs<'a>, trace: &Trace) -> &'a (ApiIndex, OpTree) {
    let at = inputs.traces.iter().position(|other| std::ptr::eq(*other, trace)).unwrap_or(0);
    &inputs.indexes[at]
}

fn gpu_events(inputs: &Inputs<'_>) -> u64 {
    inputs.traces.iter().map(|trace| trace.gpu_event_count() as u64).sum()
}

fn left_out(
    inputs: &Inputs<'_>,
    code: &str,
    effect: &str,
    count: impl Fn(&LeftOut) -> u64,
) -> Check {
    let count = inputs.lanes.iter().map(|lane| count(&lane.left_out)).sum();
    counted(code, CheckStatus::Warn, count, gpu_events(inputs), effect.to_owned())
}

fn impossible_durations(inputs: &Inputs<'_>) -> Check {
    let sum = |part: fn(&LeftOut) -> i64| -> i64 {
        inputs.lanes.iter().map(|lane| part(&lane.left_out)).sum()
    };
    let effect = format!(
        "events that run far past the next start on their stream are cut there, by {} ns in all",
        sum(|out| out.clipped_ns)
    );
    let count = sum(|out| out.clipped_count as i64) as u64;
    counted("impossible_durations", CheckStatus::Warn, count, gpu_events(inputs), effect)
}

fn clock_skew(inputs: &Inputs<'_>) -> Check {
    let (mut linked, mut early, mut worst) = (0, 0, Nanos::ZERO);
    for lane in inputs.lanes {
        let api = &index_of(inputs, lane.trace).0;
        let mut hint = 0;
        for op in &lane.ops {
            if let Some(call) = api.call_near(op.correlation(lane.trace), &mut hint) {
                linked += 1;
                let delay = op.start - lane.trace.api_calls.start[call as usize];
                early += u64::from(delay < Nanos::ZERO);
                worst = worst.min(delay);
            }
        }
    }
    let effect = format!(
        "GPU work starts up to {} ns before the call that launches it: the clocks of CPU and GPU \
         differ by at least that, and launch latencies are too short by as much",
        (-worst).as_ns()
    );
    let status = if -worst > GRAVE_SKEW { CheckStatus::Warn } else { CheckStatus::Note };
    counted("clock_skew", status, early, linked, effect)
}

fn missing_ranks(inputs: &Inputs<'_>) -> Check {
    let world = inputs.traces.iter().filter_map(|trace| trace.meta.world_size).max();
    let one_rank_asked_for = inputs.config.rank.is_some();
    let Some(world) = world.filter(|_| !one_rank_asked_for) else {
        return check("missing_ranks", CheckStatus::NotApplicable, 0, None, String::new());
    };
    let present: Vec<u32> = inputs.traces.iter().filter_map(|trace| trace.rank()).collect();
    let missing: Vec<String> =
        (0..world).filter(|rank| !present.contains(rank)).map(|rank| rank.to_string()).collect();
    let effect = format!(
        "of the job's {world} ranks these are not here: {}; who waits for whom cannot be told",
        missing.join(", ")
    );
    counted("missing_ranks", CheckStatus::Note, missing.len() as u64, world.into(), effect)
}

fn ranks_without_gpu_work(inputs: &Inputs<'_>) -> Check {
    let without: Vec<String> = (inputs.traces.iter())
        .filter(|trace| trace.gpu_event_count() == 0)
        .map(|trace| trace.rank().map_or("unknown".to_owned(), |rank| rank.to_string()))
        .collect();
    let effect = format!(
        "no GPU work was recorded on rank {}: the numbers are of the others",
        without.join(", ")
    );
    let of = inputs.traces.len() as u64;
    counted("ranks_without_gpu_work", CheckStatus::Warn, without.len() as u64, of, effect)
}

fn unknown_ranks(inputs: &Inputs<'_>) -> Check {
    let unknown = inputs.traces.iter().filter(|trace| trace.rank().is_none()).count() as u64;
    let several = inputs.traces.len() > 1;
    counted(
        "unknown_ranks",
        CheckStatus::Warn,
        if several { unknown } else { 0 },
        inputs.traces.len() as u64,
        "several files, and nothing says of which rank: as they were recorded at one time they are \
         taken for one run and their steps averaged"
            .to_owned(),
    )
}

/// Steps so long that means say little about the others: left out where they are exceptions.
fn outlier_steps(inputs: &Inputs<'_>) -> Check {
    let Some(period) = inputs.steps.period_ns else {
        return check("outlier_steps", CheckStatus::NotApplicable, 0, None, String::new());
    };
    let steps = &inputs.steps.steps;
    let is_long = |step: &&Step| {
        step.selected && step.period_ns.is_some_and(|p| p as f64 > OUTLIER_FACTOR * period.median)
    };
    let kept: Vec<_> = steps.iter().filter(is_long).collect();
    let left_out: Vec<_> = steps.iter().filter(|step| step.outlier).collect();
    let (status, effect) = if kept.is_empty() {
        let effect = format!(
            "steps over {OUTLIER_FACTOR} times the median are left out of all means (first: step \
             {}); ask for them with --steps",
            left_out.first().map_or(0, |step| step.index)
        );
        (CheckStatus::Note, effect)
    } else {
        let effect = format!(
            "steps over {OUTLIER_FACTOR} times the median (first: step {}) pull the mean to {:.2} \
             times the median: accounts and shares are means; leave them out with --steps",
            kept[0].index,
            period.mean / period.median.max(1.0)
        );
        let pulled = period.mean > OUTLIER_PULL * period.median;
        (if pulled { CheckStatus::Warn } else { CheckStatus::Note }, effect)
    };
    let count = (kept.len() + left_out.len()) as u64;
    counted("outlier_steps", status, count, period.n + left_out.len() as u64, effect)
}

fn unknown_idle(inputs: &Inputs<'_>) -> Check {
    let ratio = inputs.ledger.unknown_idle_ratio.unwrap_or(0.0);
    let status = if ratio > UNKNOWN_IDLE_SHARE { CheckStatus::Warn } else { CheckStatus::Pass };
    let effect = if status == CheckStatus::Warn {
        format!(
            "{:.0} % of the period is idle and nothing says why: the launches were not recorded, or \
             cannot be tied to the GPU work",
            ratio * 100.0
        )
    } else {
        String::new()
    };
    check("unknown_idle", status, 0, None, effect)
}

fn steps_without_gpu_work(inputs: &Inputs<'_>) -> Check {
    let steps = &inputs.steps.steps;
    let empty = steps.iter().filter(|s| s.start_ns.is_none() && s.kind != "idle").count() as u64;
    counted(
        "steps_without_gpu_work",
        CheckStatus::Warn,
        empty,
        steps.len() as u64,
        "marked steps that launched no recorded GPU work have no period and are left out"
            .to_owned(),
    )
}

fn window_edges(inputs: &Inputs<'_>) -> Check {
    counted(
        "window_edges",
        CheckStatus::Note,
        inputs.steps.cut_count,
        inputs.steps.steps.len() as u64,
        "steps at the edges of the capture have no period (no next step, or begun before the \
         capture) and are left out"
            .to_owned(),
    )
}

fn marks_beyond_gpu_work(inputs: &Inputs<'_>) -> Check {
    let marked = inputs.traces.iter().filter(|trace| count_marks(trace, inputs.config) > 0).count();
    let beyond = steps::marks_beyond_gpu_work(inputs.lanes, inputs.config);
    let effect = beyond.first().cloned().unwrap_or_default();
    let (count, of) = (beyond.len() as u64, marked as u64);
    counted("marks_beyond_gpu_work", CheckStatus::Warn, count, of, effect)
}

fn mixed_batch_sizes(inputs: &Inputs<'_>) -> Check {
    let selected = || inputs.steps.steps.iter().filter(|step| step.selected);
    let known: Vec<u64> = selected().filter_map(|step| step.batch_size).collect();
    let (least, most) = (known.iter().min().copied(), known.iter().max().copied());
    let others = known.iter().filter(|size| Some(**size) != most).count() as u64;
    let effect = format!(
        "selected steps have batch sizes from {} to {}: means mix them; pick some with --steps",
        least.unwrap_or(0),
        most.unwrap_or(0)
    );
    counted("mixed_batch_sizes", CheckStatus::Note, others, known.len() as u64, effect)
}

fn opaque_graphs(inputs: &Inputs<'_>) -> Check {
    let opaque: u64 = inputs.traces.iter().map(|trace| trace.graph_traces.len() as u64).sum();
    counted(
        "opaque_graphs",
        CheckStatus::Warn,
        opaque,
        gpu_events(inputs),
        "graph replays recorded as a whole count as busy time of unknown content; capture by node \
         (nsys --cuda-graph-trace=node)"
            .to_owned(),
    )
}

fn unused_devices(inputs: &Inputs<'_>) -> Check {
    let known = inputs.traces.iter().map(|trace| trace.meta.devices.len()).max().unwrap_or(0);
    let used = inputs.lanes.iter().filter(|lane| !lane.ops.is_empty()).count();
    let missing = known.saturating_sub(used) as u64;
    let effect = format!(
        "{known} GPUs known, work on {used}: what other processes did there was not traced, or \
         these GPUs were not used"
    );
    counted("devices_without_work", CheckStatus::Note, missing, known as u64, effect)
}

/// Operator by nesting against operator by external id.
fn op_links(inputs: &Inputs<'_>) -> Check {
    let (mut compared, mut differ) = (0, 0);
    for lane in inputs.lanes.iter().filter(|lane| !lane.trace.cpu_ops.is_empty()) {
        let (api, tree) = index_of(inputs, lane.trace);
        (compared, differ) = compare_op_links(lane, api, tree, compared, differ);
    }
    counted(
        "external_id_disagrees",
        CheckStatus::Note,
        differ,
        compared,
        "the external id of GPU work names another operator than the one around its launch; the \
         one around its launch is used"
            .to_owned(),
    )
}

fn compare_op_links(
    lane: &Lane<'_>,
    api: &ApiIndex,
    tree: &OpTree,
    mut compared: u64,
    mut differ: u64,
) -> (u64, u64) {
    let trace = lane.trace;
    let mut hint = 0;
    for op in &lane.ops {
        let external = op.external(trace);
        let Some(call) = api.call_near(op.correlation(trace), &mut hint) else {
            continue;
        };
        let row = tree.op_of_call[call as usize];
        if row == NO_OP || !external.is_some() {
            continue;
        }
        compared += 1;
        // An operator and a range inside it may both claim the work: any operator around counts.
        let mut around = row;
        while around != NO_OP && trace.cpu_ops.external[around as usize] != external {
            around = tree.parent[around as usize];
        }
        differ += u64::from(around == NO_OP);
    }
    (compared, differ)
}

fn uncategorised(inputs: &Inputs<'_>) -> Check {
    let ratio = inputs.ledger.uncategorised_ratio;
    let kernels = || inputs.lanes.iter().flat_map(|lane| &lane.ops);
    let of = kernels().filter(|op| op.kind == GpuKind::Kernel).count() as u64;
    let status = match ratio {
        None => CheckStatus::NotApplicable,
        Some(ratio) if ratio > UNCATEGORISED_SHARE => CheckStatus::Note,
        Some(_) => CheckStatus::Pass,
    };
    let effect = if status == CheckStatus::Note {
        "kernels that no category rule knows take more than 5 % of busy time; add rules with \
         --rules"
            .to_owned()
    } else {
        String::new()
    };
    check("uncategorised_kernels", status, 0, Some(of), effect)
}

/// Recorders before 2.4 wrote whole microseconds.
fn resolution(inputs: &Inputs<'_>) -> Check {
    let lanes = || inputs.lanes.iter().filter(|lane| lane.ops.len() >= 10);
    let coarse = lanes().filter(|lane| kernels::is_coarse(lane));
    counted(
        "microsecond_timestamps",
        CheckStatus::Note,
        coarse.count() as u64,
        lanes().count() as u64,
        "times are rounded to whole microseconds: durations and gaps are off by up to 1 us each, \
         and overlaps of 1 us are no concurrency"
            .to_owned(),
    )
}

fn open_ranges(inputs: &Inputs<'_>) -> Check {
    let ranges: u64 = inputs.traces.iter().map(|trace| trace.ranges.len() as u64).sum();
    let open = inputs.traces.iter().flat_map(|trace| &trace.ranges.open).filter(|open| **open);
    counted(
        "open_ranges",
        CheckStatus::Note,
        open.count() as u64,
        ranges,
        "ranges without a recorded end are taken to last to the end of the trace".to_owned(),
    )
}

fn recorder_diagnostics(inputs: &Inputs<'_>) -> Check {
    let notes: Vec<&str> = inputs
        .traces
        .iter()
        .flat_map(|trace| &trace.meta.diagnostics)
        .map(String::as_str)
        .collect();
    let status = if notes.is_empty() { CheckStatus::Pass } else { CheckStatus::Note };
    check("recorder_diagnostics", status, notes.len() as u64, None, notes.join("; "))
}

fn profiler_dilation(inputs: &Inputs<'_>) -> Check {
    let accounts = &inputs.ledger.accounts;
    let idle: f64 =
        accounts.iter().filter(|a| a.group == AccountGroup::Idle).map(|a| a.ratio).sum();
    let steps = inputs.ledger.scope == LedgerScope::Steps;
    let status = match steps {
        false => CheckStatus::NotApplicable,
        true if idle > IDLE_SHARE => CheckStatus::Note,
        true => CheckStatus::Pass,
    };
    let upper_bound = || {
        format!(
            "{:.0} % of the period is idle: a profiler slows the host, so idle time is an upper \
             bound; only the time per token measured without a profiler tells the true step",
            idle * 100.0
        )
    };
    let (status, effect) = match inputs.dilation {
        _ if status == CheckStatus::NotApplicable => (status, String::new()),
        Some(Ok(found)) => (
            if found.ratio > DILATED { CheckStatus::Note } else { CheckStatus::Pass },
            format!(
                "the period is {:.2} times the time per token measured without a profiler",
                found.ratio
            ),
        ),
        Some(Err(why)) if status == CheckStatus::Note => {
            (status, format!("{}; one was measured, but {why}", upper_bound()))
        }
        Some(Err(why)) => {
            (CheckStatus::Note, format!("the time per token without a profiler is not used: {why}"))
        }
        None if status == CheckStatus::Note => (status, upper_bound()),
        _ => (status, String::new()),
    };
    check("profiler_dilation", status, 0, None, effect)
}
