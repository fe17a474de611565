//! One capture at a time of a server, and into a folder.
//!
//! Locks are the kernel's (`flock`): they end with their process, however it ends, so that none is ever
//! stale. They are seen on this machine only: a capture of the same server from another machine is not
//! noticed before the server refuses the second profiler.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{IpAddr, ToSocketAddrs};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::error::Failure;
use crate::place;

/// Where locks of servers are: one place for all users, whatever their `TMPDIR`.
const LOCKS: &str = "/tmp";

/// A lock, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    _held: Flock<File>,
    /// A file that is there for the lock only.
    file: Option<PathBuf>,
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Some(path) = &self.file {
            // Somebody else's in a sticky folder stays, which does no harm.
            let _ = fs::remove_file(path);
        }
    }
}

/// Locks the folder of a capture. `None`: its file system has no locks.
///
/// # Errors
/// When another capture writes there.
pub(crate) fn folder(path: &Path) -> Result<Option<Lock>, Failure> {
    let Ok(file) = File::open(path) else { return Ok(None) };
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(held) => Ok(Some(Lock { _held: held, file: None })),
        Err((_, Errno::EWOULDBLOCK)) => Err(Failure::new(
            "already_capturing",
            format!("another steptally is capturing into the folder {}", path.display()),
        )
        .hint("give another --out")),
        Err(_) => Ok(None),
    }
}

/// Locks the server at `host` and `port`. `None`: this machine has no place for locks. Blocks on the
/// name service.
///
/// # Errors
/// When another capture of that server runs on this machine.
pub(crate) fn server(host: &str, port: u16) -> Result<Option<Lock>, Failure> {
    server_in(Path::new(LOCKS), host, port)
}

fn server_in(locks: &Path, host: &str, port: u16) -> Result<Option<Lock>, Failure> {
    let path = locks.join(format!("steptally-{}-{port}.lock", address(host, port)));
    // Whoever ends removes the file; then what was opened is no longer what others would open.
    for _ in 0..8 {
        let Ok(file) = open(&path) else { return Ok(None) };
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut held) => {
                if !is_at(&held, &path) {
                    continue;
                }
                // Whose it is, for the message that others get. Somebody else's file cannot be written.
                let _ = held.set_len(0).and_then(|()| write!(held, "{}", std::process::id()));
                return Ok(Some(Lock { _held: held, file: Some(path) }));
            }
            Err((mut file, Errno::EWOULDBLOCK)) => return Err(is_captured(&mut file, host, port)),
            Err(_) => return Ok(None),
        }
    }
    Ok(None)
}

fn is_captured(file: &mut File, host: &str, port: u16) -> Failure {
    let mut pid = String::new();
    let _ = file.take(16).read_to_string(&mut pid);
    let who = match pid.trim().parse::<u32>() {
        Ok(pid) => format!("another steptally (process {pid})"),
        Err(_) => "another steptally".to_owned(),
    };
    Failure::new(
        "already_capturing",
        format!("{who} is capturing from the server at {host}:{port}"),
    )
    .hint("wait until it has ended: two profilers of one server spoil each other's captures")
}

/// The file, made if need be; of another user it can only be read. Links are not followed.
fn open(path: &Path) -> io::Result<File> {
    let no_links = nix::libc::O_NOFOLLOW;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(no_links);
    match options.clone().write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let file = options.write(true).create(true).truncate(false).open(path)?;
            // Others may lock it, whatever the umask.
            let _ = file.set_permissions(fs::Permissions::from_mode(0o644));
            Ok(file)
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => options.open(path),
        opened => opened,
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(ours), Ok(there)) = (file.metadata(), fs::symlink_metadata(path)) else { return false };
    (ours.dev(), ours.ino()) == (there.dev(), there.ino())
}

/// The server's address in a file's name; all of this machine's are one.
fn address(host: &str, port: u16) -> String {
    let resolved: Vec<IpAddr> = (host, port)
        .to_socket_addrs()
        .map(|all| all.map(|address| address.ip()).collect())
        .unwrap_or_default();
    if !resolved.is_empty() && resolved.iter().all(|&address| place::is_own_address(address)) {
        return "this".to_owned();
    }
    let name = resolved.iter().min().map_or_else(|| host.to_owned(), IpAddr::to_string);
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_locked_once() {
        let folder_ = tempfile::tempdir().unwrap();
        let held = folder(folder_.path()).unwrap();
        assert!(held.is_some());
        let refused = folder(folder_.path()).unwrap_err();
        assert_eq!(refused.code, "already_capturing");
        assert!(refused.message.contains(&folder_.path().display().to_string()), "{refused}");
        drop(held);
        assert!(folder(folder_.path()).unwrap().is_some());
        assert_eq!(fs::read_dir(folder_.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_server_is_locked_once_under_all_its_names() {
        let locks = tempfile::tempdir().unwrap();
        let held = server_in(locks.path(), "127.0.0.1", 30_000).unwrap();
        assert!(held.is_some());
        for name in ["127.0.0.1", "localhost"] {
            let refused = server_in(locks.path(), name, 30_000).unwrap_err();
            assert_eq!(refused.code, "already_capturing");
            let who = format!("(process {})", std::process::id());
            assert!(refused.message.contains(&who), "{refused}");
        }
        let other = server_in(locks.path(), "127.0.0.1", 30_001).unwrap();
        // An address of the block for documentation, of no machine.
        let elsewhere = server_in(locks.path(), "192.0.2.1", 30_000).unwrap();
        assert!(other.is_some() && elsewhere.is_some());
        drop((held, other, elsewhere));
        assert_eq!(fs::read_dir(locks.path()).unwrap().count(), 0);
        assert!(server_in(locks.path(), "127.0.0.1", 30_000).unwrap().is_some());
    }

    #[test]
    fn a_file_that_was_left_locks_nobody_out_and_a_link_is_not_followed() {
        let locks = tempfile::tempdir().unwrap();
        let path = locks.path().join("steptally-this-1.lock");
        fs::write(&path, "99999999").unwrap();
        assert!(server_in(locks.path(), "127.0.0.1", 1).unwrap().is_some());
        let target = locks.path().join("precious");
        fs::write(&target, "content").unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        assert!(server_in(locks.path(), "127.0.0.1", 1).unwrap().is_none());
        assert_eq!(fs::read_to_string(&target).unwrap(), "content");
    }

    #[test]
    fn without_a_place_for_locks_nothing_is_locked() {
        assert!(server_in(Path::new("/nonexistent"), "127.0.0.1", 1).unwrap().is_none());
    }
}
