//! Nothing of the target's environment is read, and nothing of it is in a redacted copy.

use steptally_import::nsys::{NsysError, RedactReport, redact};
use tempfile::TempDir;

use crate::schemas::{kernel, tables};
use crate::support::{Export, fixture, global, read, shared, spelled};

const TOKEN: &str = "hf_SECRETtoken0123456789";

/// A token in the three places where exports have the environment, in the target's output, in
/// rows that stay, and in pages that deleted rows have left behind.
fn planted() -> Export {
    let tid = global(40) + 40;
    Export::new(&format!(
        "PRAGMA secure_delete = OFF; {} {}
         INSERT INTO StringIds VALUES (90, 'HF_TOKEN={TOKEN}' || char(0) || 'PATH=/bin'),
            (91, 'out: {TOKEN}'), (92, 'comm'), (93, 'module {TOKEN}');
         CREATE TABLE META_DATA_CAPTURE(name TEXT NOT NULL, value TEXT);
         INSERT INTO META_DATA_CAPTURE VALUES
            ('PROCESS_0:ENVIRONMENT_VARIABLE', 'HF_TOKEN=\"{TOKEN}\"'),
            ('PROCESS_0:ENVIRONMENT_VARIABLE', 'RANK=\"2\"'),
            ('PROCESS_0:ENVIRONMENT_VARIABLE', 'RANK=\"{TOKEN}\"'),
            ('PROCESS_0:ARGUMENT_1', '--api-key={TOKEN}'),
            ('PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE', 'Node');
         CREATE TABLE TARGET_INFO_SYSTEM_ENV(globalVid INTEGER, devStateName TEXT NOT NULL,
            name TEXT NOT NULL, nameEnum INTEGER NOT NULL, value TEXT NOT NULL);
         INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (1, '{TOKEN}', 'DeviceEnvironment', 610,
            'HF_TOKEN={TOKEN};'), (1, 'Local', 'NvDriverVersion', 205, '580.1');
         INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PARAM_INPUT_PATH', '/home/{TOKEN}/x');
         CREATE TABLE ANALYSIS_FILE(id INTEGER, filename TEXT, content TEXT, globalPid INTEGER);
         INSERT INTO ANALYSIS_FILE VALUES (0, 'stdout.log', 'token {TOKEN}', {pid});
         CREATE TABLE ProcessStreams(globalPid INTEGER, filenameId INTEGER, contentId INTEGER);
         INSERT INTO ProcessStreams VALUES ({pid}, 92, 91);
         CREATE TABLE OSRT_CALLCHAINS(id INTEGER, symbol INTEGER, module INTEGER);
         INSERT INTO OSRT_CALLCHAINS VALUES (1, 92, 93);
         CREATE TABLE SOMETHING_NEW(start INTEGER, note TEXT, data BLOB, number TEXT);
         INSERT INTO SOMETHING_NEW VALUES (5, '{TOKEN}', CAST('{TOKEN}' AS BLOB), '-12.5');
         CREATE TABLE OSRT_API(start INTEGER, end INTEGER, globalTid INTEGER, nameId INTEGER);
         INSERT INTO OSRT_API VALUES (3, 4, {tid}, 4);
         CREATE TABLE DIAGNOSTIC_EVENT(severity INTEGER, text TEXT, globalPid INTEGER);
         INSERT INTO DIAGNOSTIC_EVENT VALUES (1, 'see /tmp/{TOKEN}.log', {pid}), (2, 'trouble', {pid});
         INSERT INTO PROCESSES VALUES ({pid}, 40, 'python3'), ({other}, 41, 'curl -H {TOKEN}');
         INSERT INTO ThreadNames VALUES (5, 0, {tid}), (92, 0, {other});
         CREATE TABLE gone(text TEXT);
         INSERT INTO gone SELECT '{TOKEN}' || hex(zeroblob(3000)) FROM (VALUES (1), (2), (3));
         DELETE FROM gone; DROP TABLE gone;",
        tables(),
        kernel([10, 20], 0, 1, 40),
        pid = global(40),
        other = global(41),
    ))
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn no_planted_token_enters_a_trace() {
    let export = planted();
    let read = export.read();
    for trace in &read.traces {
        assert!(trace.strings.iter().all(|(_, text)| !text.contains(TOKEN)));
        assert!(!format!("{:?}", trace.meta).contains(TOKEN));
    }
    assert!(!format!("{:?}", read.issues).contains(TOKEN));
    assert_eq!(read.traces[0].rank(), Some(2));
}

#[test]
fn a_redacted_copy_has_every_event_and_no_token() {
    let export = planted();
    let before = std::fs::read(export.path()).unwrap();
    assert!(contains(&before, TOKEN));
    let folder = TempDir::new().unwrap();
    let copy = folder.path().join("clean.sqlite");
    let report = redact(&export.path(), &copy).unwrap();
    let after = std::fs::read(&copy).unwrap();
    assert!(!contains(&after, "SECRET"));
    assert_eq!(std::fs::read(export.path()).unwrap(), before, "the input changed");
    // Kept: export 2, capture 2, system 1, kernel 1, OS call 1, new table 1, remarks 2, process 1,
    // thread 1, strings 4. Environment: 3 of 5 capture rows, 1 of 2 system rows, 2 of 4 export rows. Strings: 90 to 93
    // and `cudaLaunchKernel`, which no row here uses. Other: output 2, backtrace 1.
    // Texts: `note` and `data` of the unknown table, `Local`, and the path of the log.
    assert_eq!(
        report,
        RedactReport {
            rows_kept: 16,
            environment_rows: 6,
            strings: 5,
            names: 2,
            other_rows: 3,
            texts: 4,
        }
    );
    let (original, redacted) = (export.read(), read(&copy).unwrap());
    assert_eq!(original.issues, redacted.issues);
    let [a, b] = [&original.traces[0], &redacted.traces[0]].map(spelled);
    assert_eq!(a, b);
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "temporary files are left");
}

#[test]
fn nothing_is_overwritten_and_nothing_half_made_appears() {
    let export = planted();
    let folder = TempDir::new().unwrap();
    let copy = folder.path().join("clean.sqlite");
    std::fs::write(&copy, b"mine").unwrap();
    let error = redact(&export.path(), &copy).unwrap_err();
    assert!(matches!(error, NsysError::OutputExists { .. }));
    assert!(error.to_string().ends_with("clean.sqlite exists already"), "{error}");
    assert!(error.hint().unwrap().contains("another name"));
    assert_eq!(std::fs::read(&copy).unwrap(), b"mine");
    let error = redact(&export.path(), &folder.path().join("none/clean.sqlite")).unwrap_err();
    assert!(matches!(error, NsysError::Write { .. }));
    assert!(error.to_string().starts_with("cannot write "), "{error}");
    assert!(error.hint().unwrap().contains("space"));
    let unrelated = Export::new("CREATE TABLE a(b);");
    let error = redact(&unrelated.path(), &folder.path().join("new.sqlite")).unwrap_err();
    assert!(matches!(error, NsysError::Unrelated { .. }));
    assert!(!folder.path().join("new.sqlite").exists());
}

#[test]
fn real_captures_import_alike_after_redaction() {
    let mut files = vec![fixture()];
    if let Some(shared) = shared() {
        for file in [
            "GindaChen__nsys-ai/tests/fixtures/mfu_2gpu_before.sqlite",
            "GindaChen__nsys-ai/tests/fixtures/healthy_1pct.sqlite",
            "extra-p__extrap/tests/data/nsight/sampled_callchains/ex-gpu.s10/ex-gpu.s10.sqlite",
            "morluto__flameox/tests/fixtures/nsight_systems/nsight-2025.5.2.sqlite",
            "hpcgroup__pipit/pipit/tests/data/cloverleaf-nsys/perlmutter-cloverleaf-cuda.sqlite",
        ] {
            files.push(shared.join("traces").join(file));
        }
    }
    let folder = TempDir::new().unwrap();
    for (index, file) in files.iter().enumerate() {
        let copy = folder.path().join(format!("{index}.sqlite"));
        redact(file, &copy).unwrap();
        let (original, redacted) = (read(file).unwrap(), read(&copy).unwrap());
        assert_eq!(original.format, redacted.format);
        assert_eq!(original.traces.len(), redacted.traces.len());
        for (a, b) in original.traces.iter().zip(&redacted.traces) {
            assert!(spelled(a) == spelled(b), "{}", file.display());
        }
    }
}
