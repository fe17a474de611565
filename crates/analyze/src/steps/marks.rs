//! Steps from marks on the host, mapped to the GPU by what was launched inside them.

use std::collections::BTreeMap;

use steptally_trace_model::interval::Interval;
use steptally_trace_model::{Nanos, RangeKind, StringId, Timestamp, Trace};

use super::grammar::{self, Grammar, MarkText};
use super::{DetectedStep, Detection, Mark};
use crate::Config;
use crate::gpu::Lane;
use crate::links::ApiIndex;
use crate::results::Confidence;

/// A mark so many times as long as all GPU work is about something else.
const BEYOND_FACTOR: i64 = 3;

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
    let (grammar, steps) = mapped.into_iter().find(|(_, steps)| has_work(steps))?;
    let count: usize = steps.iter().map(Vec::len).sum();
    let beyond = marks_beyond_gpu_work(lanes, config).into_iter().next();
    Some(Detection {
        detected_by: grammar.code(),
        confidence: Confidence::High,
        explanation: format!(
            "{count} {}, mapped to the GPU by the correlation ids of what was launched inside them{}",
            grammar.describe(),
            beyond.map_or(String::new(), |beyond| format!("; {beyond}"))
        ),
        lanes: steps,
    })
}

/// Marks of which the recorded GPU work explains next to nothing, on whatever GPU of their process:
/// how long the longest is, and in which call its thread spent most of it.
pub(crate) fn marks_beyond_gpu_work(lanes: &[Lane<'_>], config: &Config) -> Vec<String> {
    let longest = |lane: &Lane<'_>| lane.span().map(|span| span.length());
    let is_longest = |lane: &&Lane<'_>| {
        let same = lanes.iter().filter(|other| std::ptr::eq(other.trace, lane.trace));
        same.map(longest).max() == Some(longest(lane))
    };
    lanes.iter().filter(is_longest).filter_map(|lane| mark_beyond_gpu_work(lane, config)).collect()
}

fn mark_beyond_gpu_work(lane: &Lane<'_>, config: &Config) -> Option<String> {
    let trace = lane.trace;
    let span = lane.span()?.length();
    let marks = marks_by_grammar(trace, config).into_values().next()?;
    let longest = marks.iter().map(|(mark, _)| mark).max_by_key(|mark| mark.interval.length())?;
    let length = longest.interval.length();
    if length.as_ns() < BEYOND_FACTOR.saturating_mul(span.as_ns()) {
        return None;
    }
    let calls = &trace.api_calls;
    let call = (0..calls.len())
        .filter(|&row| {
            calls.thread[row] == longest.thread
                && longest.interval.start <= calls.start[row]
                && calls.start[row] < longest.interval.end
        })
        .max_by_key(|&row| calls.duration[row]);
    let micros = |length: Nanos| length.as_ns() / 1000;
    let spent = call.map_or(String::new(), |call| {
        let name = trace.text(calls.name[call]);
        format!(" ({} us of it in one {name})", micros(calls.duration[call]))
    });
    Some(format!(
        "a mark lasts {} us{spent}, and all GPU work recorded spans {} us: what the host did in the \
         rest, or waited for, is in none of these numbers",
        micros(length),
        micros(span)
    ))
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
