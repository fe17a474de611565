//! Ranges projected onto the GPU: exact on timelines, equal to SQL on real captures.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod support;

use steptally_analyze::results::RangeSummary;
use steptally_testkit::TraceDsl;
use steptally_trace_model::RangeKind;
use support::{fixture, run};

fn find<'a>(ranges: &'a [RangeSummary], text: &str) -> &'a RangeSummary {
    ranges.iter().find(|range| range.text == text).unwrap()
}

#[test]
fn work_belongs_to_every_range_around_its_call() {
    let ranges = run(TraceDsl::rank(0)
        .nvtx("outer", 0..100)
        .nvtx("inner", 10..50)
        .launch_kernel("a", 20..25, 200..230)
        // Overlaps a by 10 ns: busy 40, sum 50.
        .launch_kernel("b", 30..35, 220..240)
        // Begins inside `inner`, but ends outside of it.
        .launch_kernel("c", 45..55, 300..310)
        // In no range, and on another thread.
        .launch_kernel("d", 100..105, 400..410)
        .thread(9)
        .launch_kernel("e", 20..25, 500..510)
        .build())
    .ranges;
    let inner = find(&ranges, "inner");
    assert_eq!((inner.calls, inner.projections, inner.gpu_ops), (1, 1, 2));
    assert_eq!((inner.projected_ns, inner.gpu_busy_ns, inner.gpu_sum_ns), (40, 40, 50));
    assert_eq!(
        (inner.first_start_ns, inner.last_end_ns, inner.host_ns),
        (Some(200), Some(240), 40)
    );
    assert_eq!((inner.kind.as_str(), inner.domain.as_str()), ("nvtx_push_pop", ""));
    let outer = find(&ranges, "outer");
    assert_eq!((outer.gpu_ops, outer.projected_ns, outer.gpu_busy_ns), (3, 110, 50));
}

#[test]
fn ranges_of_one_text_are_added_up_and_a_graph_launch_brings_all_its_kernels() {
    let ranges = run(TraceDsl::rank(0)
        .range("forward", 0..50)
        .graph_launch(10..20, 1)
        .kernel("a", 100..110)
        .correlation(1)
        .kernel("b", 120..130)
        .correlation(1)
        .range("forward", 200..250)
        .graph_launch(210..220, 2)
        .kernel("a", 300..310)
        .correlation(2)
        .range("forward", 400..450)
        .build())
    .ranges;
    let forward = find(&ranges, "forward");
    assert_eq!(forward.kind, "annotation");
    assert_eq!((forward.calls, forward.projections, forward.gpu_ops), (3, 2, 3));
    // 100-130 and 300-310.
    assert_eq!((forward.projected_ns, forward.gpu_busy_ns, forward.host_ns), (40, 30, 150));
}

#[test]
fn ranges_that_end_elsewhere_or_never_have_no_projection() {
    let ranges = run(TraceDsl::rank(0)
        .range_of(RangeKind::NvtxStartEnd, "moved", 0..100)
        .arg("end_thread", "9")
        .range_of(RangeKind::NvtxStartEnd, "overlapping", 5..60)
        .nvtx("open", 6..100)
        .left_open()
        .nvtx("nested", 50..90)
        .launch_kernel("a", 55..58, 200..210)
        .launch_kernel("b", 70..75, 300..320)
        .build())
    .ranges;
    let texts: Vec<_> =
        ranges.iter().map(|r| (r.text.as_str(), r.gpu_ops, r.gpu_busy_ns)).collect();
    // `overlapping` has ended below `nested` when b is launched.
    assert_eq!(texts, [("nested", 2, 30), ("overlapping", 1, 10)]);
}

#[test]
fn projections_are_those_of_sql() {
    // Query Q3 of the projection's definition, per range: SELECT MIN(o.start), MAX(o.end), COUNT(*),
    // SUM(o.end - o.start) over KERNEL, MEMCPY and MEMSET joined with RUNTIME by correlation id and
    // process, and with NVTX_EVENTS by thread and n.start <= r.start AND n.end >= r.end; then
    // grouped by text: ranges, ops, SUM(max - min), SUM(durations), first start, last end.
    let check = |file: &str, rows: &[(&str, u64, u64, i64, i64, i64, i64)]| {
        let ranges = fixture(file).ranges;
        for &(text, projections, ops, projected, sum, first, last) in rows {
            let found = find(&ranges, text);
            assert_eq!((found.projections, found.gpu_ops), (projections, ops), "{text}");
            assert_eq!((found.projected_ns, found.gpu_sum_ns), (projected, sum), "{text}");
            assert_eq!(
                (found.first_start_ns, found.last_end_ns),
                (Some(first), Some(last)),
                "{text}"
            );
        }
        let with_work = ranges.iter().filter(|range| range.projections > 0).count();
        assert_eq!(with_work, rows.len(), "{file}");
    };
    check(
        "nsys-h200/program-graph-by-node.sqlite",
        &[
            ("graph step 0", 1, 11, 144_479, 140_188, 21_748_015, 21_892_494),
            ("graph step 1", 1, 11, 137_952, 133_885, 21_895_310, 22_033_262),
            ("graph step 2", 1, 11, 138_910, 134_813, 22_035_982, 22_174_892),
            ("layer0", 10, 20, 347_553, 293_953, 7_782_728, 9_539_837),
            ("layer1", 10, 20, 300_704, 289_662, 7_894_823, 9_572_445),
            ("layer2", 10, 20, 305_375, 295_359, 7_935_527, 9_603_965),
            ("layer3", 10, 20, 302_015, 292_351, 7_969_095, 9_635_452),
            ("step 0", 1, 11, 325_278, 136_415, 7_782_728, 8_108_006),
            ("step 1", 1, 11, 153_343, 137_597, 8_145_222, 8_298_565),
            ("step 2", 1, 11, 179_423, 135_264, 8_316_389, 8_495_812),
            ("step 3", 1, 11, 147_936, 135_968, 8_516_131, 8_664_067),
            ("step 4", 1, 11, 151_968, 135_330, 8_678_530, 8_830_498),
            ("step 5", 1, 11, 146_335, 135_009, 8_840_033, 8_986_368),
            ("step 6", 1, 11, 158_047, 134_879, 8_999_712, 9_157_759),
            ("step 7", 1, 11, 148_767, 136_097, 9_177_471, 9_326_238),
            ("step 8", 1, 11, 161_023, 134_272, 9_332_862, 9_493_885),
            ("step 9", 1, 11, 148_575, 135_583, 9_509_597, 9_658_172),
        ],
    );
    check(
        "nsys-h200/sglang-graph-by-node.sqlite",
        &[("cub::DeviceScan::InclusiveScan", 8, 16, 166_015, 17_054, 11_791_303, 28_394_202)],
    );
}
