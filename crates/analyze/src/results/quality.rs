//! How far the numbers can be trusted.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How far the numbers can be trusted.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Quality {
    /// `A` (nothing found) to `E`; `F` when no verdict is supported.
    pub grade: Grade,
    /// Why no verdict about steps or utilisation can be given, if none can.
    pub refused: Option<Refusal>,
    /// Every check that was made.
    pub checks: Vec<Check>,
}

/// Trust in the numbers, best first.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum Grade {
    /// Nothing was found that changes a number.
    A,
    /// Up to 1 % of the events are affected.
    B,
    /// Up to 5 %.
    C,
    /// Up to 20 %.
    D,
    /// More.
    E,
    /// No verdict is supported.
    F,
}

/// A verdict that the trace cannot support.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Refusal {
    /// Stable code: `gpu_not_traced`, `no_gpu_events`, `no_load`, `steps_without_gpu_events`.
    pub code: String,
    /// What is the matter, in one sentence.
    pub reason: String,
    /// What to do about it.
    pub hint: String,
}

/// Outcome of one quality check.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum CheckStatus {
    /// Nothing found.
    Pass,
    /// Found, and worth knowing; no number changes.
    Note,
    /// Found, and numbers change.
    Warn,
    /// The trace does not have what the check looks at.
    NotApplicable,
}

/// One quality check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Check {
    /// Stable code, such as `launches_without_gpu_work`.
    pub code: String,
    /// Its outcome.
    pub status: CheckStatus,
    /// How many events (or steps) are affected.
    pub count: u64,
    /// Of how many, where that makes sense.
    pub of: Option<u64>,
    /// What was found and what it does to the numbers, in one sentence.
    pub effect: String,
}
