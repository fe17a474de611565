//! Bytes to [`Trace`]s: torch.profiler (Kineto) Chrome JSON and nsys SQLite exports, plain, in
//! gzip, zstd, zip or tar, one file or a folder of ranks.
//!
//! A format is detected by content, container first, then payload. What can be read of a damaged
//! file is read; each kind of damage is an [`Issue`] with a count. An error means that nothing
//! usable was there.

mod container;
mod error;
mod file_name;
pub mod nsys;
mod nsys_report;
mod options;
mod path;
mod rank;
mod run;
pub mod torch;

pub use container::Foreign;
pub use error::{FileError, ImportError};
pub use nsys_report::ExportError;
pub use options::{ImportOptions, NoProgress, Progress};
pub use path::import_path;

use std::path::PathBuf;

use steptally_trace_model::{Issue, Trace};

/// Everything that was read from a path.
#[derive(Debug, Default)]
pub struct Import {
    /// One trace per rank, ordered by rank, unknown ranks last.
    pub traces: Vec<Trace>,
    /// The files (and archive members) that were looked at.
    pub files: Vec<FileSummary>,
    /// What was wrong with them.
    pub issues: Vec<FileIssue>,
}

/// One file, or one member of an archive.
#[derive(Clone, Debug)]
pub struct FileSummary {
    /// The file; for a member of an archive, `archive!member`.
    pub path: PathBuf,
    /// Size on disk in bytes (of the archive, for a member).
    pub bytes: u64,
    /// What it is, such as `torch.profiler JSON (gzip)` or `nsys SQLite 3.7.2`.
    pub format: String,
    /// Whether part of it could not be read.
    pub partial: bool,
    /// Why it takes no part in the analysis, if it does not (`graph-capture trace`, `not a trace`).
    pub left_out: Option<String>,
}

/// An issue, and the file it is about.
#[derive(Clone, Debug)]
pub struct FileIssue {
    /// Index into [`Import::files`].
    pub file: usize,
    /// The issue.
    pub issue: Issue,
}
