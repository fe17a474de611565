//! A path that a user typed to an [`Import`]: one file, an archive, or a folder as one run.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use steptally_trace_model::{Issue, Issues, Severity, Trace};

use crate::container::{Content, Damage, Entry, Foreign, OnDisk, each_payload, is_nsys_file};
use crate::file_name::left_out_by_name;
use crate::nsys::read_nsys;
use crate::run::assemble;
use crate::torch::{Lane, TorchRead, read_torch};
use crate::{FileError, FileSummary, Import, ImportError, ImportOptions, nsys_report};

/// One file, or one member of an archive, as far as it was read.
pub(crate) struct Member {
    pub(crate) summary: FileSummary,
    pub(crate) issues: Issues,
    pub(crate) lanes: Vec<Lane>,
    /// Why there are no lanes, when it is the file's fault.
    pub(crate) error: Option<FileError>,
}

impl Member {
    fn left_out(path: PathBuf, reason: String) -> Self {
        let bytes = fs::metadata(&path).map_or(0, |metadata| metadata.len());
        let format = String::from("not read");
        let summary = FileSummary { path, bytes, format, partial: false, left_out: Some(reason) };
        Self { summary, issues: Issues::default(), lanes: Vec::new(), error: None }
    }

    fn without_lanes(path: PathBuf, error: FileError) -> Self {
        let format = String::from("not a trace that can be read");
        let summary = FileSummary { path, bytes: 0, format, partial: false, left_out: None };
        Self { summary, issues: Issues::default(), lanes: Vec::new(), error: Some(error) }
    }
}

/// Reads a file, or a folder as one run with one file per rank.
///
/// A folder's own files are read; only when none of them is a trace, those of its sub-folders are.
/// Left out, with the reason in [`FileSummary::left_out`], are: files that are no traces; a merged
/// trace beside the per-rank traces that it was made of; the EXTEND stage beside the DECODE stage of
/// one profile; traces of a graph capture beside others; the same recording twice; nsys exports
/// beside torch.profiler traces; an nsys report beside its export.
///
/// # Errors
/// When nothing usable is there, and when two files claim one rank.
pub fn import_path(path: &Path, options: &ImportOptions) -> Result<Import, ImportError> {
    let unreadable = |error| ImportError::File {
        path: path.to_owned(),
        error: Box::new(FileError::Unreadable(error)),
    };
    let members = if fs::metadata(path).map_err(unreadable)?.is_dir() {
        read_folder(path, options).map_err(unreadable)?
    } else {
        read_file(path, options)
    };
    assemble(path, members)
}

fn read_folder(folder: &Path, options: &ImportOptions) -> io::Result<Vec<Member>> {
    let (files, folders) = list(folder)?;
    let mut members = read_files(files, options);
    if members.iter().all(|member| member.lanes.is_empty()) {
        let mut deeper = Vec::new();
        for folder in folders {
            match list(&folder) {
                Ok((files, _)) => deeper.extend(files),
                Err(error) => {
                    members.push(Member::left_out(folder, format!("cannot be read: {error}")));
                }
            }
        }
        members.extend(read_files(deeper, options));
    } else {
        let reason = "a folder beside traces; pass it by itself to read it";
        members.extend(folders.into_iter().map(|path| Member::left_out(path, reason.into())));
    }
    members.sort_by(|a, b| a.summary.path.cmp(&b.summary.path));
    Ok(members)
}

/// The files and the sub-folders of a folder, each in order of name.
fn list(folder: &Path) -> io::Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        paths.push(entry?.path());
    }
    paths.sort();
    Ok(paths.into_iter().partition(|path| !path.is_dir()))
}

/// Reads the files of one run, several at a time. nsys files only if nothing else is a trace.
fn read_files(files: Vec<PathBuf>, options: &ImportOptions) -> Vec<Member> {
    let names: Vec<_> = files.iter().map(|path| file_name(path)).collect();
    let by_name = left_out_by_name(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let mut members = Vec::new();
    let (mut nsys, mut others) = (Vec::new(), Vec::new());
    for (path, reason) in files.into_iter().zip(by_name) {
        if let Some(reason) = reason {
            members.push(Member::left_out(path, reason));
        } else if !path.is_file() {
            members.push(Member::left_out(path, "not a regular file".into()));
        } else if file_name(&path).starts_with('.') {
            members.push(Member::left_out(path, "hidden file".into()));
        } else if fs::metadata(&path).is_ok_and(|metadata| metadata.len() == 0) {
            // Not even opened: the kernel's own files have this size, and some never end.
            members.push(Member::without_lanes(path, FileError::EmptyFile));
        } else if is_nsys_file(&path) {
            nsys.push(path);
        } else {
            others.push(path);
        }
    }
    members.extend(read_in_parallel(&others, options));
    if members.iter().any(|member| !member.lanes.is_empty()) {
        let reason = "an nsys export beside torch.profiler traces; pass it by itself to read it";
        members.extend(nsys.into_iter().map(|path| Member::left_out(path, reason.into())));
    } else {
        let is_export = |path: &PathBuf| path.extension().is_some_and(|suffix| suffix == "sqlite");
        let (reports, exports): (Vec<_>, Vec<_>) = nsys
            .into_iter()
            .partition(|path| !is_export(path) && path.with_extension("sqlite").is_file());
        let reason = "an nsys report beside its SQLite export, which is read";
        members.extend(reports.into_iter().map(|path| Member::left_out(path, reason.into())));
        members.extend(read_in_parallel(&exports, options));
    }
    members
}

fn read_in_parallel(files: &[PathBuf], options: &ImportOptions) -> Vec<Member> {
    let threads = options
        .threads
        .or_else(|| thread::available_parallelism().ok().map(Into::into))
        .unwrap_or(1)
        .max(1);
    let at_once = threads.min(files.len());
    let options = ImportOptions { threads: Some(threads / at_once.max(1)), ..options.clone() };
    let next = AtomicUsize::new(0);
    let members = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some(path) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let read = read_file(path, &options);
                    members.lock().unwrap_or_else(PoisonError::into_inner).extend(read);
                }
            });
        }
    });
    members.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Reads all that is in one file on disk.
fn read_file(path: &Path, options: &ImportOptions) -> Vec<Member> {
    let bytes = fs::metadata(path).map_or(0, |metadata| metadata.len());
    let damage = Damage::default();
    let mut members: Vec<Member> = Vec::new();
    each_payload(path, options.progress.clone(), &damage, &mut |entry| {
        members.push(read_entry(entry, bytes, &damage, options));
    });
    // What was found out about the archive after its last member.
    if let Some(last) = members.last_mut() {
        last.add_issues(damage.take());
    }
    members
}

fn read_entry(entry: Entry<'_>, bytes: u64, damage: &Damage, options: &ImportOptions) -> Member {
    let Entry { path, layers, content } = entry;
    let name = file_name(&path);
    let result = content.and_then(|content| match content {
        Content::Json(mut source) => {
            let read = read_torch(&mut source, options);
            // A decompressor finds out about its end only when it gets there.
            let _ = io::copy(&mut source, &mut io::sink());
            let TorchRead { lanes, issues, .. } = read?;
            if lanes.iter().all(|lane| has_no_rows(&lane.trace)) {
                let found = |issue: &Issue| {
                    format!(": {} x {} ({})", issue.count, issue.code, issue.first.text)
                };
                let detail = issues.iter().next().map(found).unwrap_or_default();
                return Err(FileError::NoKnownEvents { detail });
            }
            Ok((lanes, issues, String::from("torch.profiler JSON")))
        }
        Content::Sqlite(file) => read_sqlite(&file, options),
        Content::NsysReport(file) => {
            let exported = nsys_report::export(file.path(), &name, &*options.progress)?;
            read_sqlite(&OnDisk::File(exported.sqlite.clone()), options)
        }
    });
    let (lanes, issues, mut format, error) = match result {
        Ok((lanes, issues, format)) => (lanes, issues, format, None),
        Err(FileError::Foreign(Foreign::Binary)) if name.ends_with(".qdstrm") => {
            let format = String::from("Nsight Systems raw data");
            (Vec::new(), Issues::default(), format, Some(FileError::Foreign(Foreign::Qdstrm)))
        }
        Err(error) => {
            let format = String::from("not a trace that can be read");
            (Vec::new(), Issues::default(), format, Some(error))
        }
    };
    if !layers.is_empty() {
        let outwards: Vec<_> = layers.iter().rev().copied().collect();
        format = format!("{format} ({})", outwards.join(" in "));
    }
    let container = damage.take();
    let error = error.map(|error| match container.iter().find(|i| i.severity == Severity::Error) {
        Some(issue) => {
            FileError::Damaged { error: Box::new(error), damage: issue.first.text.clone() }
        }
        None => error,
    });
    let summary = FileSummary { path, bytes, format, partial: false, left_out: None };
    let mut member = Member { summary, issues: container, lanes, error };
    member.add_issues(issues);
    member
}

impl Member {
    /// Adds issues; an error among all of them makes the file partial.
    fn add_issues(&mut self, issues: Issues) {
        self.issues.append(issues);
        self.summary.partial = self.issues.worst() == Some(Severity::Error)
            || self.lanes.iter().any(|lane| lane.trace.meta.partial);
        for lane in &mut self.lanes {
            lane.trace.meta.partial |= self.summary.partial;
        }
    }
}

fn read_sqlite(
    file: &OnDisk,
    options: &ImportOptions,
) -> Result<(Vec<Lane>, Issues, String), FileError> {
    let read = read_nsys(file.path(), options)
        .map_err(|error| FileError::Nsys { path: file.path().to_owned(), error })?;
    let lanes =
        read.traces.into_iter().map(|trace| Lane { prefix: String::new(), trace }).collect();
    Ok((lanes, read.issues, read.format))
}

fn has_no_rows(trace: &Trace) -> bool {
    trace.gpu_event_count() == 0
        && trace.gpu_ranges.is_empty()
        && trace.api_calls.is_empty()
        && trace.cpu_ops.is_empty()
        && trace.ranges.is_empty()
        && trace.frames.is_empty()
        && trace.syncs.is_empty()
        && trace.overheads.is_empty()
        && trace.graph_nodes.is_empty()
        && trace.counters.is_empty()
}

/// The last part of a path; of a member of an archive, the last part of its own name.
pub(crate) fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    match name.rsplit_once('!') {
        Some((_, member)) if !member.is_empty() => member.to_owned(),
        _ => name,
    }
}
