//! Finding rules: each is registered, and has a test of every outcome.

use std::path::Path;

use anyhow::{Context, Result};

/// Where the rules are.
const FOLDER: &str = "crates/analyze/src/findings/rules";

/// It fires, it stays quiet at its threshold, it does not apply.
const LEAST_TESTS: usize = 3;
const OUTCOMES: [&str; 3] = ["found", "clear", "not_applicable"];

/// Adds what is wrong with the rules of the workspace.
pub(crate) fn check(root: &Path, problems: &mut Vec<String>) -> Result<()> {
    let folder = root.join(FOLDER);
    let read =
        |path: &Path| std::fs::read_to_string(path).with_context(|| path.display().to_string());
    let registry = read(&folder.join("mod.rs"))?;
    let mut paths: Vec<_> = std::fs::read_dir(&folder)
        .with_context(|| FOLDER.to_owned())?
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()?;
    paths.sort();
    for path in paths {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        if name != "mod" {
            check_rule(&name, &read(&path)?, &registry, problems);
        }
    }
    Ok(())
}

fn check_rule(name: &str, source: &str, registry: &str, problems: &mut Vec<String>) {
    let mut problem = |what: String| problems.push(format!("{FOLDER}/{name}.rs: {what}"));
    let has_line = |wanted: &str| registry.lines().any(|line| line.trim() == wanted);
    if !has_line(&format!("mod {name};")) || !has_line(&format!("{name}::RULE,")) {
        problem("not registered in mod.rs".to_owned());
    }
    let code = name.to_uppercase();
    if !source.contains(&format!("code: \"{code}\"")) {
        problem(format!("its code is not {code}"));
    }
    let tests = source.split_once("#[cfg(test)]").map_or("", |(_, tests)| tests);
    let n = tests.matches("#[test]").count();
    if n < LEAST_TESTS {
        problem(format!("{n} tests, fewer than {LEAST_TESTS}: fires, threshold, does not apply"));
    }
    for outcome in OUTCOMES.iter().filter(|outcome| !tests.contains(**outcome)) {
        problem(format!("no test of the outcome `{outcome}`"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGISTRY: &str = "mod kv001;\n    kv001::RULE,\n";
    const RULE: &str = "code: \"KV001\",\n#[cfg(test)]\n#[test]\nfound(\n#[test]\nclear(\n#[test]\n\
                        not_applicable(";

    fn problems(name: &str, source: &str, registry: &str) -> Vec<String> {
        let mut problems = Vec::new();
        check_rule(name, source, registry, &mut problems);
        problems
    }

    #[test]
    fn a_whole_rule_is_in_order() {
        assert!(problems("kv001", RULE, REGISTRY).is_empty());
    }

    #[test]
    fn what_a_rule_lacks_is_named() {
        let check = |name: &str, source: &str, registry: &str, expected: &str| {
            let found = problems(name, source, registry);
            assert!(found.iter().any(|problem| problem.contains(expected)), "{found:?}");
        };
        check("kv001", RULE, "mod kv001;\n", "not registered");
        check("kv001", RULE, "    kv001::RULE,\n", "not registered");
        check("kv002", RULE, REGISTRY, "its code is not KV002");
        check("kv001", &RULE.replacen("#[test]", "", 1), REGISTRY, "2 tests, fewer than 3");
        check("kv001", &RULE.replace("clear(", ""), REGISTRY, "no test of the outcome `clear`");
        check("kv001", "code: \"KV001\"", REGISTRY, "0 tests");
    }
}
