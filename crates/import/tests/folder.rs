//! A folder as one run: what is read, what is left out, which rank each trace is, what conflicts.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "helpers of tests")]

mod common;

use common::*;
use steptally_trace_model::{RankSource, Severity};

/// Imports a folder of these files and checks (rank, kernels) of each trace.
#[track_caller]
fn check(files: &[(&str, &[u8])], expected: &[(Option<u32>, usize)]) -> Vec<(String, String)> {
    let folder = folder(files);
    let import = import(folder.path()).unwrap();
    assert_eq!(summary(&import), expected);
    assert!(import.files.windows(2).all(|pair| pair[0].path <= pair[1].path));
    left_out(&import)
}

#[track_caller]
fn check_error(files: &[(&str, &[u8])], message: &str, hint: &str) {
    let folder = folder(files);
    let (error, shown) = text(import(folder.path()));
    let error = error.replace(&folder.path().display().to_string(), "DIR");
    assert_eq!(error, message);
    assert!(shown.contains(hint), "{shown}");
    assert!(!error.contains('\n') && !shown.contains('\n'));
}

fn pair(name: &str, reason: &str) -> (String, String) {
    (name.to_owned(), reason.to_owned())
}

#[test]
fn ranks_of_a_run_are_in_order_and_the_unknown_last() {
    let (a, b, c) = (trace(100, 1), trace(101, 2), trace(102, 4));
    let (r2, r10) = (ranked(2, 16, 103), gzip(ranked(10, 16, 104).as_bytes()));
    let files: [(&str, &[u8]); 5] = [
        ("a.json", c.as_bytes()),
        ("b.json", &r10),
        ("c.json", r2.as_bytes()),
        ("x-TP-3.trace.json.gz", a.as_bytes()),
        ("x-rank_1.json", b.as_bytes()),
    ];
    let expected = [(Some(1), 2), (Some(2), 3), (Some(3), 1), (Some(10), 3), (None, 4)];
    assert_eq!(check(&files, &expected), []);
}

#[test]
fn two_files_without_a_rank_are_no_conflict() {
    // As vLLM's frontend names them.
    let (a, b) = (trace(100, 1), trace(105, 2));
    let files: [(&str, &[u8]); 2] = [
        ("host_123.1700.pt.trace.json.gz", &gzip(a.as_bytes())),
        ("host_124.1700.pt.trace.json.gz", &gzip(b.as_bytes())),
    ];
    assert_eq!(check(&files, &[(None, 1), (None, 2)]), []);
}

#[test]
fn two_files_of_one_rank_are_named() {
    let (a, b) = (ranked(1, 2, 100), ranked(1, 2, 105));
    let files: [(&str, &[u8]); 2] = [("a.json", a.as_bytes()), ("b.json", b.as_bytes())];
    check_error(
        &files,
        "rank 1 is claimed by two files: DIR/a.json and DIR/b.json",
        "pass one of the files",
    );
    // By name, and across: two profiles in one folder.
    let (a, b) = (trace(100, 1), trace(105, 2));
    let files: [(&str, &[u8]); 2] = [
        ("1795969540.5-TP-0.trace.json", a.as_bytes()),
        ("1795969999.5-TP-0.trace.json", b.as_bytes()),
    ];
    check_error(
        &files,
        "rank 0 is claimed by two files: DIR/1795969540.5-TP-0.trace.json and \
         DIR/1795969999.5-TP-0.trace.json",
        "one capture only",
    );
    // Worlds of one that nothing tells apart.
    let (a, b) = (ranked(0, 1, 100), ranked(0, 1, 105));
    let files: [(&str, &[u8]); 2] = [("a.json", a.as_bytes()), ("b.json", b.as_bytes())];
    check_error(
        &files,
        "rank 0 is claimed by two files: DIR/a.json and DIR/b.json",
        "data-parallel replicas",
    );
    // The same by names that a world of one cannot have: the file outranks its name.
    let files: [(&str, &[u8]); 2] =
        [("a-TP-0.trace.json", a.as_bytes()), ("b-TP-1.trace.json", b.as_bytes())];
    check_error(
        &files,
        "rank 0 is claimed by two files: DIR/a-TP-0.trace.json and DIR/b-TP-1.trace.json",
        "pass one of the files",
    );
}

#[test]
fn replicas_of_one_are_told_apart_by_name() {
    let (a, b) = (ranked(0, 1, 100), ranked(0, 1, 105));
    let files: [(&str, &[u8]); 2] = [
        ("dp0_pp0_tp0_dcp0_ep0_rank0.17.pt.trace.json", a.as_bytes()),
        ("dp1_pp0_tp0_dcp0_ep1_rank0.18.pt.trace.json", b.as_bytes()),
    ];
    let folder = folder(&files);
    let import = import(folder.path()).unwrap();
    assert_eq!(summary(&import), [(Some(0), 3), (Some(1), 3)]);
    let rank = import.traces[1].meta.rank.as_ref().unwrap();
    assert_eq!(rank.source, RankSource::FileName);
    assert_eq!(rank.label, "TP0-DP1-PP0-DCP0-EP1-RANK0");
}

/// A merged trace of two ranks, whose kernels are those of `trace(first[rank], 3)`.
fn merged(first: [u32; 2]) -> String {
    let of_rank =
        |rank: usize| (0..3).map(move |i| kernel(&format!("[TP0{rank}] 83"), first[rank] + 10 * i));
    whole("", &of_rank(0).chain(of_rank(1)).collect::<Vec<_>>())
}

#[test]
fn a_merged_file_is_split_and_never_counted_twice() {
    let both = merged([100, 105]);
    let folder = folder(&[("merged-1795969540.5.trace.json", both.as_bytes())]);
    let import = import(folder.path()).unwrap();
    assert_eq!(summary(&import), [(Some(0), 3), (Some(1), 3)]);
    let rank = import.traces[1].meta.rank.as_ref().unwrap();
    assert_eq!((rank.source, rank.label.as_str()), (RankSource::ProcessPrefix, "TP01"));

    let (a, b) = (trace(100, 3), trace(105, 3));
    let files: [(&str, &[u8]); 3] = [
        ("1795969540.5-TP-0.trace.json", a.as_bytes()),
        ("1795969540.5-TP-1.trace.json", b.as_bytes()),
        ("merged-1795969540.5.trace.json", both.as_bytes()),
    ];
    assert_eq!(
        check(&files, &[(Some(0), 3), (Some(1), 3)]),
        [pair(
            files[2].0,
            "merged from the per-rank files of profile 1795969540.5, which are read"
        )]
    );
    // Names that say nothing: the events do.
    let files: [(&str, &[u8]); 3] =
        [("a.json", both.as_bytes()), ("rank0.json", a.as_bytes()), ("rank1.json", b.as_bytes())];
    assert_eq!(
        check(&files, &[(Some(0), 3), (Some(1), 3)]),
        [pair("a.json", "the same recording as rank0.json and others")]
    );
    // The merged file has a rank that is not here by itself, so it is the one to read.
    assert_eq!(
        check(&files[..2], &[(Some(0), 3), (Some(1), 3)]),
        [pair("rank0.json", "the same recording as part of a.json")]
    );
}

#[test]
fn a_copy_is_left_out() {
    let a = trace(100, 3);
    let files: [(&str, &[u8]); 2] =
        [("x-TP-0.trace.json", a.as_bytes()), ("x-TP-0.trace.json.gz", &gzip(a.as_bytes()))];
    assert_eq!(
        check(&files, &[(Some(0), 3)]),
        [pair("x-TP-0.trace.json.gz", "the same recording as x-TP-0.trace.json")]
    );
}

#[test]
fn of_two_stages_decode_is_read() {
    let (extend, decode) = (trace(100, 1), trace(200, 5));
    let files: [(&str, &[u8]); 2] = [
        ("1795969546.30-TP-0-DECODE.trace.json", decode.as_bytes()),
        ("1795969546.30-TP-0-EXTEND.trace.json", extend.as_bytes()),
    ];
    assert_eq!(
        check(&files, &[(Some(0), 5)]),
        [pair(
            files[1].0,
            "EXTEND stage of profile 1795969546.30, whose DECODE stage is read; pass this file by \
             itself to read it"
        )]
    );
    check(&files[1..], &[(Some(0), 1)]);
}

#[test]
fn a_graph_capture_beside_a_real_trace_is_left_out() {
    let real = trace(100, 3);
    // Ten launches of which one ran, within the function that captures graphs.
    let mut events: Vec<_> =
        (0..10).map(|i| event("cuda_runtime", "cudaLaunchKernel", "1", 10 * i)).collect();
    events.push(kernel("0", 55));
    events.push(event("user_annotation", "_dummy_run", "1", 0));
    let capture = whole("", &events);
    let files: [(&str, &[u8]); 2] =
        [("a_rank0.json", capture.as_bytes()), ("b_rank0.json", real.as_bytes())];
    assert_eq!(
        check(&files, &[(Some(0), 3)]),
        [pair(
            "a_rank0.json",
            "graph-capture trace: a server capturing its graphs, almost no kernels run"
        )]
    );
    check(&files[..1], &[(Some(0), 1)]);
    // As many kernels as launches: work, whatever it is called.
    events.extend((0..9).map(|i| kernel("0", 60 + 10 * i)));
    let work = whole("", &events);
    let files: [(&str, &[u8]); 2] =
        [("rank1.json", work.as_bytes()), ("rank0.json", real.as_bytes())];
    assert_eq!(check(&files, &[(Some(0), 3), (Some(1), 10)]), []);
}

#[test]
fn what_is_no_trace_is_left_out_and_what_is_lost_is_an_issue() {
    let (a, lost) = (ranked(0, 2, 100), gzip(b""));
    let files: [(&str, &[u8]); 6] = [
        (".hidden", b"x"),
        ("a.json", a.as_bytes()),
        ("b-TP-1.trace.json.gz", &lost),
        ("key_averages.txt", b"Name  Self CPU"),
        ("more/rank1.json", a.as_bytes()),
        ("server_args.json", b"{\"tp_size\": 2}"),
    ];
    let folder = folder(&files);
    let import = import(folder.path()).unwrap();
    assert_eq!(summary(&import), [(Some(0), 3)]);
    let reasons = left_out(&import);
    assert_eq!(reasons[0], pair(".hidden", "hidden file"));
    assert_eq!(
        reasons[1],
        pair("b-TP-1.trace.json.gz", "empty trace (0 bytes after decompression)")
    );
    assert_eq!(reasons[2], pair("key_averages.txt", "plain text, not a trace"));
    assert_eq!(reasons[3], pair("more", "a folder beside traces; pass it by itself to read it"));
    assert_eq!(reasons[4].0, "server_args.json");
    assert!(reasons[4].1.starts_with("JSON without `traceEvents`"), "{}", reasons[4].1);
    assert_eq!(codes(&import), ["unreadable_file"]);
    let issue = &import.issues[0];
    assert_eq!(issue.issue.severity, Severity::Error);
    let file = &import.files[issue.file];
    assert!(file.partial && file.path.ends_with("b-TP-1.trace.json.gz"));
}

#[test]
fn a_file_named_as_a_rank_is_missed_whatever_it_turned_out_to_be() {
    let a = ranked(0, 2, 100);
    let files: [(&str, &[u8]); 2] = [
        ("run-TP-0.trace.json", a.as_bytes()),
        ("run-TP-1.trace.json", b"<!DOCTYPE html><html><body>502 Bad Gateway</body></html>"),
    ];
    let folder = folder(&files);
    let import = import(folder.path()).unwrap();
    assert_eq!(codes(&import), ["unreadable_file"]);
    assert!(import.files[1].partial);
}

#[test]
fn sub_folders_are_read_when_the_folder_has_no_trace_itself() {
    let (a, b) = (trace(100, 1), trace(105, 2));
    let files: [(&str, &[u8]); 3] = [
        ("manifest.json", b"{\"files\": []}"),
        ("rank_1/trace.json", a.as_bytes()),
        ("rank_0/trace.json", b.as_bytes()),
    ];
    assert_eq!(check(&files, &[(Some(0), 2), (Some(1), 1)]).len(), 1);
}

#[test]
fn folders_of_no_use_are_errors() {
    check_error(&[], "DIR: a folder without files", "traces lie in");
    let files: [(&str, &[u8]); 2] = [("a.txt", b"text"), ("b.json.gz", &gzip(b""))];
    check_error(
        &files,
        "DIR: no usable trace in 2 files: a.txt: plain text, not a trace; b.json.gz: empty trace \
         (0 bytes after decompression)",
        "JSON",
    );
    check_error(&files[..1], "DIR/a.txt: plain text, not a trace", "JSON");
    check_error(
        &[("x.qdstrm", b"\x01\x02\x03\xff\xfe")],
        "DIR/x.qdstrm: raw data of an unfinished Nsight Systems capture (.qdstrm)",
        "nsys stop",
    );
    let other = whole("", &[event("v8", "parse", "1", 5)]);
    check_error(
        &[("a.json", other.as_bytes())],
        "DIR/a.json: a Chrome trace without any event of torch.profiler: 1 x unknown_category (v8)",
        "cpu_op",
    );
}

#[test]
fn an_nsys_export_beside_torch_traces_is_left_out() {
    let a = trace(100, 3);
    let files: [(&str, &[u8]); 3] = [
        ("a.json", a.as_bytes()),
        ("b.sqlite", b"SQLite format 3\0rest"),
        ("c.nsys-rep", b"NVIDIA Tegra Profiler Report 2025@5@1@1"),
    ];
    let reason = "an nsys export beside torch.profiler traces; pass it by itself to read it";
    assert_eq!(check(&files, &[(None, 3)]), [pair("b.sqlite", reason), pair("c.nsys-rep", reason)]);
}

#[test]
fn real_captures_as_folders() {
    let Some(captures) = shared("captures") else {
        return;
    };
    let copy = |prefix: &str| {
        let folder = tempfile::tempdir().unwrap();
        for entry in std::fs::read_dir(&captures).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if name.starts_with(prefix) {
                std::fs::copy(&path, folder.path().join(name)).unwrap();
            }
        }
        folder
    };
    let run = copy("TP2_on__merge5");
    assert_eq!(summary(&import(run.path()).unwrap()), [(Some(0), 654), (Some(1), 654)]);
    // The same under names that say nothing.
    for (index, entry) in std::fs::read_dir(run.path()).unwrap().enumerate() {
        std::fs::rename(entry.unwrap().path(), run.path().join(format!("{index}.json"))).unwrap();
    }
    let import_of = import(run.path()).unwrap();
    assert_eq!(summary(&import_of), [(Some(0), 654), (Some(1), 654)]);
    assert_eq!(left_out(&import_of).len(), 1);
    let stages = copy("A_on__stage5");
    let import_of = import(stages.path()).unwrap();
    assert_eq!(summary(&import_of), [(Some(0), 584)]);
    assert!(left_out(&import_of)[0].0.contains("EXTEND"));
    // Two profiles of one rank.
    let (error, _) = text(import(copy("A_o").path()));
    assert!(error.starts_with("rank 0 is claimed by two files: "), "{error}");
    // One database beside text files: the database is the run.
    let nsys = copy("nsys_sglang");
    std::fs::write(nsys.path().join("server.log"), "started").unwrap();
    let kernels: Vec<_> =
        import(nsys.path()).unwrap().traces.iter().map(|trace| trace.kernels.len()).collect();
    assert_eq!(kernels, [932]);
}

/// Files that the kernel makes up say that they are empty, and reading some of them never ends.
#[cfg(target_os = "linux")]
#[test]
fn files_of_no_bytes_are_not_opened() {
    let folder = folder(&[("a.json", trace(100, 2).as_bytes())]);
    std::os::unix::fs::symlink("/proc/self/mounts", folder.path().join("b.json")).unwrap();
    let import = import(folder.path()).unwrap();
    assert_eq!(summary(&import), [(None, 2)]);
    assert_eq!(left_out(&import), [pair("b.json", "empty file (0 bytes)")]);
}
