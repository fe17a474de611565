//! Damaged exports: what can be read is read, and nothing panics.

use proptest::prelude::*;
use steptally_import::nsys::NsysError;
use steptally_trace_model::Severity;
use tempfile::TempDir;

use crate::schemas::{kernel, tables};
use crate::support::{Export, fixture, global, read};

#[test]
fn files_that_are_no_database() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("x.sqlite");
    let error = read(&path).unwrap_err();
    assert!(matches!(error, NsysError::Io { .. }));
    assert!(error.to_string().starts_with("cannot read "), "{error}");
    assert_eq!(error.hint(), None);
    for bytes in [&b""[..], b"SQLite", b"{\"traceEvents\": []}  ", &[0; 4096]] {
        std::fs::write(&path, bytes).unwrap();
        let error = read(&path).unwrap_err();
        assert!(matches!(error, NsysError::NotSqlite { .. }), "{error}");
        assert!(error.to_string().ends_with("is not an SQLite database"), "{error}");
        assert!(error.hint().unwrap().contains("nsys export"));
    }
    std::fs::write(&path, b"SQLite format 3\0 and no more").unwrap();
    let error = read(&path).unwrap_err();
    assert!(matches!(error, NsysError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("is a damaged SQLite database: "), "{error}");
    assert!(error.hint().unwrap().contains("--force-overwrite"));
}

/// An export of which the kernels fill many pages.
fn many_kernels() -> Export {
    let export = Export::new(&format!(
        "{} WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 9999)
         INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT 10 * i, 10 * i + 5, 0, 1, 7, i, {}, 1, 2, NULL,
            32, 1, 1, 1, 128, 1, 1, 0, 0, NULL, NULL FROM n;",
        tables(),
        global(40),
    ));
    let trace = export.trace();
    assert_eq!(trace.kernels.len(), 10_000);
    assert!(!trace.meta.partial);
    export
}

#[test]
fn a_truncated_export_is_partial() {
    let export = many_kernels();
    let bytes = std::fs::read(export.path()).unwrap();
    std::fs::write(export.path(), &bytes[..bytes.len() / 2 / 4096 * 4096]).unwrap();
    let read = export.read();
    let kernels = read.traces[0].kernels.len();
    assert!((1000..9999).contains(&kernels), "{kernels}");
    assert!(read.traces[0].meta.partial);
    let issue = read.issues.find("unreadable_rows").unwrap();
    assert_eq!(issue.severity, Severity::Error);
    assert!(read.issues.find("file_cut_short").is_some());
    assert!(issue.first.text.starts_with("CUPTI_ACTIVITY_KIND_KERNEL, after "), "{issue:?}");
}

#[test]
fn an_export_whose_every_row_is_damaged_says_so() {
    let export = Export::new(&(tables().to_owned() + &kernel([1, 2], 0, 1, 40)));
    let mut bytes = std::fs::read(export.path()).unwrap();
    // All pages but the first, which lists the tables.
    bytes[4096..].fill(0xA5);
    std::fs::write(export.path(), bytes).unwrap();
    let error = export.error();
    assert!(matches!(error, NsysError::Damaged { .. }), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Flips bytes of a real export, or cuts it. Whatever comes out, it comes out.
    #[test]
    fn no_damage_panics(
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..60),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("damaged.sqlite");
        let mut bytes = std::fs::read(fixture()).unwrap();
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        std::fs::write(&path, bytes).unwrap();
        match read(&path) {
            Ok(read) => prop_assert!(!read.traces.is_empty()),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
        let _ = steptally_import::nsys::redact(&path, &folder.path().join("copy.sqlite"));
    }
}
