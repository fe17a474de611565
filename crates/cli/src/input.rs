//! Reading a path, and saying what was read.

use std::path::Path;
use std::sync::Arc;

use steptally_analyze::Config;
use steptally_analyze::results::Baseline;
use steptally_capture::MANIFEST_NAME;
use steptally_import::{Import, ImportOptions, import_path};
use steptally_report::{Example, Input, InputFile, InputIssue};
use steptally_trace_model::manifest::{CaptureManifest, MANIFEST_VERSION};

use crate::args::ReadingArgs;
use crate::failure::Failure;
use crate::progress::ReadingBar;

/// Reads the trace, or the traces of a folder.
pub(crate) fn read(path: &Path, args: &ReadingArgs) -> Result<Import, Failure> {
    if let Err(error) = std::fs::metadata(path) {
        return Err(Failure::input(format!("cannot read {}: {error}", path.display()))
            .hint("check the path: it should be a trace, or a folder with the traces of one run"));
    }
    let bar = Arc::new(ReadingBar::new());
    let options = ImportOptions {
        threads: args.threads.map(std::num::NonZeroUsize::get),
        progress: bar.clone(),
        ..ImportOptions::default()
    };
    let import = import_path(path, &options);
    bar.finish();
    import.map_err(|error| {
        let failure = Failure::input(error.to_string());
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    })
}

/// What was read, for a report.
pub(crate) fn summary(import: &Import) -> Input {
    let files: Vec<InputFile> = import
        .files
        .iter()
        .map(|file| InputFile {
            path: file.path.display().to_string(),
            bytes: file.bytes,
            format: file.format.clone(),
            partial: file.partial,
            left_out: file.left_out.clone(),
        })
        .collect();
    // A capture's manifest is read for what it says, and is none of the traces that may be missed.
    let is_manifest =
        |file: &InputFile| file.left_out.is_some() && file.path.ends_with(MANIFEST_NAME);
    let issues = import
        .issues
        .iter()
        .map(|found| InputIssue {
            code: found.issue.code.to_owned(),
            severity: found.issue.severity.into(),
            count: found.issue.count,
            example: Example {
                byte_offset: found.issue.first.byte_offset,
                text: found.issue.first.text.clone(),
            },
            file: files.get(found.file).map_or_else(String::new, |file| file.path.clone()),
        })
        .collect();
    Input { files: files.into_iter().filter(|file| !is_manifest(file)).collect(), issues }
}

/// What the capture of a folder, or of a trace in it, measured without a profiler: `None` when there
/// is no manifest, or none that is about the trace.
pub(crate) fn baseline(path: &Path) -> Result<Option<Baseline>, Failure> {
    Ok(manifest(path)?.as_ref().and_then(Baseline::from_manifest))
}

/// The manifest of the capture that a folder, or a trace in it, is of.
pub(crate) fn manifest(path: &Path) -> Result<Option<CaptureManifest>, Failure> {
    let folder = if path.is_dir() { Some(path) } else { path.parent() };
    let Some(file) = folder.map(|folder| folder.join(MANIFEST_NAME)) else { return Ok(None) };
    let Ok(json) = std::fs::read(&file) else { return Ok(None) };
    // Other programs write files of this name.
    let value: Option<serde_json::Value> = serde_json::from_slice(&json).ok();
    let Some(value) = value.filter(|value| value.get("manifest_version").is_some()) else {
        return Ok(None);
    };
    let failure = |what: String| {
        Failure::input(format!("{}: {what}", file.display()))
            .hint("move the manifest away to do without the TPOT that it holds")
    };
    let version = value["manifest_version"].as_u64().unwrap_or(u64::MAX);
    if version > u64::from(MANIFEST_VERSION) {
        let known = format!("this program knows versions up to {MANIFEST_VERSION}");
        return Err(failure(format!("the manifest has version {version}, and {known}")));
    }
    let manifest: CaptureManifest = serde_json::from_value(value)
        .map_err(|error| failure(format!("the manifest cannot be read: {error}")))?;
    let name = path.file_name();
    let is_its_file = |of: &str| Path::new(of).file_name() == name;
    let about_path = path.is_dir() || manifest.files.iter().any(|of| is_its_file(&of.path));
    Ok(Some(manifest).filter(|_| about_path))
}

/// Takes from a manifest what the analysis can use and the user has not said.
pub(crate) fn configure(config: &mut Config, manifest: &CaptureManifest) {
    let server = manifest.server.as_ref();
    config.baseline = Baseline::from_manifest(manifest);
    config.kv_token_capacity =
        config.kv_token_capacity.or_else(|| server.and_then(|server| server.kv_token_capacity));
}
