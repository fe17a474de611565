//! The JSON form of reports, and its schema.

use serde::Serialize;

use crate::Report;

/// `value` as indented JSON with a line end; the same value always gives the same bytes.
///
/// A number that is not finite, which no result should hold, becomes `null`.
#[must_use]
pub fn to_json<T: Serialize>(value: &T) -> String {
    // Serialising these types cannot fail: no map has keys other than strings.
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    text
}

/// The JSON Schema (2020-12) of a [`Report`], as indented JSON with a line end.
#[must_use]
pub fn json_schema() -> String {
    to_json(&schemars::schema_for!(Report))
}
