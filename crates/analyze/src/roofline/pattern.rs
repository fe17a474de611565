//! Patterns that name modules of a checkpoint: `lm_head`, `model.layers.0*`, `re:.*gate$`.

use regex::Regex;

use super::config::ConfigError;

/// One pattern. It covers a module when it names the module itself or a parent of it.
#[derive(Clone, Debug)]
pub(crate) enum Pattern {
    /// Whole dotted names, anywhere in the module's path.
    Plain(String),
    /// A shell glob over the whole path or a parent's; `*` also matches dots.
    Glob(Vec<char>),
    /// What compressed-tensors writes as `re:...`, matched from the path's start.
    Regex(Regex),
}

impl Pattern {
    pub(crate) fn new(text: &str) -> Result<Self, ConfigError> {
        if let Some(expression) = text.strip_prefix("re:") {
            let anchored = format!("^(?:{expression})");
            return Regex::new(&anchored).map(Self::Regex).map_err(|source| ConfigError::Pattern {
                pattern: text.to_owned(),
                source: Box::new(source),
            });
        }
        let plain = without_wrapper(text);
        match plain.contains(['*', '?']) {
            true => Ok(Self::Glob(plain.chars().collect())),
            false => Ok(Self::Plain(plain)),
        }
    }

    pub(crate) fn covers(&self, module: &str) -> bool {
        match self {
            Self::Plain(name) => module.match_indices(name.as_str()).any(|(at, found)| {
                let end = at + found.len();
                (at == 0 || module.as_bytes()[at - 1] == b'.')
                    && (end == module.len() || module.as_bytes()[end] == b'.')
            }),
            Self::Glob(pattern) => {
                let name: Vec<char> = module.chars().collect();
                let ends = (0..=name.len()).filter(|&end| name.get(end).is_none_or(|c| *c == '.'));
                ends.into_iter().any(|end| glob(pattern, &name[..end]))
            }
            Self::Regex(regex) => regex.is_match(module),
        }
    }
}

/// The path without the part that a multi-modal checkpoint wraps its text model in.
fn without_wrapper(text: &str) -> String {
    text.replace("language_model.model.", "model.").replace("language_model.", "")
}

/// Whether `*` (any characters) and `?` (one) match all of `name`.
fn glob(pattern: &[char], name: &[char]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() {
        if pattern.get(p) == Some(&'*') {
            retry = Some((p + 1, n));
            p += 1;
        } else if pattern.get(p).is_some_and(|c| *c == '?' || *c == name[n]) {
            (p, n) = (p + 1, n + 1);
        } else if let Some((star, from)) = retry {
            (p, n) = (star, from + 1);
            retry = Some((star, from + 1));
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, covered: &[&str], other: &[&str]) {
        let compiled = Pattern::new(pattern).unwrap();
        for module in covered {
            assert!(compiled.covers(module), "{pattern} should cover {module}");
        }
        for module in other {
            assert!(!compiled.covers(module), "{pattern} should not cover {module}");
        }
    }

    #[test]
    fn patterns_cover_modules_and_their_children() {
        let (q1, q10) = ("model.layers.1.self_attn.q_proj", "model.layers.10.self_attn.q_proj");
        check("lm_head", &["lm_head"], &["model.lm_head2", q1]);
        check("model.layers.1.self_attn", &[q1], &[q10]);
        check("q_proj", &[q1, q10], &["model.layers.1.self_attn.q_proj_2"]);
        check("model.layers.1*", &[q1, q10], &["model.layers.2.self_attn.q_proj"]);
        check("model.layers.1.*", &[q1], &[q10]);
        check("model.layers.*.self_attn", &[q1, q10], &["model.layers.1.mlp.gate"]);
        check("*.q_?roj", &[q1], &["model.layers.1.self_attn.k_proj"]);
        check("re:.*self_attn.*", &[q1], &["model.layers.1.mlp.gate"]);
        check("model.language_model.layers.1.self_attn*", &[q1], &[q10]);
        check("language_model.model.layers.1.self_attn", &[q1], &[q10]);
    }

    #[test]
    fn a_broken_expression_names_the_pattern() {
        let error = Pattern::new("re:(").unwrap_err().to_string();
        assert!(error.starts_with("quantisation: pattern `re:(` cannot be read"), "{error}");
    }
}
