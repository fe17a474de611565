//! Why nothing could be read.

use thiserror::Error;

/// Why a text holds nothing that can be read as a torch.profiler trace.
#[derive(Debug, Error)]
pub enum TorchError {
    /// The source failed before its first byte.
    #[error("cannot read the trace")]
    Unreadable(#[source] std::io::Error),
    /// No text at all.
    #[error("empty trace ({bytes} bytes{})", if *.bytes == 0 { "" } else { " of white space" })]
    Empty {
        /// How long the text is (white space only).
        bytes: u64,
    },
    /// The text is not JSON.
    #[error("not JSON: {found}")]
    NotJson {
        /// What the first bytes look like, such as `a Git LFS pointer`.
        found: String,
    },
    /// The text is JSON, but holds no array of events.
    #[error("{}{} (top-level keys: {})",
        if *.cut { "JSON that is cut off before `traceEvents`" } else { "JSON without `traceEvents`" },
        guess.map(|guess| format!(", looks like {guess}")).unwrap_or_default(),
        if keys.is_empty() { "none".into() } else { keys.join(", ") })]
    NoTraceEvents {
        /// The first top-level keys.
        keys: Vec<String>,
        /// What it looks like, if it is known, such as `a PyTorch execution trace (Chakra)`.
        guess: Option<&'static str>,
        /// Whether the text ends in the middle.
        cut: bool,
    },
    /// The array of events is there, but not one event could be read.
    #[error("no events{}", detail.as_deref().map(|text| format!(": {text}")).unwrap_or_default())]
    NoEvents {
        /// What was wrong, with its byte offset, when something was.
        detail: Option<String>,
    },
}
