//! Why a path, or one file of it, cannot be imported.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::container::Foreign;
use crate::nsys::NsysError;
use crate::nsys_report::ExportError;
use crate::torch::TorchError;

/// Why one file, or one member of an archive, holds nothing that can be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file system refused.
    #[error("cannot be read: {0}")]
    Unreadable(io::Error),
    /// No bytes at all.
    #[error("empty file (0 bytes)")]
    EmptyFile,
    /// A compressed stream of no bytes.
    #[error("empty trace (0 bytes after decompression)")]
    EmptyStream,
    /// A container broke off before anything usable.
    #[error("{error} ({damage})")]
    Damaged {
        /// What is wrong with what could be unpacked.
        error: Box<FileError>,
        /// What is wrong with the container.
        damage: String,
    },
    /// Containers in containers in containers.
    #[error("more than {limit} containers in one another")]
    NestedTooDeep {
        /// How many are followed.
        limit: usize,
    },
    /// An archive of nothing.
    #[error("{container} archive without a readable file in it")]
    EmptyArchive {
        /// `zip` or `tar`.
        container: &'static str,
    },
    /// A member that is encrypted or compressed in an unknown way.
    #[error("{container} member cannot be unpacked: {reason}")]
    UnreadableMember {
        /// `zip`.
        container: &'static str,
        /// What the archive reader says.
        reason: String,
    },
    /// It is something else.
    #[error("{}", .0.what())]
    Foreign(Foreign),
    /// Events, but none of a kind that this crate knows.
    #[error("a Chrome trace without any event of torch.profiler{detail}")]
    NoKnownEvents {
        /// What was found instead, after a colon; empty when nothing is known.
        detail: String,
    },
    /// Not readable as a torch.profiler trace.
    #[error(transparent)]
    Torch(#[from] TorchError),
    /// Not readable as an SQLite export of Nsight Systems.
    #[error("{}", without_path(.error, .path))]
    Nsys {
        /// The file that was read, which may be a temporary one.
        path: PathBuf,
        /// What is wrong with it.
        error: NsysError,
    },
    /// An nsys report that could not be exported to SQLite.
    #[error(transparent)]
    Export(#[from] ExportError),
}

impl FileError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::EmptyFile | Self::EmptyStream => Some(
                "the server was stopped before it had written the trace, or is still writing; \
                 wait for the file to settle or capture again"
                    .into(),
            ),
            Self::Damaged { error, .. } => error.hint(),
            Self::NestedTooDeep { .. } => Some("unpack the outermost archive first".into()),
            Self::UnreadableMember { .. } => {
                Some("unpack the archive with another program and pass its files".into())
            }
            Self::Foreign(foreign) => foreign.hint().map(Into::into),
            Self::Torch(error) => torch_hint(error).map(Into::into),
            Self::Nsys { error, .. } => error.hint(),
            Self::Export(error) => error.hint(),
            Self::NoKnownEvents { .. } => Some(
                "events of torch.profiler have categories such as kernel, cuda_runtime and cpu_op"
                    .into(),
            ),
            Self::Unreadable(_) | Self::EmptyArchive { .. } => None,
        }
    }

    /// Whether a trace was probably meant to be here, so that something is lost without it.
    pub(crate) fn is_loss(&self) -> bool {
        match self {
            Self::Unreadable(_)
            | Self::EmptyFile
            | Self::EmptyStream
            | Self::Damaged { .. }
            | Self::EmptyArchive { .. }
            | Self::UnreadableMember { .. } => true,
            Self::Torch(error) => !matches!(
                error,
                TorchError::NotJson { .. } | TorchError::NoTraceEvents { cut: false, .. }
            ),
            Self::Foreign(foreign) => {
                matches!(foreign, Foreign::GitPointer | Foreign::AnnexPointer | Foreign::Zeros)
            }
            Self::NestedTooDeep { .. }
            | Self::NoKnownEvents { .. }
            | Self::Nsys { .. }
            | Self::Export(_) => false,
        }
    }
}

/// Why a path cannot be imported.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ImportError {
    /// One file, of which nothing can be used.
    #[error("{}: {error}", .path.display())]
    File {
        /// The file; for a member of an archive, `archive!member`.
        path: PathBuf,
        /// What is wrong with it.
        error: Box<FileError>,
    },
    /// A folder without files.
    #[error("{}: a folder without files", .path.display())]
    EmptyFolder {
        /// The folder.
        path: PathBuf,
    },
    /// A folder or archive of which no file can be used.
    #[error("{}: no usable trace in {} files: {}", .path.display(), .files.len(), list(.files))]
    NoTrace {
        /// The folder or archive.
        path: PathBuf,
        /// Its files, and why each is of no use.
        files: Vec<(PathBuf, FileError)>,
    },
    /// Two files that claim one rank.
    #[error("rank {rank} is claimed by two files: {} and {}", .first.display(), .second.display())]
    RankConflict {
        /// The rank.
        rank: u32,
        /// One file.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
}

impl ImportError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::File { error, .. } => error.hint(),
            Self::EmptyFolder { .. } => Some("pass the folder that the traces lie in".into()),
            Self::NoTrace { files, .. } => files.iter().find_map(|(_, error)| error.hint()),
            Self::RankConflict { first, .. } => Some(format!(
                "a folder is read as one run with one file per rank: pass one of the files, or a \
                 folder that holds one capture only ({} alone, say); data-parallel replicas that \
                 all call themselves rank 0 of 1 need file names such as DP-0, DP-1",
                name(first)
            )),
        }
    }
}

fn torch_hint(error: &TorchError) -> Option<&'static str> {
    match error {
        TorchError::Unreadable(_) => None,
        TorchError::NotJson { .. } => {
            Some("pass a torch.profiler trace (JSON) or an SQLite export of Nsight Systems")
        }
        TorchError::NoTraceEvents { cut: true, .. } => {
            Some("the server may still be writing it, or was stopped while it did; capture again")
        }
        TorchError::NoTraceEvents { .. } => Some(
            "a torch.profiler trace is what `export_chrome_trace` or a server's /start_profile \
             writes",
        ),
        TorchError::Empty { .. } | TorchError::NoEvents { .. } => {
            Some("nothing was recorded; was the profiler on while the model ran?")
        }
    }
}

/// The error's text without the path that a caller names before it.
fn without_path(error: &NsysError, path: &Path) -> String {
    let (text, path) = (error.to_string(), path.display().to_string());
    match text.strip_prefix(&format!("{path} is ")) {
        Some(rest) => rest.to_owned(),
        None => text.replace(&path, "it"),
    }
}

/// The first few files and what is wrong with each, in one line.
fn list(files: &[(PathBuf, FileError)]) -> String {
    const SHOWN: usize = 8;
    let mut parts: Vec<_> =
        files.iter().take(SHOWN).map(|(path, error)| format!("{}: {error}", name(path))).collect();
    if files.len() > SHOWN {
        parts.push(format!("and {} more", files.len() - SHOWN));
    }
    parts.join("; ")
}

/// The last part of a path.
fn name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
