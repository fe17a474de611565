//! Kernel categories: ordered rules from `data/kernels.toml` and from the user, applied once per
//! distinct name.

use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use regex_automata::meta::{self, Regex};
use regex_automata::util::syntax;
use regex_syntax::hir::literal::Extractor;
use serde::Deserialize;
use steptally_trace_model::{CopyKind, Strings};
use thiserror::Error;

/// The category of a kernel that no rule knows.
pub const UNCATEGORISED: &str = "uncategorised";

/// Ordered rules: the first that matches a kernel's name gives its category.
#[derive(Clone, Debug)]
pub struct Categories {
    rules: Vec<Rule>,
    matcher: Matcher,
}

/// The patterns of all rules. Most begin with one of a few literals: those that a name contains
/// choose the patterns to try, which are compiled when they are first tried.
#[derive(Clone, Debug, Default)]
struct Matcher {
    patterns: Vec<LazyPattern>,
    literals: Option<AhoCorasick>,
    /// The pattern that each literal stands for.
    pattern_of_literal: Vec<usize>,
    /// Patterns without literals.
    always: Vec<usize>,
}

#[derive(Clone, Debug)]
struct LazyPattern {
    unicode: bool,
    compiled: OnceLock<Option<Regex>>,
}

/// One rule.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Lower-case words joined by dots, `gemm.fp8`. Those below `comm` are communication.
    pub category: String,
    /// Regular expression, searched in the kernel's name as recorded.
    pub pattern: String,
    /// Names that this rule must be the first to match.
    #[serde(default)]
    pub examples: Vec<String>,
}

/// A file of rules that cannot be used.
#[derive(Debug, Error)]
pub enum RuleError {
    /// Not TOML of the right shape.
    #[error("rules cannot be read: {0}")]
    Syntax(String),
    /// A rule's pattern is not a regular expression.
    #[error("the pattern of category `{category}` cannot be used: {reason}")]
    Pattern {
        /// The rule's category.
        category: String,
        /// Why not.
        reason: String,
    },
    /// A category name is empty, or has characters other than a-z, 0-9, `.` and `_`, or is that of
    /// an account that is not about kernels.
    #[error("`{0}` cannot be a category: use lower-case words joined by dots, not below `idle`")]
    Name(String),
    /// An example is matched first by another rule, or by none.
    #[error("`{example}` is an example of `{category}` but falls into `{actual}`")]
    Example {
        /// The rule's category.
        category: String,
        /// The example.
        example: String,
        /// Where it falls instead.
        actual: String,
    },
}

impl RuleError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        "a rules file is TOML: [[rule]] category = \"gemm.mine\" pattern = 'my_gemm' \
         examples = ['my_gemm_kernel']; its rules come before the built-in ones"
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFile {
    #[serde(default, rename = "rule")]
    rules: Vec<Rule>,
}

impl Default for Categories {
    fn default() -> Self {
        Self::builtin()
    }
}

impl Categories {
    /// The built-in rules.
    #[must_use]
    pub fn builtin() -> Self {
        static BUILTIN: OnceLock<Categories> = OnceLock::new();
        let load = || {
            let rules = parse_rules(include_str!("../data/kernels.toml")).unwrap_or_default();
            // The tests check that the built-in file can be used.
            Self::from_rules(rules, 0)
                .unwrap_or_else(|_| Self { rules: Vec::new(), matcher: Matcher::default() })
        };
        BUILTIN.get_or_init(load).clone()
    }

    /// The rules of a user's file, then the built-in ones.
    ///
    /// # Errors
    /// When the file cannot be used as a whole; also when one of its examples falls elsewhere.
    pub fn with_user_rules(text: &str) -> Result<Self, RuleError> {
        let mut rules = parse_rules(text)?;
        let user_count = rules.len();
        rules.extend(parse_rules(include_str!("../data/kernels.toml"))?);
        let categories = Self::from_rules(rules, user_count)?;
        categories.check_examples(user_count)?;
        Ok(categories)
    }

    /// The rules, in order.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The category of a kernel, [`UNCATEGORISED`] when no rule matches.
    #[must_use]
    pub fn of_kernel(&self, name: &str) -> &str {
        let first = self.matcher.first_match(&self.rules, name.as_bytes());
        first.map_or(UNCATEGORISED, |rule| &self.rules[rule].category)
    }

    /// Takes rules, of which the patterns of the first `user_count` are checked one by one.
    fn from_rules(rules: Vec<Rule>, user_count: usize) -> Result<Self, RuleError> {
        for (index, rule) in rules.iter().enumerate() {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._".contains(c);
            let reserved = rule.category.starts_with("idle") || rule.category == "graph.opaque";
            if rule.category.is_empty() || !rule.category.chars().all(plain) || reserved {
                return Err(RuleError::Name(rule.category.clone()));
            }
            if index < user_count {
                regex::Regex::new(&rule.pattern).map_err(|error| RuleError::Pattern {
                    category: rule.category.clone(),
                    reason: error.to_string().lines().last().unwrap_or_default().trim().to_owned(),
                })?;
            }
        }
        let matcher = Matcher::new(&rules)?;
        Ok(Self { rules, matcher })
    }

    fn check_examples(&self, first: usize) -> Result<(), RuleError> {
        for rule in &self.rules[..first] {
            for example in &rule.examples {
                let actual = self.of_kernel(example);
                if actual != rule.category {
                    return Err(RuleError::Example {
                        category: rule.category.clone(),
                        example: example.clone(),
                        actual: actual.to_owned(),
                    });
                }
            }
        }
        Ok(())
    }
}

impl Matcher {
    fn new(rules: &[Rule]) -> Result<Self, RuleError> {
        let mut matcher = Self::default();
        let mut literals: Vec<Vec<u8>> = Vec::new();
        let syntax = |error: String| RuleError::Syntax(error);
        for (index, rule) in rules.iter().enumerate() {
            let parse = |unicode| {
                let mut parser = regex_syntax::ParserBuilder::new();
                parser.utf8(false).unicode(unicode).build().parse(&rule.pattern).map_err(Box::new)
            };
            // Names of kernels are ASCII, for which patterns are compiled in a fraction of the
            // time. A pattern that asks for more, such as `\p{Greek}`, gets it.
            let (unicode, parsed) = match parse(false) {
                Ok(parsed) => (false, parsed),
                Err(_) => (true, parse(true).map_err(|error| syntax(error.to_string()))?),
            };
            let beginnings = Extractor::new().extract(&parsed);
            match beginnings.literals() {
                Some(found) if found.iter().all(|literal| !literal.is_empty()) => {
                    matcher.pattern_of_literal.extend(found.iter().map(|_| index));
                    literals.extend(found.iter().map(|literal| literal.as_bytes().to_vec()));
                }
                _ => matcher.always.push(index),
            }
            let pattern = LazyPattern { unicode, compiled: OnceLock::new() };
            matcher.patterns.push(pattern);
        }
        // Built in a fraction of the time that another kind takes, for few names to search in.
        let searcher = AhoCorasick::builder()
            .kind(Some(AhoCorasickKind::NoncontiguousNFA))
            .prefilter(false)
            .build(literals)
            .map_err(|error| syntax(error.to_string()))?;
        matcher.literals = Some(searcher);
        Ok(matcher)
    }

    /// The first rule whose pattern occurs in `name`.
    fn first_match(&self, rules: &[Rule], name: &[u8]) -> Option<usize> {
        let mut candidates = self.always.clone();
        if let Some(literals) = &self.literals {
            let found = literals.find_overlapping_iter(name);
            candidates.extend(found.map(|at| self.pattern_of_literal[at.pattern().as_usize()]));
        }
        candidates.sort_unstable();
        candidates.dedup();
        candidates.into_iter().find(|&rule| self.patterns[rule].occurs_in(&rules[rule], name))
    }
}

impl LazyPattern {
    fn occurs_in(&self, rule: &Rule, name: &[u8]) -> bool {
        let compile = || {
            let syntax = syntax::Config::new().utf8(false).unicode(self.unicode);
            // For few short names, what makes a search fast costs more than it saves.
            let plain = meta::Config::new().auto_prefilter(false).hybrid(false).onepass(false);
            meta::Builder::new().configure(plain).syntax(syntax).build(&rule.pattern).ok()
        };
        self.compiled.get_or_init(compile).as_ref().is_some_and(|regex| regex.is_match(name))
    }
}

fn parse_rules(text: &str) -> Result<Vec<Rule>, RuleError> {
    toml::from_str::<RuleFile>(text)
        .map(|file| file.rules)
        .map_err(|error| RuleError::Syntax(error.to_string().trim().replace('\n', " ")))
}

/// The account of a copy-engine operation.
#[must_use]
pub fn copy_account(kind: CopyKind) -> &'static str {
    match kind {
        CopyKind::HostToDevice => "memcpy.h2d",
        CopyKind::DeviceToHost => "memcpy.d2h",
        CopyKind::DeviceToDevice => "memcpy.d2d",
        CopyKind::PeerToPeer => "memcpy.p2p",
        CopyKind::HostToHost => "memcpy.h2h",
        CopyKind::Memset => "memset",
        CopyKind::Unknown => "memcpy.unknown",
    }
}

/// Categories of all names of one trace that occur as kernels: computed once per distinct name.
pub(crate) struct KernelCategories<'a> {
    by_name: Vec<&'a str>,
}

impl<'a> KernelCategories<'a> {
    pub(crate) fn new(
        categories: &'a Categories,
        strings: &Strings,
        names: &[steptally_trace_model::StringId],
    ) -> Self {
        let mut by_name = vec![""; strings.len()];
        for name in names {
            let slot = &mut by_name[name.index()];
            if slot.is_empty() {
                *slot = categories.of_kernel(strings.text(*name));
            }
        }
        Self { by_name }
    }

    pub(crate) fn of(&self, name: steptally_trace_model::StringId) -> &'a str {
        self.by_name[name.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_builtin_rule_is_the_first_to_match_its_examples() {
        let categories = Categories::builtin();
        assert!(categories.rules().len() > 50);
        for rule in categories.rules() {
            assert!(!rule.examples.is_empty(), "{} has no example", rule.category);
            for example in &rule.examples {
                assert_eq!(categories.of_kernel(example), rule.category, "{example}");
            }
        }
    }

    /// Against all patterns at once, on names that hold every rule's examples in odd places.
    #[test]
    fn trying_fewer_patterns_changes_no_category() {
        let categories = Categories::builtin();
        let rules = categories.rules();
        let patterns = rules.iter().map(|rule| &rule.pattern);
        let all = regex::bytes::RegexSet::new(patterns).unwrap();
        let examples: Vec<&String> = rules.iter().flat_map(|rule| &rule.examples).collect();
        let mut names: Vec<String> = vec![String::new()];
        for (index, example) in examples.iter().enumerate() {
            let other = examples[(index * 7 + 3) % examples.len()];
            names.extend([(*example).clone(), format!("void {example}"), format!("x{example}")]);
            names.extend([example.to_uppercase(), example.to_lowercase()]);
            names.extend([format!("{example}{other}"), example.replacen('_', "", 1)]);
            names.extend([example[1..].to_owned(), example[..example.len() - 1].to_owned()]);
        }
        assert!(names.len() > 9 * rules.len());
        for name in names {
            let first = all.matches(name.as_bytes()).iter().next();
            let expected = first.map_or(UNCATEGORISED, |rule| &rules[rule].category);
            assert_eq!(categories.of_kernel(&name), expected, "{name}");
        }
    }

    #[test]
    fn an_unknown_name_stays_uncategorised() {
        assert_eq!(Categories::builtin().of_kernel("delayStreamKernel"), UNCATEGORISED);
    }

    #[test]
    fn user_rules_come_first() {
        let text = "[[rule]]\ncategory = 'gemm.mine'\npattern = 'nvjet_'\nexamples = ['nvjet_x']";
        let categories = Categories::with_user_rules(text).unwrap();
        assert_eq!(categories.of_kernel("nvjet_sm90_tst_64x8"), "gemm.mine");
        assert_eq!(categories.of_kernel("fused_moe_kernel"), "moe.gemm");
    }

    #[test]
    fn user_rules_may_use_unicode() {
        let text = "[[rule]]\ncategory = 'mine'\npattern = '^\\p{Greek}_norm'";
        let categories = Categories::with_user_rules(text).unwrap();
        assert_eq!(categories.of_kernel("\u{3b3}_norm"), "mine");
        assert_eq!(categories.of_kernel("fused_moe_kernel"), "moe.gemm");
    }

    #[test]
    fn unusable_rules_are_refused_with_a_reason() {
        let error = |text: &str| Categories::with_user_rules(text).unwrap_err().to_string();
        assert!(error("rule = 3").starts_with("rules cannot be read"));
        assert_eq!(
            error("[[rule]]\ncategory = 'a'\npattern = '('"),
            "the pattern of category `a` cannot be used: error: unclosed group"
        );
        assert_eq!(
            error("[[rule]]\ncategory = 'idle.x'\npattern = 'x'"),
            "`idle.x` cannot be a category: use lower-case words joined by dots, not below `idle`"
        );
        assert_eq!(
            error("[[rule]]\ncategory = 'a'\npattern = 'x'\nexamples = ['y_unheard_of']"),
            "`y_unheard_of` is an example of `a` but falls into `uncategorised`"
        );
    }
}
