//! `steptally doctor --host`: what this machine offers for capturing, as text.

use steptally_capture::host::{GpuCounters, HostDiagnosis, HostServer, Machine, Started};
use steptally_report::bytes;

use super::doctor::instrument;
use crate::failure::list;
use crate::output;

/// Everything that was found.
pub(super) fn text(found: &HostDiagnosis) -> String {
    let mut out = "MACHINE\n".to_owned();
    let free = found.free_bytes.map_or_else(|| "not known".to_owned(), bytes);
    for (name, value) in machine_rows(&found.machine).into_iter().chain([("free on disk", free)]) {
        out.push_str(&row(name, &value));
    }
    if found.servers.is_empty() {
        out.push_str(
            "\nno server of SGLang, vLLM, TensorRT-LLM or llama.cpp is seen on this machine\n",
        );
    }
    for advice in &found.servers {
        out.push('\n');
        out.push_str(&server(&advice.server));
        for advice in &advice.instruments {
            out.push('\n');
            out.push_str(&instrument(advice));
        }
    }
    out
}

pub(super) fn row(name: &str, value: &str) -> String {
    format!("  {name:<18}{}\n", output::style(false, 0).wrap(value, 20))
}

fn machine_rows(machine: &Machine) -> Vec<(&'static str, String)> {
    let gpus = match (machine.gpus.as_slice(), machine.clocks.as_slice()) {
        ([], []) => "none".to_owned(),
        ([], clocks) => list(clocks.iter().map(|gpu| &gpu.name)),
        (gpus, _) => list(gpus.iter().map(|gpu| format!("{} at {}", gpu.name, gpu.bus))),
    };
    let ptrace = match machine.ptrace_scope {
        None => "no limit".to_owned(),
        Some(0) => "0: any process of yours can be looked into".to_owned(),
        Some(n) => format!("{n}: py-spy and gdb need root; captures do not"),
    };
    let sampling = match machine.perf_event_paranoid {
        None => "not known".to_owned(),
        Some(n @ ..=2) => format!("{n}: nsys may sample the CPU of a process"),
        Some(n) => format!("{n}: no CPU samples by nsys (-s none), traces of CUDA and NVTX work"),
    };
    let counters = match machine.gpu_counters {
        GpuCounters::Everyone => "every user may read them",
        GpuCounters::AsAdministrator => "administrators may read them, and you are one",
        GpuCounters::Refused => {
            "only administrators may read them (CAP_SYS_ADMIN): no --gpu-metrics-devices, no Nsight Compute; traces work"
        }
        GpuCounters::Unknown => "not known",
    };
    vec![
        ("GPUs", gpus),
        ("driver", machine.driver.clone().unwrap_or_else(|| "not loaded".to_owned())),
        ("nsys", nsys(machine)),
        ("ptrace_scope", ptrace),
        ("perf_event", sampling),
        ("GPU counters", counters.to_owned()),
    ]
}

/// Which nsys there is.
pub(super) fn nsys(machine: &Machine) -> String {
    match &machine.nsys {
        None => "not found: no nsys captures".to_owned(),
        Some(nsys) => {
            let version = nsys.version.as_deref().unwrap_or("of unknown version");
            let age = match nsys.missing_options.as_slice() {
                [] => String::new(),
                missing => format!("; too old: it does not know {}", list(missing)),
            };
            format!("{version} ({}){age}", nsys.path.display())
        }
    }
}

fn server(server: &HostServer) -> String {
    let mut out = format!("SERVER  {}, process {}\n", server.kind, server.pid);
    let known = |value: &Option<String>| value.clone().unwrap_or_else(|| "not known".to_owned());
    let workers = server.workers.iter().map(|worker| {
        let how = match worker.started {
            Started::Spawn => "spawned",
            Started::Fork => "forked",
            Started::Unknown => "unknown",
        };
        format!("{} {} ({how})", worker.name, worker.pid)
    });
    let versions = format!(
        "{}, Python {}, PyTorch {}",
        known(&server.version),
        known(&server.python),
        known(&server.torch)
    );
    let container = match server.in_container {
        Some(true) => "in a container: it writes traces to its own file system (--server-dir)",
        Some(false) => "on this machine's file system",
        None => "not known: another user's process",
    };
    let rows = [
        ("command", server.command.join(" ")),
        ("versions", versions),
        ("listens on", list(&server.ports)),
        ("processes below", list(workers)),
        ("files", container.to_owned()),
        ("under nsys", if server.under_nsys { "yes" } else { "no" }.to_owned()),
        (
            "torch hook",
            server.hook.as_ref().map_or("no".to_owned(), |folder| folder.display().to_string()),
        ),
    ];
    for (name, value) in rows {
        out.push_str(&row(name, &value));
    }
    out
}
