//! torch.profiler (Kineto) Chrome JSON to [`Trace`]s: streaming, on several threads, tolerant of
//! damage.

mod args;
mod assemble;
mod block;
#[cfg(test)]
mod block_tests;
mod category;
mod error;
mod event;
mod header;
mod issue;
mod number;
mod pairs;
mod pipeline;
mod point;
mod resync;
mod scan;
mod source;
mod store;
mod text;
mod top;
mod utf16;
mod window;

pub use error::TorchError;

use std::io::{Cursor, Read};

use steptally_trace_model::{Issues, Severity, Trace};

use crate::ImportOptions;
use pipeline::Plan;
use utf16::Utf16;

/// How much text is parsed at a time: small enough to stay near the processor, large enough that
/// joining costs little.
const BLOCK_SIZE: usize = 2 << 20;

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
    let threads = options
        .threads
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get));
    read_planned(source, Plan { threads, block_size: BLOCK_SIZE }, options)
}

/// As [`read_torch`], with the number of threads and the size of blocks chosen.
fn read_planned<R: Read + Send>(
    mut source: R,
    plan: Plan,
    options: &ImportOptions,
) -> Result<TorchRead, TorchError> {
    let mut start = Vec::with_capacity(2);
    if let Err(error) = source.by_ref().take(2).read_to_end(&mut start) {
        return Err(TorchError::Unreadable(error));
    }
    let Some((order, mark)) = utf16::detect(&start) else {
        return pipeline::read(Cursor::new(start).chain(source), plan, &options.keep_args);
    };
    let units = Cursor::new(start.split_off(mark)).chain(source);
    let mut read = pipeline::read(Utf16::new(units, order), plan, &options.keep_args)?;
    let text = || "read as UTF-16; byte offsets are those of its UTF-8 form".into();
    read.issues.note("utf16_text", Severity::Info, Some(0), text);
    Ok(read)
}
