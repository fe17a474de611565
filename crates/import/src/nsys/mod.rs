//! NVIDIA Nsight Systems: SQLite exports of every schema from 2021 to 3.28.
//!
//! What an export holds is decided by its tables, columns and data, never by its version: tables
//! are absent when empty, columns come and go, and a column may be there with every cell NULL.
//! Every process that worked on a GPU becomes one [`Trace`], since correlation ids repeat across
//! processes.
//!
//! Exports carry the whole environment of the target and strings that no row refers to. Only what
//! a kept row uses enters a trace, and of environment, command line and machine only an allow-list
//! of versions and flags; [`redact`] writes a copy without the rest.
//!
//! # Arguments kept beside the typed columns
//! Ranges have [`extra_args`](Trace::extra_args) `payload` (a number, or JSON), `category` (its name,
//! else its number) and `end_thread` (thread id, for a range that says where it was ended).

mod assemble;
mod cells;
mod checks;
mod counters;
mod error;
mod gpu;
mod host;
mod nvtx;
mod part;
mod rank;
mod redact;
mod schema;
mod source;
mod target;
mod tasks;

pub use error::NsysError;
pub use redact::{RedactReport, redact};

use std::path::Path;

use steptally_trace_model::{Issues, Severity, Trace};

use crate::ImportOptions;
use schema::Schema;
use source::Source;
use target::Target;

/// What was read of an export.
#[derive(Debug)]
pub struct NsysRead {
    /// One trace per process that worked on a GPU, by rank; one trace of the host side when no
    /// process did.
    pub traces: Vec<Trace>,
    /// What was wrong with the export.
    pub issues: Issues,
    /// Such as `nsys SQLite 3.7.2`; `nsys SQLite` when the export does not say its schema.
    pub format: String,
}

/// Reads an SQLite export of nsys. The file and its folder are not touched.
///
/// # Errors
/// When the file is no SQLite database, is one of nvprof or of something else, is too damaged to
/// list its tables, or holds no event at all. Each error has a [hint](NsysError::hint).
pub fn read_nsys(path: &Path, options: &ImportOptions) -> Result<NsysRead, NsysError> {
    let mut issues = Issues::default();
    let (connection, schema) = Schema::of_export(path)?;
    note_log(path, &mut issues);
    note_missing_end(path, &mut issues);
    let source = Source::new(path.into(), &connection, schema, &mut issues);
    let target = Target::read(&source, &connection, &mut issues);
    let pieces = tasks::read_tables(&source, &connection, options);
    let threads = tasks::thread_count(options);
    let traces = assemble::assemble(&source, &target, pieces, threads, &mut issues);
    if traces.is_empty() {
        let path = path.to_path_buf();
        return Err(match issues.find("unreadable_rows") {
            Some(issue) => NsysError::Damaged { path, reason: issue.first.text.clone() },
            None => NsysError::NoEvents { path, diagnostics: target.diagnostics(None) },
        });
    }
    let version = target.versions.iter().find(|(name, _)| name == "nsys_schema_version");
    let format = match version {
        Some((_, version)) => format!("nsys SQLite {version}"),
        None => "nsys SQLite".into(),
    };
    Ok(NsysRead { traces, issues, format })
}

/// A write-ahead log beside the file is not read: what is only in it is missed.
fn note_log(path: &Path, issues: &mut Issues) {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    if std::fs::metadata(&log).is_ok_and(|log| log.len() > 0) {
        issues.note("write_ahead_log", Severity::Warning, None, || {
            "a -wal file lies beside the export and is not read; close the program that uses it"
                .into()
        });
    }
}

/// A file that has fewer pages than it says was cut short. What is in the missing ones may not be
/// missed by any row that is read.
fn note_missing_end(path: &Path, issues: &mut Issues) {
    let mut head = [0; 32];
    let read = |head: &mut [u8]| {
        let mut file = std::fs::File::open(path)?;
        std::io::Read::read_exact(&mut file, head)?;
        file.metadata().map(|file| file.len())
    };
    let Ok(size) = read(&mut head) else { return };
    let number =
        |bytes: &[u8]| bytes.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    // A page size of 65536 is written as 1.
    let page = match number(&head[16..18]) {
        1 => 65_536,
        page => page,
    };
    let expected = number(&head[28..32]) * page;
    if size < expected {
        issues.note("file_cut_short", Severity::Error, None, || {
            format!("{size} of {expected} bytes are there")
        });
    }
}
