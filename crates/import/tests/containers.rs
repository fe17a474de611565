//! One file in containers of every kind, whole and damaged.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "helpers of tests")]

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::*;
use steptally_import::{ImportOptions, Progress, import_path};

/// Asserts that `data` holds one whole trace of three kernels, in this format.
#[track_caller]
fn check_whole(data: &[u8], format: &str) {
    let import = import_bytes(data).unwrap();
    assert_eq!(summary(&import), [(None, 3)]);
    assert_eq!(codes(&import), [""; 0]);
    assert_eq!(import.files.len(), 1);
    assert_eq!(import.files[0].format, format);
    assert_eq!(import.files[0].bytes, data.len() as u64);
    assert!(!import.files[0].partial && !import.traces[0].meta.partial);
    // 100 + 10 i us.
    let starts: Vec<_> = import.traces[0].kernels.start.iter().map(|time| time.as_ns()).collect();
    assert_eq!(starts, [100_000, 110_000, 120_000]);
}

#[test]
fn containers_are_known_by_content() {
    let plain = trace(100, 3).into_bytes();
    check_whole(&plain, "torch.profiler JSON");
    check_whole(&gzip(&plain), "torch.profiler JSON (gzip)");
    check_whole(&zstd(&plain), "torch.profiler JSON (zstd)");
    check_whole(&zip(&[("a.json", &plain)], false), "torch.profiler JSON (zip)");
    check_whole(&zip(&[("a.json", &plain)], true), "torch.profiler JSON (zip)");
    check_whole(&tar(&[("a.json", &plain)]), "torch.profiler JSON (tar)");
    check_whole(&gzip(&tar(&[("a.json", &plain)])), "torch.profiler JSON (tar in gzip)");
    check_whole(&zstd(&tar(&[("a.json", &plain)])), "torch.profiler JSON (tar in zstd)");
    let zipped = zip(&[("trace.json.gz", &gzip(&plain))], true);
    check_whole(&zipped, "torch.profiler JSON (gzip in zip)");
    check_whole(&gzip(&zipped), "torch.profiler JSON (gzip in zip in gzip)");
    check_whole(&gzip(&gzip(&plain)), "torch.profiler JSON (gzip in gzip)");
}

#[test]
fn gzip_members_and_what_follows_them() {
    let plain = trace(100, 3).into_bytes();
    let (front, back) = plain.split_at(70);
    let mut members = [gzip(front), gzip(b""), gzip(back)].concat();
    check_whole(&members, "torch.profiler JSON (gzip)");
    members.extend([0; 513]);
    check_whole(&members, "torch.profiler JSON (gzip)");
    // 9 bytes of no member, also ones that start like one.
    for garbage in [&b"garbage!!"[..], b"\x1fgarbage!"] {
        let import = import_bytes(&[&members[..], garbage].concat()).unwrap();
        assert_eq!(summary(&import), [(None, 3)]);
        assert_eq!(codes(&import), ["trailing_bytes"]);
        assert!(!import.files[0].partial);
    }
}

#[test]
fn zstd_frames_and_skippable_frames() {
    let plain = trace(100, 3).into_bytes();
    let (front, back) = plain.split_at(70);
    let skippable = b"\x52\x2a\x4d\x18\x05\0\0\0skip!";
    let frames = [&skippable[..], &zstd(front), skippable, &zstd(back)].concat();
    check_whole(&frames, "torch.profiler JSON (zstd)");
    let import = import_bytes(&[&frames[..], b"garbage"].concat()).unwrap();
    assert_eq!((summary(&import), codes(&import)), (vec![(None, 3)], vec!["trailing_bytes"]));
}

#[test]
fn a_zstd_frame_by_the_reference_encoder() {
    // `zstd -19 --check` of `{"traceEvents":[{"ph":"X","cat":"kernel","name":"k","ts":1,"dur":2}]}`.
    let frame = REFERENCE_FRAME;
    assert_eq!(summary(&import_bytes(&frame).unwrap()), [(None, 1)]);
    let mut wrong = frame.to_vec();
    *wrong.last_mut().unwrap() ^= 1;
    let import = import_bytes(&wrong).unwrap();
    assert_eq!(summary(&import), [(None, 1)]);
    assert!(codes(&import).contains(&"corrupt_stream") && import.files[0].partial);
}

const REFERENCE_FRAME: [u8; 72] = [
    0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x68, 0xdd, 0x01, 0x00, 0x52, 0xc4, 0x0d, 0x11, 0xa0, 0xed, 0x53,
    0xcd, 0xfb, 0x8e, 0x97, 0x55, 0x26, 0xa9, 0x6f, 0x31, 0x3b, 0x1c, 0xf8, 0xff, 0x86, 0xb5, 0xd4,
    0xc0, 0x7f, 0x12, 0x7d, 0x01, 0x1f, 0xc6, 0xef, 0xd5, 0xf9, 0xcd, 0x4c, 0xfb, 0x7e, 0x75, 0x7b,
    0xad, 0xce, 0x8f, 0xe6, 0x7c, 0x3f, 0xce, 0x4f, 0xee, 0x94, 0xf0, 0x61, 0x6c, 0x3d, 0x45, 0x1f,
    0xf3, 0xe2, 0x69, 0x00, 0x27, 0xb4, 0xfc, 0x1d,
];

/// A trace of 4000 kernels whose gaps do not compress well, so that cutting it cuts events.
fn long_trace() -> (Vec<u8>, usize) {
    let mut state = 1_u32;
    let mut start = 0;
    let events: Vec<_> = (0..4000)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            start += 10 + (state >> 20);
            kernel("0", start)
        })
        .collect();
    (whole("", &events).into_bytes(), events.len())
}

/// Asserts that `data`, cut at 60 %, still gives at least `least` kernels, and is marked partial.
#[track_caller]
fn check_cut(data: &[u8], least: usize, most: usize) {
    let import = import_bytes(&data[..data.len() * 6 / 10]).unwrap();
    let kernels = import.traces[0].kernels.len();
    assert!((least..most).contains(&kernels), "{kernels} of {most} kernels");
    assert!(codes(&import).contains(&"truncated_stream"), "{:?}", codes(&import));
    assert!(import.files[0].partial && import.traces[0].meta.partial);
    // Kept events are the first ones, unchanged.
    let whole = import_bytes(data).unwrap();
    assert_eq!(import.traces[0].kernels.start[..], whole.traces[0].kernels.start[..kernels]);
}

#[test]
fn of_a_truncated_container_the_front_is_read() {
    let (plain, count) = long_trace();
    // 60 % of the compressed bytes are about 60 % of the events.
    check_cut(&gzip(&plain), count / 2, count);
    check_cut(&gzip(&tar(&[("a.json", &plain)])), count / 2, count);
    check_cut(&zip(&[("a.json", &plain)], false), count / 2, count);
    check_cut(&tar(&[("a.json", &plain)]), count / 2, count);
    // The last block of 128 KiB is lost whole.
    check_cut(&zstd(&plain), count / 4, count);
}

#[test]
fn of_a_corrupt_container_the_front_is_read() {
    let (plain, count) = long_trace();
    let mut data = gzip(&plain);
    let middle = data.len() / 2;
    data[middle..middle + 64].fill(0xff);
    let import = import_bytes(&data).unwrap();
    assert!((1..count).contains(&import.traces[0].kernels.len()));
    assert!(codes(&import).contains(&"corrupt_stream"), "{:?}", codes(&import));
    assert!(import.files[0].partial);
    // A checksum that is wrong comes after all data.
    let mut data = gzip(&plain);
    let at = data.len() - 8;
    data[at] ^= 1;
    let import = import_bytes(&data).unwrap();
    assert_eq!(import.traces[0].kernels.len(), count);
    assert!(codes(&import).contains(&"corrupt_stream") && import.files[0].partial);
}

#[test]
fn archives_hold_ranks() {
    let (rank0, rank1) = (ranked(0, 2, 100), ranked(1, 2, 105));
    let members: [(&str, &[u8]); 3] = [
        ("run/b.json", rank1.as_bytes()),
        ("run/README", b"two ranks"),
        ("run/a.json.gz", &gzip(rank0.as_bytes())),
    ];
    for data in [gzip(&tar(&members)), zip(&members, false)] {
        let import = import_bytes(&data).unwrap();
        assert_eq!(summary(&import), [(Some(0), 3), (Some(1), 3)]);
        let readme = ("README".to_owned(), "plain text, not a trace".to_owned());
        assert_eq!(left_out(&import), [readme]);
        let path = import.files[0].path.to_string_lossy().into_owned();
        assert!(path.ends_with("upload!run/b.json"), "{path}");
        assert!(import.files.iter().all(|file| !file.partial));
    }
    // Names count within an archive as well.
    let (a, b) = (trace(100, 1), trace(105, 2));
    let archive = tar(&[("x-rank1.json", a.as_bytes()), ("x-rank0.json", b.as_bytes())]);
    assert_eq!(summary(&import_bytes(&archive).unwrap()), [(Some(0), 2), (Some(1), 1)]);
    let merged = tar(&[
        ("7000000.5-TP-0.trace.json", a.as_bytes()),
        ("merged-7000000.5.trace.json", b.as_bytes()),
    ]);
    assert_eq!(summary(&import_bytes(&merged).unwrap()), [(Some(0), 1)]);
}

#[test]
fn names_of_members_are_printable() {
    let text = trace(100, 1);
    let import = import_bytes(&tar(&[("./a\x1b[31m\n.json", text.as_bytes())])).unwrap();
    let path = import.files[0].path.to_string_lossy().into_owned();
    assert!(path.ends_with("upload!a\u{fffd}[31m\u{fffd}.json"), "{path:?}");
}

#[track_caller]
fn check_error(data: &[u8], message: &str, hint: &str) {
    let folder = folder(&[("upload", data)]);
    let path = folder.path().join("upload");
    let (error, shown) = text(import(&path));
    assert_eq!(error, format!("{}{message}", path.display()));
    assert!(shown.contains(hint) && (hint.is_empty() == shown.is_empty()), "{shown}");
    assert!(!error.contains('\n') && !shown.contains('\n'));
}

#[test]
fn what_is_no_trace_is_named() {
    check_error(b"", ": empty file (0 bytes)", "still writing");
    check_error(&gzip(b""), ": empty trace (0 bytes after decompression)", "still writing");
    check_error(&zstd(b""), ": empty trace (0 bytes after decompression)", "still writing");
    check_error(
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n",
        ": a Git LFS pointer, not the file itself",
        "git lfs pull",
    );
    check_error(b"<!DOCTYPE html>\n<html></html>", ": an HTML page, not a trace", "download");
    check_error(b"Name   Self CPU\n----", ": plain text, not a trace", "JSON");
    check_error(b"PAR1\x15\x04\x15", ": a Parquet file, not a trace", "--type sqlite");
    check_error(b"\x89PNG\r\n\x1a\n", ": an image, not a trace", "");
    check_error(&gzip(b"\xfd7zXZ\0"), ": compressed with xz", "unpack");
    check_error(&tar(&[]), ": nothing but zero bytes", "capture again");
    check_error(&zip(&[], false), ": zip archive without a readable file in it", "");
    let nested = (0..6).fold(trace(1, 1).into_bytes(), |data, _| gzip(&data));
    check_error(&nested, ": more than 4 containers in one another", "unpack");
    check_error(
        &gzip(&trace(100, 3).into_bytes())[..12],
        ": empty trace (0 bytes after decompression) (the gzip data end in the middle)",
        "still writing",
    );
    let members: [(&str, &[u8]); 2] = [("a.txt", b"text"), ("b.html", b"<html>")];
    check_error(
        &zip(&members, false),
        ": no usable trace in 2 files: upload!a.txt: plain text, not a trace; upload!b.html: an \
         HTML page, not a trace",
        "JSON",
    );
}

#[test]
fn an_nsys_report_needs_nsys() {
    // Where nsys is installed, it refuses this report.
    let (error, hint) = text(import_bytes(b"NVIDIA Tegra Profiler Report 2031@1@2@3-4v0.\n"));
    let missing = "an Nsight Systems report (.nsys-rep of nsys 2031.1.2), which only nsys can \
                   read, and nsys is not on PATH";
    assert!(error.ends_with(missing) || error.contains("nsys export failed"), "{error}");
    assert!(hint.contains("nsys export --type sqlite upload"), "{hint}");
}

#[test]
fn a_path_that_is_not_there() {
    let (error, hint) = text(import(Path::new("/nonexistent/trace.json")));
    assert!(error.starts_with("/nonexistent/trace.json: cannot be read: "), "{error}");
    assert_eq!(hint, "");
}

#[test]
fn databases_of_other_programs_are_named() {
    let folder = folder(&[]);
    let path = folder.path().join("app.db");
    let database = rusqlite::Connection::open(&path).unwrap();
    database
        .execute_batch("CREATE TABLE users (id INTEGER); INSERT INTO users VALUES (1)")
        .unwrap();
    drop(database);
    let (error, hint) = text(import(&path));
    let expected = "an SQLite database, but not an nsys export (its tables: users)";
    assert_eq!(error, format!("{}: {expected}", path.display()));
    assert!(!hint.is_empty());
    // In a container it is copied out first; the copy's name is not shown.
    let packed = gzip(&std::fs::read(&path).unwrap());
    check_error(&packed, &format!(": {expected}"), "nsys");
}

/// The last report of progress.
#[derive(Default)]
struct Last(AtomicU64, AtomicU64, AtomicU64);

impl Progress for Last {
    fn advance(&self, _: &Path, read: u64, total: u64) {
        self.0.store(read, Ordering::Relaxed);
        self.1.store(total, Ordering::Relaxed);
        self.2.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn progress_counts_bytes_on_disk() {
    let data = gzip(&long_trace().0);
    let folder = folder(&[("a.json.gz", &data)]);
    let last = Arc::new(Last::default());
    let options = ImportOptions { progress: last.clone(), ..ImportOptions::default() };
    import_path(&folder.path().join("a.json.gz"), &options).unwrap();
    assert_eq!(last.0.load(Ordering::Relaxed), data.len() as u64);
    assert_eq!(last.1.load(Ordering::Relaxed), data.len() as u64);
    assert!(last.2.load(Ordering::Relaxed) <= 4);
}
