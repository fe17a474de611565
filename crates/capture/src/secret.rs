//! Keys, and keeping them out of everything that is written.

use std::fmt;

use serde_json::Value;

/// What stands in for a secret.
pub const REDACTED: &str = "[redacted]";

/// A key or token. Shows itself to nobody.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a key.
    #[must_use]
    pub fn new(key: impl Into<String>) -> Self {
        Self(key.into())
    }

    /// The key itself, for the header of a request.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(REDACTED)
    }
}

/// Replaces secrets that are known by value, and values that are secret by their name.
#[derive(Clone, Debug, Default)]
pub struct Redactor {
    known: Vec<Secret>,
}

impl Redactor {
    /// Replaces `known` wherever they occur.
    #[must_use]
    pub fn new(known: impl IntoIterator<Item = Secret>) -> Self {
        let mut redactor = Self::default();
        for secret in known {
            redactor.learn(secret);
        }
        redactor
    }

    /// One more secret. Very short ones are not replaced in free text: they would be everywhere.
    pub fn learn(&mut self, secret: Secret) {
        if secret.0.len() >= 4 && !self.known.contains(&secret) {
            self.known.push(secret);
        }
    }

    /// `text` without known secrets.
    #[must_use]
    pub fn text(&self, text: &str) -> String {
        let mut out = text.to_owned();
        for secret in &self.known {
            out = out.replace(&secret.0, REDACTED);
        }
        out
    }

    /// A command line: the values of options that are named like secrets are replaced too.
    #[must_use]
    pub fn command(&self, words: &[String]) -> Vec<String> {
        let mut hide_next = false;
        let mut out = Vec::with_capacity(words.len());
        for word in words {
            if std::mem::take(&mut hide_next) {
                out.push(REDACTED.to_owned());
                continue;
            }
            match word.split_once('=') {
                Some((name, _)) if is_secret_name(name) => out.push(format!("{name}={REDACTED}")),
                None if word.starts_with('-') && is_secret_name(word) => {
                    hide_next = true;
                    out.push(word.clone());
                }
                _ => out.push(self.text(&without_user_info(word))),
            }
        }
        out
    }

    /// A JSON value: strings under names of secrets are replaced and learnt, environments are left
    /// out, command lines are treated as such.
    pub fn value(&mut self, value: &mut Value) {
        self.learn_from(value);
        self.redact(value);
    }

    fn learn_from(&mut self, value: &Value) {
        match value {
            Value::Object(map) => {
                for (name, value) in map {
                    match value {
                        Value::String(text) if is_secret_name(name) => {
                            self.learn(Secret::new(text.as_str()));
                        }
                        other => self.learn_from(other),
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.learn_from(item)),
            _ => {}
        }
    }

    fn redact(&self, value: &mut Value) {
        match value {
            Value::Object(map) => {
                map.retain(|name, _| !is_environment_name(name));
                for (name, value) in map.iter_mut() {
                    if is_secret_name(name) && !value.is_null() {
                        *value = Value::from(REDACTED);
                    } else if is_command_name(name) {
                        self.redact_command(value);
                    } else {
                        self.redact(value);
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact(item)),
            Value::String(text) => *text = self.text(&without_user_info(text)),
            _ => {}
        }
    }

    fn redact_command(&self, value: &mut Value) {
        let words: Vec<String> = match value {
            Value::String(text) => text.split_whitespace().map(str::to_owned).collect(),
            Value::Array(items) => items
                .iter()
                .map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned))
                .collect(),
            _ => return,
        };
        *value = Value::from(self.command(&words).join(" "));
    }
}

/// Whether a value of this name is nobody's business.
fn is_secret_name(name: &str) -> bool {
    let name = name.trim_start_matches('-').to_ascii_lowercase().replace('-', "_");
    ["password", "passwd", "secret", "credential", "authorization", "api_key", "apikey"]
        .iter()
        .any(|part| name.contains(part))
        || name == "token"
        || name.ends_with("_token")
        || name.ends_with("admin_key")
        || name.ends_with("access_key")
        || name.ends_with("private_key")
}

fn is_environment_name(name: &str) -> bool {
    ["env", "environ", "environment", "env_vars"].contains(&name.to_ascii_lowercase().as_str())
}

fn is_command_name(name: &str) -> bool {
    ["launch_command", "command", "cmd", "argv"].contains(&name)
}

/// `scheme://user:password@host` without what stands before the `@`.
fn without_user_info(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..end].rfind('@') {
        Some(at) => format!("{scheme}://{}", &rest[at + 1..]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_secret_does_not_show() {
        assert_eq!(format!("{:?}", Secret::new("k-12345")), REDACTED);
        let redactor = Redactor::new([Secret::new("k-12345")]);
        assert_eq!(redactor.text("Bearer k-12345"), "Bearer [redacted]");
        assert!(!format!("{redactor:?}").contains("k-12345"));
    }

    #[test]
    fn command_lines() {
        let words =
            ["serve", "--api-key", "K1", "--admin-key=K2", "--port", "8000", "http://u:p@h/x"];
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        let redacted = Redactor::default().command(&words).join(" ");
        assert_eq!(
            redacted,
            "serve --api-key [redacted] --admin-key=[redacted] --port 8000 http://h/x"
        );
    }

    #[test]
    fn values_by_name_and_by_what_was_learnt() {
        let mut value = json!({
            "api_key": "planted-1", "hf_token": "planted-2", "max_total_tokens": 5,
            "ssl_keyfile_password": null, "tokenizer_path": "/m",
            "launch_command": "python -m server --api-key planted-1 --port 1",
            "internal_states": [{"env_vars": {"X": "planted-3"}, "note": "uses planted-2"}],
        });
        Redactor::default().value(&mut value);
        let text = value.to_string();
        assert!(!text.contains("planted"), "{text}");
        assert_eq!(value["max_total_tokens"], 5);
        assert_eq!(value["tokenizer_path"], "/m");
        assert!(value["ssl_keyfile_password"].is_null());
        assert_eq!(value["launch_command"], "python -m server --api-key [redacted] --port 1");
    }
}
