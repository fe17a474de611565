//! Import issues: defects of the input that were worked around, counted and shown.

use serde::{Deserialize, Serialize};

/// How much an issue matters to the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; no number changes.
    Info,
    /// Something was repaired or left out; numbers may change slightly.
    Warning,
    /// Data were lost: results are partial.
    Error,
}

/// The first occurrence of an issue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Example {
    /// Where it is in the decompressed file, in bytes, when it has a place.
    pub byte_offset: Option<u64>,
    /// What was found there, shortened.
    pub text: String,
}

/// One kind of defect, with how often it occurred.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// Stable code in snake case, such as `invalid_escape`.
    pub code: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// How often it occurred.
    pub count: u64,
    /// The first occurrence in file order.
    pub first: Example,
}

/// The issues of one file, one entry per code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Issues(Vec<Issue>);

impl Issues {
    /// Counts one occurrence; `text` is called for the first of its code only.
    pub fn note(
        &mut self,
        code: &'static str,
        severity: Severity,
        byte_offset: Option<u64>,
        text: impl FnOnce() -> String,
    ) {
        self.note_many(code, severity, 1, byte_offset, text);
    }

    /// Counts `count` occurrences at once (none when `count` is 0).
    pub fn note_many(
        &mut self,
        code: &'static str,
        severity: Severity,
        count: u64,
        byte_offset: Option<u64>,
        text: impl FnOnce() -> String,
    ) {
        if count == 0 {
            return;
        }
        match self.0.iter_mut().find(|issue| issue.code == code) {
            Some(issue) => {
                issue.count += count;
                issue.severity = issue.severity.max(severity);
            }
            None => {
                let first = Example { byte_offset, text: text() };
                self.0.push(Issue { code, severity, count, first });
            }
        }
    }

    /// Adds the issues of a later part of the same file.
    pub fn append(&mut self, later: Self) {
        for issue in later.0 {
            let Issue { code, severity, count, first } = issue;
            self.note_many(code, severity, count, first.byte_offset, || first.text);
        }
    }

    /// The issue with this code.
    #[must_use]
    pub fn find(&self, code: &str) -> Option<&Issue> {
        self.0.iter().find(|issue| issue.code == code)
    }

    /// All issues, in order of first occurrence.
    pub fn iter(&self) -> impl Iterator<Item = &Issue> {
        self.0.iter()
    }

    /// Whether nothing was wrong.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The gravest severity present.
    #[must_use]
    pub fn worst(&self) -> Option<Severity> {
        self.0.iter().map(|issue| issue.severity).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_are_counted_and_the_first_example_stays() {
        let mut issues = Issues::default();
        issues.note("bad_time", Severity::Warning, Some(7), || "ts: x".into());
        let mut later = Issues::default();
        later.note("bad_time", Severity::Error, Some(90), || "ts: y".into());
        issues.append(later);
        let issue = issues.find("bad_time").unwrap();
        assert_eq!((issue.count, issue.severity), (2, Severity::Error));
        assert_eq!(issue.first, Example { byte_offset: Some(7), text: "ts: x".into() });
    }
}
