//! What can be captured at a server, with which instrument, and why not with the others.

use std::path::Path;

use serde::Serialize;
use steptally_trace_model::manifest::{CapturedGpu, CapturedServer};

use crate::backend::{TorchHook, VLLM_PROFILER_HINT};
use crate::engine::{Engine, ServerInfo, probe};
use crate::error::Failure;
use crate::host::{self, Machine};
use crate::http::Client;
use crate::place::{self, Place};

/// Version of the JSON form.
pub const DIAGNOSIS_VERSION: u32 = 1;

/// What is known about a server and how to capture it.
#[derive(Clone, Debug, Serialize)]
pub struct Diagnosis {
    /// [`DIAGNOSIS_VERSION`].
    pub schema_version: u32,
    /// Whether it is a replay of a recording.
    pub replay: bool,
    /// The server, redacted.
    pub server: CapturedServer,
    /// Requests that run or wait; `null`: the server does not say.
    pub requests: Option<u64>,
    /// Longest sequence.
    pub context_length: Option<u64>,
    /// Requests that run at once, at most.
    pub max_running_requests: Option<u64>,
    /// Whether only an admin key may profile; `null`: not known.
    pub needs_admin_key: Option<bool>,
    /// Whether the keys that were given are enough to profile; `null`: not known.
    pub keys_suffice: Option<bool>,
    /// Whether a profiler runs: never known before a start is tried, which could spoil it.
    pub profiler_running: Option<bool>,
    /// Whether the server runs on this machine.
    pub on_this_machine: bool,
    /// Its process, when it can be seen.
    pub pid: Option<u32>,
    /// Whether traces that it writes to a folder of this machine can be read here.
    pub output_readable: Option<bool>,
    /// Bytes free where captures would go.
    pub free_bytes: Option<u64>,
    /// GPUs of this machine.
    pub gpus: Vec<CapturedGpu>,
    /// This machine, when the server runs on it.
    pub machine: Option<Machine>,
    /// Instruments, the chosen one first.
    pub instruments: Vec<Advice>,
}

/// Whether an instrument can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Availability {
    /// As the server runs now.
    Now,
    /// After a restart of the server.
    AfterRestart,
    /// Not with this server.
    No,
}

/// What speaks for and against an instrument.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// `http_endpoint`, `torch_hook`, `nsys_launch`, `nsys_session`, `nsys_capture_range`,
    /// `nvtx_markers`.
    pub instrument: &'static str,
    /// Whether it records nothing by itself, and adds to nsys.
    pub is_addition: bool,
    /// Whether it is the one to take.
    pub chosen: bool,
    /// Whether it can be used.
    pub available: Availability,
    /// What speaks for it.
    pub reasons_for: Vec<String>,
    /// What speaks against it.
    pub reasons_against: Vec<String>,
    /// What it costs while it records.
    pub cost: &'static str,
    /// What it cannot see.
    pub blind_to: String,
    /// How it is used.
    pub how: Vec<String>,
}

/// Asks the server about itself, and weighs the instruments.
///
/// # Errors
/// When it does not answer, a key is wanted, or it is no engine that is known.
pub async fn diagnose(
    client: &Client,
    folder: &Path,
    hook: Option<&Path>,
) -> Result<Diagnosis, Failure> {
    let info = probe(client).await?;
    let (host, port) = (client.host().to_owned(), client.port());
    let place =
        tokio::task::spawn_blocking(move || place::locate(&host, port)).await.unwrap_or_default();
    let is_here = place.is_this_machine && !info.replay;
    let (machine, processes) = if is_here {
        let (machine, processes) = host::around(place.pid).await;
        (Some(machine), processes)
    } else {
        (None, None)
    };
    let mut all =
        instruments(&info, &place, &client.url(), client.has_admin_key(), hook_loaded(hook));
    if let Some(machine) = &machine {
        host::temper(&mut all, processes.as_ref(), machine);
    }
    Ok(Diagnosis {
        schema_version: DIAGNOSIS_VERSION,
        replay: info.replay,
        server: info.to_manifest(client),
        requests: info.requests,
        context_length: info.context_length,
        max_running_requests: info.max_running_requests,
        needs_admin_key: info.needs_admin_key,
        keys_suffice: info.needs_admin_key.map(|needed| !needed || client.has_admin_key()),
        profiler_running: None,
        on_this_machine: place.is_this_machine,
        pid: place.pid,
        output_readable: output_readable(&place),
        free_bytes: place::free_near(folder),
        gpus: machine.as_ref().map_or_else(Vec::new, |machine| machine.clocks.clone()),
        machine,
        instruments: choose(all),
    })
}

fn output_readable(place: &Place) -> Option<bool> {
    if place.is_this_machine { place.same_files } else { Some(false) }
}

/// Whether a process has the hook loaded that looks into this folder.
fn hook_loaded(folder: Option<&Path>) -> bool {
    folder.is_some_and(|folder| TorchHook::loaded_in(folder).is_ok_and(|pids| !pids.is_empty()))
}

/// Everything that could record a server at `url`.
pub(crate) fn instruments(
    info: &ServerInfo,
    place: &Place,
    url: &str,
    has_admin_key: bool,
    hook_loaded: bool,
) -> Vec<Advice> {
    vec![
        endpoint(info, place, url, has_admin_key),
        hook(info, url, hook_loaded),
        nsys_launch(info),
        nsys_range(info, url),
        nsys_session(info),
        nvtx(info),
    ]
}

/// Puts the best first: one that can be used now, else one that can be used at all.
pub(crate) fn choose(mut all: Vec<Advice>) -> Vec<Advice> {
    let best = [Availability::Now, Availability::AfterRestart].into_iter().find_map(|wanted| {
        all.iter().position(|advice| advice.available == wanted && !advice.is_addition)
    });
    if let Some(best) = best {
        all[best].chosen = true;
        let chosen = all.remove(best);
        all.insert(0, chosen);
    }
    all
}

/// What graphs hide from the host's side of a torch trace.
fn graphs(info: &ServerInfo) -> &'static str {
    match info.cuda_graphs {
        Some(true) => {
            "decode runs as CUDA graphs: kernels are seen, but no operators, shapes or stacks within a \
             replay (start the server without decode graphs to see them)"
        }
        Some(false) => "decode runs eagerly: operators and shapes are seen",
        None => {
            "whether decode runs as CUDA graphs is not known; if it does, no operators, shapes or stacks are seen within a replay"
        }
    }
}

const TORCH_COST: &str = "slows the host: eager steps by a third to a half, steps of CUDA graphs twofold; a stall of 0.1 to \
    1 s for small models while it writes, more with stacks and many steps";

fn endpoint(info: &ServerInfo, place: &Place, url: &str, has_admin_key: bool) -> Advice {
    let mut reasons_for = Vec::new();
    let mut reasons_against = Vec::new();
    let mut how = vec![format!("steptally profile --url {url} --out DIR")];
    let mut available = Availability::Now;
    match (info.engine, info.profile_endpoint) {
        (Engine::Sglang, _) => {
            reasons_for.push("the server needs no restart and no flag".to_owned());
            reasons_for.push("it ends by itself after the steps that were asked for".to_owned());
        }
        (Engine::Vllm, Some(true)) => {
            reasons_for.push("the server was started with a profiler".to_owned());
            how = vec![format!(
                "steptally profile --url {url} --server-dir ITS_PROFILER_DIR --ranks N --out DIR"
            )];
        }
        (Engine::Vllm, _) => {
            available = Availability::AfterRestart;
            reasons_against.push("this vLLM was started without a profiler".to_owned());
            how.insert(0, VLLM_PROFILER_HINT.to_owned());
        }
        (Engine::TensorRtLlm, _) => {
            available = Availability::AfterRestart;
            reasons_against.push(
                "its profiler is set by environment, for iterations that are known before"
                    .to_owned(),
            );
            how = vec![
                "start it with TLLM_PROFILE_START_STOP=100-110 TLLM_TORCH_PROFILE_TRACE=/DIR/trace.json".to_owned(),
                "steptally analyze /DIR".to_owned(),
            ];
        }
        (Engine::LlamaCpp, _) => {
            available = Availability::No;
            reasons_against.push("llama.cpp has no profiler of its own".to_owned());
            how.clear();
        }
    }
    if info.needs_admin_key == Some(true) && !has_admin_key {
        reasons_against
            .push("the server has an admin key, which is needed: --admin-key".to_owned());
    }
    if available == Availability::Now && output_readable(place) == Some(false) {
        reasons_against.push(
            "the server writes on a disk that is not seen here: mount a folder on both sides and give --server-dir".to_owned(),
        );
    }
    if info.requests.is_some_and(|requests| requests > 0) {
        reasons_against
            .push("the server has other requests, which it would slow: --allow-traffic".to_owned());
    }
    if info.parallel.nodes.is_some_and(|nodes| nodes > 1) {
        reasons_against.push(
            "each machine writes its ranks on its own disk: gather them afterwards".to_owned(),
        );
    }
    Advice {
        instrument: "http_endpoint",
        is_addition: false,
        chosen: false,
        available,
        reasons_for,
        reasons_against,
        cost: TORCH_COST,
        blind_to: graphs(info).to_owned(),
        how,
    }
}

fn hook(info: &ServerInfo, url: &str, loaded: bool) -> Advice {
    let is_python = matches!(info.engine, Engine::Sglang | Engine::Vllm);
    let available = match (is_python, loaded) {
        (true, true) => Availability::Now,
        (true, false) => Availability::AfterRestart,
        (false, _) => Availability::No,
    };
    let mut reasons_against = vec![];
    if available == Availability::AfterRestart {
        reasons_against.push("it has to be there when the server starts".to_owned());
    }
    if !is_python {
        reasons_against.push("it knows the model runners of SGLang and vLLM only".to_owned());
    }
    let how = if is_python {
        vec![
            "steptally doctor --write-hook HOOK_DIR".to_owned(),
            "start the server with PYTHONPATH=HOOK_DIR STEPTALLY_HOOK_DIR=CONTROL_DIR in its environment".to_owned(),
            format!("steptally profile --url {url} --hook CONTROL_DIR --out DIR"),
        ]
    } else {
        Vec::new()
    };
    Advice {
        instrument: "torch_hook",
        is_addition: false,
        chosen: false,
        available,
        reasons_for: vec![
            "records the model's forward only, on the ranks that are named, after steps that are skipped".to_owned(),
            "needs no profile endpoint and no change of the server's source".to_owned(),
        ],
        reasons_against,
        cost: TORCH_COST,
        blind_to: format!("the scheduler between two steps; {}", graphs(info)),
        how,
    }
}

const NSYS_NODE: &str =
    "--cuda-graph-trace=node slows replays of CUDA graphs; =graph does not, and shows no kernels";

fn nsys_launch(info: &ServerInfo) -> Advice {
    let mut reasons_against = vec![
        "the server must be started by nsys: attaching to a process is not possible on Linux"
            .to_owned(),
        "files are large, and have to be exported to SQLite before they can be read".to_owned(),
    ];
    if info.parallel.tp.unwrap_or(1) > 1 {
        reasons_against.push(
            "ranks are child processes: if they are forked (not spawned), they are not seen without \
             --trace-fork-before-exec=true"
                .to_owned(),
        );
    }
    Advice {
        instrument: "nsys_launch",
        is_addition: false,
        chosen: false,
        available: Availability::AfterRestart,
        reasons_for: vec![
            "sees calls of the driver, NVTX and the operating system, and dilates eager steps less".to_owned(),
            "works with every engine".to_owned(),
        ],
        reasons_against,
        cost: NSYS_NODE,
        blind_to: "operators, shapes and Python stacks; layers unless the server pushes NVTX markers (SGLang: --enable-layerwise-nvtx-marker, which marks eager steps only)".to_owned(),
        how: vec![
            "nsys profile -t cuda,nvtx --cuda-graph-trace=node --trace-fork-before-exec=true --delay 120 --duration 5 -o run SERVER_COMMAND".to_owned(),
            "nsys export --type sqlite run.nsys-rep && steptally analyze run.sqlite".to_owned(),
        ],
    }
}

fn nsys_range(info: &ServerInfo, url: &str) -> Advice {
    let is_known = matches!(info.engine, Engine::Sglang | Engine::Vllm | Engine::TensorRtLlm);
    let how = match info.engine {
        Engine::Sglang => vec![
            "nsys profile -t cuda,nvtx --cuda-graph-trace=node --trace-fork-before-exec=true --capture-range=cudaProfilerApi --capture-range-end=stop --kill=none -o run SERVER_COMMAND".to_owned(),
            format!("steptally profile --url {url} --activities cuda-profiler --nsys-report run.nsys-rep --out DIR"),
        ],
        Engine::Vllm => vec![
            "nsys profile -t cuda,nvtx --cuda-graph-trace=node --trace-fork-before-exec=true --capture-range=cudaProfilerApi --capture-range-end=stop --kill=none -o run vllm serve --profiler-config.profiler=cuda ..".to_owned(),
            format!("steptally profile --url {url} --activities cuda-profiler --nsys-report run.nsys-rep --out DIR"),
        ],
        Engine::TensorRtLlm => vec!["start it with TLLM_PROFILE_START_STOP=100-110 under nsys profile -c cudaProfilerApi".to_owned()],
        Engine::LlamaCpp => Vec::new(),
    };
    Advice {
        instrument: "nsys_capture_range",
        is_addition: false,
        chosen: false,
        available: if is_known { Availability::AfterRestart } else { Availability::No },
        reasons_for: vec!["records exactly the steps that are asked for".to_owned()],
        reasons_against: vec![
            "the server must be started by nsys".to_owned(),
            "SGLang opens the range on one process only, and dies when it is asked for torch activities at the same time".to_owned(),
        ],
        cost: NSYS_NODE,
        blind_to: "operators, shapes and Python stacks".to_owned(),
        how,
    }
}

fn nsys_session(_: &ServerInfo) -> Advice {
    Advice {
        instrument: "nsys_session",
        is_addition: false,
        chosen: false,
        available: Availability::AfterRestart,
        reasons_for: vec!["starts and stops as often as wanted while the server runs".to_owned()],
        reasons_against: vec!["the server must be started by nsys launch".to_owned()],
        cost: NSYS_NODE,
        blind_to: "operators, shapes and Python stacks".to_owned(),
        how: vec![
            "nsys launch --session-new=s -t cuda,nvtx --cuda-graph-trace=node --trace-fork-before-exec=true SERVER_COMMAND".to_owned(),
            "nsys start --session=s -o run && sleep 2 && nsys stop --session=s".to_owned(),
        ],
    }
}

/// Marks of steps and layers for nsys.
fn nvtx(info: &ServerInfo) -> Advice {
    let how = match info.engine {
        Engine::Sglang => vec![
            "start SGLang with --enable-layerwise-nvtx-marker and SGLANG_ENABLE_NVTX_SCHEDULER=1, under nsys -t cuda,nvtx".to_owned(),
        ],
        Engine::Vllm => vec![
            "start vLLM with VLLM_NVTX_SCOPES_FOR_PROFILING=1, under nsys -t cuda,nvtx".to_owned(),
        ],
        Engine::TensorRtLlm => vec![
            "start it with TLLM_LLMAPI_ENABLE_NVTX=1, under nsys -t cuda,nvtx".to_owned(),
        ],
        Engine::LlamaCpp => Vec::new(),
    };
    let mut reasons_against = vec![
        "markers fire when Python runs: under CUDA graphs that is at the capture, not at a replay"
            .to_owned(),
    ];
    if how.is_empty() {
        reasons_against.insert(0, "llama.cpp has none".to_owned());
    }
    Advice {
        instrument: "nvtx_markers",
        is_addition: true,
        chosen: false,
        available: if how.is_empty() { Availability::No } else { Availability::AfterRestart },
        reasons_for: vec!["steps and layers get their names in an nsys capture".to_owned()],
        reasons_against,
        cost: "a fraction of a microsecond a marker on the host, 2 to 3 us while nsys records",
        blind_to: "everything else: they are marks, and need nsys to be recorded".to_owned(),
        how,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice(engine: Engine, change: impl FnOnce(&mut ServerInfo)) -> Vec<Advice> {
        let mut info = ServerInfo::new(engine);
        change(&mut info);
        let place = Place { is_this_machine: true, same_files: Some(true), ..Place::default() };
        choose(instruments(&info, &place, "http://h:1", false, false))
    }

    #[test]
    fn the_choice_by_engine() {
        let chosen =
            |advice: &[Advice]| (advice[0].instrument, advice[0].available, advice[0].chosen);
        let sglang = advice(Engine::Sglang, |info| info.cuda_graphs = Some(true));
        assert_eq!(chosen(&sglang), ("http_endpoint", Availability::Now, true));
        assert!(sglang[0].blind_to.contains("no operators"));
        assert_eq!(sglang.iter().filter(|advice| advice.chosen).count(), 1);
        let vllm = advice(Engine::Vllm, |info| info.profile_endpoint = Some(false));
        assert_eq!(chosen(&vllm), ("http_endpoint", Availability::AfterRestart, true));
        assert!(vllm[0].how[0].contains("--profiler-config.profiler=torch"));
        let llama = advice(Engine::LlamaCpp, |_| {});
        assert_eq!(chosen(&llama), ("nsys_launch", Availability::AfterRestart, true));
        for advice in sglang.iter().chain(&vllm).chain(&llama) {
            assert!(!advice.cost.is_empty() && !advice.blind_to.is_empty());
            assert!(!(advice.reasons_for.is_empty() && advice.reasons_against.is_empty()));
        }
    }

    #[test]
    fn what_speaks_against() {
        let sglang = advice(Engine::Sglang, |info| {
            info.needs_admin_key = Some(true);
            info.requests = Some(2);
            info.parallel.tp = Some(8);
        });
        let text = sglang[0].reasons_against.join("; ");
        assert!(text.contains("--admin-key") && text.contains("--allow-traffic"), "{text}");
        let launch = sglang.iter().find(|advice| advice.instrument == "nsys_launch").unwrap();
        assert!(
            launch.reasons_against.iter().any(|reason| reason.contains("--trace-fork-before-exec"))
        );
    }
}
