//! What a caller can choose about an import.

use std::path::Path;
use std::sync::Arc;

/// Told how far reading is. Called from several threads.
pub trait Progress: Send + Sync {
    /// `read` of `total` bytes of `file` on disk are read.
    fn advance(&self, file: &Path, read: u64, total: u64);

    /// nsys exports the report `file`, and has written `written` bytes of what is then read.
    fn exporting(&self, file: &Path, written: u64) {
        let _ = (file, written);
    }
}

/// Says nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn advance(&self, _: &Path, _: u64, _: u64) {}
}

/// Choices of an import.
#[derive(Clone)]
pub struct ImportOptions {
    /// How many threads parse; `None`: as many as the machine has.
    pub threads: Option<usize>,
    /// Names of event arguments to keep as text beyond the typed columns (`Python module id`).
    pub keep_args: Vec<String>,
    /// Told how far reading is.
    pub progress: Arc<dyn Progress>,
}

impl Default for ImportOptions {
    fn default() -> Self {
        Self { threads: None, keep_args: Vec::new(), progress: Arc::new(NoProgress) }
    }
}
