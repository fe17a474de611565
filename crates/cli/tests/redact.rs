//! `steptally redact` from outside: the copy, what is said about it, and the refusals.

#![allow(clippy::unwrap_used)] // in the tests' own functions

use std::path::{Path, PathBuf};
use std::process::Command;

use rusqlite::Connection;
use serde_json::Value;

const TOKEN: &str = "hf_SECRETtoken0123456789";

/// Runs the program; exit code, stdout, stderr.
fn run(args: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_steptally")).args(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// A real capture with a token planted in the captured environment, in that of the system, and as
/// strings that no row uses.
fn planted(folder: &Path) -> PathBuf {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/nsys-h200/sglang-graph-by-node.sqlite");
    let path = folder.join("server.sqlite");
    std::fs::copy(fixture, &path).unwrap();
    let mut permissions = std::fs::metadata(&path).unwrap().permissions();
    #[allow(clippy::permissions_set_readonly_false, reason = "a copy in the test's own folder")]
    permissions.set_readonly(false);
    std::fs::set_permissions(&path, permissions).unwrap();
    let planted = format!(
        "CREATE TABLE IF NOT EXISTS META_DATA_CAPTURE(name TEXT NOT NULL, value TEXT);
         CREATE TABLE IF NOT EXISTS TARGET_INFO_SYSTEM_ENV(globalVid INTEGER, devStateName TEXT
            NOT NULL, name TEXT NOT NULL, nameEnum INTEGER NOT NULL, value TEXT NOT NULL);
         INSERT INTO META_DATA_CAPTURE(name, value) VALUES
            ('PROCESS_0:ENVIRONMENT_VARIABLE', 'HF_TOKEN={TOKEN}');
         INSERT INTO TARGET_INFO_SYSTEM_ENV(globalVid, devStateName, name, nameEnum, value)
            VALUES (1, 'Local', 'DeviceEnvironment', 610, 'HF_TOKEN={TOKEN};');
         INSERT INTO StringIds(id, value) SELECT max(id) + 1, 'A=1' || char(0) || '{TOKEN}'
            FROM StringIds;"
    );
    Connection::open(&path).unwrap().execute_batch(&planted).unwrap();
    path
}

fn holds_token(path: &Path) -> bool {
    let bytes = std::fs::read(path).unwrap();
    bytes.windows(TOKEN.len()).any(|window| window == TOKEN.as_bytes())
}

/// A report without what differs between two files of one content.
fn report(path: &Path) -> Value {
    let (code, text, stderr) = run(&["analyze", path.to_str().unwrap(), "--format", "json"]);
    assert_eq!(code, 0, "{stderr}");
    let mut report: Value = serde_json::from_str(&text).unwrap();
    report["input"]["files"] = Value::Null;
    for issue in report["input"]["issues"].as_array_mut().unwrap() {
        issue["file"] = Value::Null;
    }
    report
}

#[test]
fn the_copy_has_no_token_and_gives_the_same_report() {
    let folder = tempfile::tempdir().unwrap();
    let path = planted(folder.path());
    assert!(holds_token(&path));
    let (code, text, stderr) = run(&["redact", path.to_str().unwrap()]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let copy = folder.path().join("server.redacted.sqlite");
    assert!(text.starts_with(&format!("wrote {}", copy.display())), "{text}");
    assert!(text.contains("strings that no kept row uses"), "{text}");
    assert!(!holds_token(&copy));
    assert_eq!(report(&path), report(&copy));
}

#[test]
fn programs_can_read_what_was_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = planted(folder.path());
    let copy = folder.path().join("clean.db");
    let args = ["redact", path.to_str().unwrap(), "-o", copy.to_str().unwrap()];
    let (code, text, _) = run(&[args.as_slice(), &["--format", "json"]].concat());
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(code, 0);
    assert_eq!(json["output"], copy.to_str().unwrap());
    assert_eq!(json["output_bytes"], std::fs::metadata(&copy).unwrap().len());
    // What SQL says of the two files.
    let count = |path: &Path, sql: &str| -> u64 {
        Connection::open(path).unwrap().query_row(sql, [], |row| row.get(0)).unwrap()
    };
    let strings = "SELECT count(*) FROM StringIds";
    assert_eq!(json["removed"]["strings"], count(&path, strings) - count(&copy, strings));
    let environment = "SELECT (SELECT count(*) FROM META_DATA_CAPTURE) +
        (SELECT count(*) FROM TARGET_INFO_SYSTEM_ENV) + (SELECT count(*) FROM META_DATA_EXPORT)";
    assert_eq!(
        json["removed"]["environment_rows"],
        count(&path, environment) - count(&copy, environment)
    );
}

#[test]
fn a_file_that_is_there_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = planted(folder.path());
    let copy = folder.path().join("server.redacted.sqlite");
    std::fs::write(&copy, "mine").unwrap();
    let (code, stdout, stderr) = run(&["redact", path.to_str().unwrap()]);
    assert_eq!((code, stdout.as_str()), (3, ""));
    assert!(stderr.contains("server.redacted.sqlite exists already\nhint: "), "{stderr}");
    assert_eq!(std::fs::read(&copy).unwrap(), b"mine");
    // Nor is the export its own copy.
    let (code, _, stderr) = run(&["redact", path.to_str().unwrap(), "-o", path.to_str().unwrap()]);
    assert!(code == 3 && stderr.contains("exists already"), "{stderr}");
    assert!(holds_token(&path));
}

#[test]
fn only_exports_can_be_redacted() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("server.nsys-rep");
    std::fs::write(&report, "NVIDIA Tegra Profiler Report 2025@5@1@121-25v0.\n").unwrap();
    let (code, _, stderr) = run(&["redact", report.to_str().unwrap()]);
    assert_eq!(code, 3);
    assert!(stderr.contains("is not an SQLite database\nhint: export a report first"), "{stderr}");
    assert!(!folder.path().join("server.redacted.sqlite").exists());
    let (code, _, stderr) = run(&["redact", "/no/such.sqlite"]);
    assert!(code == 3 && stderr.contains("/no/such.sqlite"), "{stderr}");
}
