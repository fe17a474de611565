//! torch.profiler (Kineto) Chrome JSON to [`Trace`]s: streaming, on several threads, tolerant of
//! damage.

mod error;

pub use error::TorchError;

use std::io::Read;

use steptally_trace_model::{Issues, Trace};

use crate::ImportOptions;

/// One rank's part of a file: ordinary files have one with an empty prefix, a merged file one per
/// prefix of its process ids.
#[derive(Debug)]
pub struct Lane {
    /// `TP00-DP01` of process ids such as `[TP00-DP01] 83`; empty when there is no prefix.
    pub prefix: String,
    /// What was recorded. `meta.rank` is set from `distributedInfo` where the prefix is empty; with
    /// a prefix it is left to the caller.
    pub trace: Trace,
}

/// What was read of one text.
#[derive(Debug)]
pub struct TorchRead {
    /// One per rank, in order of appearance. Never empty.
    pub lanes: Vec<Lane>,
    /// What was wrong. Byte offsets count decompressed text.
    pub issues: Issues,
    /// How many bytes of (decompressed) text were read.
    pub bytes: u64,
}

/// Reads a torch.profiler trace as decompressed text.
///
/// # Errors
/// When nothing usable is there. Damage to a part is an issue, not an error; an issue of severity
/// `Error` sets `meta.partial`. So does a source that fails after its first byte
/// (`source_truncated`).
pub fn read_torch<R: Read + Send>(
    source: R,
    options: &ImportOptions,
) -> Result<TorchRead, TorchError> {
    let _ = (source, options);
    Err(TorchError::Empty { bytes: 0 })
}
