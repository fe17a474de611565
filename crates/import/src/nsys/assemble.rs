//! Puts the pieces of the tables together: one trace per process that worked on a GPU.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use steptally_trace_model::{
    CounterRow, CounterTable, Issues, Nanos, Severity, Timestamp, Trace, TraceBuilder, TraceFormat,
};

use super::part::Part;
use super::schema::open;
use super::source::{GlobalPid, Names, Source};
use super::target::Target;
use super::tasks::Piece;
use super::{checks, rank};

/// One trace to be: its process, and the parts of it (and of processes merged into it).
struct Rank {
    owner: GlobalPid,
    members: Vec<(GlobalPid, Vec<Part>)>,
}

/// The traces of an export, ordered by rank; empty when there was no event at all.
pub(super) fn assemble(
    source: &Source,
    target: &Target,
    pieces: Vec<Piece>,
    threads: usize,
    issues: &mut Issues,
) -> Vec<Trace> {
    let mut partial =
        ["unreadable_rows", "file_cut_short"].iter().any(|code| issues.find(code).is_some());
    let mut processes: BTreeMap<GlobalPid, Vec<Part>> = BTreeMap::new();
    let mut samples = Vec::new();
    for piece in pieces {
        partial |= piece.partial;
        issues.append(piece.issues);
        for (process, part) in piece.parts {
            if part.builder.counters.is_empty() {
                processes.entry(process).or_default().push(part);
            } else {
                samples.push(part.builder);
            }
        }
    }
    processes.retain(|_, parts| parts.iter().any(|part| events(&part.builder) > 0));
    if processes.is_empty() && samples.is_empty() {
        return Vec::new();
    }
    let ranks = divide(processes, issues);
    let merged: Vec<Mutex<Option<Trace>>> = ranks.iter().map(|_| Mutex::new(None)).collect();
    let owners: Vec<GlobalPid> = ranks.iter().map(|rank| rank.owner).collect();
    let ranks: Vec<Mutex<Option<Rank>>> =
        ranks.into_iter().map(|rank| Mutex::new(Some(rank))).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(slot) = ranks.get(index) else { return };
            let Some(rank) = slot.lock().ok().and_then(|mut rank| rank.take()) else {
                continue;
            };
            let mut trace = merge(source, target, rank, &samples);
            trace.meta.partial |= partial;
            if let Ok(mut slot) = merged[index].lock() {
                *slot = Some(trace);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(ranks.len()) {
            scope.spawn(work);
        }
        work();
    });
    let traces = merged.into_iter().filter_map(|trace| trace.into_inner().ok().flatten());
    conclude(target, owners, traces.collect(), issues)
}

/// Number of events that make a process worth a trace.
fn events(trace: &Trace) -> usize {
    trace.gpu_event_count()
        + trace.api_calls.len()
        + trace.os_calls.len()
        + trace.ranges.len()
        + trace.syncs.len()
        + trace.graph_nodes.len()
}

fn all_events(parts: &[Part]) -> usize {
    parts.iter().map(|part| events(&part.builder) + part.builder.overheads.len()).sum()
}

/// Decides which processes become traces.
fn divide(processes: BTreeMap<GlobalPid, Vec<Part>>, issues: &mut Issues) -> Vec<Rank> {
    let works = |parts: &[Part]| parts.iter().any(|part| part.builder.gpu_event_count() > 0);
    let known: Vec<GlobalPid> = processes
        .iter()
        .filter(|(process, parts)| **process != GlobalPid::UNKNOWN && works(parts))
        .map(|(process, _)| *process)
        .collect();
    if known.is_empty() {
        // No row says which process worked on a GPU, or none did: all is one trace.
        let named: Vec<GlobalPid> =
            processes.keys().copied().filter(|process| *process != GlobalPid::UNKNOWN).collect();
        let owner = match named.as_slice() {
            [owner] => *owner,
            _ => GlobalPid::UNKNOWN,
        };
        return vec![Rank { owner, members: processes.into_iter().collect() }];
    }
    let mut ranks: Vec<Rank> = Vec::new();
    let mut unknown = None;
    let (mut idle, mut idle_events, mut first_idle) = (0, 0, None);
    for (process, parts) in processes {
        if process == GlobalPid::UNKNOWN {
            unknown = Some(parts);
        } else if works(&parts) {
            ranks.push(Rank { owner: process, members: vec![(process, parts)] });
        } else {
            idle += 1;
            idle_events += all_events(&parts);
            first_idle.get_or_insert_with(|| process.os_pid());
        }
    }
    issues.note_many("process_without_gpu_work", Severity::Info, idle, None, || {
        format!(
            "{idle_events} host events of processes without GPU work are left out (first: process {})",
            first_idle.unwrap_or_default()
        )
    });
    if let Some(parts) = unknown {
        let rows = all_events(&parts) as u64;
        issues.note_many("row_without_process", Severity::Warning, rows, None, || {
            "rows do not say of which process they are".into()
        });
        match ranks.as_mut_slice() {
            // There is only one process that they can be of.
            [only] => only.members.push((GlobalPid::UNKNOWN, parts)),
            _ if works(&parts) => ranks.push(Rank {
                owner: GlobalPid::UNKNOWN,
                members: vec![(GlobalPid::UNKNOWN, parts)],
            }),
            _ => {}
        }
    }
    ranks
}

/// One trace from the parts of a rank.
fn merge(source: &Source, target: &Target, rank: Rank, samples: &[TraceBuilder]) -> Trace {
    let mut whole: Option<TraceBuilder> = None;
    let mut members = Vec::new();
    for (process, parts) in rank.members {
        members.push(process);
        for mut part in parts {
            part.builder.thread_names.extend(part.named_threads);
            match &mut whole {
                None => whole = Some(part.builder),
                Some(whole) => whole.append(part.builder),
            }
        }
    }
    let mut builder = whole.unwrap_or_default();
    if let Ok(connection) = open(&source.path) {
        let mut names = source.names(&connection);
        for process in members {
            name_process(&mut builder, target, process, &mut names);
        }
    }
    add_samples(&mut builder, target, rank.owner, samples);
    close_open_ranges(&mut builder);
    let meta = &mut builder.meta;
    meta.format = TraceFormat::NsysSqlite;
    meta.devices = target.devices(rank.owner);
    meta.base_time_ns = target.base_time_ns;
    meta.window = target.window(rank.owner);
    meta.versions = target.versions.clone();
    let whose = (rank.owner != GlobalPid::UNKNOWN).then_some(rank.owner);
    meta.diagnostics = target.diagnostics(whose);
    builder.finish()
}

/// Names of the process and of its threads. Only names of what is in the trace enter it. Of a path
/// the last part is enough.
fn name_process(
    builder: &mut TraceBuilder,
    target: &Target,
    process: GlobalPid,
    names: &mut Names<'_>,
) {
    if process == GlobalPid::UNKNOWN {
        return;
    }
    let id = builder.process(&process.os_pid());
    if let Some(title) = target.processes.get(&process) {
        let name = builder.strings.intern(base_name(title));
        builder.process_names.insert(id, name);
    }
    let threads: Vec<_> = builder
        .threads
        .iter()
        .filter(|(thread, value)| value.process == id && !builder.thread_names.contains_key(thread))
        .filter_map(|(thread, value)| {
            let tid: i64 = builder.text(value.tid).parse().ok()?;
            Some((thread, process.0 | tid))
        })
        .collect();
    for (thread, global) in threads {
        if let Some(name) = target.thread_name(global, names) {
            let name = builder.strings.intern(&name);
            builder.thread_names.insert(thread, name);
        }
    }
}

/// The program of a path, without the directories; a title stays as it is.
pub(super) fn base_name(title: &str) -> &str {
    let is_path = title.starts_with(['/', '.', '~']) || title.get(1..3) == Some(":\\");
    match title.rsplit(['/', '\\']).next() {
        Some(name) if is_path && !name.is_empty() => name,
        _ => title,
    }
}

/// Samples of the GPUs that a process uses, under the process's ordinals. A trace without GPU work
/// takes all of them.
fn add_samples(
    builder: &mut TraceBuilder,
    target: &Target,
    owner: GlobalPid,
    samples: &[TraceBuilder],
) {
    if samples.is_empty() {
        return;
    }
    let ordinals: BTreeSet<u32> =
        builder.streams.iter().filter_map(|(_, stream)| stream.device).collect();
    let of_gpu: BTreeMap<u64, u32> = ordinals
        .into_iter()
        .map(|ordinal| (u64::from(target.gpu_of(owner, ordinal).unwrap_or(ordinal)), ordinal))
        .collect();
    for part in samples {
        let table: &CounterTable = &part.counters;
        for row in table.rows() {
            let device = match row.device.value() {
                Some(gpu) if !of_gpu.is_empty() => match of_gpu.get(&gpu) {
                    Some(&ordinal) => Some(u64::from(ordinal)),
                    None => continue,
                },
                device => device,
            };
            let name = builder.strings.intern(part.text(row.name));
            builder.counters.push(CounterRow { name, device: device.into(), ..row });
        }
    }
}

/// Ranges without an end last until the last event of the trace ends.
fn close_open_ranges(builder: &mut TraceBuilder) {
    if !builder.ranges.open.contains(&true) {
        return;
    }
    let mut last = Timestamp::MIN;
    macro_rules! ends {
        ($($table:ident)*) => {$(
            for row in 0..builder.$table.len() {
                last = last.max(builder.$table.end(row));
            }
        )*};
    }
    ends!(kernels copies graph_traces api_calls os_calls ranges syncs);
    let ranges = &mut builder.ranges;
    for row in 0..ranges.len() {
        if ranges.open[row] {
            ranges.duration[row] = (last - ranges.start[row]).max(Nanos::ZERO);
        }
    }
}

/// Ranks, order, and what the traces together say about the capture.
fn conclude(
    target: &Target,
    owners: Vec<GlobalPid>,
    mut traces: Vec<Trace>,
    issues: &mut Issues,
) -> Vec<Trace> {
    let mut devices = Vec::new();
    for (trace, owner) in traces.iter_mut().zip(owners) {
        let open = trace.ranges.open.iter().filter(|open| **open).count() as u64;
        issues.note_many("open_range", Severity::Info, open, None, || {
            "NVTX ranges without an end last until the end of the trace".into()
        });
        checks::graphs(trace, issues);
        let streams: BTreeSet<_> = [&trace.kernels.stream, &trace.copies.stream]
            .into_iter()
            .chain([&trace.graph_traces.stream])
            .flatten()
            .copied()
            .collect();
        let own: BTreeSet<u32> = streams
            .into_iter()
            .filter_map(|stream| trace.device_of(stream))
            .map(|ordinal| target.gpu_of(owner, ordinal).unwrap_or(ordinal))
            .collect();
        devices.push(own.into_iter().collect::<Vec<_>>());
    }
    if traces.iter().all(|trace| trace.gpu_event_count() == 0) {
        if let Some(trace) = traces.first_mut() {
            checks::no_gpu_work(trace, issues);
        }
    } else {
        let used: BTreeSet<u32> = devices.iter().flatten().copied().collect();
        checks::idle_gpus(&mut traces, &used, target, issues);
    }
    rank::assign(&mut traces, &devices, target.environment_rank);
    traces.sort_by_key(|trace| trace.rank().map_or((1, 0), |rank| (0, rank)));
    traces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lose_their_directories_and_titles_do_not() {
        assert_eq!(base_name("/home/ann/venv/bin/python"), "python");
        assert_eq!(base_name("./bin/test"), "test");
        assert_eq!(base_name("C:\\Users\\ann\\a.exe"), "a.exe");
        assert_eq!(base_name("sglang::scheduler_TP0"), "sglang::scheduler_TP0");
        assert_eq!(base_name("ray::Worker/0"), "ray::Worker/0");
    }
}
