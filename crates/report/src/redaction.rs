//! What was left out of a redacted copy.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::Serialize;

use crate::{SCHEMA_VERSION, Tool};

/// What `steptally redact` did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Redaction {
    /// Version of this form, see [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// What wrote it.
    pub tool: Tool,
    /// The export.
    pub input: String,
    /// The copy.
    pub output: String,
    /// Size of the copy.
    pub output_bytes: u64,
    /// Rows in the copy.
    pub rows_kept: u64,
    /// What is not in the copy.
    pub removed: Removed,
}

/// What is not in a redacted copy, by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Removed {
    /// Rows about environment, command line, host, user and paths.
    pub environment_rows: u64,
    /// Strings that no kept row uses.
    pub strings: u64,
    /// Names of processes and threads that have no events.
    pub names: u64,
    /// Rows of the target's output and of backtraces.
    pub other_rows: u64,
    /// Texts made empty in rows that stay.
    pub texts: u64,
}

impl Redaction {
    /// A copy that was written.
    #[must_use]
    pub fn new(tool: Tool, paths: [String; 2], bytes: u64, kept: u64, removed: Removed) -> Self {
        let [input, output] = paths;
        Self {
            schema_version: SCHEMA_VERSION,
            tool,
            input,
            output,
            output_bytes: bytes,
            rows_kept: kept,
            removed,
        }
    }
}

/// The same for people.
#[must_use]
pub fn redaction_text(redaction: &Redaction) -> String {
    let removed = &redaction.removed;
    let mut out = format!("wrote {} ({} bytes)\n", redaction.output, redaction.output_bytes);
    let mut line = |verb: &str, number: u64, what: &str| {
        let _ = writeln!(out, "  {verb:<8}{number:>10}  {what}");
    };
    line("kept", redaction.rows_kept, "rows: every event, and the names that events use");
    line(
        "removed",
        removed.environment_rows,
        "rows about environment, command line, host, user and paths",
    );
    line("", removed.strings, "strings that no kept row uses");
    line("", removed.names, "names of processes and threads without events");
    line("", removed.other_rows, "rows of the target's output and of backtraces");
    line("", removed.texts, "texts made empty in rows that stay");
    out.push_str(
        "Still in it: names of kernels, of NVTX ranges, and of processes and threads with events. \
         Look through them\nbefore you pass the file on.\n",
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_shown_once() {
        let removed =
            Removed { environment_rows: 21, strings: 22, names: 23, other_rows: 24, texts: 25 };
        let tool = Tool { name: "steptally".into(), version: "0".into() };
        let paths = ["a.sqlite".into(), "b.sqlite".into()];
        let text = redaction_text(&Redaction::new(tool, paths, 4096, 20, removed));
        assert!(text.starts_with("wrote b.sqlite (4096 bytes)\n"), "{text}");
        for number in 20..=25 {
            assert_eq!(text.matches(&format!(" {number}  ")).count(), 1, "{number}: {text}");
        }
    }
}
