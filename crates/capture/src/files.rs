//! Trace files while a server writes them: which are there, how far they are, whether they are whole.
//!
//! A server writes under the final name, in pieces, so a name says nothing. A file is whole when it
//! stopped growing and its compressed stream ends with the right checksum.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use sha2::{Digest, Sha256};
use steptally_trace_model::manifest::CapturedFile;

use crate::error::Failure;

/// How far a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Not whole, or not yet.
    Partial,
    /// Whole.
    Whole,
    /// It will never be a trace: what it is instead.
    Foreign(String),
}

/// One file of the profiler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceFile {
    /// Its name.
    pub name: String,
    /// The rank that wrote it.
    pub rank: String,
    /// Size.
    pub bytes: u64,
    /// How far it is.
    pub state: State,
}

/// The folder that a server writes into.
#[derive(Debug)]
pub struct TraceFolder {
    path: PathBuf,
    /// Whether nobody else writes there.
    is_own: bool,
    /// Names that were there before.
    before: Vec<String>,
    /// Size at the last look, and the state at that size.
    known: HashMap<String, (u64, Option<State>)>,
}

impl TraceFolder {
    /// The folder at `path`, of this capture only.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path, is_own: true, before: Vec::new(), known: HashMap::new() }
    }

    /// The folder at `path`, which others use too: what is there now does not count.
    #[must_use]
    pub fn shared(path: PathBuf) -> Self {
        let listed = list(&path).unwrap_or_default();
        let before = listed.into_iter().map(|(name, _)| name).collect();
        Self { path, is_own: false, before, known: HashMap::new() }
    }

    fn list(&self) -> Result<Vec<(String, u64)>, Failure> {
        let mut listed =
            list(&self.path).map_err(|error| Failure::io("read the folder", &self.path, &error))?;
        listed.retain(|(name, _)| !self.before.contains(name));
        Ok(listed)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Looks at the files of ranks that `rank_of` knows. A file is read only when it has not grown
    /// since the last look, and only once.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn look(
        &mut self,
        rank_of: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Vec<TraceFile>, Failure> {
        let listed = self.list()?;
        let mut files = Vec::new();
        for (name, bytes) in listed {
            let Some(rank) = rank_of(&name) else { continue };
            let state = match self.known.get(&name) {
                Some((size, state)) if *size == bytes && bytes > 0 => {
                    state.clone().unwrap_or_else(|| integrity(&self.path.join(&name)))
                }
                _ => {
                    self.known.insert(name.clone(), (bytes, None));
                    files.push(TraceFile { name, rank, bytes, state: State::Partial });
                    continue;
                }
            };
            self.known.insert(name.clone(), (bytes, Some(state.clone())));
            files.push(TraceFile { name, rank, bytes, state });
        }
        Ok(files)
    }

    /// Moves whole files to `place`, and describes all, also those that could not be moved, and why
    /// the first of them could not. The folder itself goes when it is empty.
    ///
    /// # Errors
    /// When the folder or a file cannot be read.
    pub fn collect(
        &mut self,
        place: &Path,
        rank_of: &dyn Fn(&str) -> Option<String>,
    ) -> Result<(Vec<CapturedFile>, Option<Failure>), Failure> {
        let listed = self.list()?;
        let mut files = Vec::new();
        let mut failure = None;
        for (name, bytes) in listed {
            let from = self.path.join(&name);
            let rank = rank_of(&name);
            if rank.is_none() && !self.is_own {
                continue;
            }
            // The hook's table is written before its trace, so that it is whole when that one is.
            let is_table = name.ends_with(".key_averages.txt");
            let complete = is_table || (rank.is_some() && integrity(&from) == State::Whole);
            let sha256 = digest(&from).map_err(|error| Failure::io("read", &from, &error))?;
            let to = place.join(&name);
            let path = match if complete { relocate(&from, &to) } else { Ok(()) } {
                Ok(()) if complete => name,
                Ok(()) => self.as_seen_from(place, &name),
                Err(error) => {
                    failure.get_or_insert(Failure::io("move a trace to", &to, &error).hint(
                        format!("it is kept in {}: make room, and move it", self.path.display()),
                    ));
                    self.as_seen_from(place, &name)
                }
            };
            files.push(CapturedFile { path, bytes, sha256, rank, complete });
        }
        if self.is_own {
            // Fails when something is left in it, which is as it should be.
            let _ = fs::remove_dir(&self.path);
        }
        Ok((files, failure))
    }

    /// The path of a file that stays here, within `place` where this folder is in it.
    fn as_seen_from(&self, place: &Path, name: &str) -> String {
        let place = fs::canonicalize(place).unwrap_or_else(|_| place.to_owned());
        let path = self.path.join(name);
        path.strip_prefix(place).unwrap_or(&path).display().to_string()
    }
}

/// Moves a file, also to another disk, where it appears in one piece or not at all.
fn relocate(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
            let partial = to.with_extension("partial");
            let copy = || -> io::Result<()> {
                fs::copy(from, &partial)?;
                File::open(&partial)?.sync_all()?;
                fs::rename(&partial, to)
            };
            copy().inspect_err(|_| {
                let _ = fs::remove_file(&partial);
            })?;
            fs::remove_file(from)
        }
        done => done,
    }
}

/// Bytes in the files of a folder; 0 when it cannot be read.
pub(crate) fn total_bytes(folder: &Path) -> u64 {
    list(folder).map_or(0, |files| files.iter().map(|(_, bytes)| bytes).sum())
}

fn list(folder: &Path) -> io::Result<Vec<(String, u64)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_file() {
            files.push((entry.file_name().to_string_lossy().into_owned(), metadata.len()));
        }
    }
    files.sort();
    Ok(files)
}

/// Reads a file to its end to see whether it is whole.
fn integrity(path: &Path) -> State {
    let check = || -> io::Result<State> {
        let mut file = File::open(path)?;
        let mut first = [0; 2];
        if file.read(&mut first)? < 2 {
            return Ok(State::Partial);
        }
        file.seek(SeekFrom::Start(0))?;
        if first == [0x1f, 0x8b] {
            return gzip(file);
        }
        // It has no end that can be told: it is whole when it does not grow any more.
        let mut head = Vec::new();
        (&file).take(NSYS_REPORT.len() as u64).read_to_end(&mut head)?;
        if head == NSYS_REPORT {
            return Ok(State::Whole);
        }
        plain(file, first[0])
    };
    check().unwrap_or(State::Partial)
}

/// How reports of nsys begin.
const NSYS_REPORT: &[u8] = b"NVIDIA Tegra Profiler Report ";

fn gzip(file: File) -> io::Result<State> {
    let mut decoder = MultiGzDecoder::new(BufReader::with_capacity(1 << 18, file));
    let mut buffer = vec![0; 1 << 18];
    let mut first = None;
    loop {
        match decoder.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => {
                first.get_or_insert(
                    buffer[..n].iter().copied().find(|byte| !byte.is_ascii_whitespace()),
                );
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Ok(State::Partial);
            }
            Err(error) => return Ok(State::Foreign(format!("a damaged gzip stream ({error})"))),
        }
    }
    Ok(match first.flatten() {
        Some(b'{' | b'[') => State::Whole,
        None => State::Foreign("an empty gzip stream".to_owned()),
        Some(_) => State::Foreign("compressed, but no JSON".to_owned()),
    })
}

fn plain(mut file: File, first: u8) -> io::Result<State> {
    if !matches!(first, b'{' | b'[') {
        return Ok(State::Foreign("neither gzip nor JSON".to_owned()));
    }
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(64)))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    let last = tail.iter().rev().find(|byte| !byte.is_ascii_whitespace());
    Ok(if matches!(last, Some(b'}' | b']')) { State::Whole } else { State::Partial })
}

fn digest(path: &Path) -> io::Result<String> {
    let mut hasher = Sha256::new();
    io::copy(&mut File::open(path)?, &mut hasher)?;
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn compressed(text: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    fn rank(name: &str) -> Option<String> {
        name.ends_with(".gz").then(|| "TP-0".to_owned())
    }

    #[test]
    fn a_file_is_whole_when_it_stopped_growing_and_its_stream_ends() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1-TP-0.trace.json.gz");
        let whole = compressed("{\"traceEvents\": []}");
        let mut traces = TraceFolder::new(folder.path().to_owned());
        let state =
            |traces: &mut TraceFolder| traces.look(&rank).unwrap().pop().map(|file| file.state);
        assert_eq!(state(&mut traces), None);
        fs::write(&path, b"").unwrap();
        assert_eq!(state(&mut traces), Some(State::Partial));
        fs::write(&path, &whole[..whole.len() - 3]).unwrap();
        assert_eq!(state(&mut traces), Some(State::Partial));
        assert_eq!(state(&mut traces), Some(State::Partial));
        fs::write(&path, &whole).unwrap();
        // It grew since the last look.
        assert_eq!(state(&mut traces), Some(State::Partial));
        assert_eq!(state(&mut traces), Some(State::Whole));
        fs::write(folder.path().join("notes.txt"), "x").unwrap();
        assert_eq!(traces.look(&rank).unwrap().len(), 1);
    }

    #[test]
    fn what_is_no_trace() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let state = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            integrity(&path)
        };
        assert_eq!(state(b"<html>no</html>"), State::Foreign("neither gzip nor JSON".to_owned()));
        assert_eq!(
            state(&compressed("<html>")),
            State::Foreign("compressed, but no JSON".to_owned())
        );
        assert_eq!(state(&compressed("")), State::Foreign("an empty gzip stream".to_owned()));
        assert_eq!(state(b"{\"traceEvents\": [\n"), State::Partial);
        assert_eq!(state(b"{\"traceEvents\": []}\n"), State::Whole);
        assert_eq!(state(b"NVIDIA Tegra Profiler Report 2024@6@2@225-2462.\0"), State::Whole);
        let mut damaged = compressed(&"x".repeat(1000));
        let end = damaged.len() - 6;
        damaged[end] ^= 0xff;
        assert!(matches!(state(&damaged), State::Foreign(_)));
    }

    #[test]
    fn collecting_moves_what_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let incoming = folder.path().join("incoming");
        fs::create_dir(&incoming).unwrap();
        let whole = compressed("{}");
        fs::write(incoming.join("1-TP-0.trace.json.gz"), &whole).unwrap();
        fs::write(incoming.join("1-TP-1.trace.json.gz"), &whole[..9]).unwrap();
        fs::write(incoming.join("1-TP-0.key_averages.txt"), "Name  Self CUDA\n").unwrap();
        let incoming = fs::canonicalize(incoming).unwrap();
        let (mut files, failure) =
            TraceFolder::new(incoming.clone()).collect(folder.path(), &rank).unwrap();
        assert_eq!(failure, None);
        files.sort_by_key(|file| file.rank.is_none());
        let table = files.pop().unwrap();
        assert_eq!(table.path, "1-TP-0.key_averages.txt");
        assert!(table.rank.is_none() && folder.path().join(&table.path).is_file());
        assert_eq!(files[0].path, "1-TP-0.trace.json.gz");
        assert!(files[0].complete && folder.path().join(&files[0].path).is_file());
        assert_eq!(files[1].path, "incoming/1-TP-1.trace.json.gz");
        assert!(!files[1].complete && folder.path().join(&files[1].path).is_file());
        // An independent digest of no bytes: the well-known one.
        fs::write(incoming.join("empty"), b"").unwrap();
        assert_eq!(
            digest(&incoming.join("empty")).unwrap(),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }
}
