//! The JSON form of reports, and its schema.

use serde::Serialize;

use steptally_analyze::Section;

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
///
/// No section is required: a report has those that were asked for.
#[must_use]
pub fn json_schema() -> String {
    let mut schema = schemars::schema_for!(Report);
    let required = schema.get_mut("required").and_then(serde_json::Value::as_array_mut);
    if let Some(required) = required {
        required.retain(|key| !Section::all().any(|section| *key == section.name()));
    }
    to_json(&schema)
}
