//! What a machine offers for capturing: servers that run on it, GPUs, nsys, permissions, disk.
//!
//! Everything is read from `/proc` and from two programs that are asked for their version. Nothing is
//! started or stopped, and no server is asked anything.

mod machine;
mod processes;

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::doctor::{self, Advice, Availability};
use crate::engine::{Engine, ServerInfo};
use crate::place::{self, Place};

pub use machine::{GpuCounters, HostGpu, Machine, Nsys};
pub use processes::{HostServer, Started, Worker};

/// Version of the JSON form.
pub const HOST_DIAGNOSIS_VERSION: u32 = 1;

/// Where to look.
#[derive(Clone, Debug)]
pub struct HostSource {
    /// Root of the file system whose `proc` is read.
    pub root: PathBuf,
    /// Folders in which programs are looked for.
    pub path: Vec<PathBuf>,
}

impl HostSource {
    /// This machine.
    #[must_use]
    pub fn this_machine() -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        Self { root: PathBuf::from("/"), path: std::env::split_paths(&path).collect() }
    }
}

/// What a machine offers.
#[derive(Clone, Debug, Serialize)]
pub struct HostDiagnosis {
    /// [`HOST_DIAGNOSIS_VERSION`].
    pub schema_version: u32,
    /// GPUs, driver, nsys, permissions.
    pub machine: Machine,
    /// Bytes free where captures would go.
    pub free_bytes: Option<u64>,
    /// Servers that run here, with the instruments for each, the chosen one first.
    pub servers: Vec<ServerAdvice>,
}

/// A server on this machine, and how to capture it.
#[derive(Clone, Debug, Serialize)]
pub struct ServerAdvice {
    /// The server.
    #[serde(flatten)]
    pub server: HostServer,
    /// Instruments, the chosen one first.
    pub instruments: Vec<Advice>,
}

/// Looks at a machine. `folder` is where captures would go.
pub async fn diagnose_host(source: &HostSource, folder: &Path) -> HostDiagnosis {
    let machine = machine::look(source).await;
    let root = source.root.clone();
    let servers = tokio::task::spawn_blocking(move || processes::servers(&root)).await;
    let servers = servers.unwrap_or_default();
    HostDiagnosis {
        schema_version: HOST_DIAGNOSIS_VERSION,
        free_bytes: place::free_near(folder),
        servers: servers
            .into_iter()
            .map(|server| ServerAdvice { instruments: weigh(&server, &machine), server })
            .collect(),
        machine,
    }
}

/// The instruments for a server, by its command line and what the machine has.
fn weigh(server: &HostServer, machine: &Machine) -> Vec<Advice> {
    // A server has ports for its own processes too.
    let port = server.option(&["--port"]).or_else(|| server.ports.first().copied());
    let url = format!("http://127.0.0.1:{}", port.unwrap_or(default_port(server.kind)));
    let place = Place {
        is_this_machine: true,
        same_files: server.in_container.map(|inside| !inside),
        ..Place::default()
    };
    let mut all = doctor::instruments(&info(server), &place, &url, false, server.hook.is_some());
    temper(&mut all, Some(server), machine);
    doctor::choose(all)
}

/// Adjusts the instruments of nsys to a machine and a server on it.
pub(crate) fn temper(all: &mut [Advice], server: Option<&HostServer>, machine: &Machine) {
    for advice in all.iter_mut().filter(|advice| advice.instrument.starts_with("nsys")) {
        of_nsys(advice, server, machine);
    }
}

/// This machine, and the server on it that the process `pid` belongs to.
pub(crate) async fn around(pid: Option<u32>) -> (Machine, Option<HostServer>) {
    let source = HostSource::this_machine();
    let machine = machine::look(&source).await;
    let servers = tokio::task::spawn_blocking(move || processes::servers(&source.root)).await;
    let is_it = |server: &HostServer| {
        Some(server.pid) == pid || server.workers.iter().any(|worker| Some(worker.pid) == pid)
    };
    (machine, servers.unwrap_or_default().into_iter().find(is_it))
}

const fn default_port(engine: Engine) -> u16 {
    match engine {
        Engine::Sglang => 30000,
        Engine::Vllm | Engine::TensorRtLlm => 8000,
        Engine::LlamaCpp => 8080,
    }
}

/// What the command line says that the server itself would say when asked.
fn info(server: &HostServer) -> ServerInfo {
    let mut info = ServerInfo::new(server.kind);
    info.version_text.clone_from(&server.version);
    info.parallel.tp = server.option(&[
        "--tp",
        "--tp-size",
        "--tp_size",
        "--tensor-parallel-size",
        "--tensor_parallel_size",
        "-tp",
    ]);
    info.parallel.nodes = server.option(&["--nnodes"]);
    info.needs_admin_key = server.has(&["--admin-api-key"]).then_some(true);
    // Both use CUDA graphs unless they are told not to.
    let backend: Option<String> = server.option(&["--cuda-graph-backend-decode"]);
    info.cuda_graphs = match server.kind {
        Engine::Sglang => {
            let is_off = backend.as_deref() == Some("disabled");
            Some(!is_off && !server.has(&["--disable-cuda-graph"]))
        }
        Engine::Vllm => Some(!server.has(&["--enforce-eager"])),
        Engine::TensorRtLlm | Engine::LlamaCpp => None,
    };
    if server.kind == Engine::Vllm {
        let has_profiler = server.has_prefix("--profiler-config") || server.vllm_profiler_folder;
        info.profile_endpoint = Some(has_profiler);
    }
    info
}

/// What the machine, and the server's processes where they are seen, mean for an instrument of nsys.
fn of_nsys(advice: &mut Advice, server: Option<&HostServer>, machine: &Machine) {
    match &machine.nsys {
        None => {
            advice.reasons_against.push("nsys is not installed, or not in the PATH".to_owned());
            if advice.available == Availability::AfterRestart {
                advice
                    .how
                    .insert(0, "install Nsight Systems (package nsight-systems-cli)".to_owned());
            }
        }
        Some(nsys) if !nsys.missing_options.is_empty() => advice.reasons_against.push(format!(
            "this nsys is too old: it does not know {}",
            nsys.missing_options.join(", ")
        )),
        Some(_) => {}
    }
    let Some(server) = server else { return };
    if server.under_nsys {
        match advice.instrument {
            "nsys_session" => {
                advice.available = Availability::Now;
                advice.reasons_for.insert(0, "the server was started by nsys".to_owned());
                advice.how = vec![
                    "nsys sessions list".to_owned(),
                    "nsys start --session=NAME -o run && sleep 2 && nsys stop --session=NAME"
                        .to_owned(),
                ];
            }
            _ => advice.reasons_for.insert(0, "the server runs under nsys already".to_owned()),
        }
        return;
    }
    let ranks = server.ranks();
    if ranks.iter().any(|worker| worker.started == Started::Fork) {
        advice.reasons_against.push(
            "ranks are forked without exec: without --trace-fork-before-exec=true they are not seen"
                .to_owned(),
        );
    } else if !ranks.is_empty() && ranks.iter().all(|worker| worker.started == Started::Spawn) {
        advice
            .reasons_for
            .push("ranks are spawned (fork and exec), which nsys follows by itself".to_owned());
    }
}
