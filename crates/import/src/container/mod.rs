//! From a file on disk down to the payloads in it: gzip, zstd, zip and tar, nested in any order up
//! to [`MAX_LAYERS`] deep, each known by its first bytes.
//!
//! Damage to a container is an issue; whatever could be unpacked before it is used.

mod archive;
mod foreign;
mod gzip;
mod kind;
mod source;
mod zstd;

use std::io::{self, BufReader, Cursor, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use steptally_trace_model::Severity;
use tempfile::NamedTempFile;

pub use foreign::Foreign;
pub(crate) use source::{Bytes, Damage};

use crate::{FileError, Progress};
use gzip::Gzip;
use kind::{HEAD_BYTES, Kind, kind_of};
use source::{DiskFile, Salvage, read_head};
use zstd::Zstd;

/// How many containers may lie in one another: a zip of a tar.gz of .json.gz has four.
pub(crate) const MAX_LAYERS: usize = 4;

/// Size of the read buffer below a decompressor, in bytes.
const BUFFER: usize = 256 << 10;

/// A payload, or why there is none.
pub(crate) struct Entry<'a> {
    /// The file; for a member of an archive, `archive!member`.
    pub(crate) path: PathBuf,
    /// The containers around it, outermost first.
    pub(crate) layers: Vec<&'static str>,
    pub(crate) content: Result<Content<'a>, FileError>,
}

/// What there is to read.
pub(crate) enum Content<'a> {
    /// Text that may be a torch.profiler trace.
    Json(Bytes<'a>),
    /// An SQLite database.
    Sqlite(OnDisk),
    /// A report of Nsight Systems in its own format.
    NsysReport(OnDisk),
}

/// Content that needs a file: where it is, and the temporary file, if it is one.
pub(crate) enum OnDisk {
    File(PathBuf),
    Temporary(NamedTempFile),
}

impl OnDisk {
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::File(path) => path,
            Self::Temporary(file) => file.path(),
        }
    }
}

/// Whether the file is a database or report of Nsight Systems, not packed in anything.
pub(crate) fn is_nsys_file(path: &Path) -> bool {
    let head = std::fs::File::open(path).and_then(|mut file| read_head(&mut file, HEAD_BYTES));
    head.is_ok_and(|head| matches!(kind_of(&head), Kind::Sqlite | Kind::NsysReport))
}

/// Calls `visit` with every payload of a file, and with every failure to get at one; at least once.
/// `damage` collects the containers' issues meanwhile.
pub(crate) fn each_payload(
    path: &Path,
    progress: Arc<dyn Progress>,
    damage: &Damage,
    visit: &mut dyn FnMut(Entry<'_>),
) {
    let mut walk = Walk { disk_path: path, progress, damage, visit, visited: 0 };
    if let Err(error) = walk.start() {
        walk.fail(path.to_owned(), Vec::new(), FileError::Unreadable(error));
    }
}

struct Walk<'w> {
    disk_path: &'w Path,
    progress: Arc<dyn Progress>,
    damage: &'w Damage,
    visit: &'w mut dyn FnMut(Entry<'_>),
    visited: usize,
}

impl Walk<'_> {
    fn start(&mut self) -> io::Result<()> {
        let path = self.disk_path.to_owned();
        let mut file = DiskFile::open(&path, Arc::clone(&self.progress))?;
        if path.metadata()?.is_file() {
            let head = read_head(&mut file, HEAD_BYTES)?;
            match kind_of(&head) {
                Kind::Zip => {
                    self.zip(&OnDisk::File(path.clone()), path, Vec::new());
                    return Ok(());
                }
                Kind::Sqlite => {
                    let content = Content::Sqlite(OnDisk::File(path.clone()));
                    self.found(path, Vec::new(), content);
                    return Ok(());
                }
                Kind::NsysReport => {
                    let content = Content::NsysReport(OnDisk::File(path.clone()));
                    self.found(path, Vec::new(), content);
                    return Ok(());
                }
                _ => file.rewind()?,
            }
        }
        let source = Salvage::new(file, "file's", self.damage.clone());
        self.descend(Box::new(source), path, Vec::new());
        Ok(())
    }

    fn found(&mut self, path: PathBuf, layers: Vec<&'static str>, content: Content<'_>) {
        self.visited += 1;
        (self.visit)(Entry { path, layers, content: Ok(content) });
    }

    fn fail(&mut self, path: PathBuf, layers: Vec<&'static str>, error: FileError) {
        self.visited += 1;
        (self.visit)(Entry { path, layers, content: Err(error) });
    }

    /// Finds out what `source` is, and goes on within it.
    fn descend(&mut self, mut source: Bytes<'_>, path: PathBuf, mut layers: Vec<&'static str>) {
        let head = match read_head(&mut source, HEAD_BYTES) {
            Ok(head) => head,
            Err(error) => return self.fail(path, layers, FileError::Unreadable(error)),
        };
        let kind = kind_of(&head);
        let source = Cursor::new(head).chain(source);
        let damage = self.damage.clone();
        let container = matches!(kind, Kind::Gzip | Kind::Zstd | Kind::Tar | Kind::Zip);
        if container && layers.len() >= MAX_LAYERS {
            return self.fail(path, layers, FileError::NestedTooDeep { limit: MAX_LAYERS });
        }
        match kind {
            Kind::Empty => {
                let packed = matches!(layers.last(), Some(&("gzip" | "zstd")));
                let error = if packed { FileError::EmptyStream } else { FileError::EmptyFile };
                self.fail(path, layers, error);
            }
            Kind::Gzip => {
                layers.push("gzip");
                let gzip = Gzip::new(BufReader::with_capacity(BUFFER, source), damage.clone());
                self.descend(Box::new(Salvage::new(gzip, "gzip", damage)), path, layers);
            }
            Kind::Zstd => {
                layers.push("zstd");
                let zstd = Zstd::new(BufReader::with_capacity(BUFFER, source), damage.clone());
                self.descend(Box::new(Salvage::new(zstd, "zstd", damage)), path, layers);
            }
            Kind::Tar => self.tar(Box::new(source), path, layers),
            Kind::Json => self.found(path, layers, Content::Json(Box::new(source))),
            Kind::Zip | Kind::Sqlite | Kind::NsysReport => {
                let suffix = if kind == Kind::Sqlite { ".sqlite" } else { ".nsys-rep" };
                match archive::spool(Box::new(source), suffix).map(OnDisk::Temporary) {
                    Ok(file) if kind == Kind::Zip => self.zip(&file, path, layers),
                    Ok(file) if kind == Kind::Sqlite => {
                        self.found(path, layers, Content::Sqlite(file));
                    }
                    Ok(file) => self.found(path, layers, Content::NsysReport(file)),
                    Err(error) => self.fail(path, layers, FileError::Unreadable(error)),
                }
            }
            Kind::Foreign(foreign) => self.fail(path, layers, FileError::Foreign(foreign)),
        }
    }

    fn tar(&mut self, source: Bytes<'_>, path: PathBuf, mut layers: Vec<&'static str>) {
        layers.push("tar");
        let before = self.visited;
        let result = archive::each_tar_member(source, |name, member| {
            let member = Salvage::new(member, "tar", self.damage.clone());
            self.descend(Box::new(member), member_path(&path, name), layers.clone());
        });
        if let Err(error) = result {
            self.damage.note("truncated_stream", Severity::Error, None, || {
                format!("the tar archive ends in the middle or is damaged: {error}")
            });
        }
        if self.visited == before {
            self.fail(path, layers, FileError::EmptyArchive { container: "tar" });
        }
    }

    fn zip(&mut self, file: &OnDisk, path: PathBuf, mut layers: Vec<&'static str>) {
        layers.push("zip");
        let before = self.visited;
        let open =
            || -> io::Result<DiskFile> { DiskFile::open(file.path(), Arc::clone(&self.progress)) };
        let (whole, stream) = match (open(), open()) {
            (Ok(whole), Ok(stream)) => (whole, stream),
            (Err(error), _) | (_, Err(error)) => {
                return self.fail(path, layers, FileError::Unreadable(error));
            }
        };
        let whole = BufReader::with_capacity(BUFFER, whole);
        let result = archive::each_zip_member(whole, |name, member| {
            let path = member_path(&path, name);
            match member {
                Ok(member) => {
                    let member = Salvage::new(member, "zip", self.damage.clone());
                    self.descend(Box::new(member), path, layers.clone());
                }
                Err(reason) => {
                    let error = FileError::UnreadableMember { container: "zip", reason };
                    self.fail(path, layers.clone(), error);
                }
            }
        });
        if let Err(reason) = result {
            self.damage.note("truncated_stream", Severity::Error, None, || {
                format!("the directory at the end of the zip archive cannot be read: {reason}")
            });
            let stream = BufReader::with_capacity(BUFFER, stream);
            archive::each_zip_member_of_stream(stream, |name, member| {
                let member = Salvage::new(member, "zip", self.damage.clone());
                self.descend(Box::new(member), member_path(&path, name), layers.clone());
            });
        }
        if self.visited == before {
            self.fail(path, layers, FileError::EmptyArchive { container: "zip" });
        }
    }
}

/// `archive!member`. Control characters, which a damaged or hostile archive may name a member by,
/// are replaced: the path is printed.
fn member_path(archive: &Path, member: &str) -> PathBuf {
    let mut path = archive.as_os_str().to_owned();
    path.push("!");
    path.push(member.trim_start_matches("./").replace(char::is_control, "\u{fffd}"));
    PathBuf::from(path)
}
