//! `cargo xtask profile` against a replay of a recorded server of two ranks.

#![allow(clippy::unwrap_used, clippy::panic)] // in the tests' own functions

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// Builds a program of this workspace; gives its path, which is beside this test's own.
fn built(package: &str, args: &[&str], path: &str) -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "--locked", "--package", package]).args(args);
    assert!(build.current_dir(root()).status().unwrap().success());
    Path::new(env!("CARGO_BIN_EXE_xtask")).with_file_name(path)
}

fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| built("steptally", &[], "steptally"))
}

/// A replay, ended when dropped.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn of(traces: &Path) -> Self {
        let mut command = Command::new(program());
        command.arg("serve-replay").arg(traces);
        let mut child = command.args(["--port", "0"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let url = lines.find_map(|line| line.ok().filter(|line| line.starts_with("http"))).unwrap();
        Self { child, url }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn two_ranks() -> PathBuf {
    root().join("fixtures/sglang-h200-tp2/graphs")
}

/// Exit code, stdout and stderr of `cargo xtask profile`.
fn profile(url: &str, out: &Path, args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(["profile", "--url", url, "--program"]).arg(program());
    let output = command.arg("--out").arg(out).args(args).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_deployment_of_two_ranks_gives_one_folder() {
    let (server, folder) = (Server::of(&two_ranks()), tempfile::tempdir().unwrap());
    let out = folder.path().join("out");
    let model = root().join("fixtures/qwen3-moe-6-layers");
    let measured = model.join("measured-h200.json");
    let args = ["--tp", "2", "--steps", "5", "--model", model.to_str().unwrap()];
    let measured = ["--measured", measured.to_str().unwrap()];
    let (code, stdout, stderr) =
        profile(&server.url, &out, &[&args[..], &measured, &["--", "--rounds", "1"]].concat());
    assert_eq!(code, 0, "{stdout}\n{stderr}");
    assert_eq!(stdout.matches("pass  ").count(), 5, "{stdout}");
    let json = |file: &str| -> Value {
        serde_json::from_slice(&std::fs::read(out.join(file)).unwrap()).unwrap()
    };
    assert_eq!(json("manifest.json")["expected_ranks"], serde_json::json!(["TP-0", "TP-1"]));
    assert_eq!(json("report.json")["ranks"].as_array().unwrap().len(), 2);
    // 56 collectives over two ranks, as in the recording.
    assert_eq!(json("report.json")["collectives"]["cross_rank"]["matched_count"], 56);
    let gap = json("gap.json");
    assert_eq!(
        (&gap["unexplained_ns"], &gap["roofline"]["deployment"]["tp"]),
        (&0.into(), &2.into())
    );
    let report = std::fs::read_to_string(out.join("report.md")).unwrap();
    for part in
        ["# A capture of 2 ranks", "pass  ranks 0 to 1 are there", "## Report", "COLLECTIVES"]
    {
        assert!(report.contains(part), "{part}: {report}");
    }
    // Nothing goes over what is there.
    let (code, _, stderr) = profile(&server.url, &out, &args);
    assert_eq!(code, 1);
    assert!(stderr.contains("is not empty"), "{stderr}");
}

#[test]
fn of_eight_ranks_the_slowed_one_is_in_the_report() {
    // Synthetic: made from two captured ones; rank 5, as captured rank 1 the last at every
    // collective, is 500 us later still.
    let folder = tempfile::tempdir().unwrap();
    let make = built("steptally-testkit", &["--example", "make_trace"], "examples/make_trace");
    let mut make = Command::new(make);
    make.arg("ranks").arg(root().join("fixtures/sglang-h200-tp2/eager")).args(["8", "0"]);
    assert!(make.arg(folder.path()).args(["5", "500000"]).status().unwrap().success());
    let (server, out) = (Server::of(folder.path()), folder.path().join("out"));
    let (code, stdout, stderr) =
        profile(&server.url, &out, &["--steps", "5", "--", "--rounds", "1"]);
    assert_eq!(code, 0, "{stdout}\n{stderr}");
    assert_eq!(stdout.matches("pass  ").count(), 5, "{stdout}");
    assert!(stdout.contains("pass  ranks 0 to 7 are there"), "{stdout}");
    let report = std::fs::read_to_string(out.join("report.txt")).unwrap();
    let report = report.split_whitespace().collect::<Vec<_>>().join(" ");
    let named = "Rank 5 arrives last at 100.0 % of its collectives, by 500 us on average: the others \
                 wait 7.00 ms per step for it; its GPU takes longer before them.";
    assert!(report.contains(named), "{report}");
    // No model was given, and the recorded server's is not on this machine: no bound, which is said.
    assert!(stdout.contains("no bound: see above"), "{stdout}");
    assert!(!out.join("gap.md").exists());
}

#[test]
fn too_few_ranks_are_said_before_anything_is_captured() {
    let (server, folder) = (Server::of(&two_ranks()), tempfile::tempdir().unwrap());
    let (code, _, stderr) = profile(&server.url, folder.path(), &[]);
    assert_eq!(code, 1);
    assert!(stderr.contains("the server runs on 2 ranks, not 8: nothing was captured"), "{stderr}");
    assert!(!folder.path().join("capture").exists());
}

#[test]
fn without_a_server_it_says_how_to_start_one() {
    let folder = tempfile::tempdir().unwrap();
    // Port 1 is never listened on.
    let (code, _, stderr) = profile("http://127.0.0.1:1", folder.path(), &[]);
    assert_eq!(code, 1);
    assert!(stderr.contains("no server to profile at http://127.0.0.1:1"), "{stderr}");
    assert!(stderr.contains("python3 -m sglang.launch_server"), "{stderr}");
    assert!(stderr.contains("serve-replay fixtures/sglang-h200-tp2/graphs"), "{stderr}");
}
