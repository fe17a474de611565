//! Reports about what is said to take the time.

use steptally_testkit::TraceDsl;

use crate::support::{accounts, run};

/// Kernels below a graph launch were on no critical path, though they were most of the time: a launch
/// was thought to have one kernel.
#[test]
fn all_400_kernels_of_a_graph_launch_belong_to_it_and_to_its_step() {
    let mut dsl = TraceDsl::rank(0);
    for step in 0..3i64 {
        let (at, id) = (step * 1_000_000, step as u64 + 1);
        dsl = dsl
            .range("step[DECODE bs=1]", at..at + 50_000)
            .graph_launch(at + 1_000..at + 20_000, id);
        for node in 0..400 {
            let start = at + 30_000 + node * 2_000;
            dsl = dsl.kernel("nvjet_a", start..start + 2_000).correlation(id);
        }
    }
    let analysis = run(dsl.build());
    assert_eq!(analysis.launches.graph_launches_per_step, 1.0);
    assert_eq!(analysis.launches.kernel_launches_per_step, 0.0);
    assert_eq!((analysis.kernels[0].calls_per_step, analysis.ledger.n), (400.0, 2));
    // 400 x 2 us of each step; from the last node to the next first one 200 us.
    assert_eq!(accounts(&analysis)["gemm.bf16"], 2 * 800_000);
    let idle: i64 = (accounts(&analysis).iter())
        .filter(|(account, _)| account.starts_with("idle."))
        .map(|(_, ns)| ns)
        .sum();
    assert_eq!(idle, 2 * 200_000);
    // Of 1,200 kernels none has lost its launch.
    let check = analysis.quality.checks.iter().find(|c| c.code == "gpu_work_without_launch");
    assert_eq!(check.map_or(0, |check| check.count), 0);
}

/// 401 findings, most of them the same slow iteration again, and the dominant cause as number 390.
#[test]
fn a_dominant_cause_is_the_first_of_few_findings() {
    // 300 steps, every tenth of them late by 4 ms of idle time; in each step the attention is on one
    // stream with 60 all-reduces of 80 us, that is 4.8 of the 6 ms.
    let mut dsl = TraceDsl::rank(0).gpu("NVIDIA H200");
    let mut at = 0i64;
    let mut id = 0u64;
    for step in 0..300 {
        let launch = at;
        dsl = dsl.range("step[DECODE bs=1]", launch..launch + 40_000);
        let mut work = |dsl: TraceDsl, name: &str, start: i64, length: i64| {
            id += 1;
            let call = launch + 100 + (id % 200) as i64 * 150;
            dsl.launch("cudaLaunchKernel", call..call + 100, id)
                .kernel(name, start..start + length)
                .correlation(id)
        };
        for layer in 0..60 {
            let start = at + 60_000 + layer * 98_000;
            dsl = work(dsl, "fmha_kernel", start, 18_000);
            dsl = work(dsl, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", start + 18_000, 80_000);
        }
        at += 6_000_000 + if step % 10 == 9 { 4_000_000 } else { 0 };
    }
    let findings = run(dsl.build()).findings.findings;
    let codes: Vec<&str> = findings.iter().map(|finding| finding.code.as_str()).collect();
    assert_eq!(codes.first(), Some(&"COMM001"), "{codes:?}");
    assert!(codes.len() <= 6, "{codes:?}");
    let mut once = codes.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), codes.len(), "{codes:?}");
}
