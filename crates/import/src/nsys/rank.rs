//! Which rank a process is, from whatever says so.

use std::collections::BTreeSet;

use steptally_trace_model::{Rank, RankSource, StringId, Trace};

/// The rank in the title of a process or thread: `sglang::scheduler_TP3`, `VllmWorker TP3`,
/// `VLLM::Worker_DP0_TP1`, `worker rank 2`.
pub(super) fn rank_in_title(title: &str) -> Option<u32> {
    ["TP", "rank", "Rank", "RANK"].into_iter().find_map(|key| number_after(title, key))
}

/// The number after `key` (with one of `" _=:-#"` between, or nothing), where `key` begins a word.
fn number_after(text: &str, key: &str) -> Option<u32> {
    text.match_indices(key).find_map(|(at, _)| {
        if text[..at].ends_with(|before: char| before.is_ascii_alphanumeric()) {
            return None;
        }
        let rest = &text[at + key.len()..];
        let rest = rest.strip_prefix([' ', '_', '=', ':', '-', '#']).unwrap_or(rest);
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        if rest[digits..].starts_with(|after: char| after.is_ascii_alphanumeric()) {
            return None;
        }
        rest[..digits].parse().ok()
    })
}

/// The rank that a whole range name states: `rank 3`, `TP3`, `global_rank=3`. A name that only
/// mentions a rank (`send to rank 3`) states nothing.
fn rank_in_range(name: &str) -> Option<u32> {
    let name = name.trim();
    let name = name.strip_prefix("global_").or(name.strip_prefix("global ")).unwrap_or(name);
    let stated = ["TP", "rank", "Rank", "RANK"].into_iter().any(|key| name.starts_with(key));
    let ends = name.ends_with(|last: char| last.is_ascii_digit());
    let word = name
        .trim_end_matches(|c: char| c.is_ascii_digit())
        .trim_end_matches([' ', '_', '=', ':', '-', '#']);
    let bare = ["TP", "rank", "Rank", "RANK"].contains(&word);
    (stated && ends && bare).then(|| rank_in_title(name))?
}

/// What a trace itself says about its rank.
pub(super) fn hint(trace: &Trace) -> Option<Rank> {
    let one = |found: BTreeSet<(u32, StringId)>, source| {
        let (number, label) = *found.first()?;
        let agree = found.iter().all(|(other, _)| *other == number);
        agree.then(|| Rank { number, source, label: trace.text(label).to_owned() })
    };
    let stated = |names: &mut dyn Iterator<Item = StringId>, parse: fn(&str) -> Option<u32>| {
        let distinct: BTreeSet<StringId> = names.collect();
        distinct.into_iter().filter_map(|name| Some((parse(trace.text(name))?, name))).collect()
    };
    let titles = stated(&mut trace.process_names.values().copied(), rank_in_title);
    let threads = stated(&mut trace.thread_names.values().copied(), rank_in_title);
    let ranges = stated(&mut trace.ranges.name.iter().copied(), rank_in_range);
    one(titles, RankSource::ProcessTitle)
        .or_else(|| one(threads, RankSource::ThreadName))
        .or_else(|| one(ranges, RankSource::RangeName))
}

/// Gives each trace its rank. `devices` are the GPUs that it used.
///
/// What a trace says itself counts where no two traces say the same; else several traces are
/// numbered by the order of their GPUs. A single trace may have its rank from the environment of
/// the launched process, else it has none.
pub(super) fn assign(traces: &mut [Trace], devices: &[Vec<u32>], environment: Option<u32>) {
    let hints: Vec<Option<Rank>> = traces.iter().map(hint).collect();
    let numbers: BTreeSet<u32> = hints.iter().flatten().map(|rank| rank.number).collect();
    if !numbers.is_empty() && numbers.len() == hints.iter().flatten().count() {
        for (trace, hint) in traces.iter_mut().zip(hints) {
            trace.meta.rank = hint;
        }
        return;
    }
    if let [trace] = traces {
        trace.meta.rank = environment.map(|number| Rank {
            number,
            source: RankSource::Environment,
            label: String::new(),
        });
        return;
    }
    let mut order: Vec<usize> = (0..traces.len()).collect();
    order.sort_by_key(|&index| (devices.get(index).and_then(|own| own.first()).copied(), index));
    for (number, index) in order.into_iter().enumerate() {
        let label = hints[index].as_ref().map(|hint| hint.label.clone()).unwrap_or_default();
        traces[index].meta.rank =
            Some(Rank { number: number as u32, source: RankSource::DeviceOrder, label });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_of_the_engines() {
        for (title, rank) in [
            ("sglang::scheduler_TP3", Some(3)),
            ("sglang::scheduler_DP1_TP12_EP0", Some(12)),
            ("VllmWorker TP3", Some(3)),
            ("VLLM::Worker_TP0", Some(0)),
            ("worker rank=7", Some(7)),
            ("sglang::schedul", None),
            ("HTTP3", None),
            ("TPU", None),
            ("TP3x", None),
            ("TP99999999999", None),
            ("python3", None),
        ] {
            assert_eq!(rank_in_title(title), rank, "{title}");
        }
    }

    #[test]
    fn a_range_states_a_rank_only_when_it_says_nothing_else() {
        for (name, rank) in [
            ("rank 3", Some(3)),
            ("TP3", Some(3)),
            ("global_rank=3", Some(3)),
            ("send to rank 3", None),
            ("rank 3 forward", None),
            ("rank", None),
            ("ranking 3", None),
            ("", None),
        ] {
            assert_eq!(rank_in_range(name), rank, "{name}");
        }
    }
}
