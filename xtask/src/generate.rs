//! `cargo xtask gen`: the parts of docs/reference that are made from the code.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result, bail};

use crate::run::{cargo, output, root};

/// Writes the generated docs, or with `check` compares them. True when they are as they should be.
pub(crate) fn run(check: bool) -> Result<bool> {
    let mut current = true;
    for (path, text) in [
        ("docs/reference/categories.md", categories()?),
        ("docs/reference/report-schema.json", program(&["analyze", "--json-schema"])?),
        ("docs/reference/diff-schema.json", program(&["diff", "--json-schema"])?),
        ("docs/reference/findings.md", program(&["explain"])?),
    ] {
        let place = root().join(path);
        if std::fs::read_to_string(&place).is_ok_and(|present| present == text) {
            continue;
        }
        if check {
            println!("{path} is out of date: run `cargo xtask gen`");
            current = false;
        } else {
            std::fs::create_dir_all(place.parent().context("a path without a folder")?)?;
            std::fs::write(&place, text).with_context(|| path.to_owned())?;
            println!("wrote {path}");
        }
    }
    Ok(current)
}

/// What the program itself prints.
fn program(args: &[&str]) -> Result<String> {
    let cargo_args = ["run", "--quiet", "--package", "steptally", "--"];
    let text = output(cargo(&cargo_args).args(args)).with_context(|| args.join(" "))?;
    Ok(format!("{}\n", text.trim_end()))
}

/// The kernel categories as one table, from the rules that assign them.
fn categories() -> Result<String> {
    let path = "crates/analyze/data/kernels.toml";
    let text = std::fs::read_to_string(root().join(path)).with_context(|| path.to_owned())?;
    let rules: toml::Table = text.parse().with_context(|| path.to_owned())?;
    let Some(rules) = rules.get("rule").and_then(toml::Value::as_array) else {
        bail!("{path}: no [[rule]]");
    };
    let mut out = String::from(
        "# Kernel categories\n\n\
         Made by `cargo xtask gen` from `crates/analyze/data/kernels.toml`; do not edit.\n\n\
         The first rule that matches a kernel's name decides. What no rule matches is shown as \
         uncategorised.\nRules of your own (`--rules FILE`, the same format) are tried before \
         these.\n\n",
    );
    let mut by_category: BTreeMap<&str, usize> = BTreeMap::new();
    let mut rows = String::new();
    for (index, rule) in rules.iter().enumerate() {
        let field = |key: &str| rule.get(key).and_then(toml::Value::as_str).unwrap_or_default();
        let example = rule
            .get("examples")
            .and_then(toml::Value::as_array)
            .and_then(|examples| examples.first())
            .and_then(toml::Value::as_str)
            .unwrap_or_default();
        *by_category.entry(field("category")).or_default() += 1;
        let _ = writeln!(
            rows,
            "| {} | `{}` | {} | {} |",
            index + 1,
            field("category"),
            code(&field("pattern").replace('|', "\\|")),
            code(&shorten(example).replace('|', "\\|"))
        );
    }
    let _ = writeln!(
        out,
        "{} rules, {} categories.\n\n| # | category | pattern | an example |\n| --- | --- | --- | --- |",
        rules.len(),
        by_category.len()
    );
    out.push_str(&rows);
    Ok(out)
}

/// A code span, whatever backticks the text holds.
fn code(text: &str) -> String {
    if text.contains('`') { format!("`` {text} ``") } else { format!("`{text}`") }
}

fn shorten(text: &str) -> String {
    const LONGEST: usize = 90;
    if text.chars().count() <= LONGEST {
        return text.into();
    }
    let kept: String = text.chars().take(LONGEST).collect();
    format!("{kept}…")
}
