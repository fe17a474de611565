//! Whether captured traces are what was wanted.

use steptally_analyze::results::Analysis;
use steptally_analyze::{Config, analyze};
use steptally_capture::{Failure, VerifyInput};
use steptally_import::{Import, ImportOptions, import_path};
use steptally_report::Report;
use steptally_trace_model::manifest::Verification;

use crate::failure::list;
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
    let summary = input::summary(&import);
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
    // Its rule tells a trace of graph capture, warm-up or an idle server.
    if let Some(found) = analysis.findings.findings.iter().find(|found| found.code == "CAP001") {
        failures.push(
            Failure::new(
                "not_steady_decode",
                format!("the window is not of steady decode: {}", found.headline),
            )
            .hint(found.advice.clone()),
        );
    }
    failures.extend(steps(wanted, analysis, ranks as u64));
    failures
}

/// Whether the steps are of the kind, number and batch size that were wanted, as far as their marks say.
fn steps(wanted: &VerifyInput, analysis: &Analysis, ranks: u64) -> Vec<Failure> {
    let table = &analysis.steps;
    let is_marked =
        ["marks.sglang", "marks.vllm"].iter().any(|by| table.detected_by.starts_with(by));
    if !is_marked {
        return Vec::new();
    }
    let others: Vec<String> = table
        .kinds
        .iter()
        .filter(|(kind, _)| *kind != "decode")
        .map(|(kind, n)| format!("{n} {kind}"))
        .collect();
    let Some(&decode) = table.kinds.get("decode") else {
        let failure = Failure::new(
            "wrong_steps",
            format!("the window holds no decode step, but {}", others.join(", ")),
        )
        .hint("give a larger --output-len, so that decoding outlasts the window");
        return vec![failure];
    };
    let mut failures = Vec::new();
    let expected = u64::from(wanted.steps) * ranks;
    // A replay records what was recorded, however many steps are asked for.
    if decode < expected && wanted.manifest.replay {
        output::progress(&format!(
            "REPLAY     the recording has {decode} decode steps; {expected} were asked for"
        ));
    } else if decode < expected {
        let of_ranks = if ranks > 1 { format!(" over {ranks} ranks") } else { String::new() };
        let beside = if others.is_empty() {
            String::new()
        } else {
            format!("; there are {} beside them", others.join(", "))
        };
        let hint = if others.is_empty() {
            "the server stopped stepping, or the profiler was stopped early: see its log"
        } else {
            "other requests came in between, or the load ran out: capture an idle server, or give a larger --output-len"
        };
        failures.push(
            Failure::new(
                "too_few_steps",
                format!("{decode} of {expected} decode steps were recorded{of_ranks}{beside}"),
            )
            .hint(hint),
        );
    }
    let mut sizes: Vec<u64> = table
        .steps
        .iter()
        .filter(|step| step.kind == "decode")
        .filter_map(|step| step.batch_size)
        .collect();
    sizes.sort_unstable();
    sizes.dedup();
    if sizes.iter().any(|&size| size != u64::from(wanted.batch_size)) {
        let sizes = match sizes.as_slice() {
            [one] => format!("size {one}"),
            several => format!("sizes {}", list(several)),
        };
        failures.push(
            Failure::new(
                "wrong_batch_size",
                format!("the steps have batch {sizes}, not {}", wanted.batch_size),
            )
            .hint("the server has other requests, or runs fewer at once than were sent"),
        );
    }
    failures
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use steptally_capture::backend::Activity;

    use super::*;

    /// Codes and messages of a check of these fixtures.
    fn check_of(
        names: &[&str],
        change: impl FnOnce(&mut VerifyInput),
    ) -> (Verification, Vec<(&'static str, String)>) {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            let path = fixtures.join(name);
            std::fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
        }
        let mut wanted = VerifyInput {
            folder: folder.path().to_owned(),
            batch_size: 1,
            steps: 5,
            ranks: Some(u32::try_from(names.len()).unwrap()),
            activities: vec![Activity::Cpu, Activity::Gpu],
            manifest: steptally_trace_model::manifest::CaptureManifest::default(),
        };
        change(&mut wanted);
        let (found, failures, _) = check(&wanted);
        (found, failures.into_iter().map(|failure| (failure.code, failure.message)).collect())
    }

    const EAGER: &str = "sglang-h200/decode-eager-TP-0.trace.json.gz";
    const RANKS: [&str; 2] = [
        "sglang-h200-tp2/graphs/decode-TP-0.trace.json.gz",
        "sglang-h200-tp2/graphs/decode-TP-1.trace.json.gz",
    ];

    #[test]
    fn what_was_wanted_passes() {
        // `num_steps` was 5 in these captures.
        for names in [&[EAGER][..], &RANKS] {
            let (found, failures) = check_of(names, |_| {});
            assert_eq!(failures, []);
            assert_eq!(found.steps["decode"], 5 * names.len() as u64);
        }
    }

    #[test]
    fn fewer_steps_than_were_wanted() {
        let (_, failures) = check_of(&[EAGER], |wanted| wanted.steps = 6);
        let message = "5 of 6 decode steps were recorded".to_owned();
        assert_eq!(failures, [("too_few_steps", message)]);
        let (_, failures) = check_of(&RANKS, |wanted| wanted.steps = 8);
        let message = "10 of 16 decode steps were recorded over 2 ranks".to_owned();
        assert_eq!(failures, [("too_few_steps", message)]);
        // A replay has no more than were recorded.
        let replay = |wanted: &mut VerifyInput| {
            (wanted.steps, wanted.manifest.replay) = (10, true);
        };
        assert_eq!(check_of(&[EAGER], replay).1, []);
        // More is as good.
        assert_eq!(check_of(&[EAGER], |wanted| wanted.steps = 3).1, []);
    }

    #[test]
    fn steps_of_another_kind() {
        let (_, failures) =
            check_of(&["sglang-h200/stage-eager-TP-0-EXTEND.trace.json.gz"], |_| {});
        let [(code, message)] = &failures[..] else { panic!("{failures:?}") };
        assert_eq!(*code, "wrong_steps");
        assert!(message.contains("no decode step, but") && message.contains("extend"), "{message}");
    }

    #[test]
    fn another_batch_size_and_too_few_are_both_said() {
        let name = "sglang-h200/decode-eager-bs4-TP-0.trace.json.gz";
        assert_eq!(check_of(&[name], |wanted| wanted.batch_size = 4).1, []);
        let (_, failures) = check_of(&[name], |wanted| wanted.steps = 9);
        assert_eq!(failures[0].1, "5 of 9 decode steps were recorded");
        assert_eq!(
            failures[1],
            ("wrong_batch_size", "the steps have batch size 4, not 1".to_owned())
        );
    }

    #[test]
    fn a_trace_of_graph_capture() {
        let mut dsl = steptally_testkit::TraceDsl::rank(0);
        dsl = dsl.api("cudaStreamBeginCapture_v10000", 0..10_000);
        for step in 0..6 {
            let at = step * 1_000_000;
            dsl = dsl
                .range("step[DECODE bs=1]", at..at + 500_000)
                .api("cudaStreamBeginCapture_v10000", at + 5_000..at + 6_000)
                .launch("cudaLaunchKernel", at + 10_000..at + 20_000, step as u64 + 1)
                .kernel("nvjet_a", at + 100_000..at + 500_000)
                .correlation(step as u64 + 1);
        }
        let folder = tempfile::tempdir().unwrap();
        let json = steptally_testkit::write_torch_json(&dsl.build());
        std::fs::write(folder.path().join("1-TP-0.trace.json"), json).unwrap();
        let (_, failures) = check_of(&[], |wanted| {
            wanted.folder = folder.path().to_owned();
            wanted.ranks = Some(1);
        });
        let [(code, message)] = &failures[..] else { panic!("{failures:?}") };
        assert_eq!(*code, "not_steady_decode");
        assert!(message.contains("graph capture"), "{message}");
    }

    #[test]
    fn a_rank_that_did_not_come() {
        let (_, failures) = check_of(&RANKS[..1], |wanted| wanted.ranks = Some(2));
        let message = "traces of 1 of 2 ranks can be read".to_owned();
        assert_eq!(failures, [("missing_rank", message)]);
    }
}
