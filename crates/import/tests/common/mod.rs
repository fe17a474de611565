//! Tiny traces, and files made of them.

#![allow(dead_code, reason = "each test binary uses some of it")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use steptally_import::{Import, ImportError, ImportOptions, import_path};
use tempfile::TempDir;

/// A torch.profiler trace of `kernels` kernels: kernel i starts at `first` + 10 i us, takes 4 us.
pub(crate) fn trace(first: u32, kernels: u32) -> String {
    trace_with("", "0", first, kernels)
}

/// The same with `distributedInfo`.
pub(crate) fn ranked(rank: u32, world_size: u32, first: u32) -> String {
    let info = format!(
        r#""distributedInfo": {{"backend": "nccl", "rank": {rank}, "world_size": {world_size}}},"#
    );
    trace_with(&info, "0", first, 3)
}

pub(crate) fn trace_with(header: &str, pid: &str, first: u32, kernels: u32) -> String {
    let events: Vec<_> = (0..kernels).map(|i| kernel(pid, first + 10 * i)).collect();
    whole(header, &events)
}

pub(crate) fn whole(header: &str, events: &[String]) -> String {
    format!("{{{header}\n\"traceEvents\": [\n{}\n]}}\n", events.join(",\n"))
}

pub(crate) fn kernel(pid: &str, start: u32) -> String {
    event("kernel", "gemm", pid, start)
}

pub(crate) fn event(category: &str, name: &str, pid: &str, start: u32) -> String {
    format!(
        "{{\"ph\": \"X\", \"cat\": \"{category}\", \"name\": \"{name}\", \"pid\": \"{pid}\", \
         \"tid\": 7, \"ts\": {start}, \"dur\": 4, \"args\": {{\"device\": 0, \"stream\": 7}}}}"
    )
}

pub(crate) fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn zstd(data: &[u8]) -> Vec<u8> {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    compress_to_vec(data, CompressionLevel::Fastest)
}

pub(crate) fn tar(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, data) in members {
        let mut header = tar::Header::new_gnu();
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, *data).unwrap();
    }
    builder.into_inner().unwrap()
}

pub(crate) fn zip(members: &[(&str, &[u8])], stored: bool) -> Vec<u8> {
    use zip::CompressionMethod::{Deflated, Stored};
    let options = zip::write::SimpleFileOptions::default();
    let options = options.compression_method(if stored { Stored } else { Deflated });
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, data) in members {
        // zip64 fields in the headers of every second member.
        let large = data.len() % 2 == 1;
        writer.start_file(*name, options.large_file(large)).unwrap();
        writer.write_all(data).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

/// A folder with these files.
pub(crate) fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, data) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, data).unwrap();
    }
    folder
}

pub(crate) fn import(path: &Path) -> Result<Import, ImportError> {
    import_path(path, &ImportOptions { threads: Some(2), ..ImportOptions::default() })
}

/// Imports one file with this content, under a name that says nothing.
pub(crate) fn import_bytes(data: &[u8]) -> Result<Import, ImportError> {
    let folder = folder(&[("upload", data)]);
    import(&folder.path().join("upload"))
}

/// (rank, kernels) of each trace.
pub(crate) fn summary(import: &Import) -> Vec<(Option<u32>, usize)> {
    import.traces.iter().map(|trace| (trace.rank(), trace.kernels.len())).collect()
}

/// The codes of all issues.
pub(crate) fn codes(import: &Import) -> Vec<&'static str> {
    import.issues.iter().map(|issue| issue.issue.code).collect()
}

/// Name and reason of each file that was left out.
pub(crate) fn left_out(import: &Import) -> Vec<(String, String)> {
    let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
    import
        .files
        .iter()
        .filter_map(|file| Some((name(&file.path), file.left_out.clone()?)))
        .collect()
}

/// The text of an error and its hint.
pub(crate) fn text(result: Result<Import, ImportError>) -> (String, String) {
    let error = result.unwrap_err();
    (error.to_string(), error.hint().unwrap_or_default())
}

/// A folder of real files beside the repository; says so when it is not there.
pub(crate) fn shared(name: &str) -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let shared = std::env::var_os("STEPTALLY_SHARED").map_or(beside, PathBuf::from);
    let folder = shared.join(name).canonicalize().ok();
    if folder.is_none() {
        eprintln!("SKIPPED: no folder {}", shared.join(name).display());
    }
    folder
}
