//! The torch hook in a real Python, with modules that stand in for torch and for a model runner.

#![allow(clippy::unwrap_used, clippy::print_stderr)] // in the tests' own functions

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use steptally_capture::backend::install_hook;
use tempfile::TempDir;

/// Stands in for torch: counts what the hook does with it, and writes what a profiler would.
const TORCH: &str = r#"
import gzip, json
class ProfilerActivity: CPU, CUDA = "CPU", "CUDA"
class cuda:
    @staticmethod
    def is_available(): return False
log = []
class profiler:
    ProfilerActivity = ProfilerActivity
    class record_function:
        def __init__(self, name): self.name = name
        def __enter__(self): log.append(self.name)
        def __exit__(self, *_): pass
    class profile:
        fails = False
        def __init__(self, activities, record_shapes, with_stack):
            log.append(("profile", activities, record_shapes, with_stack))
        def start(self):
            if profiler.profile.fails: raise RuntimeError("no CUPTI here")
            log.append("start")
        def stop(self): log.append("stop")
        def export_chrome_trace(self, path):
            with gzip.open(path, "wt") as file: json.dump({"traceEvents": []}, file)
        def key_averages(self): return self
        def table(self, **_): return "a table"
"#;

/// Stands in for SGLang's model runner.
const RUNNER: &str = r#"
class Mode:
    def __init__(self, decode): self.decode = decode
    def is_decode(self): return self.decode
class Batch:
    def __init__(self, decode=True, batch_size=2):
        self.forward_mode, self.batch_size = Mode(decode), batch_size
class ModelRunner:
    tp_rank = 0
    calls = 0
    def forward(self, forward_batch, scale=1):
        ModelRunner.calls += 1
        if scale < 0: raise ValueError("the server's own error")
        return ModelRunner.calls * scale
original = ModelRunner.forward
"#;

struct World {
    folder: TempDir,
}

impl World {
    fn new() -> Self {
        let world = Self { folder: tempfile::tempdir().unwrap() };
        install_hook(&world.path("hook")).unwrap();
        let package = world.path("server/sglang/srt/model_executor");
        fs::create_dir_all(&package).unwrap();
        for folder in ["sglang", "sglang/srt", "sglang/srt/model_executor"] {
            fs::write(world.path("server").join(folder).join("__init__.py"), "").unwrap();
        }
        fs::write(package.join("model_runner.py"), RUNNER).unwrap();
        fs::write(world.path("server/torch.py"), TORCH).unwrap();
        for folder in ["control", "out"] {
            fs::create_dir(world.path(folder)).unwrap();
        }
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn arm(&self, change: impl FnOnce(&mut Value)) {
        let mut order = json!({
            "id": "17", "skip": 3, "record": 4, "ranks": [0], "out": self.path("out"),
            "activities": ["CPU", "GPU"], "record_shapes": true, "with_stack": false,
        });
        change(&mut order);
        fs::write(self.path("control/arm.json"), order.to_string()).unwrap();
    }

    /// Runs a server with the hook in it; what it prints. `None` without Python.
    fn serve(&self, script: &str) -> Option<String> {
        let begin = "from sglang.srt.model_executor import model_runner as m\nimport torch, time\nr = m.ModelRunner()\n";
        let paths = [self.path("hook"), self.path("server")];
        let output = Command::new("python3")
            .args(["-B", "-c", &format!("{begin}{script}")])
            .env("PYTHONPATH", std::env::join_paths(paths).unwrap())
            .env("STEPTALLY_HOOK_DIR", self.path("control"))
            .output();
        let Ok(output) = output else {
            eprintln!("SKIPPED: there is no python3");
            return None;
        };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(String::from_utf8(output.stdout).unwrap().trim().to_owned())
    }

    fn error(&self) -> Option<String> {
        fs::read_dir(self.path("control")).unwrap().find_map(|entry| {
            let path = entry.unwrap().path();
            let is_error = path.file_name()?.to_str()?.starts_with("error-");
            is_error.then(|| fs::read_to_string(&path).unwrap())
        })
    }
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn skips_records_and_takes_itself_away() {
    let world = World::new();
    world.arm(|_| {});
    // 3 decode steps are skipped, prefills do not count, 4 are recorded, and 2 more are not.
    let script = "
r.forward(m.Batch(decode=False))
for _ in range(9): r.forward(m.Batch())
print(m.ModelRunner.calls, torch.log.count('step[DECODE bs=2]'), torch.log.count('start'), torch.log.count('stop'))
print(m.ModelRunner.forward is m.original, torch.log[0])";
    let Some(said) = world.serve(script) else { return };
    assert_eq!(said, "10 4 1 1\nTrue ('profile', ['CPU', 'CUDA'], True, False)");
    assert_eq!(names(&world.path("out")), ["17-TP-0.key_averages.txt", "17-TP-0.trace.json.gz"]);
    assert_eq!(
        fs::read_to_string(world.path("out/17-TP-0.key_averages.txt")).unwrap(),
        "a table\n"
    );
    assert_eq!(world.error(), None);
    // It leaves a note of the process that it was loaded in.
    assert!(names(&world.path("control")).iter().any(|name| name.starts_with("hook-")));
}

#[test]
fn armed_on_a_running_server() {
    let world = World::new();
    let order = json!({
        "id": "18", "skip": 0, "record": 2, "ranks": null, "out": world.path("out"),
        "activities": ["GPU"], "record_shapes": false, "with_stack": false,
    });
    let path = world.path("control/arm.json");
    let script = format!(
        "
for _ in range(5): r.forward(m.Batch())
open({path:?}, 'w').write({:?})
time.sleep(0.06)
for _ in range(5): r.forward(m.Batch())
print(torch.log.count('step[DECODE bs=2]'), m.ModelRunner.calls)",
        order.to_string()
    );
    let Some(said) = world.serve(&script) else { return };
    assert_eq!(said, "2 10");
}

#[test]
fn another_rank_records_nothing() {
    let world = World::new();
    world.arm(|order| order["ranks"] = json!([1]));
    let Some(said) = world
        .serve("for _ in range(9): r.forward(m.Batch())\nprint(torch.log, m.ModelRunner.calls)")
    else {
        return;
    };
    assert_eq!(said, "[] 9");
    assert!(names(&world.path("out")).is_empty());
}

#[test]
fn an_order_that_is_taken_back_or_has_expired() {
    let world = World::new();
    world.arm(|_| {});
    let path = world.path("control/arm.json");
    let script = format!(
        "
import os
for _ in range(5): r.forward(m.Batch())
os.remove({path:?})
time.sleep(0.06)
for _ in range(9): r.forward(m.Batch())
print(torch.log.count('start'), torch.log.count('stop'), m.ModelRunner.calls)"
    );
    let Some(said) = world.serve(&script) else { return };
    assert_eq!(said, "1 1 14");
    assert!(names(&world.path("out")).is_empty());
    world.arm(|order| order["expires"] = json!(1.0));
    let said = world.serve("for _ in range(9): r.forward(m.Batch())\nprint(torch.log)").unwrap();
    assert_eq!(said, "[]");
}

#[test]
fn it_fails_open() {
    let calls = "
for _ in range(9): r.forward(m.Batch())
print(m.ModelRunner.calls, m.ModelRunner.forward is m.original)";
    // The profiler does not start.
    let world = World::new();
    world.arm(|_| {});
    let Some(said) = world.serve(&format!("torch.profiler.profile.fails = True\n{calls}")) else {
        return;
    };
    assert_eq!(said, "9 True");
    assert!(world.error().unwrap().contains("no CUPTI here"));
    // The trace cannot be written.
    let world = World::new();
    world.arm(|order| order["out"] = json!("/nonexistent/folder"));
    assert_eq!(world.serve(calls).unwrap(), "9 True");
    assert!(world.error().unwrap().contains("/nonexistent/folder"));
    // The order is no JSON.
    let world = World::new();
    fs::write(world.path("control/arm.json"), "{").unwrap();
    assert_eq!(world.serve(calls).unwrap(), "9 True");
    assert!(world.error().is_some());
    // Batches look different from what is known.
    let world = World::new();
    world.arm(|_| {});
    let odd = "
for _ in range(3): r.forward(object())
print(m.ModelRunner.calls, m.ModelRunner.forward is m.original)";
    assert_eq!(world.serve(odd).unwrap(), "3 True");
}

#[test]
fn the_servers_own_errors_and_arguments_pass() {
    let world = World::new();
    world.arm(|order| order["skip"] = json!(0));
    let script = "
print(r.forward(m.Batch(), scale=10))
try: r.forward(m.Batch(), scale=-1)
except ValueError as error: print(error)
print(r.forward(forward_batch=m.Batch()))";
    let Some(said) = world.serve(script) else { return };
    assert_eq!(said, "10\nthe server's own error\n3");
    assert_eq!(world.error(), None);
}

#[test]
fn a_hidden_sitecustomize_is_run_too() {
    let world = World::new();
    fs::write(
        world.path("server/sitecustomize.py"),
        "import builtins\nbuiltins.hidden = 'was run'\n",
    )
    .unwrap();
    let Some(said) = world.serve("print(hidden, m.ModelRunner.forward is m.original)") else {
        return;
    };
    assert_eq!(said, "was run False");
}

#[test]
fn without_the_folder_nothing_happens() {
    let world = World::new();
    let output = Command::new("python3")
        .args([
            "-B",
            "-c",
            "import sys; print(any(type(f).__name__ == 'Finder' for f in sys.meta_path))",
        ])
        .env("PYTHONPATH", world.path("hook"))
        .env_remove("STEPTALLY_HOOK_DIR")
        .output();
    let Ok(output) = output else {
        eprintln!("SKIPPED: there is no python3");
        return;
    };
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "False");
}

#[test]
fn a_folder_of_somebody_else_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("sitecustomize.py"), "print('mine')\n").unwrap();
    let failure = install_hook(folder.path()).unwrap_err();
    assert!(failure.message.contains("somebody else's"), "{failure}");
    assert_eq!(
        fs::read_to_string(folder.path().join("sitecustomize.py")).unwrap(),
        "print('mine')\n"
    );
}
