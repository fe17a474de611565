//! `steptally redact`: a copy of an nsys export without what must not be passed on.

use std::path::{Path, PathBuf};

use steptally_import::nsys::redact;
use steptally_report::{Redaction, Removed, redaction_text, to_json};

use crate::args::{Format, RedactArgs};
use crate::failure::{Code, Failure};
use crate::output;

pub(crate) fn run(args: &RedactArgs) -> Result<Code, Failure> {
    let copy = args.output.clone().unwrap_or_else(|| beside(&args.path));
    let report = redact(&args.path, &copy).map_err(|error| {
        let failure = Failure::input(error.to_string());
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    })?;
    let bytes = std::fs::metadata(&copy).map_or(0, |metadata| metadata.len());
    let paths = [&args.path, &copy].map(|path| path.display().to_string());
    let removed = Removed {
        environment_rows: report.environment_rows,
        strings: report.strings,
        names: report.names,
        other_rows: report.other_rows,
        texts: report.texts,
    };
    let redaction = Redaction::new(output::tool(), paths, bytes, report.rows_kept, removed);
    let text = match args.format {
        Format::Text => redaction_text(&redaction),
        Format::Json => to_json(&redaction),
    };
    output::write(&text, None)?;
    Ok(Code::Ok)
}

/// `x.sqlite` gives `x.redacted.sqlite` in the same folder.
fn beside(path: &Path) -> PathBuf {
    path.with_extension("redacted.sqlite")
}
