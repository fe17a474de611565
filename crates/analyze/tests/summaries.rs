//! Kernels and operators by name: counts, sums, shapes, who launched what.

mod support;

use steptally_testkit::TraceDsl;
use support::run;

#[test]
fn kernels_and_ops_are_summed_over_the_selected_steps_only() {
    // Two accounted steps and the one that ends them. Each: aten::linear > aten::mm launches nvjet
    // (100 ns in step 0, 300 in step 1), then aten::norm launches rmsnorm (50).
    let mut dsl = TraceDsl::rank(0);
    for step in 0..3i64 {
        let at = step * 1000;
        let id = step as u64 * 10;
        let length = 100 + step * 200;
        dsl = dsl
            .range("step[DECODE bs=1]", at..at + 300)
            .op("aten::linear", at + 5..at + 105, "[[1, 8], [8, 8]]")
            .op("aten::mm", at + 10..at + 90, "[[1, 8], [8, 8]]")
            .launch("cudaLaunchKernel", at + 20..at + 30, id)
            .kernel("nvjet_a", at + 200..at + 200 + length)
            .correlation(id)
            .grid([2, 1, 1])
            .block([128, 1, 1])
            .op("aten::norm", at + 110..at + 140, "[[1, 8]]")
            .launch("cudaLaunchKernel", at + 120..at + 125, id + 1)
            .kernel("rmsnorm", at + 800..at + 850)
            .correlation(id + 1)
            .launch("cudaMemcpyAsync", at + 150..at + 160, id + 2)
            .memcpy_h2d(at + 900..at + 910, 64)
            .correlation(id + 2);
    }
    let analysis = run(dsl.build());
    let gemm = &analysis.kernels[0];
    assert_eq!((gemm.name.as_str(), gemm.category.as_str()), ("nvjet_a", "gemm.bf16"));
    assert_eq!((gemm.calls, gemm.calls_per_step, gemm.total_ns), (2, 1.0, 400));
    assert_eq!((gemm.ns_per_step, gemm.ratio, gemm.median_ns), (200.0, 0.2, 200.0));
    assert_eq!((gemm.grid, gemm.block), (Some([2, 1, 1]), Some([128, 1, 1])));
    assert_eq!(gemm.op.as_deref(), Some("aten::mm"));
    assert_eq!(gemm.op_dims.as_deref(), Some("[[1, 8], [8, 8]]"));
    let copy = analysis.kernels.iter().find(|k| k.category == "memcpy.h2d").unwrap();
    assert_eq!((copy.calls, copy.bytes, copy.grid), (2, Some(128), None));

    let op = |name: &str| analysis.ops.iter().find(|op| op.name == name).unwrap();
    assert_eq!(analysis.ops[0].name, "aten::mm");
    assert_eq!((op("aten::mm").calls, op("aten::mm").gpu_self_ns), (2, 400));
    assert_eq!((op("aten::linear").gpu_self_ns, op("aten::linear").gpu_total_ns), (0, 400));
    assert_eq!((op("aten::linear").host_total_ns, op("aten::linear").host_self_ns), (200, 40));
    assert_eq!(op("aten::norm").gpu_self_ns_per_step, 50.0);
    assert_eq!(op("aten::norm").dims, "[[1, 8]]");
}

#[test]
fn all_kernels_of_a_graph_belong_to_no_operator_but_count() {
    let mut dsl = TraceDsl::rank(0);
    for step in 0..3i64 {
        let at = step * 1000;
        dsl =
            dsl.range("step[DECODE bs=1]", at..at + 300).graph_launch(at + 5..at + 90, step as u64);
        for node in 0..4 {
            let start = at + 100 + node * 20;
            dsl = dsl.kernel("nvjet_a", start..start + 15).correlation(step as u64);
        }
    }
    let analysis = run(dsl.build());
    assert_eq!((analysis.kernels[0].calls, analysis.kernels[0].op.as_ref()), (8, None));
    assert_eq!(analysis.kernels[0].total_ns, 2 * 4 * 15);
}
