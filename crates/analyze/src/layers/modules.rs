//! The tree of modules from what marks them on the host: NVTX texts that name a module, ranges
//! named after a layer, `nn.Module` frames.
//!
//! GPU work belongs to the innermost module that was open on the thread of its API call when that
//! was made. A kernel of a graph replay belongs to the module that was open when its node was
//! created, if the capture of the graph was recorded.

use hashbrown::HashMap;
use steptally_trace_model::interval::Interval;
use steptally_trace_model::{OptionalId, RangeKind, StringId, Trace};

use super::module_mark::parse_module_mark;
use crate::gpu::{GpuKind, GpuOp};
use crate::kernels::for_each_in;
use crate::nest::{NO_LINK, Nest, NestItem};
use crate::results::{Layers, ModuleTime, Modules};
use crate::view::LaneView;

/// What marks modules, most telling first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Marks,
    Ranges,
    Frames,
}

impl Source {
    fn code(self) -> &'static str {
        match self {
            Self::Marks => "module_marks",
            Self::Ranges => "layer_ranges",
            Self::Frames => "module_frames",
        }
    }
}

/// Sums the selected steps' GPU work by module; `None` when nothing marks modules, or no work lies
/// in one.
pub(super) fn modules(views: &[LaneView<'_>]) -> Option<Modules> {
    let source = views.iter().filter_map(|view| source_of(view.lane.trace)).min()?;
    let mut tree = Tree::default();
    let (mut all, mut covered) = (0, 0);
    for view in views {
        let lookup = Lookup::new(view.lane.trace, source, &mut tree);
        let mut hint = 0;
        for_each_in(view.lane, &view.windows, |_, op| {
            let length = (op.end - op.start).as_ns();
            all += length;
            if let Some(node) = lookup.node(view, op, &mut hint) {
                covered += length;
                tree.nodes[node].self_ns += length;
                tree.nodes[node].self_ops += 1;
            }
        });
    }
    if covered == 0 {
        return None;
    }
    let n: usize = views.iter().map(|view| view.windows.len()).sum();
    let rows = tree.rows(n as f64);
    let mut modules = Modules {
        detected_by: source.code().to_owned(),
        covered_ratio: covered as f64 / all as f64,
        layer_count: 0,
        same_layer_count: None,
        largest_share_difference: None,
        rows,
    };
    modules.layer_count = modules.layer_times().len() as u64;
    Some(modules)
}

impl Modules {
    /// Index, time per step and pieces of GPU work per step of each layer, by index.
    pub(super) fn layer_times(&self) -> Vec<(u64, f64, f64)> {
        let mut times: Vec<(u64, f64, f64)> = Vec::new();
        let mut inside: Option<u64> = None;
        for row in &self.rows {
            // Only the outermost module of a layer counts: its children are in its total.
            if inside.is_some_and(|depth| row.depth > depth) {
                continue;
            }
            inside = row.layer.map(|_| row.depth);
            let Some(layer) = row.layer else { continue };
            let (time, ops) = (row.gpu_total_ns_per_step, row.gpu_ops_per_step);
            match times.iter_mut().find(|(index, ..)| *index == layer) {
                Some(sums) => {
                    sums.1 += time;
                    sums.2 += ops;
                }
                None => times.push((layer, time, ops)),
            }
        }
        times.sort_by_key(|(index, ..)| *index);
        times
    }

    pub(super) fn compared_with(mut self, layers: &Layers) -> Self {
        let times = self.layer_times();
        self.same_layer_count = (!times.is_empty()).then_some(times.len() as u64 == layers.count);
        if self.same_layer_count == Some(true) {
            let own: f64 = times.iter().map(|(_, time, _)| time).sum();
            let others: f64 = layers.layers.iter().map(|layer| layer.ns_per_step).sum();
            let difference = (times.iter().zip(&layers.layers))
                .map(|((_, time, _), layer)| (time / own - layer.ns_per_step / others).abs())
                .fold(0.0, f64::max);
            self.largest_share_difference = (own > 0.0 && others > 0.0).then_some(difference);
        }
        self
    }
}

/// The most telling source that a trace has.
fn source_of(trace: &Trace) -> Option<Source> {
    let of_ranges = marks(trace).map(|(_, source, _)| source).min();
    of_ranges.or_else(|| {
        let mut names = module_frames(trace);
        names.next().map(|_| Source::Frames)
    })
}

/// Rows of the ranges that mark modules, with what they say.
fn marks(trace: &Trace) -> impl Iterator<Item = (usize, Source, StringId)> + '_ {
    let ranges = &trace.ranges;
    let mut known: HashMap<StringId, Option<Source>> = HashMap::new();
    (0..ranges.len()).filter_map(move |row| {
        if !matches!(ranges.kind[row], RangeKind::Annotation | RangeKind::NvtxPushPop) {
            return None;
        }
        let name = ranges.name[row];
        let source = *known.entry(name).or_insert_with(|| {
            let text = trace.text(name);
            if parse_module_mark(text).is_some() {
                Some(Source::Marks)
            } else {
                layer_index(text).map(|_| Source::Ranges)
            }
        });
        source.map(|source| (row, source, name))
    })
}

const FRAME: &str = "nn.Module: ";

fn module_frames(trace: &Trace) -> impl Iterator<Item = usize> + '_ {
    let mut is_module: Vec<Option<bool>> = vec![None; trace.strings.len()];
    (0..trace.frames.len()).filter(move |&row| {
        let name = trace.frames.name[row];
        *is_module[name.index()].get_or_insert_with(|| trace.text(name).starts_with(FRAME))
    })
}

/// The layer that a path or text names: the number after `layer`, `layers`, `block`, `blocks` or
/// `.h`, with at most one separator between.
pub(super) fn layer_index(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let at = |word: &str| {
        lower.match_indices(word).find_map(|(at, _)| {
            let rest = &lower[at + word.len()..];
            let rest = rest.strip_prefix(['.', '_', ' ', ':', '#', '-', '/', '=']).unwrap_or(rest);
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let ends = rest[digits..].chars().next().is_none_or(|c| !c.is_alphanumeric());
            if ends { rest[..digits].parse().ok() } else { None }
        })
    };
    ["layers", "layer", "blocks", "block", ".h."].iter().find_map(|word| at(word))
}

/// Which node of the tree each API call and each graph node is in.
struct Lookup {
    node_of_call: Vec<u32>,
    node_of_graph_node: HashMap<u64, u32>,
}

const NOWHERE: u32 = u32::MAX;

impl Lookup {
    fn new(trace: &Trace, source: Source, tree: &mut Tree) -> Self {
        let (items, texts) = items(trace, source);
        if items.is_empty() {
            return Self { node_of_call: Vec::new(), node_of_graph_node: HashMap::new() };
        }
        let calls = &trace.api_calls;
        let moments = calls.start.iter().copied().zip(calls.thread.iter().copied());
        let node_of_call = Self::nodes(trace, source, tree, &items, &texts, moments);
        let created = &trace.graph_nodes;
        let moments = created.start.iter().copied().zip(created.thread.iter().copied());
        let at_creation = Self::nodes(trace, source, tree, &items, &texts, moments);
        Self { node_of_call, node_of_graph_node: graph_nodes(trace, &at_creation) }
    }

    fn nodes(
        trace: &Trace,
        source: Source,
        tree: &mut Tree,
        items: &[NestItem],
        texts: &[StringId],
        moments: impl Iterator<
            Item = (steptally_trace_model::Timestamp, steptally_trace_model::ThreadId),
        >,
    ) -> Vec<u32> {
        let (nest, links) = Nest::new(items, trace.threads.len(), moments);
        let mut known: HashMap<u32, u32> = HashMap::new();
        let mut node = |link: u32| {
            *known.entry(link).or_insert_with(|| {
                let mut chain: Vec<StringId> = nest.chain(link).map(|item| texts[item]).collect();
                chain.reverse();
                tree.node_of(trace, source, &chain)
            })
        };
        links.into_iter().map(|link| if link == NO_LINK { NOWHERE } else { node(link) }).collect()
    }

    fn node(&self, view: &LaneView<'_>, op: GpuOp, hint: &mut usize) -> Option<usize> {
        let trace = view.lane.trace;
        let row = op.row as usize;
        let graph_node = match op.kind {
            GpuKind::Kernel => trace.kernels.graph_node[row],
            GpuKind::Copy => trace.copies.graph_node[row],
            GpuKind::OpaqueGraph => OptionalId::NONE,
        };
        let created = graph_node.value().and_then(|id| self.node_of_graph_node.get(&id).copied());
        let node = created.or_else(|| {
            let call = view.api.call_near(op.correlation(trace), hint)?;
            self.node_of_call.get(call as usize).copied()
        })?;
        (node != NOWHERE).then_some(node as usize)
    }
}

/// What is open when, and its text. Sorted by start.
fn items(trace: &Trace, source: Source) -> (Vec<NestItem>, Vec<StringId>) {
    let (ranges, frames) = (&trace.ranges, &trace.frames);
    if source == Source::Frames {
        let item = |row| NestItem {
            interval: Interval { start: frames.start[row], end: frames.end(row) },
            thread: frames.thread[row],
        };
        return module_frames(trace).map(|row| (item(row), frames.name[row])).unzip();
    }
    let item = |row| NestItem {
        interval: Interval { start: ranges.start[row], end: ranges.end(row) },
        thread: ranges.thread[row],
    };
    marks(trace).filter(|mark| mark.1 == source).map(|(row, _, name)| (item(row), name)).unzip()
}

/// The tree's node for each graph node: where it was created, or where the node that it was cloned
/// from was.
fn graph_nodes(trace: &Trace, at_creation: &[u32]) -> HashMap<u64, u32> {
    let created = &trace.graph_nodes;
    let mut found: HashMap<u64, u32> = HashMap::new();
    let mut originals: HashMap<u64, u64> = HashMap::new();
    for (row, &node) in at_creation.iter().enumerate() {
        let Some(id) = created.graph_node[row].value() else { continue };
        if node != NOWHERE {
            found.entry(id).or_insert(node);
        }
        if let Some(original) = created.original_node[row].value() {
            originals.entry(id).or_insert(original);
        }
    }
    for &id in originals.keys() {
        // Clones of clones: a capture is cloned a few times at most.
        let mut at = id;
        for _ in 0..8 {
            if let Some(&node) = found.get(&at) {
                found.insert(id, node);
                break;
            }
            let Some(&original) = originals.get(&at) else { break };
            at = original;
        }
    }
    found
}

#[derive(Default)]
struct Node {
    name: String,
    path: String,
    parent: Option<usize>,
    children: Vec<usize>,
    self_ns: i64,
    self_ops: u64,
}

#[derive(Default)]
struct Tree {
    nodes: Vec<Node>,
    roots: Vec<usize>,
    by_name: HashMap<(Option<usize>, String), usize>,
}

impl Tree {
    /// The node of what is open, outermost first.
    fn node_of(&mut self, trace: &Trace, source: Source, chain: &[StringId]) -> u32 {
        let Some(&innermost) = chain.last() else { return NOWHERE };
        let mut parent = None;
        match source {
            Source::Marks => {
                let mark = parse_module_mark(trace.text(innermost)).unwrap_or_default();
                for name in mark.module.split('.') {
                    parent = Some(self.child(parent, name, '.'));
                }
            }
            Source::Ranges => {
                for &text in chain {
                    parent = Some(self.child(parent, trace.text(text), '/'));
                }
            }
            Source::Frames => {
                for &text in chain {
                    let text = trace.text(text);
                    let name = text.strip_prefix(FRAME).unwrap_or(text);
                    parent = Some(self.child(parent, name, '/'));
                }
            }
        }
        parent.map_or(NOWHERE, |node| node as u32)
    }

    fn child(&mut self, parent: Option<usize>, name: &str, separator: char) -> usize {
        if let Some(&node) = self.by_name.get(&(parent, name.to_owned())) {
            return node;
        }
        let path = match parent {
            Some(parent) => format!("{}{separator}{name}", self.nodes[parent].path),
            None => name.to_owned(),
        };
        let node = self.nodes.len();
        self.nodes.push(Node { name: name.to_owned(), path, parent, ..Node::default() });
        match parent {
            Some(parent) => self.nodes[parent].children.push(node),
            None => self.roots.push(node),
        }
        self.by_name.insert((parent, name.to_owned()), node);
        node
    }

    /// Nodes with GPU work, parents before children.
    fn rows(&self, n: f64) -> Vec<ModuleTime> {
        // Children come after their parents: add up from the back.
        let mut totals: Vec<(i64, u64)> =
            self.nodes.iter().map(|node| (node.self_ns, node.self_ops)).collect();
        for (index, node) in self.nodes.iter().enumerate().rev() {
            if let Some(parent) = node.parent {
                totals[parent].0 += totals[index].0;
                totals[parent].1 += totals[index].1;
            }
        }
        let mut rows = Vec::new();
        let mut open: Vec<(usize, u64, Option<u64>)> =
            self.roots.iter().rev().map(|&root| (root, 0, None)).collect();
        while let Some((index, depth, around)) = open.pop() {
            let node = &self.nodes[index];
            let (total_ns, total_ops) = totals[index];
            if total_ops == 0 {
                continue;
            }
            let layer = around.or_else(|| self.layer_of(node));
            rows.push(ModuleTime {
                path: node.path.clone(),
                depth,
                layer,
                gpu_ops_per_step: total_ops as f64 / n,
                gpu_total_ns_per_step: total_ns as f64 / n,
                gpu_self_ns_per_step: node.self_ns as f64 / n,
            });
            open.extend(node.children.iter().rev().map(|&child| (child, depth + 1, layer)));
        }
        rows
    }

    /// The layer that a node names: `Layer_3`, or `3` below `layers`.
    fn layer_of(&self, node: &Node) -> Option<u64> {
        layer_index(&node.name).or_else(|| {
            let parent = node.parent?;
            layer_index(&format!(".{}.{}", self.nodes[parent].name, node.name))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_numbered_in_many_ways() {
        for (text, layer) in [
            ("layer 3", Some(3)),
            ("layer3", Some(3)),
            ("model.layers.12.self_attn", Some(12)),
            ("Qwen3MoeDecoderLayer_5", Some(5)),
            ("transformer.h.7.mlp", Some(7)),
            ("LayerNorm_5", None),
            ("step 3", None),
            ("layers", None),
            ("layer 3x", None),
            ("block_0", Some(0)),
        ] {
            assert_eq!(layer_index(text), layer, "{text}");
        }
    }
}
