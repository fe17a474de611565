//! Damaged containers: bytes flipped, cut out, repeated and moved. Nothing panics, and there is
//! either a trace or an error.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "helpers of tests")]

mod common;

use std::fs;

use common::*;
use proptest::prelude::*;
use steptally_import::{ImportOptions, import_path};

/// Whole containers of every kind and nesting.
fn containers() -> Vec<Vec<u8>> {
    let plain = trace(100, 30).into_bytes();
    let (front, back) = plain.split_at(700);
    let ranks = [ranked(0, 2, 100).into_bytes(), ranked(1, 2, 105).into_bytes()];
    let members: [(&str, &[u8]); 3] =
        [("a.json", &ranks[0]), ("b.json.gz", &gzip(&ranks[1])), ("c.txt", b"text")];
    vec![
        [gzip(front), gzip(back)].concat(),
        [zstd(front), zstd(back)].concat(),
        zip(&members, false),
        zip(&members, true),
        tar(&members),
        gzip(&tar(&members)),
        zip(&[("a.tar.gz", &gzip(&tar(&members)))], true),
    ]
}

/// One change: what (0 flip, 1 cut out, 2 repeat, 3 overwrite by another part, 4 cut off), where
/// and how much, as shares of the length.
type Change = (u8, f64, f64, u8);

fn apply(data: &mut Vec<u8>, &(what, at, length, byte): &Change) {
    if data.is_empty() {
        return;
    }
    let at = (at * data.len() as f64) as usize;
    // Mostly short.
    let length = (length.powi(4) * data.len() as f64) as usize + 1;
    let end = (at + length).min(data.len());
    match what {
        0 => data[at] ^= byte.max(1),
        1 => drop(data.drain(at..end)),
        2 => {
            let part = data[at..end].to_vec();
            data.splice(at..at, part);
        }
        3 => {
            let from = (usize::from(byte) * data.len() / 256).min(data.len() - (end - at));
            data.copy_within(from..from + (end - at), at);
        }
        _ => data.truncate(at),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_container_is_a_trace_or_an_error(
        which in 0..7_usize,
        changes in prop::collection::vec((0..5_u8, 0.0..1.0, 0.0..1.0, any::<u8>()), 1..4),
    ) {
        let mut data = containers().swap_remove(which);
        for change in &changes {
            apply(&mut data, change);
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("upload");
        fs::write(&path, &data).unwrap();
        let options = ImportOptions { threads: Some(1), ..ImportOptions::default() };
        match import_path(&path, &options) {
            Ok(import) => {
                prop_assert!(!import.traces.is_empty());
                let of_issues = import.issues.iter().all(|issue| issue.file < import.files.len());
                prop_assert!(of_issues);
            }
            Err(error) => prop_assert!(!error.to_string().contains('\n')),
        }
    }
}
