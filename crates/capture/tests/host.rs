//! What a machine offers, against a made-up `/proc` and made-up programs.

#![allow(clippy::unwrap_used)]
#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use steptally_capture::Availability;
use steptally_capture::host::{
    GpuCounters, HostDiagnosis, HostSource, Started, Worker, diagnose_host,
};

/// Flags of a process that was forked without exec, and of one that was not.
const FORKED: u64 = 0x0040_0040;
const SPAWNED: u64 = 0x0040_0000;

struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        machine.write("proc/self/status", "Uid:\t1000\nCapEff:\t0000000000000000\n");
        machine.link("proc/self/ns/mnt", "mnt:[1]");
        machine
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, path: &str, content: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn link(&self, path: &str, target: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    fn process(&self, pid: u32, parent: u32, flags: u64, command: &[&str]) {
        let name = command[0];
        self.write(
            &format!("proc/{pid}/stat"),
            &format!("{pid} ({name}) S {parent} {pid} {pid} 0 -1 {flags} 0 0"),
        );
        self.write(&format!("proc/{pid}/cmdline"), &(command.join("\0") + "\0"));
        self.write(&format!("proc/{pid}/status"), "Name:\tx\nUid:\t1000\t1000\t1000\t1000\n");
        self.link(&format!("proc/{pid}/ns/mnt"), "mnt:[1]");
    }

    fn program(&self, name: &str, script: &str) {
        self.write(&format!("bin/{name}"), &format!("#!/bin/sh\n{script}\n"));
        let path = self.root().join("bin").join(name);
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    async fn diagnose(&self) -> HostDiagnosis {
        let path = vec![self.root().join("bin")];
        diagnose_host(&HostSource { root: self.root().to_owned(), path }, self.root()).await
    }
}

/// SGLang at TP 2, as one sees it: the server and workers that renamed themselves.
fn with_sglang() -> Machine {
    let machine = Machine::new();
    machine.process(1, 0, SPAWNED, &["/sbin/init"]);
    machine.process(50, 1, SPAWNED, &["bash", "-c", "python3 -m sglang.launch_server"]);
    let command = [
        "/usr/bin/python3",
        "-m",
        "sglang.launch_server",
        "--model-path",
        "/m",
        "--tp=2",
        "--port",
        "30001",
        "--api-key",
        "planted-key",
        "--disable-cuda-graph",
    ];
    machine.process(100, 50, SPAWNED, &command);
    let tracker = "from multiprocessing.resource_tracker import main;main(5)";
    machine.process(101, 100, SPAWNED, &["/usr/bin/python3", "-c", tracker]);
    machine.process(102, 100, SPAWNED, &["sglang::scheduler_TP0"]);
    machine.process(103, 100, SPAWNED, &["sglang::scheduler_TP1"]);
    machine.process(104, 100, SPAWNED, &["sglang::detokenizer"]);
    machine.link("proc/102/fd/9", "/dev/nvidia0");
    let compiler =
        ["/usr/bin/python3", "/x/torch/_inductor/compile_worker/__main__.py", "--parent=102"];
    machine.process(105, 102, SPAWNED, &compiler);
    machine.process(106, 105, FORKED, &compiler);
    machine.process(900, 1, SPAWNED, &["grep", "sglang.launch_server"]);
    machine.link("proc/100/exe", "/usr/bin/python3.12");
    // It listens on 0x7531 = 30001 by socket 4711, and for its workers on 0x7000 = 28672 by 4714; 4712 is
    // a connection, 4713 somebody else's.
    machine.link("proc/100/fd/7", "socket:[4711]");
    machine.link("proc/100/fd/8", "socket:[4714]");
    machine.write(
        "proc/100/net/tcp",
        "sl local rem st tx:rx tr:tm retr uid timeout inode\n\
         0: 0100007F:7531 00000000:0000 0A 0:0 0:0 0 1000 0 4711 1\n\
         1: 0100007F:7531 0100007F:9999 01 0:0 0:0 0 1000 0 4712 1\n\
         3: 0100007F:7000 00000000:0000 0A 0:0 0:0 0 1000 0 4714 1\n\
         2: 0100007F:0016 00000000:0000 0A 0:0 0:0 0 0 0 4713 1\n",
    );
    machine.write(
        "proc/100/environ",
        "HF_TOKEN=planted-token\0PYTHONPATH=/srv/none:/srv/site\0STEPTALLY_HOOK_DIR=/run/hook\0",
    );
    // PyTorch is loaded in a worker only, from a folder as that process sees it.
    let packages = "usr/lib/python3/dist-packages";
    machine.write(
        "proc/102/maps",
        &format!("7f00-7f01 r-xp 0 00:01 5      /{packages}/torch/lib/libtorch_cpu.so\n"),
    );
    for package in ["torch-2.9.1+cu128", "torchvision-0.24.0"] {
        machine.write(&format!("proc/102/root/{packages}/{package}.dist-info/METADATA"), "");
    }
    // The engine is in a folder of its own.
    machine.write("proc/100/root/srv/site/sglang-0.5.16.dist-info/METADATA", "");
    machine
}

#[tokio::test]
async fn a_server_with_its_workers() {
    let found = with_sglang().diagnose().await;
    let [advice] = &found.servers[..] else { panic!("{:#?}", found.servers) };
    let server = &advice.server;
    assert_eq!((server.engine, server.pid, server.user), ("sglang", 100, Some(1000)));
    assert_eq!(server.version.as_deref(), Some("0.5.16"));
    assert_eq!(server.python.as_deref(), Some("3.12"));
    assert_eq!(server.torch.as_deref(), Some("2.9.1+cu128"));
    assert_eq!(server.ports, [28672, 30001]);
    assert_eq!(server.in_container, Some(false));
    assert_eq!(server.hook.as_deref(), Some(Path::new("/run/hook")));
    let worker = |pid, name: &str, uses_gpu| Worker {
        pid,
        name: name.to_owned(),
        started: Started::Spawn,
        uses_gpu,
    };
    // Neither the tracker of resources nor the compilers of kernels, which are forked.
    assert_eq!(
        server.workers,
        [
            worker(102, "sglang::scheduler_TP0", Some(true)),
            worker(103, "sglang::scheduler_TP1", None),
            worker(104, "sglang::detokenizer", None),
        ]
    );
    let json = serde_json::to_string(&found).unwrap();
    assert!(!json.contains("planted") && json.contains("--api-key"), "{json}");
    // The endpoint of the port that it listens on, now.
    let best = &advice.instruments[0];
    assert_eq!((best.instrument, best.available), ("http_endpoint", Availability::Now));
    assert!(best.how[0].contains("http://127.0.0.1:30001"), "{:?}", best.how);
    assert!(best.blind_to.contains("eagerly"), "{}", best.blind_to);
    let of =
        |name: &str| advice.instruments.iter().find(|advice| advice.instrument == name).unwrap();
    assert_eq!(of("torch_hook").available, Availability::Now);
    let launch = of("nsys_launch");
    assert!(launch.reasons_against.iter().any(|reason| reason.contains("not installed")));
    assert!(launch.reasons_for.iter().any(|reason| reason.contains("spawned")));
    assert_eq!(advice.instruments.iter().filter(|advice| advice.chosen).count(), 1);
}

#[tokio::test]
async fn forked_workers_under_nsys_in_a_container() {
    let machine = Machine::new();
    machine.process(9, 1, SPAWNED, &["/opt/nsys/bin/nsys", "launch", "vllm", "serve"]);
    machine.process(10, 9, SPAWNED, &["/v/bin/python3", "/v/bin/vllm", "serve", "/m"]);
    machine.process(11, 10, FORKED, &["VLLM::EngineCore"]);
    fs::remove_file(machine.root().join("proc/10/ns/mnt")).unwrap();
    machine.link("proc/10/ns/mnt", "mnt:[2]");
    let found = machine.diagnose().await;
    let [advice] = &found.servers[..] else { panic!("{:#?}", found.servers) };
    let server = &advice.server;
    assert_eq!((server.engine, server.pid, server.under_nsys), ("vllm", 10, true));
    assert_eq!(server.workers[0].started, Started::Fork);
    assert_eq!(server.in_container, Some(true));
    // It was started without a profiler of its own, but by nsys.
    let best = &advice.instruments[0];
    assert_eq!((best.instrument, best.available), ("nsys_session", Availability::Now));
    assert!(best.reasons_for[0].contains("started by nsys"));
}

#[tokio::test]
async fn forked_workers_need_an_option_of_nsys() {
    let machine = Machine::new();
    machine.process(10, 1, SPAWNED, &["python3", "/v/bin/trtllm-serve", "/m"]);
    machine.process(11, 10, FORKED, &["python3", "/v/bin/trtllm-serve", "/m"]);
    let found = machine.diagnose().await;
    let [advice] = &found.servers[..] else { panic!("{:#?}", found.servers) };
    assert_eq!((advice.server.engine, advice.server.pid), ("tensorrt_llm", 10));
    let launch = advice.instruments.iter().find(|a| a.instrument == "nsys_launch").unwrap();
    let needs = |reason: &String| reason.contains("--trace-fork-before-exec=true");
    assert!(launch.reasons_against.iter().any(needs), "{launch:#?}");
}

#[tokio::test]
async fn gpus_driver_nsys_and_permissions() {
    let machine = Machine::new();
    let nvidia = "proc/driver/nvidia";
    machine.write(
        &format!("{nvidia}/version"),
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n",
    );
    for (bus, model) in [("0000:0a:00.0", "NVIDIA H200"), ("0000:18:00.0", "NVIDIA H200")] {
        machine.write(
            &format!("{nvidia}/gpus/{bus}/information"),
            &format!("Model: \t\t {model}\nIRQ:   \t\t 40\nGPU UUID: \t GPU-1\n"),
        );
    }
    machine.write(&format!("{nvidia}/params"), "EnableMSI: 1\nRmProfilingAdminOnly: 1\n");
    machine.write("proc/sys/kernel/yama/ptrace_scope", "1\n");
    machine.write("proc/sys/kernel/perf_event_paranoid", "4\n");
    machine.program("nvidia-smi", "echo '0, NVIDIA H200, 580.159.04, 345 MHz, 3201 MHz, 700.00 W'");
    machine.program(
        "nsys",
        "case $1 in --version) echo 'NVIDIA Nsight Systems version 2021.1.3.14-b695ea9';;\n\
         profile) echo '  --capture-range=  --session-new= ';; esac",
    );
    let found = machine.diagnose().await.machine;
    assert_eq!(found.driver.as_deref(), Some("580.159.04"));
    let buses: Vec<&str> = found.gpus.iter().map(|gpu| gpu.bus.as_str()).collect();
    assert_eq!(buses, ["0000:0a:00.0", "0000:18:00.0"]);
    assert_eq!(found.gpus[0].name, "NVIDIA H200");
    assert_eq!(found.clocks[0].sm_clock, "345 MHz");
    let nsys = found.nsys.unwrap();
    assert_eq!(nsys.version.as_deref(), Some("2021.1.3.14"));
    assert_eq!(nsys.missing_options, ["--cuda-graph-trace", "--trace-fork-before-exec"]);
    assert_eq!((found.ptrace_scope, found.perf_event_paranoid), (Some(1), Some(4)));
    assert_eq!(found.gpu_counters, GpuCounters::Refused);
    // CAP_SYS_ADMIN is bit 21: 0x200000.
    machine.write("proc/self/status", "CapEff:\t0000000000200000\n");
    assert_eq!(machine.diagnose().await.machine.gpu_counters, GpuCounters::AsAdministrator);
    machine.write(&format!("{nvidia}/params"), "RmProfilingAdminOnly: 0\n");
    assert_eq!(machine.diagnose().await.machine.gpu_counters, GpuCounters::Everyone);
}

#[tokio::test]
async fn a_machine_with_nothing() {
    let found = Machine::new().diagnose().await;
    assert!(found.servers.is_empty() && found.machine.gpus.is_empty());
    assert_eq!((found.machine.driver, found.machine.nsys), (None, None));
    assert_eq!(found.machine.gpu_counters, GpuCounters::Unknown);
    assert!(found.free_bytes.is_some());
}
