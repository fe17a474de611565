//! `manifest.json`: kept up to date while a capture runs, so that it is there whatever happens.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use steptally_trace_model::manifest::{CaptureEvent, CaptureManifest, MANIFEST_VERSION};

use crate::error::Failure;
use crate::secret::Redactor;

/// Name of the manifest in a capture's folder.
pub const MANIFEST_NAME: &str = "manifest.json";

/// A manifest and where it is written.
#[derive(Debug)]
pub struct ManifestFile {
    path: PathBuf,
    redactor: Redactor,
    /// What will be written next.
    pub manifest: CaptureManifest,
}

impl ManifestFile {
    /// Writes a new manifest to `folder`.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn create(
        folder: &Path,
        tool: &str,
        command: &[String],
        redactor: Redactor,
    ) -> Result<Self, Failure> {
        let manifest = CaptureManifest {
            manifest_version: MANIFEST_VERSION,
            tool: tool.to_owned(),
            command: redactor.command(command),
            ..CaptureManifest::default()
        };
        let file = Self { path: folder.join(MANIFEST_NAME), redactor, manifest };
        file.write()?;
        Ok(file)
    }

    /// Adds an event.
    pub fn note(&mut self, phase: &str, what: impl Into<String>) {
        let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.manifest.events.push(CaptureEvent {
            at_ns: i64::try_from(at.as_nanos()).unwrap_or(i64::MAX),
            phase: phase.to_owned(),
            what: what.into(),
        });
    }

    /// Writes it in one piece: it is never seen half written.
    ///
    /// # Errors
    /// When it cannot be written; what was there before is still there.
    pub fn write(&self) -> Result<(), Failure> {
        self.replace().map_err(|error| {
            Failure::io("write", &self.path, &error)
                .hint("is there room on the disk, and may this user write there?")
        })
    }

    fn replace(&self) -> io::Result<()> {
        let text = serde_json::to_string_pretty(&self.manifest)?;
        let partial = self.path.with_extension("json.partial");
        let write = || -> io::Result<()> {
            let mut file = File::create(&partial)?;
            file.write_all(self.redactor.text(&text).as_bytes())?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            fs::rename(&partial, &self.path)
        };
        write().inspect_err(|_| {
            let _ = fs::remove_file(&partial);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;

    #[test]
    fn planted_secrets_are_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let command = ["steptally", "profile", "--api-key", "planted-key"].map(String::from);
        let redactor = Redactor::new([Secret::new("planted-key")]);
        let mut file =
            ManifestFile::create(folder.path(), "steptally 1", &command, redactor).unwrap();
        file.note("baseline", "the server said: bad key planted-key");
        file.write().unwrap();
        let text = fs::read_to_string(folder.path().join(MANIFEST_NAME)).unwrap();
        assert!(!text.contains("planted"), "{text}");
        let read: CaptureManifest = serde_json::from_str(&text).unwrap();
        assert_eq!(read.manifest_version, 1);
        assert_eq!(read.events[0].what, "the server said: bad key [redacted]");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_that_is_not_there() {
        let error =
            ManifestFile::create(Path::new("/nonexistent/x"), "t", &[], Redactor::default())
                .unwrap_err();
        assert_eq!(error.code, "output_folder");
        assert!(error.message.contains("/nonexistent/x/manifest.json"), "{error}");
    }
}
