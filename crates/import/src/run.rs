//! Members of one path to one run: what is left out, which rank each trace is, what conflicts.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use steptally_trace_model::{Severity, Timestamp, Trace};

use crate::file_name::left_out_by_name;
use crate::path::{Member, file_name};
use crate::rank::{Claim, Position, assign_ranks};
use crate::{FileIssue, FileSummary, Import, ImportError};

/// Makes an import of what was read below `root`.
pub(crate) fn assemble(root: &Path, mut members: Vec<Member>) -> Result<Import, ImportError> {
    if members.iter().all(|member| member.lanes.is_empty()) {
        return Err(nothing_usable(root, members));
    }
    for member in &mut members {
        if let Some(error) = &member.error {
            let reason = error.to_string();
            // A file named as a rank's trace is missed, whatever it turned out to be.
            if error.is_loss() || is_named_as_a_trace(&member.summary.path) {
                member.summary.partial = true;
                let text = || reason.clone();
                member.issues.note("unreadable_file", Severity::Error, None, text);
            }
            member.summary.left_out = Some(reason);
        }
    }
    leave_out_by_name(&mut members);
    leave_out_graph_captures(&mut members);
    leave_out_repeats(&mut members);
    find_ranks(root, &mut members);
    check_conflicts(&members)?;

    let mut import = Import::default();
    for (file, member) in members.into_iter().enumerate() {
        import
            .issues
            .extend(member.issues.iter().map(|issue| FileIssue { file, issue: issue.clone() }));
        import.traces.extend(member.lanes.into_iter().map(|lane| lane.trace));
        import.files.push(member.summary);
    }
    import.traces.sort_by_key(|trace| trace.rank().map_or((1, 0), |rank| (0, rank)));
    Ok(import)
}

/// Whether recorders give such names to the trace of a rank: `...TP-1.trace.json.gz`.
fn is_named_as_a_trace(path: &Path) -> bool {
    let name = file_name(path);
    let recorded = [".trace.json", ".pt.trace.json"]
        .iter()
        .any(|ending| name.strip_suffix(".gz").unwrap_or(&name).ends_with(ending));
    recorded && Position::of_name(&name).is_some()
}

fn nothing_usable(root: &Path, members: Vec<Member>) -> ImportError {
    let mut files: Vec<_> = members
        .into_iter()
        .filter_map(|member| Some((member.summary.path, member.error?)))
        .collect();
    match files.pop() {
        None => ImportError::EmptyFolder { path: root.to_owned() },
        Some((path, error)) if files.is_empty() => {
            ImportError::File { path, error: Box::new(error) }
        }
        Some(last) => {
            files.push(last);
            ImportError::NoTrace { path: root.to_owned(), files }
        }
    }
}

fn leave_out(member: &mut Member, reason: String) {
    member.lanes.clear();
    member.summary.left_out = Some(reason);
}

/// Positions of the members that have traces.
fn with_traces(members: &[Member]) -> Vec<usize> {
    (0..members.len()).filter(|&index| !members[index].lanes.is_empty()).collect()
}

/// For members of archives, whose names were not known before they were read.
fn leave_out_by_name(members: &mut [Member]) {
    let read = with_traces(members);
    let names: Vec<_> = read.iter().map(|&index| file_name(&members[index].summary.path)).collect();
    let reasons = left_out_by_name(&names.iter().map(String::as_str).collect::<Vec<_>>());
    for (index, reason) in read.into_iter().zip(reasons) {
        if let Some(reason) = reason {
            leave_out(&mut members[index], reason);
        }
    }
}

/// A trace of a server capturing its graphs looks like work, but runs almost no kernels.
fn leave_out_graph_captures(members: &mut [Member]) {
    let (captures, others): (Vec<_>, Vec<_>) = with_traces(members)
        .into_iter()
        .partition(|&index| members[index].lanes.iter().all(|l| is_graph_capture(&l.trace)));
    if others.is_empty() {
        return;
    }
    for index in captures {
        let reason = "graph-capture trace: a server capturing its graphs, almost no kernels run";
        leave_out(&mut members[index], reason.into());
    }
}

/// Whether the trace names functions that capture graphs, and has kernels for less than half of the
/// launches (without recorded launches: for less than a tenth of the operators).
fn is_graph_capture(trace: &Trace) -> bool {
    const MARKS: [&str; 5] = [
        "_capture_graph",
        "_dummy_run",
        "graph_capture",
        "capture_one_batch",
        "StreamBeginCapture",
    ];
    let launch_names: HashSet<_> = trace
        .strings
        .iter()
        .filter(|(_, text)| text.contains("LaunchKernel"))
        .map(|(id, _)| id)
        .collect();
    let launches = trace.api_calls.name.iter().filter(|name| launch_names.contains(name)).count();
    let kernels = trace.kernels.len();
    let few =
        if launches > 0 { kernels * 2 < launches } else { kernels * 10 < trace.cpu_ops.len() };
    few && trace.strings.iter().any(|(_, text)| MARKS.iter().any(|mark| text.contains(mark)))
}

/// What two recordings of the same events have in common, whoever wrote them down.
type Fingerprint = (usize, usize, usize, Timestamp, Timestamp);

fn fingerprint(trace: &Trace) -> Option<Fingerprint> {
    let starts = if trace.kernels.is_empty() { &trace.cpu_ops.start } else { &trace.kernels.start };
    let (first, last) = (starts.first()?, starts.last()?);
    let (kernels, copies) = (trace.kernels.len(), trace.copies.len());
    Some((kernels, copies, trace.cpu_ops.len(), *first, *last))
}

/// Leaves out what was recorded once and written twice: a merged trace whose ranks are all here by
/// themselves, the files of single ranks that are also in a merged trace, copies of a file.
fn leave_out_repeats(members: &mut [Member]) {
    let mut read = with_traces(members);
    // Files of one rank first: they win over a merged file that has nothing more.
    read.sort_by_key(|&index| members[index].lanes.len());
    let mut seen: HashMap<Fingerprint, usize> = HashMap::new();
    for index in read {
        let prints: Vec<_> =
            members[index].lanes.iter().filter_map(|lane| fingerprint(&lane.trace)).collect();
        let repeats: Vec<_> = prints.iter().filter_map(|print| seen.get(print).copied()).collect();
        let name = file_name(&members[index].summary.path);
        if !repeats.is_empty() && repeats.len() == members[index].lanes.len() {
            let other = file_name(&members[repeats[0]].summary.path);
            let more = if repeats.len() > 1 { " and others" } else { "" };
            leave_out(&mut members[index], format!("the same recording as {other}{more}"));
            continue;
        }
        for other in repeats {
            leave_out(&mut members[other], format!("the same recording as part of {name}"));
        }
        seen.extend(prints.into_iter().map(|print| (print, index)));
    }
}

fn find_ranks(root: &Path, members: &mut [Member]) {
    let mut claims = Vec::new();
    for member in members {
        let by_name =
            if member.lanes.len() == 1 { position_of(root, &member.summary.path) } else { None };
        for lane in &mut member.lanes {
            claims.push(Claim { trace: &mut lane.trace, prefix: &lane.prefix, by_name });
        }
    }
    assign_ranks(&mut claims);
}

/// By the name of the file, else of the folder it lies in, below the root.
fn position_of(root: &Path, path: &Path) -> Option<Position> {
    Position::of_name(&file_name(path)).or_else(|| {
        let below = path.strip_prefix(root).ok()?.parent()?;
        below
            .components()
            .rev()
            .find_map(|part| Position::of_name(&part.as_os_str().to_string_lossy()))
    })
}

fn check_conflicts(members: &[Member]) -> Result<(), ImportError> {
    let mut claimed: HashMap<u32, &FileSummary> = HashMap::new();
    for member in members {
        let ranks: HashSet<_> = member.lanes.iter().filter_map(|lane| lane.trace.rank()).collect();
        for rank in ranks {
            if let Some(first) = claimed.insert(rank, &member.summary) {
                let (first, second) = (first.path.clone(), member.summary.path.clone());
                return Err(ImportError::RankConflict { rank, first, second });
            }
        }
    }
    Ok(())
}
