//! Reading a path, and saying what was read.

use std::path::Path;
use std::sync::Arc;

use steptally_import::{Import, ImportOptions, import_path};
use steptally_report::{Example, Input, InputFile, InputIssue};

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
    Input { files, issues }
}
