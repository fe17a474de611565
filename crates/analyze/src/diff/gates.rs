//! Gates: conditions on a diff under which a check in CI fails.
//!
//! ```text
//!   gate    = measure ("<" | "<=" | ">" | ">=") limit
//!   measure = "period" | "tpot" | "gpu_busy"     median over steps (TPOT: over requests)
//!           | account | group of accounts        mean per step; copy = copy.cast + copy.cat + ...
//!   limit   = number unit                        against B itself: 200us
//!           | ("+" | "-") number (unit | "%")    against the change from A to B: +3%, -50us
//!   unit    = "ns" | "us" | "ms" | "s"
//! ```

use std::collections::BTreeSet;
use std::str::FromStr;

use thiserror::Error;

use crate::categories::Categories;
use crate::ledger::Accounts;
use crate::results::{Diff, GateOutcome};

/// A condition, such as `period>+3%`.
#[derive(Clone, Debug, PartialEq)]
pub struct Gate {
    text: String,
    measure: String,
    comparison: Comparison,
    limit: Limit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Limit {
    /// B, in ns.
    Absolute(f64),
    /// B - A, in ns.
    Change(f64),
    /// (B - A) / A.
    Relative(f64),
}

/// A gate that cannot be read, or not be decided.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GateError {
    /// Not a gate.
    #[error("`{gate}` is not a gate: {reason}")]
    Syntax {
        /// As written.
        gate: String,
        /// What is wrong.
        reason: String,
    },
    /// No such measure.
    #[error("`{gate}`: there is no account `{account}`")]
    UnknownAccount {
        /// As written.
        gate: String,
        /// The account.
        account: String,
        /// Names that are like it, nearest first.
        similar: Vec<String>,
    },
    /// The captures do not say.
    #[error("`{gate}`: {measure} of {side} is not known")]
    NotKnown {
        /// As written.
        gate: String,
        /// The measure.
        measure: String,
        /// `A`, `B` or `A and B`.
        side: &'static str,
    },
}

impl GateError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Syntax { .. } => {
                "a gate is MEASURE>LIMIT or MEASURE<LIMIT; MEASURE is period, tpot, \
                 gpu_busy or an account of the ledger; LIMIT is a time of B (200us) or, with a \
                 sign, a change from A to B (+3%, -50us)"
                    .to_owned()
            }
            Self::UnknownAccount { similar, .. } if similar.is_empty() => {
                "accounts are listed by `steptally analyze`; also period, tpot, gpu_busy".to_owned()
            }
            Self::UnknownAccount { similar, .. } => format!("similar: {}", similar.join(", ")),
            Self::NotKnown { measure, .. } if measure == "tpot" => {
                "give it by --tpot-a and --tpot-b, or compare captures with a baseline".to_owned()
            }
            Self::NotKnown { .. } => "gates on profiled times need steps on both sides".to_owned(),
        }
    }
}

impl FromStr for Gate {
    type Err = GateError;

    fn from_str(text: &str) -> Result<Self, GateError> {
        let wrong =
            |reason: &str| GateError::Syntax { gate: text.to_owned(), reason: reason.to_owned() };
        let at = text.find(['<', '>']).ok_or_else(|| wrong("it has no `<` or `>`"))?;
        let measure = text[..at].trim();
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._".contains(c);
        if measure.is_empty() || !measure.chars().all(plain) {
            return Err(wrong("before the comparison it needs a measure in lower case"));
        }
        let greater = text[at..].starts_with('>');
        let rest = &text[at + 1..];
        let (or_equal, limit) = rest.strip_prefix('=').map_or((false, rest), |rest| (true, rest));
        let comparison = match (greater, or_equal) {
            (true, false) => Comparison::Greater,
            (true, true) => Comparison::GreaterOrEqual,
            (false, false) => Comparison::Less,
            (false, true) => Comparison::LessOrEqual,
        };
        let limit = parse_limit(limit.trim()).map_err(|reason| wrong(&reason))?;
        Ok(Self { text: text.to_owned(), measure: measure.to_owned(), comparison, limit })
    }
}

fn parse_limit(text: &str) -> Result<Limit, String> {
    let signed = text.starts_with(['+', '-']);
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic() || c == '%').unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let number = number.trim();
    let digits = number.strip_prefix(['+', '-']).unwrap_or(number);
    let decimal = |c: char| c.is_ascii_digit() || c == '.';
    let value: f64 = match number.parse() {
        Ok(value) if digits.chars().all(decimal) => value,
        _ => return Err(format!("the limit `{text}` has no number")),
    };
    let ns = match unit.trim() {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "%" if signed => return Ok(Limit::Relative(value / 100.0)),
        "%" => return Err(format!("percentages are of A and need a sign: +{text} or -{text}")),
        "" => return Err(format!("the limit `{text}` has no unit: ns, us, ms, s or %")),
        other => return Err(format!("`{other}` is no unit: ns, us, ms, s or %")),
    };
    Ok(if signed { Limit::Change(value * ns) } else { Limit::Absolute(value * ns) })
}

impl Gate {
    /// The gate as written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Decides the gate. An account that `categories` or the ledgers know but that neither ledger
    /// has is 0.
    ///
    /// # Errors
    /// When there is no such measure, or the captures do not have it.
    pub fn evaluate(&self, diff: &Diff, categories: &Categories) -> Result<GateOutcome, GateError> {
        let (a, b) = self.measures(diff, categories)?;
        let not_known = |side| GateError::NotKnown {
            gate: self.text.clone(),
            measure: self.measure.clone(),
            side,
        };
        let needs_a = !matches!(self.limit, Limit::Absolute(_));
        let b = b.ok_or_else(|| not_known(if needs_a && a.is_none() { "A and B" } else { "B" }))?;
        if needs_a && a.is_none() {
            return Err(not_known("A"));
        }
        let before = a.unwrap_or(0.0);
        let (value, limit) = match self.limit {
            Limit::Absolute(limit) => (b, limit),
            Limit::Change(limit) => (b - before, limit),
            Limit::Relative(limit) if before != 0.0 => ((b - before) / before, limit),
            Limit::Relative(limit) if b == 0.0 => (0.0, limit),
            Limit::Relative(limit) => (f64::INFINITY, limit),
        };
        let holds = match self.comparison {
            Comparison::Less => value < limit,
            Comparison::LessOrEqual => value <= limit,
            Comparison::Greater => value > limit,
            Comparison::GreaterOrEqual => value >= limit,
        };
        Ok(GateOutcome {
            gate: self.text.clone(),
            holds,
            a_ns: a,
            b_ns: b,
            value: value.is_finite().then_some(value),
            relative: matches!(self.limit, Limit::Relative(_)),
        })
    }

    /// The measure on both sides, as far as known.
    fn measures(
        &self,
        diff: &Diff,
        categories: &Categories,
    ) -> Result<(Option<f64>, Option<f64>), GateError> {
        let median = |of: Option<crate::results::Distribution>| of.map(|of| of.median);
        match self.measure.as_str() {
            "period" => return Ok((median(diff.a.period_ns), median(diff.b.period_ns))),
            "gpu_busy" => return Ok((median(diff.a.gpu_busy_ns), median(diff.b.gpu_busy_ns))),
            "tpot" => {
                let tpot = |of: &crate::results::DiffSide| {
                    of.baseline.as_ref().map(|baseline| baseline.tpot_ns.median)
                };
                return Ok((tpot(&diff.a), tpot(&diff.b)));
            }
            _ => {}
        }
        let accounts = Accounts::new(categories);
        let mut names: BTreeSet<&str> = accounts.iter().map(|(_, key)| key.name).collect();
        let rows = diff.waterfall.iter().flat_map(|waterfall| &waterfall.rows);
        names.extend(rows.clone().map(|row| row.account.as_str()));
        if !names.iter().any(|name| self.covers(name)) {
            return Err(GateError::UnknownAccount {
                gate: self.text.clone(),
                account: self.measure.clone(),
                similar: similar(&self.measure, &names),
            });
        }
        let Some(waterfall) = &diff.waterfall else { return Ok((None, None)) };
        let covered = rows.filter(|row| self.covers(&row.account));
        let (a, b) =
            covered.fold((0, 0), |sum, row| (sum.0 + row.a_total_ns, sum.1 + row.b_total_ns));
        Ok((Some(a as f64 / waterfall.a_n as f64), Some(b as f64 / waterfall.b_n as f64)))
    }

    /// Whether the measure is this account, or a group that it is in.
    fn covers(&self, account: &str) -> bool {
        let rest = account.strip_prefix(self.measure.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

/// Names that may be meant, nearest first: few letters differ, or a part is the same.
fn similar(wanted: &str, names: &BTreeSet<&str>) -> Vec<String> {
    let parts: BTreeSet<&str> = wanted.split(['.', '_']).collect();
    let measures = ["period", "tpot", "gpu_busy"];
    let mut near: Vec<(usize, &str)> = (names.iter().copied().chain(measures))
        .map(|name| (edits(wanted, name), name))
        .filter(|(edits, name)| {
            *edits <= 1 + wanted.len() / 4
                || name.split(['.', '_']).any(|part| parts.contains(part))
        })
        .collect();
    near.sort_unstable();
    near.into_iter().take(5).map(|(_, name)| name.to_owned()).collect()
}

/// Levenshtein distance.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (index, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (at, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[at + 1];
            row[at + 1] = replaced.min(row[at] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(text: &str) -> Limit {
        text.parse::<Gate>().unwrap().limit
    }

    #[test]
    fn limits() {
        assert_eq!(limit("period>+3%"), Limit::Relative(0.03));
        assert_eq!(limit("copy.cast > 200us"), Limit::Absolute(200_000.0));
        assert_eq!(limit("copy.cast>+50us"), Limit::Change(50_000.0));
        assert_eq!(limit("idle.between_steps<-10%"), Limit::Relative(-0.1));
        assert_eq!(limit("gpu_busy>=1.5 ms"), Limit::Absolute(1_500_000.0));
        let gate: Gate = "tpot<=2s".parse().unwrap();
        assert_eq!((gate.measure.as_str(), gate.comparison), ("tpot", Comparison::LessOrEqual));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (gate, reason) in [
            ("period", "no `<` or `>`"),
            (">3%", "needs a measure"),
            ("Period>3ms", "in lower case"),
            ("period>3%", "need a sign: +3% or -3%"),
            ("period>+3", "has no unit"),
            ("period>+3min", "`min` is no unit"),
            ("period>fast", "has no number"),
            ("period>", "has no number"),
            ("period>+inf", "has no number"),
            ("period>1e3ms", "no unit"),
            ("period>+-3%", "has no number"),
        ] {
            let error = gate.parse::<Gate>().unwrap_err();
            assert!(error.to_string().contains(reason), "{error}");
            assert!(error.hint().contains("+3%"));
        }
    }

    #[test]
    fn names_that_are_alike() {
        let names = ["copy.cast", "copy.cat", "idle.between_steps", "norm"].into();
        // One letter less against two others.
        assert_eq!(similar("copy.csat", &names), ["copy.cat", "copy.cast"]);
        assert_eq!(similar("between_steps", &names), ["idle.between_steps"]);
        assert_eq!(similar("periods", &names), ["period"]);
        assert_eq!(similar("quux", &names), Vec::<String>::new());
    }
}
