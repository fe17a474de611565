//! Whether the periods of a kernel sequence are layers, by what ranges and operators are named.
//!
//! A range that names a layer (`blocks.7.attn`, `encoder.block.15.layer.0`, `layer 3`) names every
//! layer within a step, so that the lowest number is the same in each. Where the lowest number goes
//! on by one from period to period, each period is a layer:
//!
//! ```text
//!   host     blocks.2  |  blocks.3  |  blocks.4  |        layers
//!   host     blocks.0 .. blocks.9   |  blocks.0 .. blocks.9   |        steps
//! ```

use steptally_trace_model::{StringId, ThreadId, Timestamp, Trace};

use crate::gpu::Lane;
use crate::links::ApiIndex;

/// The words before the number of a layer.
const WORDS: [&str; 4] = ["layers", "layer", "blocks", "block"];
/// The number must go on or start over in this share of the pairs of neighbouring periods,
const ADVANCING: f64 = 0.8;
/// and go on in as many pairs as this.
const MIN_ADVANCING: usize = 2;

/// What says that the periods are layers, as `ranges name a layer in each, 2 to 19`; `None` when
/// nothing does. `starts` are the starts of GPU work, in order.
pub(super) fn layers_of_periods(
    lane: &Lane<'_>,
    api: &ApiIndex,
    starts: &[Timestamp],
) -> Option<String> {
    let trace = lane.trace;
    let mut named = named_layers(trace);
    named.sort_unstable();
    let (mut hint, mut launches) = (0, Vec::new());
    for &start in starts {
        let first = lane.ops.partition_point(|op| op.start < start);
        let call = api.call_near(lane.ops.get(first)?.correlation(trace), &mut hint);
        launches.push(call.map(|call| {
            (trace.api_calls.thread[call as usize], trace.api_calls.start[call as usize])
        }));
    }
    // The lowest number that is named between the launches of a period's first work and the next's.
    let lowest = |pair: &[Option<(ThreadId, Timestamp)>]| {
        let (&[Some(from), Some(to)], true) = (pair, pair.len() == 2) else {
            return None;
        };
        let first = named.partition_point(|&(thread, at, _)| (thread, at) < from);
        let own = named[first..].iter().take_while(|&&(thread, at, _)| (thread, at) < to);
        own.map(|(_, _, number)| *number).min().filter(|_| from.0 == to.0)
    };
    let numbers: Vec<i64> = launches.windows(2).filter_map(lowest).collect();
    let (first, last) = (*numbers.iter().min()?, *numbers.iter().max()?);
    // Up in a forward pass, down in a backward pass, starting over with the next pass.
    let is_of_layers = [(1, first), (-1, last)].into_iter().any(|(by, restart)| {
        let pairs = || numbers.windows(2).map(|pair| (pair[1] - pair[0], pair[1]));
        let advancing = pairs().filter(|(step, _)| *step == by).count();
        let over = pairs().filter(|(step, to)| step * by < 0 && *to == restart).count();
        let needed = ADVANCING * numbers.len().saturating_sub(1) as f64;
        advancing >= MIN_ADVANCING && advancing >= over && (advancing + over) as f64 >= needed
    });
    is_of_layers.then(|| format!("ranges name another layer in each, {first} to {last}"))
}

/// The host ranges and operators that name a layer: thread, start and number.
fn named_layers(trace: &Trace) -> Vec<(ThreadId, Timestamp, i64)> {
    let mut parsed: Vec<Option<Option<i64>>> = vec![None; trace.strings.len()];
    let mut number = |name: StringId| {
        *parsed[name.index()].get_or_insert_with(|| layer_number(trace.text(name)))
    };
    let (ranges, ops) = (&trace.ranges, &trace.cpu_ops);
    let of_ranges =
        (0..ranges.len()).map(|row| (ranges.name[row], ranges.thread[row], ranges.start[row]));
    let of_ops = (0..ops.len()).map(|row| (ops.name[row], ops.thread[row], ops.start[row]));
    of_ranges
        .chain(of_ops)
        .filter_map(|(name, thread, start)| Some((thread, start, number(name)?)))
        .collect()
}

/// The number after the first word for a layer: 15 in `pre_forward (encoder.block.15.layer.0)`.
fn layer_number(text: &str) -> Option<i64> {
    let mut words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty());
    while let Some(word) = words.next() {
        let digits = word.trim_start_matches(|c: char| c.is_ascii_alphabetic());
        let letters = &word[..word.len() - digits.len()];
        if !WORDS.iter().any(|known| letters.eq_ignore_ascii_case(known)) {
            continue;
        }
        let number = if digits.is_empty() { words.next()? } else { digits };
        if let Ok(number) = number.parse::<u32>() {
            return Some(number.into());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::layer_number;

    #[test]
    fn names_of_layers() {
        for (text, number) in [
            ("FSDP::pre_forward (blocks.2._checkpoint_wrapped_module), op_id = 990878", Some(2)),
            ("FSDP::pre_forward (encoder.block.15.layer.0)", Some(15)),
            ("model.layers.31.self_attn", Some(31)),
            ("layer 3", Some(3)),
            ("Layer_7", Some(7)),
            ("layer12", Some(12)),
            ("aten::layer_norm, seq = 45332", None),
            ("step 3", None),
            ("block", None),
            ("thread_block.x", None),
            ("multilayer 3", None),
            ("layer 99999999999999999999", None),
        ] {
            assert_eq!(layer_number(text), number, "{text}");
        }
    }
}
