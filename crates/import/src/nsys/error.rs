//! Why an nsys export could not be read or redacted at all.

use std::path::PathBuf;

/// An nsys export of which nothing could be used.
#[derive(Debug, thiserror::Error)]
pub enum NsysError {
    /// The file cannot be opened or read.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file does not begin like an SQLite database.
    #[error("{path} is not an SQLite database")]
    NotSqlite {
        /// The file.
        path: PathBuf,
    },
    /// The database's list of tables, or every row of its tables, cannot be read.
    #[error("{path} is a damaged SQLite database: {reason}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        reason: String,
    },
    /// A database of nvprof, the profiler before Nsight Systems.
    #[error("{path} is an nvprof database, not an nsys export")]
    Nvprof {
        /// The file.
        path: PathBuf,
    },
    /// An SQLite database of something else.
    #[error("{path} is an SQLite database, but not an nsys export (its tables: {tables})")]
    Unrelated {
        /// The file.
        path: PathBuf,
        /// The first names of its tables.
        tables: String,
    },
    /// An nsys export without a single event that could be used.
    #[error("{path} is an nsys export without CUDA, NVTX or OS runtime events")]
    NoEvents {
        /// The file.
        path: PathBuf,
        /// What the recorder said about its own trouble.
        diagnostics: Vec<String>,
    },
    /// A redacted copy would replace a file.
    #[error("{path} exists already")]
    OutputExists {
        /// The output.
        path: PathBuf,
    },
    /// The redacted copy could not be written.
    #[error("cannot write {path}: {reason}")]
    Write {
        /// The output.
        path: PathBuf,
        /// What went wrong.
        reason: String,
    },
}

impl NsysError {
    /// What the user can do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Io { .. } => return None,
            Self::NotSqlite { .. } => {
                "export a report first: nsys export --type sqlite report.nsys-rep"
            }
            Self::Damaged { .. } => {
                "export it again from the .nsys-rep: nsys export --type sqlite --force-overwrite true"
            }
            Self::Nvprof { .. } => {
                "record again with nsys: nsys profile -t cuda,nvtx --export sqlite COMMAND"
            }
            Self::Unrelated { .. } => {
                "an nsys export has tables such as StringIds and CUPTI_ACTIVITY_KIND_KERNEL"
            }
            Self::NoEvents { diagnostics, .. } => {
                let advice = "record with -t cuda,nvtx, and while the server works";
                return Some(match diagnostics.first() {
                    Some(first) => format!("{advice}; the recorder says: {first}"),
                    None => advice.into(),
                });
            }
            Self::OutputExists { .. } => "choose another name, or remove the file",
            Self::Write { .. } => "is there space, and may the folder be written to?",
        };
        Some(hint.into())
    }
}
