//! Steps from marks on the host, mapped to the GPU by what was launched inside them.

use std::collections::BTreeMap;

use steptally_trace_model::interval::Interval;
use steptally_trace_model::{RangeKind, StringId, Timestamp, Trace};

use super::grammar::{self, Grammar, MarkText};
use super::{DetectedStep, Detection, Mark};
use crate::Config;
use crate::gpu::Lane;
use crate::links::ApiIndex;
use crate::results::Confidence;

type Marks = BTreeMap<Grammar, Vec<(Mark, MarkText)>>;

pub(super) fn detect(lanes: &[Lane<'_>], apis: &[&ApiIndex], config: &Config) -> Option<Detection> {
    // Several grammars may mark the same steps, nested: the most telling one counts, in all lanes.
    let marks: Vec<_> = lanes.iter().map(|lane| marks_by_grammar(lane.trace, config)).collect();
    let mut mapped: BTreeMap<Grammar, Vec<Vec<DetectedStep>>> = BTreeMap::new();
    for grammar in marks.iter().flat_map(BTreeMap::keys) {
        mapped.entry(*grammar).or_insert_with(|| {
            (lanes.iter().zip(apis).zip(&marks))
                .map(|((lane, api), marks)| {
                    marks.get(grammar).map_or(Vec::new(), |marks| map_to_gpu(lane, api, marks))
                })
                .collect()
        });
    }
    let has_work =
        |lanes: &Vec<Vec<DetectedStep>>| lanes.iter().flatten().any(|step| step.start.is_some());
    let (grammar, lanes) = mapped.into_iter().find(|(_, lanes)| has_work(lanes))?;
    let count: usize = lanes.iter().map(Vec::len).sum();
    Some(Detection {
        detected_by: grammar.code(),
        confidence: Confidence::High,
        explanation: format!(
            "{count} {}, mapped to the GPU by the correlation ids of what was launched inside them",
            grammar.describe()
        ),
        lanes,
    })
}

/// Whether `trace` has any mark of a step at all, with GPU work or without.
pub(crate) fn count_marks(trace: &Trace, config: &Config) -> usize {
    marks_by_grammar(trace, config).values().next().map_or(0, Vec::len)
}

/// Of ranges; where none is a mark, of operators: old recorders (PyTorch 1.8) wrote ranges as such.
fn marks_by_grammar(trace: &Trace, config: &Config) -> Marks {
    let (ranges, ops) = (&trace.ranges, &trace.cpu_ops);
    let of_ranges =
        (0..ranges.len()).filter(|&row| ranges.kind[row] != RangeKind::NvtxMark).map(|row| {
            let interval = Interval::new(ranges.start[row], ranges.duration[row]);
            (ranges.name[row], Mark { thread: ranges.thread[row], interval }, ranges.open[row])
        });
    let marks = parsed_marks(trace, config, of_ranges);
    if !marks.is_empty() {
        return marks;
    }
    let of_ops = (0..ops.len()).map(|row| {
        let interval = Interval::new(ops.start[row], ops.duration[row]);
        (ops.name[row], Mark { thread: ops.thread[row], interval }, false)
    });
    parsed_marks(trace, config, of_ops)
}

/// The marks among host events in order of their starts: name, place, and whether nobody ended it.
fn parsed_marks(
    trace: &Trace,
    config: &Config,
    events: impl Iterator<Item = (StringId, Mark, bool)>,
) -> Marks {
    let mut parsed: Vec<Option<Option<MarkText>>> = vec![None; trace.strings.len()];
    let mut marks = Marks::new();
    let mut open_at = BTreeMap::new();
    for (name, mark, is_open) in events {
        let text = parsed[name.index()].get_or_insert_with(|| {
            let text = trace.text(name);
            match &config.step_pattern {
                Some(pattern) => pattern.is_match(text).then(|| grammar::parse_matched(text)),
                None => grammar::parse(text),
            }
        });
        if let Some(text) = text {
            let of_grammar = marks.entry(text.grammar).or_default();
            let place = of_grammar.len();
            // A mark that nobody ended is over when the next one begins.
            let open = open_at.remove(&(text.grammar, mark.thread));
            if let Some((open, _)) = open.and_then(|open: usize| of_grammar.get_mut(open)) {
                open.interval.end = mark.interval.start;
            }
            if is_open {
                open_at.insert((text.grammar, mark.thread), place);
            }
            of_grammar.push((mark, text.clone()));
        }
    }
    for marks in marks.values_mut() {
        drop_nested(marks);
    }
    marks
}

/// Of marks inside one another on a thread only the outermost is a step. Marks are sorted by start.
fn drop_nested(marks: &mut Vec<(Mark, MarkText)>) {
    let mut ends = std::collections::HashMap::new();
    marks.retain(|(mark, _)| {
        let end = ends.entry(mark.thread).or_insert(Timestamp::MIN);
        let outside = mark.interval.start >= *end;
        if outside {
            *end = mark.interval.end;
        }
        outside
    });
}

/// Gives each mark the start of the first GPU work that was launched inside it.
fn map_to_gpu(lane: &Lane<'_>, api: &ApiIndex, marks: &[(Mark, MarkText)]) -> Vec<DetectedStep> {
    let trace = lane.trace;
    let mut first_work: Vec<Option<Timestamp>> = vec![None; marks.len()];
    let (mut call_hint, mut mark_hint) = (0, 0);
    for op in &lane.ops {
        let call = api.call_near(op.correlation(trace), &mut call_hint);
        let found = match call {
            Some(call) => {
                let call = call as usize;
                let (thread, at) = (trace.api_calls.thread[call], trace.api_calls.start[call]);
                mark_around(marks, thread, at, &mut mark_hint)
            }
            None => None,
        };
        if let Some(mark) = found {
            // Lane ops are in time order: the first one seen is the first.
            first_work[mark].get_or_insert(op.start);
        }
    }
    let window_start = trace.meta.window.map(|window| window.start);
    let mut steps: Vec<_> = marks
        .iter()
        .zip(first_work)
        .map(|((mark, text), start)| DetectedStep {
            kind: text.kind.clone(),
            batch_size: text.batch_size,
            mark: Some(*mark),
            start,
            cut_at_start: window_start.is_some_and(|start| mark.interval.start < start),
        })
        .collect();
    // A mark that launched nothing on this device of a process with several is not its step.
    if steps.iter().any(|step| step.start.is_some()) && lane_is_one_of_several(lane) {
        steps.retain(|step| step.start.is_some());
    }
    steps
}

fn lane_is_one_of_several(lane: &Lane<'_>) -> bool {
    lane.trace.streams.iter().any(|(_, stream)| stream.device != lane.device)
}

fn mark_around(
    marks: &[(Mark, MarkText)],
    thread: steptally_trace_model::ThreadId,
    at: Timestamp,
    hint: &mut usize,
) -> Option<usize> {
    let covers = |index: usize| {
        let (mark, _) = &marks[index];
        mark.thread == thread && mark.interval.start <= at && at < mark.interval.end
    };
    if let Some(index) = (*hint..(*hint + 2).min(marks.len())).find(|&index| covers(index)) {
        *hint = index;
        return Some(index);
    }
    let after = marks.partition_point(|(mark, _)| mark.interval.start <= at);
    // Marks of other threads may lie between.
    let index = (after.saturating_sub(64)..after).rev().find(|&index| covers(index))?;
    *hint = index;
    Some(index)
}
