//! Whether a copy goes over a whole pool.

use crate::results::StepTable;
use crate::steps::StepKind;
use crate::view::LaneView;

use super::{Context, shapes};

/// An operand's first dimension is far above the tokens in flight from this multiple on...
const FAR_ABOVE: u64 = 64;
/// ... and from this size on.
const LARGE: u64 = 4096;
/// A pool may have a page more than the capacity that the server states.
const SPARE: u64 = 1024;

/// No layer has activations of so many elements for one token.
const ELEMENTS_PER_TOKEN: u64 = 1 << 20;
/// Where nothing says how many tokens are in flight, no more are taken to be.
const MOST_TOKENS: u64 = 64;

/// Where a copy is asked for.
pub(super) struct Reach<'r> {
    pub(super) layers: &'r [u64],
    pub(super) every_step: bool,
    pub(super) calls: u64,
    /// Whether graph launches ask for it.
    pub(super) in_graph: bool,
}

/// What a copy is judged by.
pub(super) struct Judge<'j> {
    pub(super) context: &'j Context<'j>,
    pub(super) tokens: Option<u64>,
    pub(super) steps: usize,
}

impl Judge<'_> {
    /// Why a copy that moves operands of these shapes in whole goes over a pool; `None` when it
    /// does not.
    ///
    /// Without a stated capacity only operands of three or more dimensions count (tokens or pages,
    /// heads, head dimension): weights have two.
    pub(super) fn reason(&self, whole: &[Vec<u64>], reach: &Reach<'_>) -> Option<String> {
        let largest = whole.iter().max_by_key(|shape| shape.first().copied())?;
        let first = *largest.first()?;
        if let Some(capacity) = self.context.config.kv_token_capacity.filter(|&tokens| tokens > 0) {
            let is_capacity = |tokens: u64| (capacity..=capacity + SPARE).contains(&tokens);
            let paged = largest.get(1).is_some_and(|&page| is_capacity(first.saturating_mul(page)));
            if is_capacity(first) || (paged && largest.len() >= 3) {
                return Some(format!(
                    "its operand {largest:?} has the {capacity} tokens that the server can hold"
                ));
            }
        }
        let tokens = self.tokens?;
        let far_above = first >= LARGE && first >= tokens.saturating_mul(FAR_ABOVE);
        (largest.len() >= 3 && far_above && self.everywhere(reach)).then(|| {
            format!(
                "its operand {largest:?} has the same first dimension in every layer and step, and \
                 {} times the tokens in flight ({tokens})",
                first / tokens.max(1)
            )
        })
    }

    /// Why a copy of so many elements, of which nothing else is known, goes over a pool.
    ///
    /// Without the tokens in flight only in graph replays, as servers decode: kernels of any program
    /// go over that many elements.
    pub(super) fn reason_by_elements(&self, elements: u64, reach: &Reach<'_>) -> Option<String> {
        if self.tokens.is_none() && !reach.in_graph {
            return None;
        }
        let why = if reach.in_graph {
            "a graph replay records no shapes"
        } else {
            "the operator that launched it was not recorded"
        };
        let each = elements / self.tokens.unwrap_or(MOST_TOKENS).max(1);
        let tokens = match self.tokens {
            Some(_) => "each token in flight".to_owned(),
            None => format!("each of {MOST_TOKENS} tokens, more than are taken to be in flight"),
        };
        (each >= ELEMENTS_PER_TOKEN && self.everywhere(reach)).then(|| {
            format!(
                "it goes over {elements} elements in every layer and step, {each} for {tokens}: by \
                 its launch configuration, as {why}, so that it may be weights instead of a pool"
            )
        })
    }

    /// Whether every layer of every step asks for it.
    fn everywhere(&self, reach: &Reach<'_>) -> bool {
        let in_layers = match self.context.layers.filter(|layers| !layers.roles.is_empty()) {
            Some(known) => reach.layers.len() as u64 == known.count,
            None => reach.calls >= 2 * self.steps as u64,
        };
        reach.every_step && in_layers
    }
}

/// The batch size of the selected decode steps, else the smallest first dimension of a matrix
/// product's input.
pub(super) fn tokens_in_flight(views: &[LaneView<'_>], steps: &StepTable) -> Option<u64> {
    let selected = steps.selected.as_ref()?;
    let decode = selected.kind == StepKind::Decode.to_string();
    if let Some(batch) = selected.batch_size.filter(|&batch| decode && batch > 0) {
        return Some(batch);
    }
    let products = ["aten::mm", "aten::addmm", "aten::linear", "aten::bmm", "aten::matmul"];
    let mut smallest: Option<u64> = None;
    for view in views {
        let trace = view.lane.trace;
        let mut seen = vec![false; trace.inputs.len()];
        for row in 0..trace.cpu_ops.len() {
            let inputs = trace.cpu_ops.inputs[row];
            if std::mem::replace(&mut seen[inputs.index()], true) {
                continue;
            }
            if products.contains(&trace.text(trace.cpu_ops.name[row])) {
                let size = shapes::leading_size(trace.text(trace.inputs[inputs].dims));
                smallest = smallest.into_iter().chain(size.filter(|&size| size > 0)).min();
            }
        }
    }
    smallest
}
