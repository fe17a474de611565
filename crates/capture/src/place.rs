//! Where a server runs and what this machine can see of it: its disk, its user, its GPUs.

use std::ffi::OsStr;
use std::fs;
use std::net::{IpAddr, ToSocketAddrs, UdpSocket};
use std::path::Path;
use std::time::Duration;

use steptally_trace_model::manifest::CapturedGpu;

/// What is known about where a server runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Whether the URL's host is this machine. A tunnel or a published port of a container looks
    /// like it.
    pub is_this_machine: bool,
    /// User that owns the listening socket.
    pub user: Option<u32>,
    /// Process that listens, when this user may see it.
    pub pid: Option<u32>,
    /// Whether that process sees the same file system; `None`: not known.
    pub same_files: Option<bool>,
}

/// Looks where the server at `host` and `port` runs. Blocks on the name service.
#[must_use]
pub fn locate(host: &str, port: u16) -> Place {
    if !is_this_machine(host, port) {
        return Place::default();
    }
    let listener = ["/proc/net/tcp", "/proc/net/tcp6"]
        .into_iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .find_map(|table| listener(&table, port));
    let pid = listener.and_then(|(_, inode)| process_of_socket(inode));
    let mounts = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    let same_files = pid
        .and_then(|pid| Some((mounts(&pid.to_string())?, mounts("self")?)))
        .map(|(theirs, ours)| theirs == ours);
    Place { is_this_machine: true, user: listener.map(|(user, _)| user), pid, same_files }
}

fn is_this_machine(host: &str, port: u16) -> bool {
    let Ok(addresses) = (host, port).to_socket_addrs() else {
        return false;
    };
    let mut addresses = addresses.peekable();
    addresses.peek().is_some() && addresses.all(|address| is_own_address(address.ip()))
}

/// Only an address of this machine can be bound.
pub(crate) fn is_own_address(address: IpAddr) -> bool {
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}

/// User and inode of the socket that listens on `port`, by `/proc/net/tcp`.
fn listener(table: &str, port: u16) -> Option<(u32, u64)> {
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let local = fields.get(1)?.rsplit(':').next()?;
        let is_listening = *fields.get(3)? == "0A";
        let is_port = u16::from_str_radix(local, 16).ok()? == port;
        (is_listening && is_port)
            .then(|| Some((fields.get(7)?.parse().ok()?, fields.get(9)?.parse().ok()?)))
            .flatten()
    })
}

fn process_of_socket(inode: u64) -> Option<u32> {
    let wanted = format!("socket:[{inode}]");
    let is_wanted = |link: std::path::PathBuf| link.as_os_str() == OsStr::new(&wanted);
    fs::read_dir("/proc").ok()?.filter_map(Result::ok).find_map(|process| {
        let pid: u32 = process.file_name().to_str()?.parse().ok()?;
        let mut descriptors = fs::read_dir(process.path().join("fd")).ok()?.filter_map(Result::ok);
        descriptors
            .any(|descriptor| fs::read_link(descriptor.path()).is_ok_and(is_wanted))
            .then_some(pid)
    })
}

/// Bytes that may still be written to the file system of `path`; `None`: not known.
#[must_use]
pub fn free_bytes(path: &Path) -> Option<u64> {
    let stat = nix::sys::statvfs::statvfs(path).ok()?;
    // These are of different width from one platform to the next.
    #[allow(clippy::useless_conversion, clippy::unnecessary_cast)]
    let bytes = (stat.blocks_available() as u64).checked_mul(stat.fragment_size() as u64);
    bytes
}

/// The same for a folder that may not be there yet: of the nearest above that is.
pub(crate) fn free_near(folder: &Path) -> Option<u64> {
    let existing = folder.ancestors().find(|path| path.is_dir());
    free_bytes(existing.unwrap_or(Path::new(".")))
}

/// The user that this process runs as.
#[must_use]
pub fn own_user() -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").ok().map(|metadata| metadata.uid())
}

/// The GPUs of this machine, as `nvidia-smi` tells; none when it is not there or hangs.
pub async fn gpus() -> Vec<CapturedGpu> {
    gpus_by(Path::new("nvidia-smi")).await
}

/// The GPUs as this `nvidia-smi` tells.
pub(crate) async fn gpus_by(program: &Path) -> Vec<CapturedGpu> {
    let mut command = tokio::process::Command::new(program);
    command
        .args([
            "--query-gpu=index,name,driver_version,clocks.sm,clocks.mem,power.limit",
            "--format=csv,noheader",
        ])
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true);
    match tokio::time::timeout(Duration::from_secs(10), command.output()).await {
        Ok(Ok(output)) if output.status.success() => {
            read_gpus(&String::from_utf8_lossy(&output.stdout))
        }
        _ => Vec::new(),
    }
}

fn read_gpus(text: &str) -> Vec<CapturedGpu> {
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split(", ").map(|field| field.trim().to_owned());
            Some(CapturedGpu {
                index: fields.next()?,
                name: fields.next()?,
                driver: fields.next()?,
                sm_clock: fields.next()?,
                memory_clock: fields.next()?,
                power_limit: fields.next()?,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_listens() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:7530 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0 100 0 0 10 0\n\
            1: 0100007F:7531 0100007F:7530 01 00000000:00000000 00:00000000 00000000  1001        0 4712 1 0\n";
        assert_eq!(listener(table, 30000), Some((1000, 4711)));
        assert_eq!(listener(table, 30001), None);
    }

    #[test]
    fn this_machine() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let place = locate("127.0.0.1", socket.local_addr().unwrap().port());
        assert!(place.is_this_machine);
        if cfg!(target_os = "linux") {
            assert_eq!(place.pid, Some(std::process::id()));
            assert_eq!(place.same_files, Some(true));
            assert_eq!(place.user, own_user());
        }
        // An address of the block for documentation belongs to nobody.
        assert_eq!(locate("192.0.2.1", 80), Place::default());
    }

    #[test]
    fn gpus_of_a_machine() {
        let gpus = read_gpus("0, NVIDIA H200, 580.159.04, 345 MHz, 3201 MHz, 700.00 W\n");
        assert_eq!(gpus.len(), 1);
        assert_eq!((gpus[0].name.as_str(), gpus[0].driver.as_str()), ("NVIDIA H200", "580.159.04"));
        assert_eq!(gpus[0].power_limit, "700.00 W");
        assert!(read_gpus("No devices were found").is_empty());
    }
}
