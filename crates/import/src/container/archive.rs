//! Tar and zip: one member after the other.

use std::io::{self, BufReader, Cursor, Read, Seek, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::source::Bytes;

/// What a tar reader tells the thread that uses its members.
enum Message {
    Member(String),
    Data(Vec<u8>),
    End,
    Failed(io::Error),
}

/// Bytes per message, and how many messages may wait.
const CHUNK: usize = 128 << 10;
const WAITING: usize = 8;

/// Calls `visit` with each regular file of a tar archive. An error ends the archive: whatever came
/// before it has been visited. An error within a member is the member's.
///
/// The archive is read by a thread of its own, because a member of a tar stream cannot change
/// threads and whoever reads a member may do so from anywhere.
pub(crate) fn each_tar_member(
    source: Bytes<'_>,
    mut visit: impl FnMut(&str, Bytes<'_>),
) -> io::Result<()> {
    std::thread::scope(|scope| {
        let (send, receive) = sync_channel(WAITING);
        scope.spawn(move || {
            if let Err(error) = send_members(source, &send) {
                let _ = send.send(Message::Failed(error));
            }
        });
        let mut member = Received { receive, data: Cursor::default(), ended: true };
        while let Ok(message) = member.receive.recv() {
            match message {
                Message::Member(name) => {
                    member.ended = false;
                    visit(&name, Box::new(&mut member));
                    io::copy(&mut member, &mut io::sink())?;
                }
                Message::Failed(error) => return Err(error),
                Message::Data(_) | Message::End => {}
            }
        }
        Ok(())
    })
}

fn send_members(source: Bytes<'_>, send: &SyncSender<Message>) -> io::Result<()> {
    let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
    let mut archive = tar::Archive::new(BufReader::with_capacity(CHUNK, source));
    for member in archive.entries()? {
        let mut member = member?;
        if !member.header().entry_type().is_file() {
            continue;
        }
        let name = String::from_utf8_lossy(&member.path_bytes()).into_owned();
        let mut left = member.size();
        send.send(Message::Member(name)).map_err(gone)?;
        while left > 0 {
            let mut chunk = Vec::new();
            let count = (&mut member).take(CHUNK as u64).read_to_end(&mut chunk)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            left = left.saturating_sub(count as u64);
            send.send(Message::Data(chunk)).map_err(gone)?;
        }
        send.send(Message::End).map_err(gone)?;
    }
    Ok(())
}

/// The member that the tar thread is at.
struct Received {
    receive: Receiver<Message>,
    data: Cursor<Vec<u8>>,
    ended: bool,
}

impl Read for Received {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.data.read(buf)?;
            if count > 0 || self.ended || buf.is_empty() {
                return Ok(count);
            }
            match self.receive.recv() {
                Ok(Message::Data(data)) => self.data = Cursor::new(data),
                Ok(Message::Failed(error)) => {
                    self.ended = true;
                    return Err(error);
                }
                Ok(Message::End | Message::Member(_)) | Err(_) => self.ended = true,
            }
        }
    }
}

/// What a member of a zip archive is, or why it cannot be read.
pub(crate) type ZipMember<'a> = Result<Bytes<'a>, String>;

/// Calls `visit` with each file of a zip archive.
pub(crate) fn each_zip_member(
    source: impl Read + Seek + Send,
    mut visit: impl FnMut(&str, ZipMember<'_>),
) -> Result<(), String> {
    let mut archive = zip::ZipArchive::new(source).map_err(|error| error.to_string())?;
    for index in 0..archive.len() {
        let name = archive.name_for_index(index).unwrap_or("?").to_owned();
        match archive.by_index(index) {
            Ok(member) if member.is_dir() => {}
            Ok(member) => visit(&name, Ok(Box::new(member))),
            Err(error) => visit(&name, Err(error.to_string())),
        }
    }
    Ok(())
}

/// Calls `visit` with each file of a zip archive whose directory at the end is missing, as far as
/// the data go.
pub(crate) fn each_zip_member_of_stream(
    mut source: impl Read + Send,
    mut visit: impl FnMut(&str, Bytes<'_>),
) {
    while let Ok(Some(member)) = zip::read::read_zipfile_from_stream(&mut source) {
        if !member.is_dir() {
            let name = member.name().to_owned();
            visit(&name, Box::new(member));
        }
    }
}

/// Copies a stream into a temporary file, for what needs a file: zip, SQLite, nsys reports.
pub(crate) fn spool(mut source: Bytes<'_>, suffix: &str) -> io::Result<tempfile::NamedTempFile> {
    let mut file = tempfile::Builder::new().prefix("steptally-").suffix(suffix).tempfile()?;
    io::copy(&mut source, &mut file)?;
    file.flush()?;
    Ok(file)
}
