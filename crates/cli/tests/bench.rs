//! `steptally bench` from outside, without a GPU: its errors and its help.

#![allow(clippy::unwrap_used, clippy::print_stderr)] // in the tests' own functions

use std::process::Command;

fn steptally(args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steptally"));
    // no libraries other than those of the system
    let command = command.args(args).env_remove("LD_LIBRARY_PATH");
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn fails(args: &[&str], code: i32, error: &str, hint: &str) {
    let (actual, stdout, stderr) = steptally(args);
    assert_eq!((actual, stdout.as_str()), (code, ""), "{stderr}");
    assert!(stderr.contains("error: ") && stderr.contains(error), "{stderr}");
    assert!(hint.is_empty() || stderr.contains("hint: ") && stderr.contains(hint), "{stderr}");
}

#[test]
fn without_a_driver_there_is_one_error() {
    if ["/dev/nvidiactl", "/dev/dxg"].iter().any(|path| std::path::Path::new(path).exists()) {
        eprintln!("SKIPPED: there is an NVIDIA GPU here");
        return;
    }
    let (code, stdout, stderr) = steptally(&["bench", "--only", "copy"]);
    assert_eq!((code, stdout.as_str()), (3, ""), "{stderr}");
    assert!(stderr.starts_with("error: the "), "{stderr}");
    assert!(stderr.contains("hint: steptally bench needs an NVIDIA GPU"), "{stderr}");
    assert_eq!(stderr.lines().count(), 2, "{stderr}");
}

#[test]
fn arguments_are_checked_before_the_gpu_is_touched() {
    fails(&["bench", "--only", "wheels"], 2, "known are copy, gemm", "");
    fails(&["bench", "--batch", "0"], 2, "0 is not in 1..=65536", "");
    fails(&["bench", "--model", "/nowhere"], 3, "cannot read /nowhere", "config.json");
    fails(&["bench", "--compare", "/nowhere"], 3, "cannot read /nowhere", "torch_reference.py");
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("torch.json");
    std::fs::write(&broken, "{").unwrap();
    let broken = broken.to_str().unwrap();
    fails(&["bench", "--compare", broken], 3, "reference: EOF", "torch_reference.py");
}
