//! The sequence of kernels of every selected step.

use std::ops::Range;

use hashbrown::HashMap;
use steptally_trace_model::{StreamId, Timestamp, Trace};

use super::pattern::Alphabet;
use crate::gpu::{GpuKind, GpuOp};
use crate::view::LaneView;

/// A stream with this share of the kernels is the sequence by itself: what runs beside it comes in
/// another order each time.
const MAIN_STREAM: f64 = 0.7;

/// The selected steps of one lane.
pub(super) struct LaneSequences {
    /// The stream that the sequence is taken from; `None`: all.
    stream: Option<StreamId>,
    pub(super) windows: Vec<Window>,
    /// Symbols of all steps, one after another.
    symbols: Vec<u32>,
}

/// One step.
pub(super) struct Window {
    /// Position among the view's windows.
    pub(super) index: usize,
    /// The work that starts in it.
    pub(super) ops: Range<usize>,
    /// Until when work that started earlier runs.
    pub(super) running_until: Timestamp,
    symbols: Range<usize>,
    pub(super) hash: u64,
}

impl LaneSequences {
    pub(super) fn new<'a>(view: &LaneView<'a>, alphabet: &mut Alphabet<'a>) -> Self {
        let (trace, ops) = (view.lane.trace, &view.lane.ops);
        let mut windows = Vec::with_capacity(view.windows.len());
        let (mut at, mut running_until) = (0, Timestamp::MIN);
        for (index, within) in view.windows.iter().enumerate() {
            let mut skip = |end: Timestamp, until: &mut Timestamp| {
                while let Some(op) = ops.get(at).filter(|op| op.start < end) {
                    *until = (*until).max(op.end);
                    at += 1;
                }
                at
            };
            let from = skip(within.start, &mut running_until);
            let before = running_until;
            let to = skip(within.end, &mut running_until);
            let running_until = before;
            windows.push(Window { index, ops: from..to, running_until, symbols: 0..0, hash: 0 });
        }
        let stream = main_stream(view, &windows);
        let mut sequences = Self { stream, windows: Vec::new(), symbols: Vec::new() };
        let mut number_of: Vec<u32> = vec![u32::MAX; trace.strings.len()];
        for window in &mut windows {
            let first = sequences.symbols.len();
            let mut hash = 0xcbf2_9ce4_8422_2325_u64;
            for op in &ops[window.ops.clone()] {
                if !sequences.is_in_sequence(trace, *op) {
                    continue;
                }
                let name = trace.kernels.name[op.row as usize];
                let number = &mut number_of[name.index()];
                if *number == u32::MAX {
                    *number = alphabet.number(trace.text(name), view.categories.of(name));
                }
                hash = (hash ^ u64::from(*number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                hash ^= hash >> 29;
                sequences.symbols.push(*number);
            }
            window.symbols = first..sequences.symbols.len();
            window.hash = hash;
        }
        sequences.windows = windows;
        sequences
    }

    /// Whether a piece of work is part of the sequence.
    pub(super) fn is_in_sequence(&self, trace: &Trace, op: GpuOp) -> bool {
        op.kind == GpuKind::Kernel && self.stream.is_none_or(|stream| op.stream(trace) == stream)
    }

    pub(super) fn symbols(&self, window: &Window) -> &[u32] {
        &self.symbols[window.symbols.clone()]
    }
}

/// The stream that nearly all kernels of the steps are on.
fn main_stream(view: &LaneView<'_>, windows: &[Window]) -> Option<StreamId> {
    let trace = view.lane.trace;
    let mut counts = vec![0usize; trace.streams.len()];
    for window in windows {
        for op in &view.lane.ops[window.ops.clone()] {
            if op.kind == GpuKind::Kernel {
                counts[op.stream(trace).index()] += 1;
            }
        }
    }
    let (stream, most) = counts.iter().enumerate().max_by_key(|(_, count)| **count)?;
    let all: usize = counts.iter().sum();
    (*most as f64 >= MAIN_STREAM * all as f64).then_some(StreamId(stream as u32))
}

/// The sequence that most steps have.
pub(super) fn modal(lanes: &[LaneSequences]) -> Option<&[u32]> {
    let mut counts: HashMap<u64, (usize, &[u32])> = HashMap::new();
    for lane in lanes {
        for window in &lane.windows {
            counts.entry(window.hash).or_insert((0, lane.symbols(window))).0 += 1;
        }
    }
    // Ties go to the longer sequence, then to the hash, so that the map's order does not matter.
    let most =
        counts.into_iter().max_by_key(|(hash, (count, symbols))| (*count, symbols.len(), *hash));
    most.map(|(_, (_, symbols))| symbols)
}
