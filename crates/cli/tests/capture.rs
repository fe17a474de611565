//! Captures from outside: against replays over real HTTP, with the real importer and analysis.

#![allow(clippy::unwrap_used)] // in the tests' own functions

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

fn steptally(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steptally"));
    command.args(args).env_remove("COLUMNS").env_remove("NO_COLOR");
    for name in ["STEPTALLY_API_KEY", "STEPTALLY_ADMIN_KEY"] {
        command.env_remove(name);
    }
    command
}

fn run(args: &[&str]) -> (i32, String, String) {
    let output = steptally(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// A `serve-replay` that ends with the test.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn of(folder: &Path) -> Self {
        let mut child = steptally(&["serve-replay", folder.to_str().unwrap(), "--port", "0"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.next().unwrap().unwrap().starts_with("REPLAY of the traces in "));
        let url = lines.next().unwrap().unwrap();
        Self { child, url }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

fn manifest(folder: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(folder.join("manifest.json")).unwrap()).unwrap()
}

#[test]
fn the_demo_explains_a_recorded_step() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let (code, stdout, stderr) = run(&["demo", "--out", out.to_str().unwrap()]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.starts_with("REPLAY  of a recording: no GPU ran"), "{stdout}");
    let without = "Without the profiler it takes ";
    assert!(stdout.contains(without) && stdout.contains("GPU times are not."), "{stdout}");
    assert!(stdout.contains("A decode step takes 2.39 ms (median of 4 steps"), "{stdout}");
    assert!(stderr.starts_with("REPLAY "), "{stderr}");
    let manifest = manifest(&out);
    assert_eq!((&manifest["outcome"], &manifest["replay"]), (&"complete".into(), &true.into()));
    assert_eq!(manifest["verification"]["steps"]["decode"], 5);
    // fixtures/truth.json: 584 kernels in this trace.
    let truth = std::fs::read_to_string(fixture("truth.json")).unwrap();
    let truth: Value = serde_json::from_str(&truth).unwrap();
    let known = &truth["sglang-h200/decode-graphs-TP-0.trace.json.gz"]["devices"]["0"];
    assert_eq!(manifest["verification"]["kernels"], known["kernels"], "{known}");
    // The capture's folder is an input like any other.
    let (code, stdout, _) = run(&["analyze", out.to_str().unwrap()]);
    assert_eq!(code, 0);
    assert!(stdout.contains("A decode step takes 2.39 ms") && stdout.contains(without), "{stdout}");
    // The same figures in the manifest, in the report of the folder, and in a diff.
    let dilation = &manifest["verification"]["dilation_ratio"];
    let dilation = dilation.as_f64().unwrap();
    assert!((1.9..2.2).contains(&dilation), "{dilation}");
    let json = |arguments: &[&str]| -> Value {
        let (code, stdout, stderr) = run(&[arguments, &["--format", "json"]].concat());
        assert_eq!(code, 0, "{stderr}");
        serde_json::from_str(&stdout).unwrap()
    };
    let out = out.to_str().unwrap();
    let report = json(&["analyze", out]);
    assert_eq!(report["dilation"]["ratio"], dilation);
    assert_eq!(report["dilation"]["tpot_ns"], manifest["baseline_before"]["tpot_ns"]["median"]);
    assert_eq!(report["baseline"]["source"], "manifest");
    assert_eq!(json(&["diff", out, out])["a"]["dilation_ratio"], dilation);
}

#[test]
fn two_ranks_as_json() {
    let server = Server::of(&fixture("sglang-h200-tp2/graphs"));
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let arguments = [
        "profile",
        "--url",
        &server.url,
        "--steps",
        "5",
        "--rounds",
        "2",
        "--format",
        "json",
        "--out",
    ];
    let (code, stdout, stderr) = run(&[&arguments[..], &[out.to_str().unwrap()]].concat());
    assert_eq!(code, 0, "{stderr}");
    let report: Value = serde_json::from_str(&stdout).unwrap();
    let capture = &report["capture"];
    assert_eq!(capture["server"]["parallel"]["tp"], 2);
    assert_eq!(capture["expected_ranks"], serde_json::json!(["TP-0", "TP-1"]));
    assert_eq!(capture["files"].as_array().unwrap().len(), 2);
    assert_eq!(report["steps"]["selected"]["kind"], "decode");
    assert!(capture["verification"]["dilation_ratio"].as_f64().unwrap() > 1.0);
    assert_eq!(manifest(&out), *capture);
}

/// What README names, against a recording of five steps; twice in one second, without `--out`.
#[test]
fn a_replay_is_profiled_with_defaults() {
    let traces = tempfile::tempdir().unwrap();
    let name = "decode-graphs-TP-0.trace.json.gz";
    std::fs::copy(fixture("sglang-h200").join(name), traces.path().join(name)).unwrap();
    let server = Server::of(traces.path());
    let folder = tempfile::tempdir().unwrap();
    let profile = || {
        let mut command = steptally(&["profile", "--url", &server.url, "--rounds", "1"]);
        let output = command.current_dir(folder.path()).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        let said = "the recording has 5 decode steps; 10 were asked for";
        assert!(stderr.contains(said), "{stderr}");
    };
    profile();
    profile();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn a_capture_is_held_against_the_bound() {
    let traces = tempfile::tempdir().unwrap();
    let name = "decode-graphs-TP-0.trace.json.gz";
    std::fs::copy(fixture("sglang-h200").join(name), traces.path().join(name)).unwrap();
    let server = Server::of(traces.path());
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let (out, model) = (out.to_str().unwrap(), fixture("qwen3-moe-6-layers"));
    let model = model.to_str().unwrap();
    let arguments = ["profile", "--url", &server.url, "--steps", "5", "--rounds", "1"];
    let (code, stdout, stderr) = run(&[&arguments[..], &["--out", out, "--model", model]].concat());
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("FROM THE BOUND TO THE STEP  mean of 4 steps"), "{stdout}");
    // Its folder says how it was served: prompts of 512 tokens, one request, TPOT.
    let (code, stdout, stderr) = run(&["gap", out, "--model", model]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("batch 1, 512 tokens in the"), "{stdout}");
    assert!(stdout.contains("(TPOT, from the manifest)"), "{stdout}");
    assert!(!stdout.contains("is assumed"), "{stdout}");
    // A model that cannot be read costs no capture.
    let arguments = ["profile", "--url", &server.url, "--model", "nowhere"];
    let (code, _, stderr) = run(&arguments);
    assert_eq!(code, 3, "{stderr}");
    assert!(stderr.starts_with("error: cannot read nowhere"), "{stderr}");
}

#[test]
fn a_capture_of_the_wrong_batch_size_fails_and_is_kept() {
    // The recorded steps are of 4 requests; one is sent.
    let traces = tempfile::tempdir().unwrap();
    let name = "decode-eager-bs4-TP-0.trace.json.gz";
    std::fs::copy(fixture("sglang-h200").join(name), traces.path().join(name)).unwrap();
    let server = Server::of(traces.path());
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let arguments = ["profile", "--url", &server.url, "--steps", "5", "--rounds", "1", "--out"];
    let (code, stdout, stderr) = run(&[&arguments[..], &[out.to_str().unwrap()]].concat());
    assert_eq!(code, 4, "{stderr}");
    assert!(stderr.contains("error: the steps have batch size 4, not 1"), "{stderr}");
    assert!(stderr.contains("hint: the server has other requests"), "{stderr}");
    // What there is, is explained nevertheless.
    assert!(stdout.contains("PROBLEM  the steps have batch size 4, not 1"), "{stdout}");
    assert!(stdout.contains("A decode step takes"), "{stdout}");
    let manifest = manifest(&out);
    assert_eq!(manifest["outcome"], "failed");
    assert_eq!(manifest["problems"][0]["code"], "wrong_batch_size");
    assert!(out.join(manifest["files"][0]["path"].as_str().unwrap()).is_file());
}

#[test]
fn a_range_for_nsys() {
    let server = Server::of(&fixture("sglang-h200-tp2/graphs"));
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let arguments = ["profile", "--url", &server.url, "--steps", "5", "--rounds", "1"];
    let for_nsys = ["--activities", "cuda-profiler", "--out", out.to_str().unwrap()];
    let (code, stdout, stderr) = run(&[&arguments[..], &for_nsys].concat());
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("Without a profiler an output token takes"), "{stdout}");
    assert!(stderr.contains("next: nsys export --type sqlite"), "{stderr}");
    let manifest = manifest(&out);
    assert_eq!(manifest["profiler"]["body"]["activities"], serde_json::json!(["CUDA_PROFILER"]));
    assert!(manifest["verification"].is_null());
}

#[test]
fn a_doctor_of_a_replay() {
    let server = Server::of(&fixture("sglang-h200-tp2/graphs"));
    let (code, stdout, stderr) = run(&["doctor", "--url", &server.url]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    for text in [
        "REPLAY ",
        "SGLang 0.5.16, /srv/model/A, TP 2, CUDA graphs, KV cache of 131,072 tokens",
        "load              idle",
        "HTTP_ENDPOINT: can be used now  <- take this",
        "NSYS_LAUNCH: after a restart of the server",
        "attaching to a process is not possible on Linux",
    ] {
        assert!(stdout.contains(text), "{text}: {stdout}");
    }
    let free = stdout.lines().find(|line| line.starts_with("  free on disk ")).unwrap();
    assert!(free.ends_with(" GB") || free.ends_with(" MB"), "{free}");
    for line in stdout.lines().filter(|line| !line.starts_with("  $ ")) {
        assert!(line.chars().count() <= 120, "{line}");
    }
    let (code, stdout, _) = run(&["doctor", "--url", &server.url, "--format", "json"]);
    assert_eq!(code, 0);
    let diagnosis: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((&diagnosis["schema_version"], &diagnosis["requests"]), (&1.into(), &0.into()));
    assert_eq!(diagnosis["instruments"][0]["instrument"], "http_endpoint");
    // Nothing was started, and no request went to the model: it is still idle and not profiling.
    let (code, ..) = run(&["doctor", "--url", &server.url]);
    assert_eq!(code, 0);
}

#[test]
fn a_doctor_of_this_machine() {
    // What it finds depends on the machine; that it says all of it does not.
    let (code, stdout, stderr) = run(&["doctor", "--host"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    for row in ["GPUs", "driver", "nsys", "ptrace_scope", "perf_event", "GPU counters", "free on"] {
        assert!(stdout.contains(&format!("\n  {row}")), "{row}: {stdout}");
    }
    let (code, stdout, _) = run(&["doctor", "--host", "--format", "json"]);
    assert_eq!(code, 0);
    let found: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(found["schema_version"], 1);
    assert!(found["servers"].is_array() && found["free_bytes"].is_u64(), "{found}");
    let (code, ..) = run(&["doctor", "--host", "--url", "http://127.0.0.1:1"]);
    assert_eq!(code, 2);
}

#[test]
fn a_hook_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let hook = folder.path().join("hook");
    let mut command = steptally(&["doctor", "--write-hook", "hook"]);
    let output = command.current_dir(folder.path()).output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0));
    // The server is started from wherever.
    let path = hook.canonicalize().unwrap();
    assert!(stdout.contains(&format!("PYTHONPATH={} ", path.display())), "{stdout}");
    assert!(stdout.contains("STEPTALLY_HOOK_DIR=") && stdout.contains("--hook"), "{stdout}");
    assert!(hook.join("sitecustomize.py").is_file() && hook.join("steptally_hook.py").is_file());
}

#[test]
fn errors_and_their_codes() {
    let fails = |args: &[&str], code: i32, words: &str| {
        let (actual, _, stderr) = run(args);
        assert_eq!(actual, code, "{args:?}: {stderr}");
        assert!(stderr.contains(words), "{words}: {stderr}");
    };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let out = out.to_str().unwrap();
    fails(&["profile", "--url", "https://h:1", "--out", out], 2, "https is not spoken here");
    fails(&["doctor", "--url", "nonsense"], 2, "http://127.0.0.1:30000");
    fails(&["doctor"], 2, "--url");
    let both = ["profile", "--url", "http://h:1", "--activities", "gpu,cuda-profiler"];
    fails(&both, 2, "cuda-profiler goes with no other activity");
    let report = ["profile", "--url", "http://h:1", "--nsys-report", "run.nsys-rep"];
    fails(&report, 2, "goes with --activities cuda-profiler");
    // Nobody listens on the discard port.
    fails(&["doctor", "--url", "http://127.0.0.1:9"], 4, "cannot connect");
    fails(&["profile", "--url", "http://127.0.0.1:9", "--out", out], 4, "is the server up");
    assert_eq!(manifest(Path::new(out))["problems"][0]["code"], "unreachable");
    // The folder holds a capture now.
    fails(&["profile", "--url", "http://127.0.0.1:9", "--out", out], 4, "is not empty");
    fails(&["serve-replay", "/nonexistent"], 3, "/nonexistent");
    let unrelated = fixture("sglang-h200");
    let unrelated = unrelated.to_str().unwrap();
    fails(&["serve-replay", unrelated, "--port", "0"], 3, "rank 0 is claimed by two files");
}

#[test]
fn planted_keys_are_in_no_file_and_no_output() {
    let server = Server::of(&fixture("sglang-h200-tp2/graphs"));
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let output = steptally(&["profile", "--url", &server.url, "--rounds", "1", "--steps", "5"])
        .args(["--api-key", "planted-one", "--out", out.to_str().unwrap()])
        .env("STEPTALLY_ADMIN_KEY", "planted-two")
        .output()
        .unwrap();
    let all =
        [output.stdout, output.stderr, std::fs::read(out.join("manifest.json")).unwrap()].concat();
    let all = String::from_utf8(all).unwrap();
    assert!(all.contains("--api-key") && !all.contains("planted"), "{all}");
}

#[cfg(unix)]
#[test]
fn ctrl_c_stops_and_says_so() {
    let server = Server::of(&fixture("sglang-h200-tp2/graphs"));
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let mut child = steptally(&["profile", "--url", &server.url, "--rounds", "200", "--out"])
        .arg(&out)
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    for line in lines.by_ref() {
        let line = line.unwrap();
        said.push_str(&line);
        if line.starts_with("baseline") {
            let status =
                Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
            assert!(status.success());
            break;
        }
    }
    said.extend(lines.map(|line| line.unwrap() + "\n"));
    assert_eq!(child.wait().unwrap().code(), Some(4), "{said}");
    assert!(said.contains("error: interrupted"), "{said}");
    assert_eq!(manifest(&out)["outcome"], "interrupted");
}

#[cfg(unix)]
#[test]
fn one_capture_at_a_time() {
    let server = Server::of(&fixture("sglang-h200-tp2/graphs"));
    let folder = tempfile::tempdir().unwrap();
    let out = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let first = ["profile", "--url", &server.url, "--rounds", "200", "--out", &out("first")];
    let mut child = steptally(&first).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().starts_with("baseline")));
    // The same server under another of its names.
    let url = server.url.replace("127.0.0.1", "localhost");
    let (code, _, stderr) = run(&["profile", "--url", &url, "--out", &out("second")]);
    assert_eq!(code, 4, "{stderr}");
    let who = format!("error: another steptally (process {}) is capturing from", child.id());
    assert!(stderr.contains(&who) && stderr.contains("hint: wait"), "{stderr}");
    let problem = manifest(Path::new(&out("second")))["problems"][0]["code"].clone();
    assert_eq!(problem, "already_capturing");
    // The same folder, for another server.
    let (code, _, stderr) =
        run(&["profile", "--url", "http://127.0.0.1:9", "--out", &out("first")]);
    assert_eq!(code, 4, "{stderr}");
    assert!(stderr.contains("error: another steptally is capturing into the folder"), "{stderr}");
    // A capture that was killed locks nobody out.
    child.kill().unwrap();
    child.wait().unwrap();
    let arguments = ["profile", "--url", &url, "--rounds", "1", "--steps", "5", "--out"];
    let (code, _, stderr) = run(&[&arguments[..], &[&out("third")]].concat());
    assert_eq!(code, 0, "{stderr}");
}

#[test]
fn an_engine_without_a_profiler_is_at_least_timed() {
    use steptally_capture::engine::Engine;
    use steptally_capture::replay::{Recorded, Replay, ReplayOptions};

    let mut recorded = Recorded::demo();
    recorded.engine = Engine::LlamaCpp;
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let replay = runtime.block_on(Replay::listen(ReplayOptions::new(recorded), any)).unwrap();
    let url = format!("http://{}", replay.address().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let arguments = ["profile", "--url", &url, "--rounds", "2", "--out", out.to_str().unwrap()];
    let (code, stdout, stderr) = run(&arguments);
    assert_eq!(code, 4, "{stderr}");
    assert!(stderr.contains("error: llama.cpp has no profiler of its own: its speed"), "{stderr}");
    assert!(stderr.contains("hint: restart it under nsys launch"), "{stderr}");
    assert!(stdout.contains("Without a profiler an output token takes 1."), "{stdout}");
    assert!(manifest(&out)["baseline_before"]["tpot_ns"]["n"] == 2);
    let (code, stdout, _) = run(&["doctor", "--url", &url]);
    assert_eq!(code, 0);
    assert!(
        stdout.contains("NSYS_LAUNCH: after a restart of the server  <- take this"),
        "{stdout}"
    );
    assert!(stdout.contains("HTTP_ENDPOINT: cannot be used"), "{stdout}");
}
