//! Steps without marks: the period of the sequence of kernels.
//!
//! A kernel that runs once per step (an anchor: embedding lookup, sampling) cuts the sequence into
//! segments; in a periodic sequence they are alike. Layers repeat within a step, but no kernel that
//! only a layer runs is an anchor with alike segments, for prologue and epilogue lie between.
//!
//! ```text
//!   e  LLLL  s   e  LLLL  s   e  LLLL  s        e: anchor, 3 times, 2 segments `e LLLL s`
//!   |<- step -->|<- step -->|
//! ```
//!
//! With fewer steps than that the layers themselves are alike. They are told apart by what lies
//! before the first anchor and after the last (parts of more steps, or kernels that no layer has)
//! and by ranges that name layers. A period in which nothing repeats may be either: then the
//! confidence is low.
//!
//! The boundary is put where the GPU is idle longest within the period, by the median.

use hashbrown::HashMap;
use steptally_trace_model::{StringId, Timestamp};

use super::{DetectedStep, Detection, StepKind, named_layers};
use crate::gpu::{GpuKind, Lane};
use crate::links::{ApiClass, ApiIndex};
use crate::results::Confidence;
use crate::stats;

/// This share of the segments must be alike.
const ALIKE: f64 = 0.6;
/// Alike segments must make up this share of all kernels.
const COVERAGE: f64 = 0.5;
/// From this share on the pattern counts as regular.
const REGULAR: f64 = 0.9;
/// An anchor occurs at least this often.
const MIN_OCCURRENCES: usize = 3;

pub(super) fn detect(lanes: &[Lane<'_>], apis: &[&ApiIndex]) -> Option<Detection> {
    let found: Vec<Option<Periodic>> = lanes.iter().map(Periodic::find).collect();
    let best = found.iter().flatten().max_by(|a, b| a.alike.total_cmp(&b.alike))?;
    let layers = (lanes.iter().zip(apis).zip(&found)).find_map(|((lane, api), periodic)| {
        named_layers::layers_of_periods(lane, api, &periodic.as_ref()?.starts)
    });
    if let Some(layers) = layers {
        return Some(Detection {
            detected_by: "none",
            confidence: Confidence::None,
            explanation: format!(
                "the sequence of kernels repeats every {} kernels, but the periods are \
                 layers, no steps: {layers}",
                best.length
            ),
            lanes: vec![Vec::new(); lanes.len()],
        });
    }
    let launches = (lanes.iter().zip(apis).zip(&found))
        .filter_map(|((lane, api), periodic)| {
            let steps = periodic.as_ref()?.starts.len();
            Some(graph_launches(lane, api) as f64 / steps as f64)
        })
        .fold(0.0, f64::max);
    let one_graph_per_step = (0.8..=1.25).contains(&launches);
    let regular = best.alike >= REGULAR && best.has_layers;
    let confidence = if regular { Confidence::Medium } else { Confidence::Low };
    let explanation = format!(
        "the sequence of kernels repeats every {} kernels ({:.0} % of the periods \
         alike{}), a step is taken to begin where the GPU waits longest{}",
        best.length,
        best.alike * 100.0,
        if one_graph_per_step { ", one graph launch in each" } else { "" },
        if best.has_layers {
            ""
        } else {
            "; no layers repeat within a period, so that it may be one layer instead of a step"
        },
    );
    Some(Detection {
        detected_by: if one_graph_per_step { "graph_launches" } else { "kernel_sequence" },
        confidence,
        explanation,
        lanes: found
            .into_iter()
            .map(|periodic| periodic.map_or(Vec::new(), |periodic| unmarked(periodic.starts)))
            .collect(),
    })
}

/// Steps that nothing but their start is known of.
pub(super) fn unmarked(starts: Vec<Timestamp>) -> Vec<DetectedStep> {
    let step = |start| DetectedStep {
        kind: StepKind::Other("step".to_owned()),
        batch_size: None,
        mark: None,
        start: Some(start),
        cut_at_start: false,
    };
    starts.into_iter().map(step).collect()
}

/// How many graph launches have GPU work on this lane.
fn graph_launches(lane: &Lane<'_>, api: &ApiIndex) -> usize {
    let (mut hint, mut last, mut count) = (0, None, 0);
    for op in &lane.ops {
        let correlation = op.correlation(lane.trace);
        if last != Some(correlation) {
            last = Some(correlation);
            let call = api.call_near(correlation, &mut hint);
            count += usize::from(call.is_some_and(|call| {
                api.class(lane.trace.api_calls.name[call as usize]) == ApiClass::GraphLaunch
            }));
        }
    }
    count
}

/// A periodic sequence of kernels.
struct Periodic {
    /// Starts of the steps.
    starts: Vec<Timestamp>,
    /// Kernels in a period.
    length: usize,
    /// Share of the segments that are alike.
    alike: f64,
    /// Whether a shorter sequence repeats within a period, as layers do within a step.
    has_layers: bool,
}

impl Periodic {
    fn find(lane: &Lane<'_>) -> Option<Self> {
        let kernels: Vec<usize> =
            (0..lane.ops.len()).filter(|&op| lane.ops[op].kind == GpuKind::Kernel).collect();
        let name = |kernel: &usize| lane.trace.kernels.name[lane.ops[*kernel].row as usize];
        let names: Vec<StringId> = kernels.iter().map(name).collect();
        let anchor = Anchor::find(&names)?;
        let starts = boundaries(lane, &kernels, &names, &anchor);
        (starts.len() >= MIN_OCCURRENCES).then_some(Self {
            starts,
            length: anchor.length,
            alike: anchor.alike,
            has_layers: anchor.has_layers(&names),
        })
    }
}

/// A kernel that runs once per period.
struct Anchor {
    /// Where it is in the sequence of kernels.
    positions: Vec<usize>,
    /// Hash of the segment that occurs most.
    modal: u64,
    /// Its length.
    length: usize,
    /// Its share of the segments.
    alike: f64,
}

impl Anchor {
    /// The rarest kernel whose segments are alike and cover the sequence, and are no layers.
    fn find(names: &[StringId]) -> Option<Self> {
        let hashes = SegmentHash::new(names);
        Self::candidates(names, &hashes).find(|anchor| !anchor.is_of_a_layer(names, &hashes))
    }

    /// The kernels whose segments are alike and cover the sequence, the rarest first.
    fn candidates(names: &[StringId], hashes: &SegmentHash) -> impl Iterator<Item = Self> {
        let mut positions: HashMap<StringId, Vec<usize>> = HashMap::new();
        for (at, name) in names.iter().enumerate() {
            positions.entry(*name).or_default().push(at);
        }
        let mut candidates: Vec<Vec<usize>> = positions
            .into_values()
            .filter(|at| at.len() >= MIN_OCCURRENCES && at.len() * 2 <= names.len())
            .collect();
        candidates.sort_by_key(|at| (at.len(), at[0]));
        candidates.into_iter().filter_map(|at| Self::judge(at, names.len(), hashes))
    }

    /// Whether a sequence repeats within the segment that occurs most.
    fn has_layers(&self, names: &[StringId]) -> bool {
        let hashes = SegmentHash::new(names);
        let segment = self.positions.windows(2).find(|pair| self.is_modal(pair, &hashes));
        segment.is_some_and(|pair| {
            let own = &names[pair[0]..pair[1]];
            Self::candidates(own, &SegmentHash::new(own)).next().is_some()
        })
    }

    /// Whether the edges hold mostly kernels that no segment has: then the segments are layers, the
    /// edges prologue and epilogue.
    fn is_of_a_layer(&self, names: &[StringId], hashes: &SegmentHash) -> bool {
        let segment = self.positions.windows(2).find(|pair| self.is_modal(pair, hashes));
        let Some(&[from, to]) = segment else {
            return false;
        };
        let own = &names[from..to];
        let (first, last) = (self.positions[0], self.positions[self.positions.len() - 1]);
        let edges = || names[..first].iter().chain(&names[last..]);
        let foreign = edges().filter(|name| !own.contains(name)).count();
        let beyond_one_segment = edges().count().saturating_sub(self.length).max(1);
        foreign >= 2 && foreign * 2 >= beyond_one_segment
    }

    fn is_modal(&self, pair: &[usize], hashes: &SegmentHash) -> bool {
        pair[1] - pair[0] == self.length && hashes.of(pair[0], pair[1]) == self.modal
    }

    fn judge(positions: Vec<usize>, total: usize, hashes: &SegmentHash) -> Option<Self> {
        let mut counts: HashMap<(u64, usize), usize> = HashMap::new();
        for pair in positions.windows(2) {
            let key = (hashes.of(pair[0], pair[1]), pair[1] - pair[0]);
            *counts.entry(key).or_default() += 1;
        }
        let (&(modal, length), &count) =
            counts.iter().max_by_key(|(key, count)| (**count, **key))?;
        let alike = count as f64 / (positions.len() - 1) as f64;
        let coverage = ((count + 1) * length) as f64 / total as f64;
        (count >= 2 && length >= 2 && alike >= ALIKE && coverage >= COVERAGE).then_some(Self {
            positions,
            modal,
            length,
            alike,
        })
    }
}

/// Polynomial hashes of all prefixes, so that any segment's hash takes constant time.
struct SegmentHash {
    prefix: Vec<u64>,
    power: Vec<u64>,
}

impl SegmentHash {
    const BASE: u64 = 0x9e37_79b9_7f4a_7c15;

    fn new(names: &[StringId]) -> Self {
        let (mut prefix, mut power) = (vec![0u64], vec![1u64]);
        for (at, name) in names.iter().enumerate() {
            let symbol = (u64::from(name.0) + 1).wrapping_mul(0xff51_afd7_ed55_8ccd);
            prefix.push(prefix[at].wrapping_mul(Self::BASE).wrapping_add(symbol ^ (symbol >> 29)));
            power.push(power[at].wrapping_mul(Self::BASE));
        }
        Self { prefix, power }
    }

    fn of(&self, from: usize, to: usize) -> u64 {
        self.prefix[to].wrapping_sub(self.prefix[from].wrapping_mul(self.power[to - from]))
    }
}

/// Starts of the steps: in each segment at the same kernel, the one before which the GPU waits
/// longest.
fn boundaries(
    lane: &Lane<'_>,
    kernels: &[usize],
    names: &[StringId],
    anchor: &Anchor,
) -> Vec<Timestamp> {
    let hashes = SegmentHash::new(names);
    let idle = idle_before(lane);
    // Idle before a kernel, copies since the kernel before it included.
    let wait = |kernel: usize| {
        let from = if kernel == 0 { 0 } else { kernels[kernel - 1] + 1 };
        (from..=kernels[kernel]).map(|op| idle[op]).max().unwrap_or(0)
    };
    let modal_at: Vec<usize> = anchor
        .positions
        .windows(2)
        .filter(|pair| anchor.is_modal(pair, &hashes))
        .map(|pair| pair[0])
        .collect();
    let sample = &modal_at[..modal_at.len().min(200)];
    let median_wait = |offset: usize| {
        let mut waits: Vec<i64> = sample.iter().map(|&at| wait(at + offset)).collect();
        stats::median(&mut waits).unwrap_or(0.0)
    };
    let offset = (0..anchor.length)
        .map(|offset| (median_wait(offset), offset))
        .max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)))
        .map_or(0, |(_, offset)| offset);
    let Some(&modal_start) = modal_at.first() else {
        return Vec::new();
    };
    let first_name = names[modal_start + offset];
    let start_of = |kernel: usize| {
        let from = if kernel == 0 { 0 } else { kernels[kernel - 1] + 1 };
        let op = (from..=kernels[kernel]).max_by_key(|&op| (idle[op], std::cmp::Reverse(op)));
        lane.ops[op.unwrap_or(kernels[kernel])].start
    };
    // The part before the first anchor may hold the end of a whole step.
    let before_first = anchor.positions[0].checked_sub(anchor.length - offset);
    let mut starts: Vec<Timestamp> = before_first
        .filter(|&at| offset > 0 && names[at] == first_name)
        .map(start_of)
        .into_iter()
        .collect();
    for (index, &at) in anchor.positions.iter().enumerate() {
        let end = anchor.positions.get(index + 1).copied().unwrap_or(names.len());
        let regular = at + offset < end && names[at + offset] == first_name;
        let irregular = || (at..end).filter(|&k| names[k] == first_name).max_by_key(|&k| wait(k));
        starts.extend(if regular { Some(at + offset) } else { irregular() }.map(start_of));
    }
    starts.dedup();
    starts
}

/// For each piece of work how long nothing had run before it.
fn idle_before(lane: &Lane<'_>) -> Vec<i64> {
    let mut reached = lane.ops.first().map_or(Timestamp::MIN, |op| op.start);
    let mut idle = Vec::with_capacity(lane.ops.len());
    for op in &lane.ops {
        idle.push((op.start - reached).clamp_to_zero().as_ns());
        reached = reached.max(op.end);
    }
    idle
}
