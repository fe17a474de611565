//! `.nsys-rep` reports: only nsys itself can read them, so it is asked to export them to SQLite.

use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;
use thiserror::Error;

/// Why a report could not be exported.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExportError {
    /// There is no nsys to do it.
    #[error(
        "an Nsight Systems report (.nsys-rep{}), which only nsys can read, and nsys is not on PATH",
        written_by.as_deref().map(|version| format!(" of nsys {version}")).unwrap_or_default()
    )]
    NoNsys {
        /// The report's file name.
        report: String,
        /// The version that wrote the report.
        written_by: Option<String>,
    },
    /// nsys could not be run.
    #[error("cannot run {} to export the report: {error}", .program.display())]
    Spawn {
        /// The program.
        program: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// nsys refused.
    #[error("nsys export failed: {message}")]
    Failed {
        /// What nsys says.
        message: String,
        /// The report's file name.
        report: String,
        /// The version that wrote the report.
        written_by: Option<String>,
    },
}

impl ExportError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoNsys { report, .. } => Some(format!(
                "run `nsys export --type sqlite {report}` where nsys is installed and pass the \
                 .sqlite file; reading that needs no nsys"
            )),
            Self::Spawn { .. } => None,
            Self::Failed { report, written_by, .. } => Some(format!(
                "run `nsys export --type sqlite {report}` on the machine that captured it (with \
                 nsys {} or newer) and pass the .sqlite file",
                written_by.as_deref().unwrap_or("of the same version")
            )),
        }
    }
}

/// A report's SQLite export, which lives as long as this does.
#[derive(Debug)]
pub(crate) struct Exported {
    _folder: TempDir,
    pub(crate) sqlite: PathBuf,
}

/// Exports a report with the nsys that is on PATH. `shown` is the report's name for messages.
pub(crate) fn export(report: &Path, shown: &str) -> Result<Exported, ExportError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    match find_program("nsys", &path) {
        Some(nsys) => export_with(&nsys, report, shown),
        None => {
            Err(ExportError::NoNsys { report: shown.to_owned(), written_by: written_by(report) })
        }
    }
}

fn export_with(nsys: &Path, report: &Path, shown: &str) -> Result<Exported, ExportError> {
    let spawn = |error| ExportError::Spawn { program: nsys.to_owned(), error };
    let folder = tempfile::Builder::new().prefix("steptally-").tempdir().map_err(spawn)?;
    let sqlite = folder.path().join("report.sqlite");
    let output = Command::new(nsys)
        .args(["export", "--type", "sqlite", "--quiet", "true", "--output"])
        .arg(&sqlite)
        .arg(report)
        .stdin(Stdio::null())
        .output()
        .map_err(spawn)?;
    if output.status.success() && sqlite.is_file() {
        return Ok(Exported { _folder: folder, sqlite });
    }
    let text = [output.stderr, output.stdout].concat();
    let text = String::from_utf8_lossy(&text);
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let message = lines()
        .find(|line| line.to_ascii_lowercase().contains("error"))
        .or_else(|| lines().next_back())
        .map_or_else(|| output.status.to_string(), str::to_owned);
    Err(ExportError::Failed { message, report: shown.to_owned(), written_by: written_by(report) })
}

/// The program `name` in the folders of `path`.
fn find_program(name: &str, path: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(path)
        .map(|folder| folder.join(name).with_extension(std::env::consts::EXE_EXTENSION))
        .find(|program| program.is_file())
}

/// The nsys version in a report's first line: `NVIDIA Tegra Profiler Report 2025@5@1@121-..`.
fn written_by(report: &Path) -> Option<String> {
    let mut head = Vec::new();
    std::fs::File::open(report).ok()?.take(128).read_to_end(&mut head).ok()?;
    let text = String::from_utf8_lossy(&head);
    let version = text.strip_prefix("NVIDIA Tegra Profiler Report ")?;
    let numbers: Vec<_> = version
        .split('@')
        .take(3)
        .take_while(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
        .collect();
    (numbers.len() == 3).then(|| numbers.join("."))
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A folder with a report and a program that stands in for nsys.
    fn fake(script: &str) -> (TempDir, PathBuf, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let nsys = folder.path().join("nsys");
        fs::write(&nsys, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&nsys, fs::Permissions::from_mode(0o755)).unwrap();
        let report = folder.path().join("x.nsys-rep");
        fs::write(&report, "NVIDIA Tegra Profiler Report 2025@5@1@121-25v0.\n").unwrap();
        (folder, nsys, report)
    }

    #[test]
    fn nsys_writes_the_database() {
        // Arguments: export --type sqlite --quiet true --output FILE REPORT.
        let (_folder, nsys, report) = fake(r#"cp "$8" "$7""#);
        let exported = export_with(&nsys, &report, "x.nsys-rep").unwrap();
        assert_eq!(fs::read(&exported.sqlite).unwrap(), fs::read(&report).unwrap());
    }

    #[test]
    fn what_nsys_says_is_passed_on() {
        let message = "Exportation error: Report was created in Nsight Systems version 2025.5, \
                       newer than your current version (2023.4.4)";
        let (_folder, nsys, report) = fake(&format!("echo Processing; echo '{message}'; exit 1"));
        let error = export_with(&nsys, &report, "x.nsys-rep").unwrap_err();
        assert_eq!(error.to_string(), format!("nsys export failed: {message}"));
        let hint = error.hint().unwrap();
        assert!(hint.contains("nsys export --type sqlite x.nsys-rep"), "{hint}");
        assert!(hint.contains("nsys 2025.5.1 or newer"), "{hint}");
        // A zero exit status without a database is a failure as well.
        let (_folder, nsys, report) = fake("true");
        assert!(matches!(export_with(&nsys, &report, "x"), Err(ExportError::Failed { .. })));
    }

    #[test]
    fn programs_are_found_on_path() {
        let (folder, nsys, report) = fake("true");
        let path = std::env::join_paths([Path::new("/nonexistent"), folder.path()]).unwrap();
        assert_eq!(find_program("nsys", &path), Some(nsys));
        assert_eq!(find_program("nsys", OsStr::new("/nonexistent")), None);
        let error =
            ExportError::NoNsys { report: "x.nsys-rep".into(), written_by: written_by(&report) };
        assert_eq!(
            error.to_string(),
            "an Nsight Systems report (.nsys-rep of nsys 2025.5.1), which only nsys can read, and \
             nsys is not on PATH"
        );
        assert!(error.hint().unwrap().contains("reading that needs no nsys"));
        let missing = export_with(Path::new("/nonexistent/nsys"), &report, "x").unwrap_err();
        assert!(missing.to_string().starts_with("cannot run /nonexistent/nsys"), "{missing}");
    }
}
