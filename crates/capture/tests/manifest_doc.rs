//! docs/formats/capture-manifest.md names every key of a manifest and every code of a problem.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use steptally_trace_model::manifest::{
    Baseline, CaptureEvent, CaptureManifest, CaptureProblem, CapturedFile, CapturedGpu,
    CapturedServer, LoadShape, ProfilerRequest, SpeedAfter, SpeedVerdict, Verification,
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The page; `None` when the crate is not in its workspace.
fn page() -> Option<String> {
    let path = root().join("docs/formats/capture-manifest.md");
    let text = fs::read_to_string(&path).ok();
    if text.is_none() {
        eprintln!("SKIPPED: {} is not there", path.display());
    }
    text
}

/// Every key within a value.
fn keys(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                found.push(key.clone());
                keys(value, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| keys(item, found)),
        _ => {}
    }
}

#[test]
fn every_key_is_described() {
    let Some(page) = page() else { return };
    // One of everything.
    let manifest = CaptureManifest {
        server: Some(CapturedServer::default()),
        gpus: vec![CapturedGpu::default()],
        profiler: Some(ProfilerRequest::default()),
        load: Some(LoadShape::default()),
        baseline_before: Some(Baseline::default()),
        baseline_after: Some(Baseline::default()),
        speed_after: Some(SpeedAfter {
            verdict: SpeedVerdict::Slower,
            change_ratio: 0.0,
            noise_ratio: 0.0,
        }),
        events: vec![CaptureEvent::default()],
        files: vec![CapturedFile::default()],
        verification: Some(Verification::default()),
        problems: vec![CaptureProblem::default()],
        ..CaptureManifest::default()
    };
    let mut found = Vec::new();
    keys(&serde_json::to_value(manifest).unwrap(), &mut found);
    assert!(found.len() > 60, "{found:?}");
    for key in found {
        assert!(page.contains(&format!("`{key}`")), "{key}");
    }
}

/// The Rust sources below a folder.
fn sources(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn every_code_is_described() {
    let Some(page) = page() else { return };
    let mut all = Vec::new();
    sources(&root().join("crates/capture/src"), &mut all);
    all.push(fs::read_to_string(root().join("crates/cli/src/verify.rs")).unwrap());
    let mut count = 0;
    for source in &all {
        for (at, call) in source.match_indices("Failure::new(") {
            let rest = source[at + call.len()..].trim_start();
            let Some(code) = rest.strip_prefix('"').and_then(|rest| rest.split('"').next()) else {
                continue;
            };
            count += 1;
            assert!(page.contains(&format!("`{code}`")), "{code}");
        }
    }
    assert!(count > 30, "{count}");
}
