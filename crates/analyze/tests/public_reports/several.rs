//! Reports about several ranks, devices and threads.

use steptally_analyze::Config;
use steptally_analyze::results::Analysis;
use steptally_testkit::{TraceDsl, write_nsys_sqlite};

use crate::support::{fixture, fixture_with, run};

/// A merged file of several ranks was taken for one rank: all figures per GPU came out double.
#[test]
fn a_merged_file_of_two_ranks_gives_the_figures_of_its_ranks_and_not_their_sum() {
    let (merged, apart) = (fixture("sglang-h200-tp2/merged"), fixture("sglang-h200-tp2/graphs"));
    let uses = |analysis: &Analysis| analysis.devices.clone();
    assert_eq!(uses(&merged), uses(&apart));
    assert_eq!(merged.devices.len(), 2);
    let accounts = |analysis: &Analysis| analysis.ledger.accounts.clone();
    assert_eq!(accounts(&merged), accounts(&apart));
    assert_eq!(merged.steps.steps, apart.steps.steps);
    // By itself each rank has half of the steps, with the same mean of kernels.
    let one =
        fixture_with("sglang-h200-tp2/merged", &Config { rank: Some(1), ..Config::default() });
    let calls = |analysis: &Analysis| -> f64 {
        analysis.kernels.iter().map(|kernel| kernel.calls_per_step).sum()
    };
    assert_eq!(calls(&one), calls(&merged));
}

/// Device 0 was analysed without a word, though four were present.
#[test]
fn kernels_on_four_devices_are_all_accounted_for_and_listed_by_device() {
    let mut dsl = TraceDsl::rank(0);
    for device in 0..4i64 {
        dsl = dsl.device(device as u32);
        for step in 0..3i64 {
            let id = (device * 10 + step) as u64;
            let at = step * 1_000 + device * 10;
            dsl = dsl
                .range("step[DECODE bs=1]", at..at + 9)
                .launch("cudaLaunchKernel", at + 1..at + 5, id)
                .kernel("nvjet_a", at + 100..at + 200 + 100 * device)
                .correlation(id);
        }
    }
    let analysis = run(dsl.build());
    let numbers = |devices: Vec<Option<u32>>| devices.into_iter().flatten().collect::<Vec<u32>>();
    let devices = analysis.devices.iter().map(|device| device.device).collect();
    assert_eq!(numbers(devices), [0, 1, 2, 3]);
    let of_steps = analysis.steps.ranks.iter().map(|rank| (rank.device, rank.period_ns.n));
    assert_eq!(of_steps.collect::<Vec<_>>(), [0, 1, 2, 3].map(|device| (Some(device), 2)));
    // Two whole steps on each: 100, 200, 300 and 400 of compute.
    assert_eq!((analysis.ledger.n, analysis.ledger.period_sum_ns), (8, 8 * 1_000));
    assert_eq!(analysis.kernels[0].total_ns, 2 * (100 + 200 + 300 + 400));
}

/// Ranges started and ended by different threads looked unclosed, and an end of NULL or 0 made
/// negative and enormous lengths.
#[test]
fn a_range_without_an_end_stays_open_and_makes_no_length_of_its_own() {
    let trace = TraceDsl::new()
        .nvtx("closed", 1_000..2_000)
        .launch("cudaLaunchKernel", 1_100..1_110, 1)
        .kernel("nvjet_a", 1_500..1_800)
        .correlation(1)
        .nvtx("never ended", 3_000..3_000)
        .left_open()
        .launch("cudaLaunchKernel", 3_100..3_110, 2)
        .kernel("nvjet_a", 3_500..4_000)
        .correlation(2)
        .build();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("open.sqlite");
    write_nsys_sqlite(&[trace], &path);
    let import = steptally_import::import_path(&path, &Default::default()).unwrap();
    let open: Vec<_> = import.issues.iter().filter(|i| i.issue.code == "open_range").collect();
    assert_eq!(open.iter().map(|found| found.issue.count).sum::<u64>(), 1);
    let analysis = steptally_analyze::analyze(&import.traces, &Config::default());
    let mut ranges: Vec<_> = (analysis.ranges.iter())
        .map(|range| (range.text.as_str(), range.host_ns, range.gpu_sum_ns))
        .collect();
    ranges.sort_unstable();
    // Where the open one ended is not known: it has no length that could be added up.
    assert_eq!(ranges, [("closed", 1_000, 300)]);
}

/// The same of marks of steps: the first one lasted until the end, and all others were inside it.
#[test]
fn a_mark_without_an_end_is_over_when_the_next_begins() {
    let mut dsl = TraceDsl::new();
    for step in 0..4i64 {
        let at = step * 1_000;
        let mark = format!("step {step}");
        dsl = match step % 2 {
            0 => dsl.nvtx(&mark, at..9_000).left_open(),
            _ => dsl.nvtx(&mark, at..at + 200),
        };
        dsl = dsl
            .launch("cudaLaunchKernel", at + 100..at + 110, step as u64)
            .kernel("nvjet_a", at + 500..at + 700)
            .correlation(step as u64);
    }
    let analysis = run(dsl.build());
    assert_eq!(analysis.steps.kinds, [("step".to_owned(), 4)].into());
    let periods: Vec<_> = analysis.steps.steps.iter().map(|step| step.period_ns).collect();
    assert_eq!(periods, [Some(1_000), Some(1_000), Some(1_000), None]);
}
