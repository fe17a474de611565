//! `steptally doctor`: what can be captured at a server or on this machine, and how?

use std::path::Path;

use steptally_capture::backend::install_hook;
use steptally_capture::host::{HostSource, diagnose_host};
use steptally_capture::{Advice, Availability, Diagnosis, diagnose};
use steptally_report::{bytes, capture_text, to_json};
use steptally_trace_model::manifest::CaptureManifest;

use super::{host, profile};
use crate::args::Format;
use crate::capture_args::DoctorArgs;
use crate::failure::{Code, Failure};
use crate::output;

pub(crate) fn run(args: &DoctorArgs) -> Result<Code, Failure> {
    if let Some(folder) = &args.write_hook {
        install_hook(folder).map_err(profile::failed)?;
        // The server may be started from another folder.
        let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.clone());
        output::write(&hook_text(&folder), None)?;
        return Ok(Code::Ok);
    }
    if args.host {
        let source = HostSource::this_machine();
        let found = profile::runtime()?.block_on(diagnose_host(&source, &args.out));
        let text = match args.format {
            Format::Json => to_json(&found),
            Format::Text => host::text(&found),
        };
        output::write(&text, None)?;
        return Ok(Code::Ok);
    }
    let client = profile::client(args.url.as_deref().unwrap_or_default(), &args.keys)?;
    let diagnosis = profile::runtime()?
        .block_on(diagnose(&client, &args.out, args.hook.as_deref()))
        .map_err(profile::failed)?;
    let text = match args.format {
        Format::Json => to_json(&diagnosis),
        Format::Text => text(&diagnosis),
    };
    output::write(&text, None)?;
    Ok(Code::Ok)
}

fn hook_text(folder: &Path) -> String {
    format!(
        "The torch hook is in {}. Start the server with it:\n\n  \
         mkdir -p /tmp/steptally-hook\n  \
         PYTHONPATH={} STEPTALLY_HOOK_DIR=/tmp/steptally-hook python -m sglang.launch_server ...\n\n\
         then record 30 decode steps after 20 others, on rank 0:\n\n  \
         steptally profile --url http://127.0.0.1:30000 --hook /tmp/steptally-hook --skip 20 --steps 30\n\n\
         It takes itself away after that; nothing of the server's source changes.\n",
        folder.display(),
        folder.display()
    )
}

fn text(diagnosis: &Diagnosis) -> String {
    let style = output::style(false, 0);
    let manifest = CaptureManifest {
        replay: diagnosis.replay,
        server: Some(diagnosis.server.clone()),
        ..CaptureManifest::default()
    };
    let mut out = capture_text(&manifest, &style);
    out.push('\n');
    let yes_no = |value: Option<bool>, yes: &str, no: &str| match value {
        Some(true) => yes.to_owned(),
        Some(false) => no.to_owned(),
        None => "not known".to_owned(),
    };
    let number =
        |value: Option<u64>| value.map_or_else(|| "not known".to_owned(), |n| n.to_string());
    let load = match diagnosis.requests {
        Some(0) => "idle".to_owned(),
        Some(n) => format!("{n} requests of others"),
        None => "not known".to_owned(),
    };
    let keys = match (diagnosis.needs_admin_key, diagnosis.keys_suffice) {
        (Some(true), Some(true)) => "an admin key is needed, and given".to_owned(),
        (Some(true), _) => "an admin key is needed: --admin-key".to_owned(),
        (Some(false), _) => "no admin key is needed".to_owned(),
        (None, _) => "not known".to_owned(),
    };
    let gpus: Vec<String> =
        diagnosis.gpus.iter().map(|gpu| format!("{} (driver {})", gpu.name, gpu.driver)).collect();
    let rows = [
        ("load", load),
        ("keys", keys),
        ("profiler", "whether one runs is not known before a start is tried".to_owned()),
        ("context", format!("{} tokens", number(diagnosis.context_length))),
        ("requests at once", number(diagnosis.max_running_requests)),
        ("runs here", yes_no(Some(diagnosis.on_this_machine), "yes", "no")),
        (
            "traces readable",
            yes_no(diagnosis.output_readable, "yes", "no: --server-dir and a folder that both see"),
        ),
        ("free on disk", diagnosis.free_bytes.map_or_else(|| "not known".to_owned(), bytes)),
        ("GPUs", if gpus.is_empty() { "none seen here".to_owned() } else { gpus.join(", ") }),
    ];
    for (name, value) in rows {
        out.push_str(&host::row(name, &value));
    }
    if let Some(machine) = &diagnosis.machine {
        out.push_str(&host::row("nsys", &host::nsys(machine)));
    }
    for advice in &diagnosis.instruments {
        out.push('\n');
        out.push_str(&instrument(advice));
    }
    out
}

/// What speaks for and against an instrument.
pub(super) fn instrument(advice: &Advice) -> String {
    let available = match advice.available {
        Availability::Now => "can be used now",
        Availability::AfterRestart => "after a restart of the server",
        Availability::No => "cannot be used",
    };
    let chosen = if advice.chosen { "  <- take this" } else { "" };
    let mut out = format!("{}: {available}{chosen}\n", advice.instrument.to_uppercase());
    let style = output::style(false, 0);
    let costs = format!("costs: {}", advice.cost);
    let blind_to = format!("cannot see: {}", advice.blind_to);
    let reasons = (advice.reasons_for.iter().map(|reason| format!("+ {reason}")))
        .chain(advice.reasons_against.iter().map(|reason| format!("- {reason}")));
    for line in reasons.chain([costs, blind_to]) {
        out.push_str(&format!("  {}\n", style.wrap(&line, 4)));
    }
    for line in &advice.how {
        out.push_str(&format!("  $ {line}\n"));
    }
    out
}
