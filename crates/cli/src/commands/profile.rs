//! `steptally profile`: from a URL to an explanation.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use steptally_analyze::results::Baseline;
use steptally_analyze::roofline::ModelConfig;
use steptally_capture::backend::Activity;
use steptally_capture::http::{Client, Keys};
use steptally_capture::session::{Ending, Limits};
use steptally_capture::{CaptureOptions, Captured, Instrument, Secret, Verifier, capture};
use steptally_report::{CaptureReport, Report, capture_text, terminal, to_json};
use steptally_trace_model::manifest::LoadShape;
use tokio::sync::watch;

use crate::args::Format;
use crate::bound::{self, Against};
use crate::capture_args::{CaptureArgs, KeyArgs, ProfileArgs, RecordedActivity};
use crate::failure::{Code, Failure};
use crate::roofline_args::BoundArgs;
use crate::{output, verify};

pub(crate) fn run(args: ProfileArgs) -> Result<Code, Failure> {
    let is_for_nsys = args.capture.activities.contains(&RecordedActivity::CudaProfiler);
    if is_for_nsys && args.capture.activities.len() > 1 {
        return Err(Failure::usage("cuda-profiler goes with no other activity").hint(
            "one process cannot be recorded by nsys and by torch: record one after the other",
        ));
    }
    if args.nsys_report.is_some() && !is_for_nsys {
        return Err(Failure::usage("--nsys-report goes with --activities cuda-profiler"));
    }
    let client = client(&args.server.url, &args.server.keys)?;
    let folder =
        args.capture.out.clone().unwrap_or_else(|| default_folder(Path::new("."), "steptally"));
    let timeout = Duration::from_secs(args.timeout.max(1));
    let instrument = match args.hook {
        Some(control) => Instrument::Hook { control, skip: args.skip, ranks: args.hook_ranks },
        None => Instrument::Endpoint,
    };
    let options = CaptureOptions {
        server_folder: args.server_dir,
        instrument,
        ranks: args.ranks,
        nsys_report: args.nsys_report,
        allow_traffic: args.allow_traffic,
        min_free_bytes: args.min_free.saturating_mul(1_000_000),
        limits: Limits {
            first_tokens: timeout,
            start: timeout,
            window: timeout,
            stall: timeout,
            ..Limits::default()
        },
        ..options(client, folder, &args.capture)
    };
    runtime()?.block_on(explain(options, &args.capture))
}

/// What the options of a capture mean, for a server without peculiarities.
pub(crate) fn options(client: Client, folder: PathBuf, args: &CaptureArgs) -> CaptureOptions {
    let activities = args.activities.iter().map(|activity| match activity {
        RecordedActivity::Cpu => Activity::Cpu,
        RecordedActivity::Gpu => Activity::Gpu,
        RecordedActivity::CudaProfiler => Activity::CudaProfiler,
    });
    CaptureOptions {
        client,
        folder,
        server_folder: None,
        instrument: Instrument::Endpoint,
        shape: LoadShape {
            batch_size: args.batch_size,
            input_len: args.input_len,
            output_len: args.output_len,
        },
        rounds: args.rounds,
        steps: args.steps,
        activities: activities.collect(),
        record_shapes: !args.no_shapes,
        with_stack: args.with_stack,
        ranks: None,
        allow_traffic: false,
        nsys_report: None,
        min_free_bytes: 0,
        limits: Limits::default(),
        tool: format!("steptally {}", env!("CARGO_PKG_VERSION")),
        command: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
    }
}

/// Captures, and prints what came of it.
pub(crate) async fn explain(options: CaptureOptions, args: &CaptureArgs) -> Result<Code, Failure> {
    // What cannot be read is said before the capture.
    let model = args.model.as_deref().map(|path| bound::model_config(path, None)).transpose()?;
    let folder = options.folder.clone();
    let (interrupt, is_interrupted) = watch::channel(false);
    tokio::spawn(async move {
        output::terminated().await;
        output::progress("interrupted: stopping the profiler and cleaning up");
        interrupt.send_replace(true);
    });
    let report: Arc<Mutex<Option<Report>>> = Arc::default();
    let keep = Arc::clone(&report);
    let verifier: Verifier = Arc::new(move |input| {
        let (verification, failures, found) = verify::check(input);
        *keep.lock().unwrap_or_else(PoisonError::into_inner) = found;
        (verification, failures)
    });
    let progress = |phase: steptally_capture::session::Phase, text: &str| {
        output::progress(&format!("{:<10} {text}", phase.name()));
    };
    let captured =
        capture(options, verifier, Arc::new(progress), is_interrupted).await.map_err(failed)?;
    let report = report.lock().unwrap_or_else(PoisonError::into_inner).take();
    let report = match model {
        Some((model, _)) => report.map(|report| held_against(report, &model, &captured)),
        None => report,
    };
    print(&captured, report, args)?;
    output::progress(&format!("kept in {}", folder.display()));
    if args.activities.contains(&RecordedActivity::CudaProfiler) {
        let report = captured.manifest.files.iter().find(|file| file.path.ends_with(".nsys-rep"));
        let report = report.map_or_else(
            || "REPORT.nsys-rep".to_owned(),
            |file| folder.join(&file.path).display().to_string(),
        );
        let export = report.trim_end_matches(".nsys-rep");
        output::progress(&format!(
            "next: nsys export --type sqlite -o {export}.sqlite {report}; steptally analyze {export}.sqlite"
        ));
    }
    match captured.ending {
        Ending::Complete => Ok(Code::Ok),
        Ending::Interrupted => Err(Failure::capture("interrupted; the profiler is off")),
        Ending::Failed(failure) => Err(failed(failure)),
    }
}

/// The report with its step held against the bound. A step that has none does not cost the report.
fn held_against(report: Report, model: &ModelConfig, captured: &Captured) -> Report {
    let baseline = Baseline::from_manifest(&captured.manifest);
    let against = Against {
        model,
        gpu: None,
        bound: &BoundArgs::default(),
        manifest: Some(&captured.manifest),
        baseline: baseline.as_ref(),
    };
    match bound::gap(&report.analysis, &against) {
        Ok(gap) => report.with_bound_gap(Some(gap)),
        Err(failure) => {
            failure.report();
            report
        }
    }
}

fn print(captured: &Captured, report: Option<Report>, args: &CaptureArgs) -> Result<(), Failure> {
    let capture = captured.manifest.clone();
    // By now TPOT was measured once more.
    let report = report.map(|report| report.with_baseline(Baseline::from_manifest(&capture)));
    let text = match args.format {
        Format::Json => to_json(&CaptureReport { capture, report }),
        Format::Text => {
            let style = output::style(false, args.top);
            let mut text = capture_text(&capture, &style);
            if let Some(report) = report {
                text.push('\n');
                text.push_str(&terminal(&report, &style));
            }
            text
        }
    };
    output::write(&text, None)
}

/// A failed capture as the user sees it.
pub(crate) fn failed(failure: steptally_capture::Failure) -> Failure {
    let shown = Failure::capture(failure.message);
    match failure.hint {
        Some(hint) => shown.hint(hint),
        None => shown,
    }
}

/// The client for a URL, with keys of options or environment.
pub(crate) fn client(url: &str, keys: &KeyArgs) -> Result<Client, Failure> {
    let key = |given: &Option<String>, name: &str| {
        let given = given.clone().or_else(|| std::env::var(name).ok());
        given.filter(|key| !key.is_empty()).map(Secret::new)
    };
    let keys = Keys {
        api: key(&keys.api_key, "STEPTALLY_API_KEY"),
        admin: key(&keys.admin_key, "STEPTALLY_ADMIN_KEY"),
    };
    Client::new(url, keys).map_err(|error| Failure::usage(error.to_string()).hint(error.hint()))
}

/// What runs captures: one thread is enough.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::capture(format!("cannot start the runtime: {error}")))
}

/// `steptally-1795969652-4711` in a folder: no other process has this name in the same second.
pub(crate) fn default_folder(parent: &Path, name: &str) -> PathBuf {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    parent.join(format!("{name}-{}-{}", now.as_secs(), std::process::id()))
}
