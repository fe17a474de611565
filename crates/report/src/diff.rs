//! The report of a diff: what was compared, and what came of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use steptally_analyze::results::{Diff, GateOutcome};

use crate::{SCHEMA_VERSION, Tool, to_json};

/// Everything that `steptally diff` has to say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DiffReport {
    /// Version of this form, see [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// What wrote the report.
    pub tool: Tool,
    /// What A was read from.
    pub source_a: DiffSource,
    /// What B was read from.
    pub source_b: DiffSource,
    /// Whether part of A or B could not be read, so that the results are about the rest.
    pub partial: bool,
    /// What came of the gates, in the order given.
    pub gates: Vec<GateOutcome>,
    /// What changed.
    #[serde(flatten)]
    pub diff: Diff,
}

/// Where one side of a diff is from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiffSource {
    /// The path as given.
    pub path: String,
    /// Whether it is a saved report, not a trace or a folder.
    pub saved_report: bool,
    /// Whether part of it could not be read.
    pub partial: bool,
}

impl DiffReport {
    /// The report of a diff of two sources.
    #[must_use]
    pub fn new(tool: Tool, sources: [DiffSource; 2], diff: Diff, gates: Vec<GateOutcome>) -> Self {
        let [source_a, source_b] = sources;
        let partial = source_a.partial || source_b.partial;
        Self { schema_version: SCHEMA_VERSION, tool, source_a, source_b, partial, gates, diff }
    }

    /// Whether any gate holds.
    #[must_use]
    pub fn fails(&self) -> bool {
        self.gates.iter().any(|gate| gate.holds)
    }
}

/// The JSON Schema (2020-12) of a [`DiffReport`], as indented JSON with a line end.
#[must_use]
pub fn diff_schema() -> String {
    to_json(&schemars::schema_for!(DiffReport))
}
