//! Whether captured traces are what was wanted.

use steptally_analyze::results::Analysis;
use steptally_analyze::{Config, analyze};
use steptally_capture::backend::Activity;
use steptally_capture::{Failure, MANIFEST_NAME, VerifyInput};
use steptally_import::{Import, ImportOptions, import_path};
use steptally_report::Report;
use steptally_trace_model::manifest::Verification;

use crate::{input, output};

/// Reads and analyses the traces in a capture's folder. What was found, what makes it useless, and
/// the report if there is one.
pub(crate) fn check(wanted: &VerifyInput) -> (Verification, Vec<Failure>, Option<Report>) {
    let import = match import_path(&wanted.folder, &ImportOptions::default()) {
        Ok(import) => import,
        Err(error) => {
            let failure = Failure::new("unreadable_trace", error.to_string());
            let failure = match error.hint() {
                Some(hint) => failure.hint(hint),
                None => failure,
            };
            return (Verification::default(), vec![failure], None);
        }
    };
    let mut config = Config::default();
    input::configure(&mut config, &wanted.manifest);
    let analysis = analyze(&import.traces, &config);
    let verification = Verification {
        passed: false,
        steps: analysis.steps.kinds.clone(),
        kernels: analysis.devices.iter().map(|device| device.kernel_count).sum(),
        period_ns: analysis.steps.period_ns.map(|period| period.median),
        dilation_ratio: analysis.dilation.map(|dilation| dilation.ratio),
    };
    let failures = judge(wanted, &import, &analysis, &verification);
    let mut summary = input::summary(&import);
    // It is not one of the traces that somebody may have expected to be read.
    summary.files.retain(|file| !file.path.ends_with(MANIFEST_NAME));
    let report = Report::new(output::tool(), summary, analysis).with_baseline(config.baseline);
    (verification, failures, Some(report))
}

fn judge(
    wanted: &VerifyInput,
    import: &Import,
    analysis: &Analysis,
    found: &Verification,
) -> Vec<Failure> {
    let mut failures = Vec::new();
    let ranks = import.traces.len();
    if let Some(expected) = wanted.ranks.filter(|&expected| (ranks as u64) < u64::from(expected)) {
        failures.push(Failure::new(
            "missing_rank",
            format!("traces of {ranks} of {expected} ranks can be read"),
        ));
    }
    for file in import.files.iter().filter(|file| file.partial) {
        failures.push(Failure::new(
            "incomplete_trace",
            format!("part of {} cannot be read", file.path.display()),
        ));
    }
    if let Some(refused) = &analysis.quality.refused {
        failures
            .push(Failure::new("no_verdict", refused.reason.clone()).hint(refused.hint.clone()));
        return failures;
    }
    if found.kernels == 0 {
        failures.push(
            Failure::new("no_kernels", "the traces hold no kernel")
                .hint("no request ran during the window, or another profiler had the GPU"),
        );
        return failures;
    }
    // Without the host's activities nothing marks the steps.
    if !wanted.activities.contains(&Activity::Cpu) || found.steps.is_empty() {
        return failures;
    }
    match &analysis.steps.selected {
        Some(selected) if selected.kind != "decode" && !found.steps.contains_key("decode") => {
            let kinds: Vec<String> =
                found.steps.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
            let is_marked = analysis.steps.detected_by.starts_with("marks.sglang")
                || analysis.steps.detected_by.starts_with("marks.vllm");
            if is_marked {
                failures.push(
                    Failure::new(
                        "wrong_steps",
                        format!("the window holds no decode step, but {}", kinds.join(", ")),
                    )
                    .hint("give a larger --output-len, so that decoding outlasts the window"),
                );
            }
        }
        Some(selected) => {
            if let Some(batch) =
                selected.batch_size.filter(|&batch| batch != u64::from(wanted.batch_size))
            {
                failures.push(
                    Failure::new(
                        "wrong_batch_size",
                        format!("the steps have batch size {batch}, not {}", wanted.batch_size),
                    )
                    .hint("the server has other requests, or runs fewer at once than were sent"),
                );
            }
        }
        None => {}
    }
    failures
}
