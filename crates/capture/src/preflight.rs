//! Whether a capture can go well: server, traffic, keys, disk. Nothing is started here.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use steptally_trace_model::manifest::{CaptureManifest, LoadShape, ProfilerRequest};

use crate::backend::{
    Activity, Backend, Recording, SglangEndpoint, TorchHook, VLLM_PROFILER_HINT, VllmEndpoint,
};
use crate::capture::{CaptureOptions, Instrument};
use crate::engine::{Engine, ServerInfo, probe};
use crate::error::Failure;
use crate::http::Client;
use crate::load::{GenerateApi, LoadSource, TokenLimits};
use crate::lock::{self, Lock};
use crate::place::{self, Place};

/// What a capture begins with.
pub(crate) struct Ready {
    pub(crate) info: ServerInfo,
    /// The profiler, or why there is none: then speed is all that can be measured.
    pub(crate) backend: Result<Box<dyn Backend>, Failure>,
    pub(crate) source: LoadSource,
    /// The folder that the server writes into.
    pub(crate) incoming: PathBuf,
    /// Whether that folder is of this capture only.
    pub(crate) owns_incoming: bool,
    /// While it is held, nobody else on this machine captures from the server.
    pub(crate) lock: Option<Lock>,
    /// Worth knowing.
    pub(crate) remarks: Vec<String>,
}

/// Makes the folder of a capture, which is then this capture's alone.
pub(crate) fn make_folder(folder: &Path) -> Result<Option<Lock>, Failure> {
    fs::create_dir_all(folder).map_err(|error| Failure::io("make the folder", folder, &error))?;
    let lock = lock::folder(folder)?;
    let mut entries =
        fs::read_dir(folder).map_err(|error| Failure::io("read the folder", folder, &error))?;
    if entries.next().is_some() {
        return Err(Failure::new(
            "output_folder",
            format!("the folder {} is not empty", folder.display()),
        )
        .hint("a capture gets a folder of its own: give another --out"));
    }
    Ok(lock)
}

/// Asks everything that can be asked before anything is started.
pub(crate) async fn check(
    options: &CaptureOptions,
    manifest: &mut CaptureManifest,
) -> Result<Ready, Failure> {
    let client = &options.client;
    check_disk(options)?;
    let (host, port) = (client.host().to_owned(), client.port());
    let lock = if client.is_remote() == Some(true) {
        let host = host.clone();
        tokio::task::spawn_blocking(move || lock::server(&host, port)).await.unwrap_or(Ok(None))?
    } else {
        None
    };
    let info = probe(client).await?;
    manifest.replay = info.replay;
    manifest.server = Some(info.to_manifest(client));
    let place =
        tokio::task::spawn_blocking(move || place::locate(&host, port)).await.unwrap_or_default();
    if place.is_this_machine && !info.replay {
        manifest.gpus = place::gpus().await;
    }
    check_traffic(&info, options.allow_traffic)?;
    check_shape(options, &info)?;
    let mut remarks = Vec::new();
    let api = api(&info)?;
    let source = LoadSource {
        client: client.clone(),
        api,
        limits: TokenLimits { first: options.limits.first_tokens, next: options.limits.export },
        seed: SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |now| u64::from(now.subsec_nanos()) << 8),
    };
    if info.requests.is_none() {
        remarks.push("the server does not say whether it has other requests".to_owned());
    }
    if let Some(failure) = no_profiler(&info) {
        let incoming = options.folder.join("incoming");
        let backend = Err(failure);
        return Ok(Ready { info, backend, source, incoming, owns_incoming: true, lock, remarks });
    }
    let (incoming, server_folder, owns_incoming) = folders(options, &info)?;
    if owns_incoming {
        // What nsys records the server does not write.
        if !options.activities.contains(&Activity::CudaProfiler) {
            check_place(&place, options, &mut remarks)?;
        }
        prepare_incoming(&incoming, &place)?;
    }
    let recording = Recording {
        report: report_name(options)?,
        steps: options.steps,
        activities: options.activities.clone(),
        record_shapes: options.record_shapes,
        with_stack: options.with_stack,
        server_folder,
    };
    let backend = backend(options, &info, recording)?;
    manifest.profiler = Some(ProfilerRequest {
        backend: backend.code().to_owned(),
        steps: options.steps,
        body: backend.request(),
    });
    Ok(Ready { info, backend: Ok(backend), source, incoming, owns_incoming, lock, remarks })
}

/// Why an engine has no profiler that could be reached: no version of it, or none that is known.
fn no_profiler(info: &ServerInfo) -> Option<Failure> {
    const KEPT: &str = "its speed was measured, nothing was recorded";
    match info.engine {
        Engine::Sglang | Engine::Vllm => None,
        Engine::TensorRtLlm => {
            let also = match info.profile_endpoint {
                Some(true) => "; it has /start_profile, whose traces steptally does not know yet",
                _ => "",
            };
            Some(Failure::new("no_profiler", format!("TensorRT-LLM cannot be profiled over HTTP: {KEPT}{also}"))
                .hint("restart it with TLLM_PROFILE_START_STOP=100-110 in its environment: with TLLM_TORCH_PROFILE_TRACE=FILE too for a torch trace, or under nsys profile --capture-range=cudaProfilerApi; iterations are counted from its start; steptally doctor --url says more"))
        }
        Engine::LlamaCpp => Some(
            Failure::new("no_profiler", format!("llama.cpp has no profiler of its own: {KEPT}"))
                .hint("restart it under nsys launch, and record with nsys start and nsys stop while it has requests; steptally doctor --url says how"),
        ),
    }
}

fn check_disk(options: &CaptureOptions) -> Result<(), Failure> {
    match place::free_bytes(&options.folder) {
        Some(free) if free < options.min_free_bytes => Err(Failure::new(
            "disk_full",
            format!(
                "only {free} bytes are free on the disk of {}, {} are wanted",
                options.folder.display(),
                options.min_free_bytes
            ),
        )
        .hint("give an --out on a disk with more room, or accept less with --min-free")),
        _ => Ok(()),
    }
}

fn check_traffic(info: &ServerInfo, allow: bool) -> Result<(), Failure> {
    match info.requests {
        Some(requests) if requests > 0 && !allow => Err(Failure::new(
            "traffic",
            format!("the server has {requests} requests of others: a profiler would slow them, and their steps would be in the trace"),
        )
        .hint("capture an idle server, or give --allow-traffic")),
        _ => Ok(()),
    }
}

fn check_shape(options: &CaptureOptions, info: &ServerInfo) -> Result<(), Failure> {
    let shape = options.shape;
    let length = u64::from(shape.input_len) + u64::from(shape.output_len);
    let refuse = |what: String, hint: &str| Err(Failure::new("load_shape", what).hint(hint));
    if shape.batch_size == 0
        || shape.input_len == 0
        || shape.output_len < 2
        || options.steps == 0
        || options.rounds == 0
    {
        return refuse(
            "a load has at least 1 request of 1 input and 2 output tokens, and a capture at least 1 step".to_owned(),
            "see --batch-size, --input-len, --output-len, --steps and --rounds",
        );
    }
    if let Some(most) = info.max_running_requests.filter(|&most| u64::from(shape.batch_size) > most)
    {
        return refuse(
            format!("the server runs at most {most} requests at once, not {}", shape.batch_size),
            "give a smaller --batch-size",
        );
    }
    // A token or two are left to the server's own bookkeeping.
    if let Some(most) = info.context_length.filter(|&most| length + 2 > most) {
        return refuse(
            format!("sequences of {length} tokens do not fit into the server's context of {most}"),
            "give a smaller --input-len or --output-len",
        );
    }
    if let Some(most) =
        info.kv_token_capacity.filter(|&most| length * u64::from(shape.batch_size) > most)
    {
        return refuse(
            format!(
                "{} sequences of {length} tokens do not fit into a KV cache of {most}",
                shape.batch_size
            ),
            "give a smaller --batch-size, --input-len or --output-len",
        );
    }
    Ok(())
}

/// The shape of the load that a capture runs under: long enough to outlast the window, as far as
/// context and KV cache allow.
pub(crate) fn capture_shape(
    options: &CaptureOptions,
    info: Option<&ServerInfo>,
    tpot_ns: Option<f64>,
) -> LoadShape {
    /// Time in which a profiler starts and a first step is recorded, with room to spare.
    const START_NS: f64 = 1.5e9;
    let shape = options.shape;
    let tpot = tpot_ns.filter(|&tpot| tpot > 0.0).unwrap_or(10e6);
    let skip = match &options.instrument {
        Instrument::Hook { skip, .. } => *skip,
        Instrument::Endpoint => 0,
    };
    let before = (START_NS / tpot).min(4096.0) as u64;
    let wanted = before + u64::from(skip) + 4 * u64::from(options.steps) + 64;
    let input = u64::from(shape.input_len);
    let mut most = u64::from(u32::MAX);
    if let Some(info) = info {
        let context = info.context_length.unwrap_or(u64::MAX);
        let share = info.kv_token_capacity.unwrap_or(u64::MAX) / u64::from(shape.batch_size.max(1));
        most = most.min(context.min(share).saturating_sub(input + 2));
    }
    let output_len =
        wanted.max(u64::from(shape.output_len)).min(most.max(u64::from(shape.output_len)));
    LoadShape { output_len: u32::try_from(output_len).unwrap_or(u32::MAX), ..shape }
}

fn api(info: &ServerInfo) -> Result<GenerateApi, Failure> {
    match info.engine {
        Engine::Sglang => Ok(GenerateApi::Generate),
        Engine::Vllm | Engine::TensorRtLlm => Ok(GenerateApi::Completions {
            model: info.served_name.clone().or_else(|| info.model.clone()).ok_or_else(|| {
                Failure::new("unexpected_reply", "/v1/models: the server names no model")
            })?,
        }),
        Engine::LlamaCpp => Ok(GenerateApi::LlamaCpp),
    }
}

/// The name of nsys' report, as nsys was given it.
fn report_name(options: &CaptureOptions) -> Result<Option<String>, Failure> {
    let is_for_nsys = options.activities.contains(&Activity::CudaProfiler);
    if is_for_nsys && matches!(options.instrument, Instrument::Hook { .. }) {
        return Err(Failure::new("activities", "the torch hook does not record for nsys")
            .hint("leave --hook out: the server's own endpoint opens the range"));
    }
    let Some(report) = options.nsys_report.as_ref().filter(|_| is_for_nsys) else {
        return Ok(None);
    };
    let name = report.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Some(name.strip_suffix(".nsys-rep").unwrap_or(&name).to_owned()))
}

/// Where the server writes: as we see it, as it sees it, and whether it is ours alone.
fn folders(
    options: &CaptureOptions,
    info: &ServerInfo,
) -> Result<(PathBuf, PathBuf, bool), Failure> {
    if options.activities.contains(&Activity::CudaProfiler)
        && let Some(report) = &options.nsys_report
    {
        let folder = report.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = fs::canonicalize(folder.unwrap_or(Path::new(".")))
            .map_err(|error| Failure::io("find the folder of", report, &error))?;
        return Ok((folder.clone(), folder, false));
    }
    let writes_where_told = options.activities.contains(&Activity::CudaProfiler);
    if info.engine == Engine::Vllm
        && options.instrument == Instrument::Endpoint
        && !writes_where_told
    {
        let folder = options.server_folder.clone().ok_or_else(|| {
            Failure::new(
                "output_folder",
                "vLLM writes into the folder that it was started with, which it does not say",
            )
            .hint(VLLM_PROFILER_HINT)
        })?;
        fs::read_dir(&folder).map_err(|error| Failure::io("read the folder", &folder, &error))?;
        return Ok((folder.clone(), folder, false));
    }
    let absolute = fs::canonicalize(&options.folder)
        .map_err(|error| Failure::io("find the folder", &options.folder, &error))?;
    let seen_by_server = options.server_folder.clone().unwrap_or_else(|| absolute.clone());
    Ok((absolute.join("incoming"), seen_by_server.join("incoming"), true))
}

/// A server that cannot write where it is told dies when its profiler stops: be sure before.
fn check_place(
    place: &Place,
    options: &CaptureOptions,
    remarks: &mut Vec<String>,
) -> Result<(), Failure> {
    if options.server_folder.is_some() || !matches!(options.client.is_remote(), Some(true)) {
        return Ok(());
    }
    let where_to = "mount a folder on both sides and give --server-dir (that folder as the server sees it) and --out (as it is here)";
    if !place.is_this_machine {
        return Err(Failure::new(
            "output_unreadable",
            format!(
                "the server runs on {}, and writes its traces on its own disk",
                options.client.host()
            ),
        )
        .hint(format!("run steptally on that machine, or {where_to}")));
    }
    if place.same_files == Some(false) {
        return Err(Failure::new(
            "output_unreadable",
            "the server runs in a container with a file system of its own",
        )
        .hint(where_to));
    }
    if place.same_files.is_none() {
        remarks.push(
            "whether the server sees the output folder under the same path is not known".to_owned(),
        );
    }
    Ok(())
}

/// Makes the folder that the server writes into, so that it need not, and lets it write there.
fn prepare_incoming(incoming: &Path, place: &Place) -> Result<(), Failure> {
    let failed = |what: &'static str| move |error| Failure::io(what, incoming, &error);
    fs::create_dir_all(incoming).map_err(failed("make the folder"))?;
    let is_other_user = place.user.is_some_and(|user| user != 0 && Some(user) != place::own_user());
    if is_other_user {
        fs::set_permissions(incoming, Permissions::from_mode(0o777))
            .map_err(failed("open for the server"))?;
    }
    Ok(())
}

fn backend(
    options: &CaptureOptions,
    info: &ServerInfo,
    recording: Recording,
) -> Result<Box<dyn Backend>, Failure> {
    let client: Client = options.client.clone();
    if let Instrument::Hook { control, skip, ranks } = &options.instrument {
        return Ok(Box::new(TorchHook::new(control.clone(), recording, *skip, ranks.clone())));
    }
    match info.engine {
        Engine::Sglang => {
            if info.needs_admin_key == Some(true) && !client.has_admin_key() {
                return Err(Failure::new(
                    "unauthorized",
                    "the server was started with an admin key, and only that one may profile",
                )
                .hint("give --admin-key, or STEPTALLY_ADMIN_KEY"));
            }
            Ok(Box::new(SglangEndpoint::new(client, info, recording)?))
        }
        Engine::Vllm if info.profile_endpoint == Some(false) => Err(Failure::new(
            "no_profiler",
            "this vLLM was started without a profiler: it has no /start_profile",
        )
        .hint(VLLM_PROFILER_HINT)),
        Engine::Vllm => Ok(Box::new(VllmEndpoint::new(client, recording, options.ranks))),
        Engine::TensorRtLlm | Engine::LlamaCpp => {
            Err(no_profiler(info).unwrap_or_else(|| Failure::new("no_profiler", "no profiler")))
        }
    }
}
