//! What README and docs show of the program's output is what it prints.

#![allow(clippy::unwrap_used, reason = "in the tests' own functions")]

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The blocks that begin with a command of this program: its words, and the lines below. `..` in a
/// command stands for the words of the one before.
fn examples(document: &str) -> Vec<(Vec<String>, Vec<String>)> {
    let mut examples: Vec<(Vec<String>, Vec<String>)> = Vec::new();
    for block in document.split("```").skip(1).step_by(2) {
        let text = block.trim_start_matches('\n').replace("\\\n", " ");
        let command = text.strip_prefix("$ steptally ").and_then(|text| text.split_once('\n'));
        let Some((command, output)) = command else { continue };
        let mut words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        if let (Some(at), Some((before, _))) =
            (words.iter().position(|word| word == ".."), examples.last())
        {
            words.splice(at..=at, before[1..].iter().cloned());
        }
        examples.push((words, output.lines().map(str::to_owned).collect()));
    }
    examples
}

/// Every line of an example must be printed, in that order; `...` stands for lines left out.
fn check(file: &str, expected: usize) {
    let document = std::fs::read_to_string(root().join(file)).unwrap();
    let examples = examples(&document);
    assert_eq!(examples.len(), expected, "{file}: examples with output");
    for (words, lines) in examples {
        let mut command = Command::new(env!("CARGO_BIN_EXE_steptally"));
        let output =
            command.args(&words).current_dir(root()).env_remove("COLUMNS").output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        let mut rest = printed.lines();
        for line in lines.iter().filter(|line| !line.is_empty() && line.trim() != "...") {
            let found = rest.any(|printed| printed == line);
            assert!(found, "{file}: not printed, or not in this order: {line}\n{printed}");
        }
    }
}

#[test]
fn the_example_of_readme() {
    check("README.md", 1);
}

#[test]
fn the_example_of_savings() {
    check("docs/concepts/savings.md", 1);
}

#[test]
fn the_examples_of_gap() {
    check("docs/guide/gap.md", 2);
}
