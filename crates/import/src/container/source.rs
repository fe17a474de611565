//! Readers at the bottom of a chain of containers: the file on disk, and what catches read errors.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use steptally_trace_model::{Issues, Severity};

use crate::Progress;

/// A stream of bytes that another thread may read.
pub(crate) type Bytes<'a> = Box<dyn Read + Send + 'a>;

/// How many bytes are read between two calls of [`Progress::advance`].
const PROGRESS_STEP: u64 = 1 << 20;

/// A file that tells how far it has been read, in bytes on disk.
pub(crate) struct DiskFile {
    file: File,
    path: PathBuf,
    position: u64,
    reported: u64,
    total: u64,
    progress: Arc<dyn Progress>,
}

impl DiskFile {
    pub(crate) fn open(path: &Path, progress: Arc<dyn Progress>) -> io::Result<Self> {
        let file = File::open(path)?;
        let total = file.metadata()?.len();
        Ok(Self { file, path: path.to_owned(), position: 0, reported: 0, total, progress })
    }
}

impl Read for DiskFile {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = loop {
            match self.file.read(buf) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => break result?,
            }
        };
        self.position += count as u64;
        if self.position >= self.reported + PROGRESS_STEP || (count == 0 && !buf.is_empty()) {
            self.reported = self.position;
            self.progress.advance(&self.path, self.position, self.total.max(self.position));
        }
        Ok(count)
    }
}

impl Seek for DiskFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.position = self.file.seek(to)?;
        Ok(self.position)
    }
}

/// The issues that the readers of one chain have met, shared by them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Damage(Arc<Mutex<Issues>>);

impl Damage {
    pub(crate) fn note(
        &self,
        code: &'static str,
        severity: Severity,
        offset: Option<u64>,
        text: impl FnOnce() -> String,
    ) {
        let mut issues = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        issues.note(code, severity, offset, text);
    }

    /// The issues since the last call.
    pub(crate) fn take(&self) -> Issues {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Turns an error of the reader below into an issue and an end of file, so that what came before
/// it is used.
pub(crate) struct Salvage<R> {
    inner: R,
    layer: &'static str,
    damage: Damage,
    produced: u64,
    ended: bool,
}

impl<R: Read> Salvage<R> {
    pub(crate) fn new(inner: R, layer: &'static str, damage: Damage) -> Self {
        Self { inner, layer, damage, produced: 0, ended: false }
    }
}

impl<R: Read> Read for Salvage<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.ended {
            return Ok(0);
        }
        match self.inner.read(buf) {
            Ok(count) => {
                self.produced += count as u64;
                Ok(count)
            }
            Err(error) => {
                self.ended = true;
                let code = match error.kind() {
                    ErrorKind::UnexpectedEof => "truncated_stream",
                    ErrorKind::InvalidData | ErrorKind::InvalidInput => "corrupt_stream",
                    _ => "read_error",
                };
                self.damage.note(code, Severity::Error, Some(self.produced), || {
                    if code == "truncated_stream" {
                        format!("the {} data end in the middle", self.layer)
                    } else {
                        format!("{}: {error}", self.layer)
                    }
                });
                Ok(0)
            }
        }
    }
}

/// Up to `limit` bytes from the front of `source`.
pub(crate) fn read_head(source: &mut dyn Read, limit: u64) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    source.take(limit).read_to_end(&mut head)?;
    Ok(head)
}
