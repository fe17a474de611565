//! Any bytes as a file that a user passes: containers within containers end, and nothing panics.

#![no_main]

use libfuzzer_sys::fuzz_target;
use steptally_import::{ImportOptions, import_path};

fuzz_target!(|bytes: &[u8]| {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("input");
    std::fs::write(&path, bytes).expect("a temporary file");
    let options = ImportOptions { threads: Some(1), ..ImportOptions::default() };
    match import_path(&path, &options) {
        Ok(import) => assert!(!import.traces.is_empty() && !import.files.is_empty()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
