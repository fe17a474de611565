//! NVTX ranges and annotations projected onto the GPU by NVIDIA's definition: a piece of GPU work
//! belongs to every range that its API call lies inside of, on the same thread.
//!
//! Ranges that end on another thread have no projection.

use hashbrown::{HashMap, HashSet};
use steptally_trace_model::interval::Interval;
use steptally_trace_model::{RangeKind, StringId, TableKind, Timestamp, Trace};

use crate::gpu::Lane;
use crate::links::ApiIndex;
use crate::nest::{NO_LINK, Nest, NestItem};
use crate::results::RangeSummary;

/// Key of a summary within one trace.
type Key = (StringId, StringId, RangeKind);

/// What one range launched on one device.
#[derive(Clone, Copy)]
struct Projection {
    first_start: Timestamp,
    last_end: Timestamp,
    ops: u64,
    busy: i64,
    sum: i64,
}

/// Projects the ranges of all traces, most GPU time first. `lanes` has the lanes of each trace
/// with the trace's index of API calls; lanes of one trace follow one another.
pub(crate) fn summarise(lanes: &[Lane<'_>], apis: &[&ApiIndex]) -> Vec<RangeSummary> {
    let mut by_key: HashMap<(&str, &str, &'static str), RangeSummary> = HashMap::new();
    let mut from = 0;
    while let Some(first) = lanes.get(from) {
        let trace = first.trace;
        let same = lanes[from..].iter().take_while(|lane| std::ptr::eq(lane.trace, trace)).count();
        for ((name, domain, kind), found) in of_trace(&lanes[from..from + same], apis[from]) {
            let key = (trace.text(name), trace.text(domain), code(kind));
            match by_key.get_mut(&key) {
                Some(sums) => add(sums, &found),
                None => {
                    let text = |id| trace.text(id).to_owned();
                    let named = RangeSummary { text: text(name), domain: text(domain), ..found };
                    by_key.insert(key, named);
                }
            }
        }
        from += same;
    }
    let mut rows: Vec<RangeSummary> = by_key.into_values().collect();
    rows.sort_by(|a, b| {
        (b.gpu_busy_ns, b.host_ns)
            .cmp(&(a.gpu_busy_ns, a.host_ns))
            .then_with(|| (&a.text, &a.domain, &a.kind).cmp(&(&b.text, &b.domain, &b.kind)))
    });
    rows
}

fn code(kind: RangeKind) -> &'static str {
    match kind {
        RangeKind::Annotation => "annotation",
        RangeKind::NvtxPushPop => "nvtx_push_pop",
        RangeKind::NvtxStartEnd => "nvtx_start_end",
        RangeKind::NvtxMark => "nvtx_mark",
    }
}

fn of_trace(lanes: &[Lane<'_>], api: &ApiIndex) -> HashMap<Key, RangeSummary> {
    let trace = lanes[0].trace;
    let rows = projectable(trace);
    let mut sums: HashMap<Key, RangeSummary> = HashMap::new();
    if rows.is_empty() {
        return sums;
    }
    let ranges = &trace.ranges;
    let key = |row: usize| (ranges.name[row], ranges.domain[row], ranges.kind[row]);
    let items: Vec<NestItem> = rows
        .iter()
        .map(|&row| NestItem {
            interval: Interval { start: ranges.start[row], end: ranges.end(row) },
            thread: ranges.thread[row],
        })
        .collect();
    let calls = &trace.api_calls;
    let moments = calls.start.iter().copied().zip(calls.thread.iter().copied());
    let (nest, links) = Nest::new(&items, trace.threads.len(), moments);

    for &row in &rows {
        let sums = sums.entry(key(row)).or_insert_with(|| empty(ranges.kind[row]));
        sums.calls += 1;
        sums.host_ns += ranges.duration[row].as_ns();
    }
    for lane in lanes {
        let found = project(lane, api, &items, &nest, &links);
        for (&row, projection) in rows.iter().zip(found) {
            let (Some(projection), Some(sums)) = (projection, sums.get_mut(&key(row))) else {
                continue;
            };
            add(
                sums,
                &RangeSummary {
                    projections: 1,
                    gpu_ops: projection.ops,
                    projected_ns: (projection.last_end - projection.first_start).as_ns(),
                    gpu_busy_ns: projection.busy,
                    gpu_sum_ns: projection.sum,
                    first_start_ns: Some(projection.first_start.as_ns()),
                    last_end_ns: Some(projection.last_end.as_ns()),
                    ..empty(ranges.kind[row])
                },
            );
        }
    }
    sums
}

/// Rows of the ranges that have a projection.
fn projectable(trace: &Trace) -> Vec<usize> {
    let elsewhere: HashSet<u32> = trace
        .extra_args
        .iter()
        .filter(|arg| arg.table == TableKind::Range && trace.text(arg.key) == "end_thread")
        .map(|arg| arg.row)
        .collect();
    let ranges = &trace.ranges;
    (0..ranges.len())
        .filter(|&row| {
            ranges.kind[row] != RangeKind::NvtxMark
                && !ranges.open[row]
                && !elsewhere.contains(&(row as u32))
        })
        .collect()
}

/// What each item launched on the lane. The lane's work comes in order of its start, so the union
/// needs no more than the point that it has reached.
fn project(
    lane: &Lane<'_>,
    api: &ApiIndex,
    items: &[NestItem],
    nest: &Nest,
    links: &[u32],
) -> Vec<Option<Projection>> {
    let trace = lane.trace;
    let mut found: Vec<Option<Projection>> = vec![None; items.len()];
    let mut hint = 0;
    for op in &lane.ops {
        let Some(call) = api.call_near(op.correlation(trace), &mut hint) else { continue };
        let link = links[call as usize];
        if link == NO_LINK {
            continue;
        }
        let call_end = trace.api_calls.end(call as usize);
        let length = (op.end - op.start).as_ns();
        for item in nest.chain(link).filter(|&item| items[item].interval.end >= call_end) {
            match &mut found[item] {
                Some(projection) => {
                    let fresh = op.end - op.start.max(projection.last_end);
                    projection.ops += 1;
                    projection.sum += length;
                    projection.busy += fresh.clamp_to_zero().as_ns();
                    projection.last_end = projection.last_end.max(op.end);
                }
                empty => {
                    *empty = Some(Projection {
                        first_start: op.start,
                        last_end: op.end,
                        ops: 1,
                        busy: length,
                        sum: length,
                    });
                }
            }
        }
    }
    found
}

fn empty(kind: RangeKind) -> RangeSummary {
    RangeSummary {
        text: String::new(),
        kind: code(kind).to_owned(),
        domain: String::new(),
        calls: 0,
        projections: 0,
        gpu_ops: 0,
        projected_ns: 0,
        gpu_busy_ns: 0,
        gpu_sum_ns: 0,
        host_ns: 0,
        first_start_ns: None,
        last_end_ns: None,
    }
}

fn add(sums: &mut RangeSummary, other: &RangeSummary) {
    sums.calls += other.calls;
    sums.projections += other.projections;
    sums.gpu_ops += other.gpu_ops;
    sums.projected_ns += other.projected_ns;
    sums.gpu_busy_ns += other.gpu_busy_ns;
    sums.gpu_sum_ns += other.gpu_sum_ns;
    sums.host_ns += other.host_ns;
    let firsts = [sums.first_start_ns, other.first_start_ns];
    sums.first_start_ns = firsts.into_iter().flatten().min();
    sums.last_end_ns = sums.last_end_ns.max(other.last_end_ns);
}
