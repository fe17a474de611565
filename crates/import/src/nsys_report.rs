//! `.nsys-rep` reports: only nsys itself can read them, so it is asked to export them to SQLite.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use thiserror::Error;

use crate::Progress;

/// How long nsys may write nothing before it is stopped. Large reports take minutes, but they grow.
const PATIENCE: Duration = Duration::from_secs(300);

/// How often the export is looked at.
const POLL: Duration = Duration::from_millis(20);

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
        error: io::Error,
    },
    /// nsys hung.
    #[error("nsys export wrote nothing for {} s and was stopped", .waited.as_secs())]
    Stalled {
        /// How long it wrote nothing.
        waited: Duration,
        /// The report's file name.
        report: String,
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
            Self::Stalled { report, .. } => Some(format!(
                "run `nsys export --type sqlite {report}` by hand to see what it waits for, and \
                 pass the .sqlite file"
            )),
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
pub(crate) fn export(
    report: &Path,
    shown: &str,
    progress: &dyn Progress,
) -> Result<Exported, ExportError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    match find_program("nsys", &path) {
        Some(nsys) => export_with(&nsys, report, shown, PATIENCE, progress),
        None => {
            Err(ExportError::NoNsys { report: shown.to_owned(), written_by: written_by(report) })
        }
    }
}

fn export_with(
    nsys: &Path,
    report: &Path,
    shown: &str,
    patience: Duration,
    progress: &dyn Progress,
) -> Result<Exported, ExportError> {
    let spawn = |error| ExportError::Spawn { program: nsys.to_owned(), error };
    let folder = tempfile::Builder::new().prefix("steptally-").tempdir().map_err(spawn)?;
    let sqlite = folder.path().join("report.sqlite");
    // Files, not pipes: nobody has to empty them while nsys runs.
    let said = ["stderr", "stdout"].map(|name| folder.path().join(name));
    let [stderr, stdout] = [File::create(&said[0]), File::create(&said[1])];
    let mut child = Command::new(nsys)
        .args(["export", "--type", "sqlite", "--quiet", "true", "--output"])
        .arg(&sqlite)
        .arg(report)
        .stdin(Stdio::null())
        .stderr(stderr.map_err(spawn)?)
        .stdout(stdout.map_err(spawn)?)
        .spawn()
        .map_err(spawn)?;
    let tell = |written| progress.exporting(report, written);
    let Some(status) = wait(&mut child, folder.path(), patience, &tell).map_err(spawn)? else {
        return Err(ExportError::Stalled { waited: patience, report: shown.to_owned() });
    };
    if status.success() && sqlite.is_file() {
        return Ok(Exported { _folder: folder, sqlite });
    }
    let text = said.map(|file| std::fs::read(file).unwrap_or_default()).concat();
    let text = String::from_utf8_lossy(&text);
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let message = lines()
        .find(|line| line.to_ascii_lowercase().contains("error"))
        .or_else(|| lines().next_back())
        .map_or_else(|| status.to_string(), str::to_owned);
    Err(ExportError::Failed { message, report: shown.to_owned(), written_by: written_by(report) })
}

/// Waits for the end of `child` as long as the files in `folder` grow; `None` when they did not
/// for as long as `patience`, and the child was killed.
fn wait(
    child: &mut Child,
    folder: &Path,
    patience: Duration,
    tell: &dyn Fn(u64),
) -> io::Result<Option<ExitStatus>> {
    let (mut size, mut grown) = (0, Instant::now());
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        let entries = std::fs::read_dir(folder)?.flatten();
        let now = entries.filter_map(|entry| entry.metadata().ok()).map(|file| file.len()).sum();
        if now != size {
            (size, grown) = (now, Instant::now());
            tell(now);
        }
        if grown.elapsed() >= patience {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(POLL);
    }
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
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::NoProgress;

    fn export_with(nsys: &Path, report: &Path, shown: &str) -> Result<Exported, ExportError> {
        super::export_with(nsys, report, shown, Duration::from_secs(60), &NoProgress)
    }

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
    fn an_export_that_hangs_is_stopped_and_one_that_grows_is_not() {
        let patience = Duration::from_millis(400);
        let (_folder, nsys, report) = fake("exec sleep 60");
        let error =
            super::export_with(&nsys, &report, "x.nsys-rep", patience, &NoProgress).unwrap_err();
        assert!(matches!(error, ExportError::Stalled { .. }), "{error}");
        assert_eq!(error.to_string(), "nsys export wrote nothing for 0 s and was stopped");
        assert!(error.hint().unwrap().contains("nsys export --type sqlite x.nsys-rep"));
        // 8 times 0.1 s, which is longer than the patience, with growth after each.
        let (_folder, nsys, report) =
            fake(r#"for i in 1 2 3 4 5 6 7 8; do sleep 0.1; echo $i >> "$7"; done"#);
        let written = Written::default();
        let exported = super::export_with(&nsys, &report, "x", patience, &written).unwrap();
        assert_eq!(fs::read(&exported.sqlite).unwrap().len(), 16);
        assert!(written.0.load(Ordering::Relaxed) > 0);
    }

    /// The largest size that was told.
    #[derive(Default)]
    struct Written(AtomicU64);

    impl Progress for Written {
        fn advance(&self, _: &Path, _: u64, _: u64) {}
        fn exporting(&self, _: &Path, written: u64) {
            self.0.fetch_max(written, Ordering::Relaxed);
        }
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
