//! What a stream is, by its first bytes.

use super::foreign::Foreign;
use super::zstd;

/// How many bytes of the front are looked at.
pub(crate) const HEAD_BYTES: u64 = 64 << 10;

/// What a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No bytes.
    Empty,
    Gzip,
    Zstd,
    Zip,
    Tar,
    /// Text that may be a trace.
    Json,
    /// An SQLite database.
    Sqlite,
    /// A report of Nsight Systems in its own format.
    NsysReport,
    /// Something else.
    Foreign(Foreign),
}

/// What starts with `head`.
pub(crate) fn kind_of(head: &[u8]) -> Kind {
    match head {
        [] => Kind::Empty,
        [0x1f, 0x8b, ..] => Kind::Gzip,
        [b'P', b'K', 3, 4, ..] | [b'P', b'K', 5, 6, ..] | [b'P', b'K', 7, 8, ..] => Kind::Zip,
        _ if head.starts_with(&zstd::MAGIC) || zstd::is_skippable(head) => Kind::Zstd,
        _ if head.starts_with(b"SQLite format 3\0") => Kind::Sqlite,
        _ if head.starts_with(b"NVIDIA Tegra Profiler Report") => Kind::NsysReport,
        _ if is_tar(head) => Kind::Tar,
        _ if may_be_json(head) => Kind::Json,
        _ => Kind::Foreign(Foreign::of(head)),
    }
}

/// Whether `head` starts with a tar header: its checksum is the sum of its bytes, with the
/// checksum's own eight counted as spaces.
fn is_tar(head: &[u8]) -> bool {
    let Some(header) = head.get(..512) else {
        return false;
    };
    let stored = String::from_utf8_lossy(&header[148..156]);
    let stored = stored.trim_matches(|c: char| c == '\0' || c == ' ');
    let Ok(stored) = u32::from_str_radix(stored, 8) else {
        return false;
    };
    let sum = |bytes: &[u8]| bytes.iter().map(|&byte| u32::from(byte)).sum::<u32>();
    header[0] != 0 && stored == sum(&header[..148]) + 8 * 32 + sum(&header[156..])
}

/// Whether the text starts like JSON, or has event fields further on. UTF-16 counts.
fn may_be_json(head: &[u8]) -> bool {
    if matches!(head, [0xff, 0xfe, ..] | [0xfe, 0xff, ..]) {
        return true;
    }
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    if text.is_empty() {
        return true;
    }
    let has = |needle: &[u8]| memchr::memmem::find(text, needle).is_some();
    matches!(text[0], b'{' | b'[')
        || !text.contains(&0) && (has(b"\"traceEvents\"") || has(b"\"ph\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_known_by_their_first_bytes() {
        let mut tar = [0_u8; 512];
        tar[..5].copy_from_slice(b"a.txt");
        // "a.txt" = 97+46+116+120+116 = 495, eight spaces = 256: 751 = 0o1357.
        tar[148..155].copy_from_slice(b"001357\0");
        assert_eq!(kind_of(&tar), Kind::Tar);
        tar[149] = b'1';
        assert_ne!(kind_of(&tar), Kind::Tar);
        for (head, kind) in [
            (&b""[..], Kind::Empty),
            (b"\x1f\x8b\x08", Kind::Gzip),
            (b"PK\x03\x04", Kind::Zip),
            (b"\x28\xb5\x2f\xfd", Kind::Zstd),
            (b"\x50\x2a\x4d\x18\x00", Kind::Zstd),
            (b"SQLite format 3\0rest", Kind::Sqlite),
            (b"NVIDIA Tegra Profiler Report 2025@5", Kind::NsysReport),
            (b"\xef\xbb\xbf  \n{\"a\"", Kind::Json),
            (b"\xff\xfe{\0", Kind::Json),
            (b"[,{\"ph\"", Kind::Json),
            (b"e\": 3, \"ph\": \"X\"}, {", Kind::Json),
            (b"   \n", Kind::Json),
            (b"hello world", Kind::Foreign(Foreign::Text)),
        ] {
            assert_eq!(kind_of(head), kind, "{:?}", String::from_utf8_lossy(head));
        }
    }
}
