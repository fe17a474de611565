//! Shares out the GPU busy time of each step over prologue, layers and epilogue.
//!
//! GPU work is taken in order of its start. A kernel of the sequence belongs to the layer that its
//! position is in; copies, and kernels of side streams, to where the sequence is when they begin.
//! A nanosecond in which several run belongs to the one that began first, so that the parts add up
//! to the union. Work that began before the step's period belongs to the prologue.

use steptally_trace_model::Timestamp;

use super::pattern::Segments;
use super::sequences::{LaneSequences, Window};
use crate::gpu::GpuKind;
use crate::view::LaneView;

/// Which part of a step a piece of GPU work is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// In no step that has the pattern.
    None,
    Prologue,
    Layer(u32),
    Epilogue,
}

/// What is summed for one part.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PartSums {
    pub(super) busy: i64,
    pub(super) kernels: u64,
    pub(super) idle_inside: i64,
    pub(super) idle_before: i64,
}

/// Sums over the steps of all ranks.
pub(super) struct Totals {
    pub(super) steps: u64,
    pub(super) prologue: PartSums,
    pub(super) layers: Vec<PartSums>,
    pub(super) epilogue: PartSums,
    /// Time after the last work of a step, in which nothing ran.
    pub(super) idle_after: i64,
    /// Duration and calls by position within a layer that is not odd.
    pub(super) roles: Vec<(i64, u64)>,
}

impl Totals {
    pub(super) fn new(layers: usize, word: usize) -> Self {
        Self {
            steps: 0,
            prologue: PartSums::default(),
            layers: vec![PartSums::default(); layers],
            epilogue: PartSums::default(),
            idle_after: 0,
            roles: vec![(0, 0); word],
        }
    }

    fn part(&mut self, part: Part) -> &mut PartSums {
        match part {
            Part::Layer(layer) => &mut self.layers[layer as usize],
            Part::Epilogue => &mut self.epilogue,
            Part::None | Part::Prologue => &mut self.prologue,
        }
    }

    /// Adds one step; `parts` (one entry per piece of work of the lane) learns what it consists of.
    pub(super) fn add_step(
        &mut self,
        view: &LaneView<'_>,
        sequences: &LaneSequences,
        window: &Window,
        segments: &Segments,
        parts: &mut [Part],
    ) {
        self.steps += 1;
        let trace = view.lane.trace;
        let within = view.windows[window.index];
        let mut reached = within.start;
        if window.running_until > reached {
            let until = window.running_until.min(within.end);
            self.prologue.busy += (until - reached).as_ns();
            reached = until;
        }
        let mut at = Cursor { segments, next: 0, layer: 0, part: Part::Prologue };
        let mut last: Option<Part> = None;
        for index in window.ops.clone() {
            let op = view.lane.ops[index];
            let in_sequence = sequences.is_in_sequence(trace, op);
            let role = if in_sequence { at.advance() } else { None };
            let part = at.part;
            parts[index] = part;
            let idle = (op.start.min(within.end) - reached).clamp_to_zero().as_ns();
            let start = op.start.max(reached);
            let end: Timestamp = op.end.min(within.end);
            let sums = self.part(part);
            if last == Some(part) {
                sums.idle_inside += idle;
            } else {
                sums.idle_before += idle;
            }
            last = Some(part);
            sums.kernels += u64::from(op.kind == GpuKind::Kernel);
            sums.busy += (end - start).clamp_to_zero().as_ns();
            reached = reached.max(end);
            if let Some(role) = role.and_then(|role| self.roles.get_mut(role)) {
                role.0 += (op.end - op.start).as_ns();
                role.1 += 1;
            }
        }
        self.idle_after += (within.end - reached).clamp_to_zero().as_ns();
    }
}

/// Where in the sequence the walk over a step is.
struct Cursor<'s> {
    segments: &'s Segments,
    next: usize,
    /// Layers that have begun.
    layer: usize,
    part: Part,
}

impl Cursor<'_> {
    /// Goes to the next kernel of the sequence; its position within its layer, unless that is odd.
    fn advance(&mut self) -> Option<usize> {
        let at = self.next;
        self.next += 1;
        let layers = &self.segments.layers;
        if at >= self.segments.end {
            self.part = Part::Epilogue;
            return None;
        }
        if layers.get(self.layer).is_some_and(|(start, _)| *start == at) {
            self.part = Part::Layer(self.layer as u32);
            self.layer += 1;
        }
        let (start, odd) = *layers.get(self.layer.checked_sub(1)?)?;
        (!odd).then_some(at - start)
    }
}
