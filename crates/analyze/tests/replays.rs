//! Replays of CUDA graphs.

#![allow(clippy::panic)] // in the tests' own functions

mod support;

use steptally_analyze::results::{Analysis, GraphReplays};
use steptally_analyze::{Config, analyze};
use steptally_testkit::TraceDsl;
use support::fixture;

/// Four steps of 10,000 ns: a graph of a GEMM, a norm 100 ns after it and, overlapping the norm's
/// last 50 ns, another GEMM; then a kernel of its own. With `ids`, nodes are numbered in another
/// order than they start.
fn steps(ids: bool) -> Analysis {
    let mut dsl = TraceDsl::rank(0);
    for step in 0..4i64 {
        let at = step * 10_000;
        let launch = 10 + 2 * step as u64;
        dsl = dsl.range("step[DECODE bs=1]", at..at + 4_000).launch(
            "cudaGraphLaunch",
            at + 100..at + 400 + step,
            launch,
        );
        for (name, start, end, id) in [
            ("nvjet_a", 1_000, 1_300 + step, 3),
            ("rms_norm_kernel", 1_400 + step, 1_600, 1),
            ("nvjet_b", 1_550, 1_900, 2),
        ] {
            dsl = dsl.kernel(name, at + start..at + end).correlation(launch);
            if ids {
                dsl = dsl.graph_node(id);
            }
        }
        dsl = dsl
            .launch("cudaLaunchKernel", at + 500..at + 600, launch + 1)
            .kernel("argmax", at + 2_000..at + 2_100)
            .correlation(launch + 1);
    }
    analyze(&[dsl.build()], &Config::default())
}

fn only(analysis: &Analysis) -> &GraphReplays {
    let [graph] = analysis.replays.as_slice() else {
        panic!("one graph expected: {:?}", analysis.replays);
    };
    graph
}

#[test]
fn a_replay_is_taken_apart_by_position() {
    let analysis = steps(false);
    let graph = only(&analysis);
    // The last step has no end, so that three count.
    assert_eq!((graph.replays, graph.replays_per_step, graph.node_count), (3, 1.0, 3));
    assert_eq!(graph.nodes_by, "position");
    // Calls of 300, 301, 302.
    assert_eq!(
        (graph.call_ns.median, graph.call_ns.max, graph.delay_ns.median),
        (301.0, 302.0, 900.0)
    );
    // From 1,000 to 1,900; all but the 100 before the norm.
    assert_eq!((graph.span_ns.median, graph.busy_ns.median), (900.0, 800.0));
    assert_eq!((graph.gap_ns.median, graph.gap_ns.max), (100.0, 100.0));
    let nodes: Vec<_> = (graph.nodes.iter())
        .map(|node| (node.name.as_str(), node.median_ns, node.max_ns, node.gap_before_ns))
        .collect();
    assert_eq!(
        nodes,
        [
            ("nvjet_a", 301.0, 302.0, 0.0),
            ("rms_norm_kernel", 199.0, 200.0, 100.0),
            ("nvjet_b", 350.0, 350.0, 0.0),
        ]
    );
    assert_eq!(graph.nodes[1].category, "norm");
    assert!(graph.nodes.iter().all(|node| node.graph_node.is_none()));
}

#[test]
fn nodes_with_ids_come_in_the_order_of_their_creation() {
    let analysis = steps(true);
    let graph = only(&analysis);
    assert_eq!(graph.nodes_by, "graph_node_id");
    let nodes: Vec<_> = (graph.nodes.iter())
        .map(|node| (node.graph_node, node.name.as_str(), node.gap_before_ns))
        .collect();
    assert_eq!(
        nodes,
        [(Some(1), "rms_norm_kernel", 100.0), (Some(2), "nvjet_b", 0.0), (Some(3), "nvjet_a", 0.0),]
    );
}

#[test]
fn without_graphs_there_are_no_replays() {
    assert_eq!(fixture("sglang-h200/decode-eager-TP-0.trace.json.gz").replays, []);
}

#[test]
fn replays_of_a_captured_server_are_its_steps_graph() {
    let analysis = fixture("sglang-h200/decode-graphs-TP-0.trace.json.gz");
    // One replay in each of 4 steps, as many nodes as its launch has kernels in the file.
    let graph = only(&analysis);
    assert_eq!((graph.replays, graph.node_count), (4, 100));
    for part in [&graph.busy_ns, &graph.gap_ns] {
        assert_eq!(part.n, 4);
    }
    let sum = graph.busy_ns.mean + graph.gap_ns.mean;
    assert!((sum - graph.span_ns.mean).abs() < 1e-6, "{sum} {}", graph.span_ns.mean);
}
