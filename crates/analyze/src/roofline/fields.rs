//! Reading a config's fields under any of the names that model families give them.

use serde_json::{Map, Value};

use super::config::ConfigError;

/// No size in a model is larger; it keeps every product finite.
const LARGEST: u64 = 1 << 40;

/// The fields of one config, with those of a nested text model on top.
pub(crate) struct Fields(Map<String, Value>);

impl Fields {
    /// Reads a config; the text model of a multi-modal one replaces the outer fields.
    pub(crate) fn parse(json: &str) -> Result<Self, ConfigError> {
        let mut outer = object(json, "config.json")?;
        let nested = ["text_config", "language_config", "llm_config", "thinker_config"];
        while let Some(inner) = nested.iter().find_map(|name| outer.remove(*name)) {
            if let Value::Object(inner) = inner {
                outer.extend(inner);
            }
        }
        Ok(Self(outer))
    }

    pub(crate) fn value(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// The first of `names` that is present, as a whole number.
    pub(crate) fn number(&self, names: &[&str]) -> Result<Option<u64>, ConfigError> {
        let Some((name, value)) = names.iter().find_map(|n| Some((*n, self.value(n)?))) else {
            return Ok(None);
        };
        let whole =
            value.as_f64().filter(|v| v.fract() == 0.0 && (0.0..=LARGEST as f64).contains(v));
        match whole {
            Some(number) => Ok(Some(number as u64)),
            None => Err(invalid(name, value, "a whole number")),
        }
    }

    /// As [`number`](Self::number), but absent and zero are errors.
    pub(crate) fn required(&self, names: &[&str]) -> Result<u64, ConfigError> {
        match self.number(names)? {
            Some(0) => Err(invalid(names[0], &Value::from(0), "a positive number")),
            Some(number) => Ok(number),
            None => Err(ConfigError::Missing {
                field: names[0].to_owned(),
                aliases: names[1..].iter().map(|&n| n.to_owned()).collect(),
            }),
        }
    }

    pub(crate) fn text(&self, names: &[&str]) -> Option<&str> {
        names.iter().find_map(|name| self.value(name)?.as_str())
    }

    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        self.value(name)?.as_bool()
    }

    /// A list with one entry per layer; more entries than layers are those of draft layers.
    pub(crate) fn per_layer(
        &self,
        name: &str,
        layers: u64,
    ) -> Result<Option<&[Value]>, ConfigError> {
        let Some(list) = self.value(name).and_then(Value::as_array) else {
            return Ok(None);
        };
        match list.get(..layers as usize) {
            Some(list) => Ok(Some(list)),
            None => {
                let length = Value::from(format!("a list of {}", list.len()));
                Err(invalid(name, &length, "one entry per layer"))
            }
        }
    }
}

/// A JSON object from text.
pub(crate) fn object(json: &str, file: &'static str) -> Result<Map<String, Value>, ConfigError> {
    serde_json::from_str(json).map_err(|source| ConfigError::Json { file, source })
}

pub(crate) fn invalid(field: &str, value: &Value, expected: &'static str) -> ConfigError {
    ConfigError::Invalid { field: field.to_owned(), value: value.to_string(), expected }
}
