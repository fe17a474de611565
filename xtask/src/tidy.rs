//! `cargo xtask tidy`: the shape of the workspace.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use serde_json::Value;

use crate::rules;
use crate::run::{cargo, output, root};

/// No `.rs` file is longer than this, so that each can be read in one sitting.
const LONGEST_FILE: usize = 600;

/// Which crates of the workspace a crate may use, and which more its tests may use.
///
/// `cli -> capture, import, analyze, report, microbench`; `report -> analyze -> trace-model <-
/// import`; `capture -> trace-model`. The data model is open to all. Tests may build traces with
/// the testkit and read them, or fixtures, through the importer.
const EDGES: &[(&str, &[&str], &[&str])] = &[
    ("steptally-trace-model", &[], &[]),
    ("steptally-import", &["steptally-trace-model"], &["steptally-testkit"]),
    ("steptally-capture", &["steptally-trace-model"], &["steptally-testkit"]),
    ("steptally-microbench", &[], &[]),
    ("steptally-analyze", &["steptally-trace-model"], &["steptally-testkit", "steptally-import"]),
    (
        "steptally-report",
        &["steptally-trace-model", "steptally-analyze"],
        &["steptally-testkit", "steptally-import"],
    ),
    (
        "steptally",
        &[
            "steptally-trace-model",
            "steptally-import",
            "steptally-analyze",
            "steptally-report",
            "steptally-capture",
            "steptally-microbench",
        ],
        &["steptally-testkit"],
    ),
    ("steptally-testkit", &["steptally-trace-model"], &["steptally-import"]),
    ("xtask", &[], &[]),
];

/// Settings that every package takes from the workspace.
const INHERITED: &[&str] = &["version", "edition", "rust-version", "license", "authors"];

/// Prints what is out of shape. True when nothing is.
pub(crate) fn run() -> Result<bool> {
    let metadata = output(&mut cargo(&["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata: Value = serde_json::from_str(&metadata).context("cargo metadata is not JSON")?;
    let mut problems = Vec::new();
    for package in list(&metadata["packages"]) {
        check_edges(package, &mut problems);
        let manifest = Path::new(text(&package["manifest_path"]));
        check_manifest(manifest, &mut problems)?;
        let folder = manifest.parent().context("a manifest without a folder")?;
        check_sources(folder, &mut problems)?;
    }
    rules::check(&root(), &mut problems)?;
    for problem in &problems {
        println!("{problem}");
    }
    Ok(problems.is_empty())
}

/// The declared `rust-version`, `1.88`.
pub(crate) fn rust_version() -> Result<String> {
    let manifest = read_toml(&root().join("Cargo.toml"))?;
    let version = manifest["workspace"]["package"]["rust-version"].as_str();
    version.map(str::to_owned).ok_or_else(|| anyhow!("no workspace.package.rust-version"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn read_toml(path: &Path) -> Result<toml::Table> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    text.parse().with_context(|| path.display().to_string())
}

fn check_edges(package: &Value, problems: &mut Vec<String>) {
    let name = text(&package["name"]);
    let Some((_, allowed, for_tests)) = EDGES.iter().find(|(of, ..)| *of == name) else {
        problems.push(format!("{name}: not in the list of crates of xtask/src/tidy.rs"));
        return;
    };
    let inside = |dependency: &&Value| EDGES.iter().any(|(of, ..)| *of == dependency["name"]);
    for dependency in list(&package["dependencies"]).iter().filter(inside) {
        let on = text(&dependency["name"]);
        let is_dev = dependency["kind"] == "dev";
        let may = allowed.contains(&on) || (is_dev && for_tests.contains(&on));
        if !may {
            let kind = if is_dev { "its tests must not depend" } else { "it must not depend" };
            problems.push(format!("{name}: {kind} on {on}"));
        }
    }
}

/// Package settings and lints come from the workspace, so that the MSRV that is declared (and that
/// clippy reads) is one for all.
fn check_manifest(path: &Path, problems: &mut Vec<String>) -> Result<()> {
    let manifest = read_toml(path)?;
    let inherits = |value: Option<&toml::Value>| {
        value.and_then(|value| value.get("workspace")).and_then(toml::Value::as_bool) == Some(true)
    };
    let package = manifest.get("package");
    for key in INHERITED {
        if !inherits(package.and_then(|package| package.get(key))) {
            problems.push(format!("{}: `{key}.workspace = true` is missing", relative(path)));
        }
    }
    if !inherits(manifest.get("lints")) {
        problems.push(format!("{}: `[lints] workspace = true` is missing", relative(path)));
    }
    Ok(())
}

fn check_sources(folder: &Path, problems: &mut Vec<String>) -> Result<()> {
    let mut files = BTreeMap::new();
    for part in ["src", "tests", "benches", "examples"] {
        read_sources(&folder.join(part), &mut files)?;
    }
    for (path, source) in &files {
        let lines = source.lines().count();
        if lines > LONGEST_FILE {
            problems.push(format!("{path}: {lines} lines, more than {LONGEST_FILE}"));
        }
        let first = source.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        if !first.starts_with("//!") {
            problems.push(format!("{path}: does not begin with a `//!` comment"));
        }
        // Tests run in the workspace; what is packaged has to build by itself.
        let is_packaged = path.contains("/src/");
        for included in included(source).into_iter().filter(|_| is_packaged) {
            let beside = Path::new(path).parent().unwrap_or(Path::new(""));
            if !stays_within(&beside.join(&included), &relative(folder)) {
                problems
                    .push(format!("{path}: includes {included}, which is outside of its crate"));
            }
        }
    }
    Ok(())
}

/// The files that a source includes when it is compiled.
fn included(source: &str) -> Vec<String> {
    let calls = ["include_str!(", "include_bytes!(", "include!("];
    let found =
        calls.iter().flat_map(|call| source.match_indices(call).map(|(at, call)| at + call.len()));
    found
        .filter_map(|at| {
            let rest = source[at..].trim_start().strip_prefix('"')?;
            Some(rest[..rest.find('"')?].to_owned())
        })
        .collect()
}

/// Whether a path, followed word by word, stays in a folder: what is outside is in no package.
fn stays_within(path: &Path, folder: &str) -> bool {
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            Component::ParentDir if parts.pop().is_none() => return false,
            Component::ParentDir | Component::CurDir => {}
            other => parts.push(other),
        }
    }
    parts.iter().collect::<PathBuf>().starts_with(folder)
}

fn read_sources(folder: &Path, files: &mut BTreeMap<String, String>) -> Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            read_sources(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = std::fs::read_to_string(&path).with_context(|| relative(&path))?;
            files.insert(relative(&path), source);
        }
    }
    Ok(())
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}
