//! Replays of CUDA graphs, decomposed into their nodes.
//!
//! All work of a replay has the correlation id of the call that launched the graph.

use hashbrown::HashMap;
use steptally_trace_model::Trace;

use crate::categories::copy_account;
use crate::gpu::{GpuKind, GpuOp};
use crate::links::ApiClass;
use crate::results::{GraphNode, GraphReplays};
use crate::stats::distribution;
use crate::view::{LaneView, extent};

/// What makes two replays those of one graph: how nodes are told apart, and each node's name and
/// launch configuration.
type Key<'a> = (bool, Vec<(&'a str, [u32; 3], [u32; 3])>);

/// What is collected of one graph.
#[derive(Default)]
struct Sums<'a> {
    calls: Vec<i64>,
    delays: Vec<i64>,
    spans: Vec<i64>,
    busy: Vec<i64>,
    nodes: Vec<NodeSums<'a>>,
}

#[derive(Default)]
struct NodeSums<'a> {
    graph_node: Option<u64>,
    category: &'a str,
    durations: Vec<i64>,
    gaps: Vec<i64>,
}

/// The graphs of all lanes, most GPU time first.
pub(crate) fn summarise(views: &[LaneView<'_>]) -> Vec<GraphReplays> {
    let mut graphs: HashMap<Key<'_>, Sums<'_>> = HashMap::new();
    for view in views {
        for (call, ops) in replays(view) {
            add(view, call, ops, &mut graphs);
        }
    }
    let (n, _) = extent(views);
    let mut rows: Vec<GraphReplays> =
        graphs.into_iter().filter_map(|(key, sums)| row(&key, sums, n.max(1) as f64)).collect();
    let time = |graph: &GraphReplays| graph.span_ns.mean * graph.replays as f64;
    rows.sort_by(|a, b| {
        time(b).total_cmp(&time(a)).then_with(|| a.node_count.cmp(&b.node_count)).then_with(|| {
            let names = |graph: &GraphReplays| -> Vec<String> {
                graph.nodes.iter().map(|node| node.name.clone()).collect()
            };
            names(a).cmp(&names(b))
        })
    });
    rows
}

/// The work of each graph launch whose first node starts in a window, in order of its start.
fn replays(view: &LaneView<'_>) -> Vec<(u32, Vec<GpuOp>)> {
    let trace = view.lane.trace;
    if !view.api.has(ApiClass::GraphLaunch) {
        return Vec::new();
    }
    let launches_graphs =
        |call: u32| view.api.class(trace.api_calls.name[call as usize]) == ApiClass::GraphLaunch;
    let mut found: Vec<(u32, Vec<GpuOp>)> = Vec::new();
    let mut place_of: HashMap<u32, Option<usize>> = HashMap::new();
    let (mut hint, mut last) = (0, None);
    let mut windows = view.windows.iter().peekable();
    for op in &view.lane.ops {
        while windows.next_if(|window| window.end <= op.start).is_some() {}
        if op.kind == GpuKind::OpaqueGraph {
            continue;
        }
        let Some(call) = view.api.call_near(op.correlation(trace), &mut hint) else { continue };
        if !launches_graphs(call) {
            continue;
        }
        // Nodes of a graph mostly follow one another.
        let place = match last {
            Some((known, place)) if known == call => place,
            _ => *place_of.entry(call).or_insert_with(|| {
                let inside = windows.peek().is_some_and(|window| window.start <= op.start);
                inside.then(|| {
                    found.push((call, Vec::new()));
                    found.len() - 1
                })
            }),
        };
        last = Some((call, place));
        if let Some(place) = place {
            found[place].1.push(*op);
        }
    }
    found
}

fn add<'a>(
    view: &'a LaneView<'a>,
    call: u32,
    mut ops: Vec<GpuOp>,
    graphs: &mut HashMap<Key<'a>, Sums<'a>>,
) {
    let trace = view.lane.trace;
    let calls = &trace.api_calls;
    let launched = calls.start[call as usize];
    let first = ops[0].start;
    let (mut reached, mut busy) = (first, 0);
    let mut gaps: HashMap<(GpuKind, u32), i64> = HashMap::with_capacity(ops.len());
    for op in &ops {
        gaps.insert((op.kind, op.row), (op.start - reached).as_ns().max(0));
        busy += (op.end - op.start.max(reached)).as_ns().max(0);
        reached = reached.max(op.end);
    }
    let by_id = ops.iter().all(|op| node_id(trace, *op).is_some());
    if by_id {
        ops.sort_by_key(|op| node_id(trace, *op));
    }
    let key = (by_id, ops.iter().map(|op| kernel(trace, *op)).collect());
    let sums = graphs.entry(key).or_default();
    sums.calls.push(calls.duration[call as usize].as_ns());
    sums.delays.push((first - launched).as_ns());
    sums.spans.push((reached - first).as_ns());
    sums.busy.push(busy);
    sums.nodes.resize_with(ops.len(), NodeSums::default);
    for (node, op) in sums.nodes.iter_mut().zip(ops) {
        if node.durations.is_empty() {
            node.graph_node = node_id(trace, op).filter(|_| by_id);
            node.category = match op.kind {
                GpuKind::Kernel => view.categories.of(trace.kernels.name[op.row as usize]),
                _ => copy_account(trace.copies.kind[op.row as usize]),
            };
        }
        node.durations.push((op.end - op.start).as_ns());
        node.gaps.push(gaps[&(op.kind, op.row)]);
    }
}

fn node_id(trace: &Trace, op: GpuOp) -> Option<u64> {
    match op.kind {
        GpuKind::Kernel => trace.kernels.graph_node[op.row as usize].value(),
        GpuKind::Copy => trace.copies.graph_node[op.row as usize].value(),
        GpuKind::OpaqueGraph => None,
    }
}

fn kernel(trace: &Trace, op: GpuOp) -> (&str, [u32; 3], [u32; 3]) {
    let row = op.row as usize;
    if op.kind == GpuKind::Kernel {
        let config = trace.configs[trace.kernels.config[row]];
        (trace.text(trace.kernels.name[row]), config.grid, config.block)
    } else {
        (trace.text(trace.copies.name[row]), [0; 3], [0; 3])
    }
}

fn row(key: &Key<'_>, sums: Sums<'_>, steps: f64) -> Option<GraphReplays> {
    let (by_id, kernels) = key;
    let gaps = sums.spans.iter().zip(&sums.busy).map(|(span, busy)| span - busy);
    let nodes = kernels.iter().zip(sums.nodes).filter_map(|((name, ..), node)| {
        let durations = distribution(node.durations)?;
        Some(GraphNode {
            graph_node: node.graph_node,
            name: (*name).to_owned(),
            category: node.category.to_owned(),
            median_ns: durations.median,
            p90_ns: durations.p90,
            max_ns: durations.max,
            gap_before_ns: distribution(node.gaps)?.median,
        })
    });
    Some(GraphReplays {
        replays: sums.spans.len() as u64,
        replays_per_step: sums.spans.len() as f64 / steps,
        node_count: kernels.len() as u64,
        nodes_by: if *by_id { "graph_node_id" } else { "position" }.to_owned(),
        gap_ns: distribution(gaps)?,
        nodes: nodes.collect(),
        call_ns: distribution(sums.calls)?,
        delay_ns: distribution(sums.delays)?,
        span_ns: distribution(sums.spans)?,
        busy_ns: distribution(sums.busy)?,
    })
}
