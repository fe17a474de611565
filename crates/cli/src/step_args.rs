//! Which steps a command is about, and how they and the kernels are told apart.

use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::Args;
use regex::Regex;
use steptally_analyze::Config;
use steptally_analyze::categories::Categories;

use crate::args::{parse_pattern, parse_steps};
use crate::failure::Failure;

/// Options of every command that analyses traces.
#[derive(Debug, Args)]
pub(crate) struct StepArgs {
    /// Kind of step to account for: decode, extend, mixed, verify, draft, idle, or a mark's own
    /// name [default: decode, else the kind that takes most time]
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Option<String>,

    /// Only steps A to B (B not included), counted from 0 among the steps of that kind on each rank
    #[arg(long, value_name = "A..B", value_parser = parse_steps)]
    pub(crate) steps: Option<Range<u64>>,

    /// Only this rank
    #[arg(long, value_name = "N")]
    pub(crate) rank: Option<u32>,

    /// Kernel categories of your own (TOML), tried before the built-in ones
    #[arg(long, value_name = "FILE")]
    pub(crate) rules: Option<PathBuf>,

    /// Take ranges whose name matches this regular expression for the steps
    #[arg(long, value_name = "REGEX", value_parser = parse_pattern)]
    pub(crate) step_pattern: Option<Regex>,
}

impl StepArgs {
    /// The analysis that they ask for, all else by default.
    pub(crate) fn config(&self) -> Result<Config, Failure> {
        Ok(Config {
            kind: self.kind.as_ref().map(|kind| kind.to_lowercase()),
            steps: self.steps.clone(),
            rank: self.rank,
            step_pattern: self.step_pattern.clone(),
            categories: self.rules.as_deref().map_or(Ok(Categories::builtin()), user_rules)?,
            ..Config::default()
        })
    }
}

fn user_rules(path: &Path) -> Result<Categories, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::input(format!("cannot read the rules {}: {error}", path.display()))
    })?;
    Categories::with_user_rules(&text).map_err(|error| {
        Failure::input(format!("{}: {error}", path.display())).hint(
            "a rule is a [[rule]] with category = \"...\", pattern = '...' and examples = ['...']",
        )
    })
}
