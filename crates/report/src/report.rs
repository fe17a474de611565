//! The report: what was read, and what the analysis found in it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use steptally_analyze::results::{Analysis, Baseline, BoundGap};

/// Version of the JSON form. It grows by one whenever a key goes away or changes its meaning;
/// new keys do not change it.
pub const SCHEMA_VERSION: u32 = 1;

/// Everything that `steptally analyze` has to say about its input.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Report {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// What wrote the report.
    pub tool: Tool,
    /// What was read.
    pub input: Input,
    /// Whether part of the input could not be read, so that the results are about the rest.
    pub partial: bool,
    /// What the capture measured without a profiler; `null` when it did not.
    pub baseline: Option<Baseline>,
    /// The step against what the hardware allows; `null` when no model was given.
    pub bound_gap: Option<BoundGap>,
    /// What was found.
    #[serde(flatten)]
    pub analysis: Analysis,
}

impl Report {
    /// The report of an analysis of `input`.
    #[must_use]
    pub fn new(tool: Tool, input: Input, analysis: Analysis) -> Self {
        let partial = input.is_partial() || analysis.ranks.iter().any(|rank| rank.partial);
        let (baseline, bound_gap) = (None, None);
        Self { schema_version: SCHEMA_VERSION, tool, input, partial, baseline, bound_gap, analysis }
    }

    /// The same with what was measured without a profiler.
    #[must_use]
    pub fn with_baseline(self, baseline: Option<Baseline>) -> Self {
        Self { baseline, ..self }
    }

    /// The same with the step held against what the hardware allows.
    #[must_use]
    pub fn with_bound_gap(self, bound_gap: Option<BoundGap>) -> Self {
        Self { bound_gap, ..self }
    }
}

/// The program that wrote the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// What was read, and what was wrong with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Input {
    /// The files, and members of archives.
    pub files: Vec<InputFile>,
    /// Defects of them, one entry per file and code.
    pub issues: Vec<InputIssue>,
}

impl Input {
    /// Whether part of it could not be read.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.files.iter().any(|file| file.partial)
            || self.issues.iter().any(|issue| issue.severity == Severity::Error)
    }
}

/// One file, or one member of an archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct InputFile {
    /// Its path; `archive!member` for a member.
    pub path: String,
    /// Size on disk.
    pub bytes: u64,
    /// What it is.
    pub format: String,
    /// Whether part of it could not be read.
    pub partial: bool,
    /// Why it takes no part in the analysis, if it does not.
    pub left_out: Option<String>,
}

/// One kind of defect of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct InputIssue {
    /// Stable code, such as `invalid_escape`.
    pub code: String,
    /// How much it matters.
    pub severity: Severity,
    /// How often it occurred.
    pub count: u64,
    /// The first occurrence.
    pub example: Example,
    /// The file.
    pub file: String,
}

/// The first occurrence of a defect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Example {
    /// Where it is in the decompressed file; `null` when it has no place.
    pub byte_offset: Option<u64>,
    /// What was found there, shortened.
    pub text: String,
}

/// How much a defect of the input matters to the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; no number changes.
    Info,
    /// Something was repaired or left out; numbers may change slightly.
    Warning,
    /// Data were lost: results are partial.
    Error,
}

impl From<steptally_trace_model::Severity> for Severity {
    fn from(severity: steptally_trace_model::Severity) -> Self {
        match severity {
            steptally_trace_model::Severity::Info => Self::Info,
            steptally_trace_model::Severity::Warning => Self::Warning,
            steptally_trace_model::Severity::Error => Self::Error,
        }
    }
}
