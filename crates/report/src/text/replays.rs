//! Replays of CUDA graphs.

use steptally_analyze::Section;
use steptally_analyze::results::{Analysis, GraphNode, GraphReplays};

use super::style::{TerminalStyle, Tone, printable};
use super::table::{Fit, Table};
use super::units::{TimeUnit, calls, count, counted, duration, percent_rough};
use super::{per, title};
use crate::short_kernel_name;

/// Nodes that are shown when replays were not asked for.
const SHOWN: usize = 3;

/// The graph that takes most time, with the nodes before which it stands still longest; all graphs
/// when they were asked for by name.
pub(super) fn replays(analysis: &Analysis, style: &TerminalStyle) -> String {
    let by_name = analysis.sections.names(Section::Replays);
    let (graphs, nodes) = if by_name { (style.top, style.top) } else { (1, SHOWN) };
    let all = &analysis.replays;
    let shown = &all[..all.len().min(graphs).min(style.top)];
    if shown.is_empty() {
        return String::new();
    }
    let note = format!(
        "{} of {}, most GPU time first; medians; nodes with the longest gaps before them",
        count(shown.len() as u64),
        counted(all.len() as u64, "graph")
    );
    let graphs: Vec<String> =
        shown.iter().map(|graph| one(graph, nodes.min(style.top), per(analysis), style)).collect();
    format!("{}{}", title(style, "GRAPH REPLAYS", &note), graphs.join(""))
}

fn one(graph: &GraphReplays, nodes: usize, per: &str, style: &TerminalStyle) -> String {
    let span = graph.span_ns.median;
    let share = if span > 0.0 { graph.gap_ns.median / span } else { 0.0 };
    let text = format!(
        "{}, {} a {per}: the call takes {}, the first node starts {} after it begins; a replay lasts \
         {} (p99 {}), of which its nodes {} and the gaps between them {} ({})",
        counted(graph.node_count, "node"),
        calls(graph.replays_per_step),
        duration(graph.call_ns.median),
        duration(graph.delay_ns.median),
        duration(span),
        duration(graph.span_ns.p99),
        duration(graph.busy_ns.median),
        duration(graph.gap_ns.median),
        percent_rough(share),
    );
    let mut order: Vec<(usize, &GraphNode)> = graph.nodes.iter().enumerate().collect();
    order.sort_by(|(i, a), (j, b)| b.gap_before_ns.total_cmp(&a.gap_before_ns).then(i.cmp(j)));
    let mut table = Table::default()
        .column("node", Fit::Number)
        .column("kernel", Fit::Flexible(24))
        .column("gap before us", Fit::Number)
        .column("us", Fit::Number)
        .column("p90", Fit::Number)
        .column("max", Fit::Number)
        .column("category", Fit::Text);
    let us = |ns: f64| TimeUnit::CALL.format(ns);
    for (index, node) in order.into_iter().take(nodes) {
        table.row(
            Tone::Plain,
            vec![
                count(index as u64),
                printable(&short_kernel_name(&node.name)),
                us(node.gap_before_ns),
                us(node.median_ns),
                us(node.p90_ns),
                us(node.max_ns),
                printable(&node.category),
            ],
        );
    }
    format!("  {}\n{}", style.wrap(&text, 2), table.render(style))
}
