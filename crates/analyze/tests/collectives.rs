//! Communication, to the nanosecond, on timelines of one to eight ranks worked out by hand.

mod support;

use steptally_analyze::results::{
    Analysis, CollectivePlace, Collectives, CrossRank, MatchedBy, RankArrival, StepsMatchedBy,
};
use steptally_analyze::{Config, analyze};
use steptally_testkit::{AllReduce, TraceDsl};
use steptally_trace_model::Trace;

const NCCL: &str = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL";
const CUSTOM: &str = "void sglang::cross_device_reduce_1stage<__nv_bfloat16, 2>(int)";

fn run(traces: &[Trace]) -> Collectives {
    all(traces).collectives
}

fn all(traces: &[Trace]) -> Analysis {
    analyze(traces, &Config::default())
}

fn cross(collectives: &Collectives) -> &CrossRank {
    collectives.cross_rank.as_ref().expect("ranks should be compared")
}

fn rank(collectives: &Collectives, rank: u32) -> &RankArrival {
    let ranks = &cross(collectives).ranks;
    ranks.iter().find(|row| row.rank == Some(rank)).expect("the rank should be there")
}

/// Wait plus transfer is the duration: of every step of every rank whose kernels all matched.
fn check_sums(collectives: &Collectives) {
    assert!(!collectives.steps.is_empty());
    for step in &collectives.steps {
        if step.matched_count == step.count {
            assert_eq!(step.wait_ns + step.transfer_ns, step.total_ns, "{step:?}");
        }
        assert_eq!(step.exposed_ns + step.hidden_ns, step.total_ns, "{step:?}");
    }
}

/// Steps that begin at these times (plus `offset`) with one kernel of 100 ns, each with
/// collectives at (start, end) relative to the step's beginning. The last step only ends the one
/// before it. All is launched from the mark.
struct Steps {
    rank: u32,
    offset: i64,
    starts: Vec<i64>,
}

impl Steps {
    fn new(rank: u32, starts: &[i64]) -> Self {
        Self { rank, offset: 0, starts: starts.to_vec() }
    }

    fn offset(self, offset: i64) -> Self {
        Self { offset, ..self }
    }

    fn build(&self, collectives: impl Fn(usize) -> Vec<(i64, i64)>) -> Trace {
        self.dsl(collectives, |dsl| dsl).build()
    }

    fn dsl(
        &self,
        collectives: impl Fn(usize) -> Vec<(i64, i64)>,
        describe: impl Fn(TraceDsl) -> TraceDsl,
    ) -> TraceDsl {
        let mut dsl = TraceDsl::rank(self.rank);
        let mut id = 0;
        for (step, start) in self.starts.iter().enumerate() {
            let at = start + self.offset;
            id += 1;
            dsl = dsl
                .range("step[DECODE bs=1]", at - 500..at - 10)
                .launch("cudaLaunchKernel", at - 400..at - 390, id)
                .kernel("nvjet_a", at..at + 100)
                .correlation(id);
            for (nth, (from, to)) in collectives(step).into_iter().enumerate() {
                id += 1;
                let call = at - 380 + nth as i64 * 10;
                dsl = dsl
                    .launch("cudaLaunchKernel", call..call + 5, id)
                    .kernel(NCCL, at + from..at + to)
                    .correlation(id);
                dsl = describe(dsl);
            }
        }
        dsl
    }
}

const STARTS: [i64; 4] = [10_000, 20_000, 30_300, 40_000];

#[test]
fn the_late_rank_waits_for_none_and_the_other_for_it() {
    // Each of three steps: rank 0 enters at 1000, rank 1 at 1900, both leave at 2000:
    // rank 0 waits 900 and transfers 100, rank 1 transfers 100. The same again at 3000/3010..3100.
    let zero = Steps::new(0, &STARTS).build(|_| vec![(1000, 2000), (3000, 3100)]);
    let one = Steps::new(1, &STARTS).build(|_| vec![(1900, 2000), (3010, 3100)]);
    let found = run(&[zero, one]);
    check_sums(&found);
    let cross = cross(&found);
    assert_eq!(cross.matched_by, MatchedBy::OrderInStep);
    assert_eq!((cross.matched_count, cross.unmatched_count, cross.mismatch_count), (6, 0, 0));
    assert_eq!((cross.n, cross.together_count, cross.uncertainty_ns), (6, 0, 0));
    assert_eq!(rank(&found, 0).wait_ns, 3 * (900 + 10));
    assert_eq!(rank(&found, 0).transfer_ns, 3 * (100 + 90));
    assert_eq!(rank(&found, 0).wait_ns_per_step, 910.0);
    assert_eq!(rank(&found, 0).last_count, 0);
    assert_eq!(rank(&found, 1).wait_ns, 0);
    assert_eq!(rank(&found, 1).transfer_ns, 3 * (100 + 90));
    assert_eq!((rank(&found, 1).last_count, rank(&found, 1).last_ratio), (6, 1.0));
    // (900 + 10) / 2
    assert_eq!(rank(&found, 1).lateness_ns, Some(455.0));
    let positions: Vec<_> =
        cross.positions.iter().map(|p| (p.position, p.of, p.skew_ns, p.late_rank)).collect();
    assert_eq!(positions, [(0, 2, 900.0, Some(1)), (1, 2, 10.0, Some(1))]);
}

#[test]
fn lateness_is_what_the_next_to_last_of_three_ranks_waits() {
    // Starts 1000, 1200, 1700; all end at 2000. Rank 2 is last by 500; waits 700, 500, 0.
    let of = |rank, start| Steps::new(rank, &STARTS).build(move |_| vec![(start, 2000)]);
    let found = run(&[of(0, 1000), of(1, 1200), of(2, 1700)]);
    check_sums(&found);
    assert_eq!(rank(&found, 0).wait_ns, 3 * 700);
    assert_eq!(rank(&found, 1).wait_ns, 3 * 500);
    assert_eq!((rank(&found, 2).wait_ns, rank(&found, 2).transfer_ns), (0, 3 * 300));
    assert_eq!((rank(&found, 2).last_count, rank(&found, 2).lateness_ns), (3, Some(500.0)));
    assert_eq!(cross(&found).skew_ns.unwrap().median, 700.0);
}

#[test]
fn one_rank_says_that_it_cannot_tell() {
    let found = run(&[Steps::new(0, &STARTS).build(|_| vec![(1000, 2000)])]);
    assert_eq!(found.cross_rank, None);
    assert_eq!(
        found.no_cross_rank.as_deref(),
        Some("one rank only: waiting cannot be told from transfer")
    );
    assert_eq!(found.count, 3);
    let none = run(&[Steps::new(0, &STARTS).build(|_| Vec::new())]);
    assert_eq!((none.count, none.cross_rank), (0, None));
    assert_eq!(none.no_cross_rank.as_deref(), Some("no communication kernels"));
}

#[test]
fn a_collective_that_one_rank_lacks_is_flagged_and_its_step_not_guessed() {
    // In step 1 rank 1 lacks the second collective: that step matches nothing.
    let zero = Steps::new(0, &STARTS).build(|_| vec![(1000, 2000), (3000, 3100)]);
    let one = Steps::new(1, &STARTS).build(|step| {
        if step == 1 { vec![(3050, 3100)] } else { vec![(1900, 2000), (3010, 3100)] }
    });
    let found = run(&[zero, one]);
    check_sums(&found);
    let cross = cross(&found);
    assert_eq!((cross.matched_count, cross.unmatched_count), (4, 3));
    let mismatch = &cross.mismatches[0];
    assert_eq!((cross.mismatch_count, mismatch.step), (1, Some(1)));
    assert_eq!(mismatch.counts, [(Some(0), 2), (Some(1), 1)]);
    assert_eq!(rank(&found, 0).wait_ns, 2 * 910);
}

#[test]
fn a_window_that_opened_a_step_earlier_is_recognised() {
    // Rank 1 recorded one step more at the start; with shift 1 all collectives end together. The
    // clocks say nothing: rank 1's is 7 s ahead.
    let starts = [10_000, 20_000, 30_300, 40_000, 49_500];
    let zero = Steps::new(0, &starts).build(|_| vec![(1000, 2000)]);
    let earlier: Vec<i64> = std::iter::once(1_000).chain(starts).collect();
    let one = Steps::new(1, &earlier).offset(7_000_000_000).build(|_| vec![(1900, 2000)]);
    let found = run(&[zero, one]);
    let cross = cross(&found);
    // Four accounted steps on rank 0, five on rank 1.
    assert_eq!((cross.matched_count, cross.unmatched_count), (4, 1));
    // Rank 1 has most steps, so it is the reference; rank 0 begins one later.
    let clock = cross.clocks.iter().find(|clock| clock.rank == Some(0)).unwrap();
    assert_eq!(clock.steps_matched_by, Some(StepsMatchedBy::CollectiveEnds));
    assert_eq!((clock.step_shift, clock.residual_ns), (-1, Some(-7_000_000_000)));
    assert_eq!(rank(&found, 0).wait_ns, 4 * 900);
}

#[test]
fn ids_play_no_part_in_matching() {
    // Correlation and external ids differ between the ranks: external 5 + n against 900 - n.
    let describe = |from: u64, rank: u32, start: i64| {
        let id = std::cell::Cell::new(from);
        let steps = Steps::new(rank, &STARTS);
        let next = move |dsl: TraceDsl| {
            id.set(if from > 100 { id.get() - 1 } else { id.get() + 1 });
            dsl.external(id.get())
        };
        steps.dsl(move |_| vec![(start, 2000)], next).build()
    };
    let found = run(&[describe(5, 0, 1000), describe(900, 1, 1900)]);
    assert_eq!(rank(&found, 0).wait_ns, 3 * 900);
    assert_eq!(cross(&found).unmatched_count, 0);
}

#[test]
fn sequence_numbers_match_whatever_the_order() {
    // Each step has collectives 2n and 2n+1 of group "3"; rank 1 recorded them the other way
    // round: 2n+1 at 1500..2000, 2n at 2900..3100. Rank 0: 2n at 2000..3100, 2n+1 at 1000..2000.
    // Waits of rank 0: 500 and 900.
    let of = |rank, times: [(i64, i64); 2]| {
        let mut dsl = TraceDsl::rank(rank);
        for (step, at) in STARTS.into_iter().enumerate() {
            let id = step as u64 * 10;
            let all_reduce = |sequence| AllReduce {
                elements: 2048,
                dtype: "BFloat16",
                process_group: "3",
                group_size: 2,
                sequence: Some(step as u64 * 2 + sequence),
            };
            dsl = dsl
                .range("step[DECODE bs=1]", at - 500..at - 10)
                .launch("cudaLaunchKernel", at - 400..at - 390, id)
                .kernel("nvjet_a", at..at + 100)
                .correlation(id);
            for (sequence, (from, to)) in (0..2).zip(times) {
                dsl = dsl.kernel(NCCL, at + from..at + to).all_reduce(all_reduce(sequence));
                dsl = dsl.on_stream(20 + sequence);
            }
        }
        dsl.build()
    };
    let zero = of(0, [(2000, 3100), (1000, 2000)]);
    let one = of(1, [(2900, 3100), (1500, 2000)]);
    let found = run(&[zero, one]);
    check_sums(&found);
    assert_eq!(cross(&found).matched_by, MatchedBy::Sequence);
    assert_eq!(rank(&found, 0).wait_ns, 3 * (500 + 900));
    // 2048 x 2 bytes; last ranks take 200 and 500, so do the others after their wait.
    let steady = found.sizes.iter().find(|row| row.place == CollectivePlace::Steady).unwrap();
    assert_eq!((steady.bytes, steady.group_size), (Some(4096), Some(2)));
}

#[test]
fn process_groups_that_never_meet_are_compared_within_themselves() {
    // Ranks 0 and 1 in group "a", 2 and 3 in group "b", which runs at other times: rank 1 is 900
    // late, rank 3 is 200 late.
    let of = |rank, group, start: i64, end: i64| {
        let sequence = std::cell::Cell::new(0);
        let describe = move |dsl: TraceDsl| {
            sequence.set(sequence.get() + 1);
            dsl.all_reduce(AllReduce {
                elements: 1,
                dtype: "Float",
                process_group: group,
                group_size: 2,
                sequence: Some(sequence.get()),
            })
        };
        Steps::new(rank, &STARTS).dsl(move |_| vec![(start, end)], describe).build()
    };
    let found = run(&[
        of(0, "a", 1000, 2000),
        of(1, "a", 1900, 2000),
        of(2, "b", 4000, 4500),
        of(3, "b", 4200, 4500),
    ]);
    check_sums(&found);
    assert_eq!(cross(&found).matched_by, MatchedBy::Sequence);
    assert_eq!((cross(&found).matched_count, cross(&found).unmatched_count), (6, 0));
    let lateness: Vec<_> = (0..4)
        .map(|number| (rank(&found, number).wait_ns, rank(&found, number).lateness_ns))
        .collect();
    assert_eq!(lateness, [(2700, None), (0, Some(900.0)), (600, None), (0, Some(200.0))]);
}

#[test]
fn clocks_of_different_origin_are_aligned_on_the_ends() {
    // Rank 1's clock has its origin 11.56 s later and is 1.6 ms fast beyond that: what happens at
    // t on rank 0's clock is recorded at t - 11.56 s + 1.6 ms. Steps of 10 ms.
    let starts = [10_000_000, 20_000_000, 30_000_000, 40_000_000];
    let base = 1_700_000_000_000_000_000;
    let of = |rank, offset, origin, start: i64| {
        let steps = Steps::new(rank, &starts).offset(offset);
        steps
            .dsl(move |_| vec![(start, 5_000_000)], |dsl| dsl)
            .meta(move |meta| meta.base_time_ns = Some(origin))
            .build()
    };
    let zero = of(0, 0, base, 1_000_000);
    let one = of(1, -11_560_000_000 + 1_600_000, base + 11_560_000_000, 4_000_000);
    let found = run(&[zero, one]);
    let clock = &cross(&found).clocks[1];
    assert_eq!(clock.base_offset_ns, Some(11_560_000_000));
    assert_eq!((clock.residual_ns, clock.uncertainty_ns), (Some(1_600_000), Some(0)));
    assert_eq!(clock.steps_matched_by, Some(StepsMatchedBy::Clock));
    assert_eq!(rank(&found, 0).wait_ns, 3 * 3_000_000);
    assert_eq!(rank(&found, 1).lateness_ns, Some(3_000_000.0));
}

#[test]
fn uncertain_clocks_name_no_late_rank() {
    // Ends differ by 0, 40 and -40 ns: residual 0, 90th percentile of the distance 40. Rank 1
    // starts 30 later: within the uncertainty.
    let zero = Steps::new(0, &STARTS).build(|_| vec![(1000, 2000)]);
    let one = Steps::new(1, &STARTS).build(|step| vec![(1030, 2000 + [0, 40, -40, 0][step])]);
    let found = run(&[zero, one]);
    assert_eq!(cross(&found).uncertainty_ns, 40);
    assert_eq!((cross(&found).n, cross(&found).together_count), (3, 3));
    assert_eq!(rank(&found, 1).last_count, 0);
    // The wait is accounted for all the same.
    assert_eq!(rank(&found, 0).wait_ns, 3 * 30);
    assert!(cross(&found).late.is_empty());
}

#[test]
fn ranks_whose_collectives_do_not_end_together_are_not_compared() {
    // Ends are 0, 600 us and 1.2 ms apart: these are not the same collectives.
    let starts = [10_000_000, 20_000_000, 30_000_000, 40_000_000];
    let zero = Steps::new(0, &starts).build(|_| vec![(1000, 2000)]);
    let one = Steps::new(1, &starts).build(|step| vec![(1000, 2000 + step as i64 * 600_000)]);
    let found = run(&[zero, one]);
    assert_eq!(found.cross_rank, None);
    assert_eq!(
        found.no_cross_rank.as_deref(),
        Some(
            "no collective could be matched over ranks with their clocks aligned: waiting cannot \
             be told from transfer"
        )
    );
}

/// Eight ranks: a step of GEMM 0..100 us, all-reduce until 620 us; those of `late` run their GEMM
/// and enter at 400 us instead of 100 us.
fn eight(late: u32, gpu: bool) -> Vec<Trace> {
    let of = |rank: u32| {
        let mut dsl = TraceDsl::rank(rank);
        for (step, at) in (0..5i64).map(|step| (step, 1_000_000 + step * 1_000_000)) {
            let id = step as u64 * 10;
            let delay = if rank == late { 300_000 } else { 0 };
            let gemm = if gpu { 100_000 + delay } else { 100_000 };
            // The host of the late rank copies something before it launches the collective.
            let call = if gpu || rank != late { at - 300_000 } else { at + 390_000 };
            dsl = dsl
                .range("step[DECODE bs=1]", at - 500_000..at + 395_000)
                .launch("cudaLaunchKernel", at - 400_000..at - 390_000, id)
                .kernel("nvjet_a", at..at + gemm)
                .correlation(id)
                .op("aten::item", at + 110_000..at + 380_000, "")
                .launch("cudaLaunchKernel", call..call + 4_000, id + 1)
                .kernel(CUSTOM, at + 100_000 + delay..at + 620_000)
                .correlation(id + 1);
        }
        dsl.build()
    };
    (0..8).map(of).collect()
}

#[test]
fn a_delay_of_300_us_on_one_of_eight_ranks_is_named_with_rank_and_size() {
    let found = run(&eight(5, false));
    check_sums(&found);
    let cross = cross(&found);
    assert_eq!((cross.matched_count, cross.together_count), (4, 0));
    for row in &cross.ranks {
        let late = row.rank == Some(5);
        assert_eq!(row.last_count, if late { 4 } else { 0 });
        assert_eq!(row.lateness_ns, late.then_some(300_000.0));
        assert_eq!(row.lateness_ns_per_step, if late { 300_000.0 } else { 0.0 });
        assert_eq!(row.wait_ns_per_step, if late { 0.0 } else { 300_000.0 });
        assert_eq!(row.median_transfer_ns, 220_000.0);
    }
    // The GPU ran dry at 100 us and the launch was called at 390 us: 290 us are the host's, the 10
    // us to the start are not. The host: nothing 10 us, aten::item 270, nothing 10.
    let [late] = cross.late.as_slice() else {
        panic!("one late rank expected: {:?}", cross.late);
    };
    assert_eq!((late.rank, late.n, late.lateness_ns), (Some(5), 4, 4 * 300_000));
    assert_eq!((late.host_late_ns, late.gpu_late_ns), (4 * 290_000, 4 * 10_000));
    assert_eq!(late.median_launch_delay_ns, Some(10_000.0));
    let activity: Vec<_> = (late.host_activity.iter())
        .map(|a| (a.kind.as_str(), a.name.as_str(), a.ns_per_step))
        .collect();
    assert_eq!(
        activity,
        [("op", "aten::item", 270_000.0), ("range", "step[DECODE bs=1]", 20_000.0)]
    );
}

#[test]
fn a_rank_whose_gpu_is_slower_is_late_by_its_gpu() {
    let found = run(&eight(2, true));
    let [late] = cross(&found).late.as_slice() else {
        panic!("one late rank expected: {:?}", cross(&found).late);
    };
    assert_eq!((late.rank, late.lateness_ns), (Some(2), 4 * 300_000));
    assert_eq!((late.host_late_ns, late.gpu_late_ns), (0, 4 * 300_000));
    assert!(late.host_activity.is_empty());
}

#[test]
fn an_entry_staggered_by_the_windows_start_is_told_apart() {
    // Two ranks; in every step but the first rank 0 waits 50 for rank 1. Its first collective waits
    // 17.46 s for rank 1, whose recording began that much later.
    let stagger = 17_460_000_000;
    let late: Vec<i64> = STARTS.iter().map(|start| start + stagger).collect();
    let mut early = late.clone();
    early[0] = STARTS[0];
    // Relative to its early beginning the first collective of rank 0 ends with that of rank 1.
    let zero = Steps::new(0, &early).build(|step| {
        vec![
            (1000, if step == 0 { stagger + 2000 } else { 2000 }),
            (
                3000 + if step == 0 { stagger } else { 0 },
                3100 + if step == 0 { stagger } else { 0 },
            ),
        ]
    });
    let one = Steps::new(1, &late).build(|_| vec![(1050, 2000), (3000, 3100)]);
    let found = run(&[zero, one]);
    check_sums(&found);
    let [start] = found.window_starts.as_slice() else {
        panic!("one window start expected: {:?}", found.window_starts);
    };
    assert_eq!((start.rank, start.late_rank, start.step), (Some(0), Some(1), Some(0)));
    assert_eq!((start.window_start_wait_ns, start.steady_ns), (stagger + 50, 50.0));
    // The step is in no figure: two steps remain, each with 50 of waiting.
    assert_eq!((found.count, found.left_out_count), (12, 4));
    assert_eq!((rank(&found, 0).n, rank(&found, 0).wait_ns), (4, 2 * 50));
    assert_eq!(rank(&found, 0).wait_ns_per_step, 50.0);
    assert_eq!(found.ranks[0].n, 2);
    assert_eq!(found.ranks[0].ns_per_step, 1100.0);
    let largest = found.sizes.iter().map(|row| row.duration_ns.max).fold(0.0, f64::max);
    assert_eq!(largest, 1000.0);
    assert_eq!(found.steps.iter().filter(|step| step.left_out).count(), 2);
}

#[test]
fn one_rank_alone_still_shows_an_outlier_at_its_windows_start() {
    let starts = [10_000, 10_000_000, 20_000_000, 30_000_000];
    let one =
        Steps::new(0, &starts).build(|step| vec![(1000, if step == 0 { 5_001_000 } else { 1014 })]);
    let found = run(&[one]);
    let start = &found.window_starts[0];
    assert_eq!((start.window_start_wait_ns, start.steady_ns), (5_000_000, 14.0));
    assert_eq!((start.late_rank, found.ranks[0].ns_per_step), (None, 14.0));
}

#[test]
fn hidden_time_is_beside_compute_on_the_same_device() {
    // Collective 100..1100 on stream 20; GEMMs 0..300 and 500..700 on stream 7, one of another
    // stream 600..800 overlapping: hidden 200 + 300, exposed 500.
    let mut dsl = TraceDsl::rank(0);
    for at in [10_000, 20_000] {
        dsl = dsl
            .range("step[DECODE bs=1]", at - 500..at - 10)
            .launch("cudaLaunchKernel", at - 400..at - 390, at as u64)
            .kernel("nvjet_a", at..at + 300)
            .correlation(at as u64)
            .kernel("nvjet_a", at + 500..at + 700)
            .kernel("rmsnorm", at + 600..at + 800)
            .on_stream(8)
            .memcpy_d2d(at + 900..at + 1000, 64)
            .kernel(NCCL, at + 100..at + 1100)
            .on_stream(20);
    }
    let found = run(&[dsl.build()]);
    let [step] = found.steps.as_slice() else { panic!("one step expected") };
    assert_eq!((step.total_ns, step.hidden_ns, step.exposed_ns), (1000, 500, 500));
    assert_eq!(found.ranks[0].exposed_ns_per_step, 500.0);
}

#[test]
fn bandwidths_follow_the_formulas_of_nccl_tests() {
    // Four ranks, 1 MiB of bf16 (524288 elements) in 10 us, alone: 104.8576 GB/s, x 2(3)/4 = 1.5.
    // An all-gather of the same size: x 3/4. With one rank the durations stand for the transfer.
    let of = |kernel: &str, name: &str| {
        let mut dsl = TraceDsl::rank(0);
        let all = AllReduce {
            elements: 524_288,
            dtype: "BFloat16",
            process_group: "0",
            group_size: 4,
            sequence: None,
        };
        for at in [100_000, 200_000] {
            dsl = dsl
                .range("step[DECODE bs=1]", at - 500..at - 10)
                .launch("cudaLaunchKernel", at - 400..at - 390, at as u64)
                .kernel(kernel, at..at + 10_000)
                .correlation(at as u64)
                .collective(name, all);
        }
        run(&[dsl.build()])
    };
    let reduce = of(NCCL, "allreduce");
    let [row] = reduce.sizes.as_slice() else { panic!("one size expected") };
    assert_eq!((row.bytes, row.place), (Some(1 << 20), CollectivePlace::FirstOfStep));
    assert_eq!(row.algbw_bytes_per_s, Some(104_857_600_000.0));
    assert_eq!(row.busbw_bytes_per_s, Some(157_286_400_000.0));
    assert!(!row.bandwidth_of_transfer);
    assert_eq!(reduce.ranks[0].bytes_per_step, Some(1_048_576.0));
    let gather = of("ncclDevKernel_AllGather_RING_LL", "allgather");
    assert_eq!(gather.sizes[0].busbw_bytes_per_s, Some(78_643_200_000.0));
}

#[test]
fn the_size_comes_from_the_launching_operators_shapes_when_no_collective_is_recorded() {
    // sgl_kernel::all_reduce([], [4, 2048] bf16, [4, 2048] bf16, []): 4 x 2048 x 2 bytes.
    let mut dsl = TraceDsl::rank(0);
    for at in [100_000, 200_000] {
        dsl = dsl
            .range("step[DECODE bs=1]", at - 500..at - 10)
            .op("sgl_kernel::all_reduce", at - 450..at - 300, "[[], [4, 2048], [4, 2048], []]")
            .input_types(r#"["Scalar", "c10::BFloat16", "c10::BFloat16", "Scalar"]"#)
            .launch("cudaLaunchKernel", at - 400..at - 390, at as u64)
            .kernel(CUSTOM, at..at + 10_000)
            .correlation(at as u64);
    }
    let found = run(&[dsl.build()]);
    assert_eq!(found.sizes[0].bytes, Some(16_384));
    // Nothing says how many ranks take part.
    assert_eq!((found.sizes[0].group_size, found.sizes[0].busbw_bytes_per_s), (None, None));
}

#[test]
fn every_name_that_collectives_go_by_is_communication() {
    // Renamed NCCL kernels, RCCL, custom all-reduces, multimem and DeepEP: none counts as zero.
    let names = [
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclKernel_AllReduce_RING_LL_Sum_half",
        "ncclAllReduceRingLLKernel_sum_f16(ncclWorkElem)",
        "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)",
        "rcclGenericKernel",
        "void sglang::cross_device_reduce_2stage<__nv_bfloat16, 8>(int)",
        "void multimem_all_reduce_kernel<c10::BFloat16, 16>(int)",
        "void deep_ep::internode_ll::combine<true>(void*)",
    ];
    let mut dsl = TraceDsl::rank(0);
    for at in [100_000, 200_000] {
        dsl = dsl
            .range("step[DECODE bs=1]", at - 500..at - 10)
            .launch("cudaLaunchKernel", at - 400..at - 390, at as u64)
            .kernel("nvjet_a", at..at + 100)
            .correlation(at as u64);
        for (nth, name) in (1..).zip(names) {
            dsl = dsl.kernel(name, at + nth * 1000..at + nth * 1000 + 100);
        }
    }
    assert_eq!(run(&[dsl.build()]).count, names.len() as u64);
}

#[test]
fn without_steps_the_whole_window_is_matched_in_order() {
    // Irregular work, no marks: collectives at 1000, 5000, 7000 of rank 0; rank 1 enters 100 later.
    let of = |rank, later| {
        let mut dsl = TraceDsl::rank(rank).kernel("nvjet_a", 0..500);
        for at in [1000, 5000, 7000] {
            dsl = dsl.kernel(NCCL, at + later..at + 1000);
        }
        dsl.build()
    };
    let analysis = all(&[of(0, 0), of(1, 100)]);
    assert!(analysis.steps.selected.is_none());
    let found = analysis.collectives;
    assert_eq!(cross(&found).matched_by, MatchedBy::OrderInWindow);
    assert_eq!(rank(&found, 0).wait_ns, 300);
    assert!(cross(&found).positions.is_empty());
}
