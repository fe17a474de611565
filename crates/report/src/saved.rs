//! Reports that were saved as JSON, read again.

use std::fmt;
use std::io::Read;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use steptally_analyze::diff::DiffInput;
use thiserror::Error;

use crate::SCHEMA_VERSION;

/// What a saved report of `steptally analyze` says, as far as a diff needs it.
#[derive(Clone, Debug)]
pub struct SavedReport {
    /// Whether part of its input could not be read.
    pub partial: bool,
    /// What was found.
    pub input: DiffInput,
}

/// A saved report that cannot be used.
#[derive(Debug, Error)]
pub enum SavedReportError {
    /// A later version of the program wrote it.
    #[error("the report has schema version {found}, and this program knows versions up to {known}")]
    NewerVersion {
        /// Its version.
        found: u64,
        /// The version known here.
        known: u32,
    },
    /// It was made with fewer sections than a diff looks at.
    #[error("the report was saved without its {0}")]
    LeftOut(String),
    /// What another command wrote.
    #[error("this is JSON of steptally, but not a report of `steptally analyze`")]
    OtherCommand,
    /// Not a whole report.
    #[error("the report cannot be read: {0}")]
    Malformed(#[from] serde_json::Error),
}

impl SavedReportError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NewerVersion { .. } => "use the steptally that wrote it, or a later one",
            Self::LeftOut(_) => "save it again, without --only and --skip",
            Self::OtherCommand | Self::Malformed(_) => {
                "save a report by `steptally analyze TRACE --format json -o report.json`"
            }
        }
    }
}

#[derive(Deserialize)]
struct Header {
    schema_version: u64,
    #[serde(default)]
    partial: bool,
    #[serde(default)]
    ledger: Option<IgnoredAny>,
    /// Those that it shows; reports of earlier versions always have all.
    #[serde(default)]
    sections: Option<Vec<String>>,
}

impl SavedReport {
    /// Reads a report from its JSON. Keys that this program does not know are passed over.
    ///
    /// # Errors
    /// When it is of a later version, no report, or not whole.
    pub fn from_json(json: &[u8]) -> Result<Self, SavedReportError> {
        let header: Header = serde_json::from_slice(json)?;
        if header.schema_version > u64::from(SCHEMA_VERSION) {
            return Err(SavedReportError::NewerVersion {
                found: header.schema_version,
                known: SCHEMA_VERSION,
            });
        }
        if let Some(shown) = header.sections {
            let needed = ["steps", "ledger", "kernels"];
            let missing: Vec<&str> =
                needed.into_iter().filter(|name| !shown.iter().any(|has| has == name)).collect();
            if !missing.is_empty() {
                return Err(SavedReportError::LeftOut(missing.join(", ")));
            }
        }
        if header.ledger.is_none() {
            return Err(SavedReportError::OtherCommand);
        }
        Ok(Self { partial: header.partial, input: serde_json::from_slice(json)? })
    }
}

/// Whether `content` is JSON that this program wrote: an object with a `schema_version` and this
/// `tool`. Reads no further than it must; of a trace, to its first events at most.
#[must_use]
pub fn is_saved_report(content: impl Read) -> bool {
    let mut seen = Seen::default();
    let mut deserializer = serde_json::Deserializer::from_reader(content);
    // What comes after the decision is an error on purpose; what was seen counts.
    let _ = Probe(&mut seen).deserialize(&mut deserializer);
    seen.version && seen.tool
}

#[derive(Default)]
struct Seen {
    version: bool,
    tool: bool,
}

#[derive(Deserialize)]
struct ToolName {
    name: String,
}

struct Probe<'a>(&'a mut Seen);

impl<'de> DeserializeSeed<'de> for Probe<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Probe<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "schema_version" => self.0.version = map.next_value::<u64>().is_ok(),
                "tool" => self.0.tool = map.next_value::<ToolName>()?.name == "steptally",
                "traceEvents" => return Err(A::Error::custom("a trace")),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            if self.0.version && self.0.tool {
                return Err(A::Error::custom("a report"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_told_from_traces_by_content() {
        let report = br#"{"schema_version": 1, "tool": {"name": "steptally", "version": "1"}, "#;
        assert!(is_saved_report(&report[..]));
        let sorted = br#"{"kernels": [{}], "schema_version": 1, "tool": {"name": "steptally"}}"#;
        assert!(is_saved_report(&sorted[..]));
        for other in [
            &br#"{"schemaVersion": 1, "traceEvents": [{"tool": 1}]}"#[..],
            br#"{"schema_version": 1, "tool": {"name": "other"}}"#,
            br#"{"schema_version": 1, "traceEvents": [], "tool": {"name": "steptally"}}"#,
            br#"[{"ph": "X"}]"#,
            b"SQLite format 3\0",
            b"\x1f\x8b\x08",
            b"",
        ] {
            assert!(!is_saved_report(other), "{:?}", String::from_utf8_lossy(other));
        }
    }

    fn error(json: &str) -> (String, &'static str) {
        let error = SavedReport::from_json(json.as_bytes()).unwrap_err();
        (error.to_string(), error.hint())
    }

    #[test]
    fn every_error_says_what_to_do() {
        let (text, hint) = error(r#"{"schema_version": 99, "ledger": 5}"#);
        let known = "the report has schema version 99, and this program knows versions up to 1";
        assert_eq!(text, known);
        assert!(hint.contains("that wrote it"));
        let (text, hint) = error(r#"{"schema_version": 1, "traces": []}"#);
        assert!(text.contains("not a report of `steptally analyze`"), "{text}");
        assert!(hint.contains("--format json"));
        let (text, hint) =
            error(r#"{"schema_version": 1, "sections": ["ledger", "ops"], "ledger": {}}"#);
        assert_eq!(text, "the report was saved without its steps, kernels");
        assert!(hint.contains("--only"));
        let (text, _) = error(r#"{"schema_version": 1, "ledger": {}}"#);
        assert!(text.starts_with("the report cannot be read: missing field"), "{text}");
        let (text, _) = error(r#"{"schema_version": 1, "led"#);
        assert!(text.starts_with("the report cannot be read: EOF"), "{text}");
    }
}
