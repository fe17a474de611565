//! GLM-5 decoding on one of eight GPUs, with a backend that casts the whole KV pool in every layer.

use steptally_trace_model::Trace;

use crate::TraceDsl;

/// Layers of the model, of which the first three have no experts.
const LAYERS: u64 = 78;
const DENSE_LAYERS: u64 = 3;

/// Length of a step, from first kernel to first kernel.
const PERIOD: i64 = 95_100_000;
/// The pool's cast in one layer: 78 of them are 69 % of a step.
const CAST: i64 = 841_269;
/// The GPU waits so long before the second layer.
const LATE: i64 = 1_000_000;
/// From a launch call to its kernel, where the GPU waits.
const LATENCY: i64 = 10_000;
/// The host launches a kernel, and a layer, in so much time: it is far ahead of the GPU.
const CALL_EVERY: i64 = 12_000;
const LAYER_EVERY: i64 = 100_000;

const NORM: (&str, i64) = ("flashinfer::norm::FusedAddRMSNormKernel", 5_000);
const CAST_KERNEL: &str = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(\
    at::TensorIteratorBase&)::{lambda(c10::BFloat16)#1}, at::native::memory::LoadWithCast<1>>";
const ATTENTION: (&str, i64) = ("flashinfer::mla::BatchMLAPagedAttentionKernel", 40_000);
const PROJECTIONS: (&str, i64) = ("nvjet_sm120_tst_mma_64x64x128", 120_000);
const ALL_REDUCE: (&str, i64) = ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 42_300);
const EXPERTS: (&str, i64) = ("cutlass_fp4_group_mm", 50_000);
const DENSE_MLP: (&str, i64) = ("cutlass_scaled_fp4_mm", 50_000);
const HEAD: (&str, i64) = ("nvjet_sm120_tst_lm_head", 300_000);

/// `steps` decode steps of 95.1 ms at batch size 1 on rank 0 of eight RTX PRO 6000. In each of 78
/// layers `aten::copy_` casts the pool, 495,000 tokens x 576 values, from FP8 to BF16. The host is
/// ahead of the GPU but before the second layer, and waits for the step's end before it prepares the
/// next one. The last step has no successor, so an analysis counts one fewer.
///
/// ```text
///   per step: cast 78 x 841,269 ns  all-reduce 156 x 42,300  norm 156 x 5,000  attention 78 x 40,000
///   projections 78 x 120,000  experts 75 x 50,000  dense MLP 3 x 50,000  output head 300,000
///   idle: 990,000 until the second layer's launch, 4,412,218 between steps, 2 x 10,000 of latency
/// ```
#[must_use]
pub fn pool_cast_run(steps: u64) -> Trace {
    let gpu = "NVIDIA RTX PRO 6000 Blackwell Server Edition";
    let mut dsl = TraceDsl::rank(0).world_size(8).gpu(gpu);
    for step in 0..steps as i64 {
        dsl = one_step(dsl, 1_000_000 + step * PERIOD);
    }
    dsl.build()
}

/// One step, whose first kernel starts at `start`.
fn one_step(mut dsl: TraceDsl, start: i64) -> TraceDsl {
    let (mut at, mut call) = (start, start - LATENCY);
    for layer in 0..LAYERS {
        if layer == 1 {
            at += LATE;
            call = at - LATENCY;
        }
        let mlp = if layer < DENSE_LAYERS { DENSE_MLP } else { EXPERTS };
        let kernels =
            [NORM, (CAST_KERNEL, CAST), ATTENTION, PROJECTIONS, ALL_REDUCE, NORM, mlp, ALL_REDUCE];
        for (position, (name, length)) in kernels.into_iter().enumerate() {
            let call = call + position as i64 * CALL_EVERY;
            if name == CAST_KERNEL {
                let pool = "[495000, 1, 576]";
                dsl = dsl
                    .op("aten::copy_", call - 2_000..call + 8_000, &format!("[{pool}, {pool}, []]"))
                    .input_types(r#"["c10::BFloat16", "c10::Float8_e4m3fn", "Scalar"]"#);
            }
            dsl = dsl.launch_kernel(name, call..call + 5_000, at..at + length);
            at += length;
        }
        call += LAYER_EVERY;
    }
    let end = at + HEAD.1;
    dsl.launch_kernel(HEAD.0, call..call + 5_000, at..end)
        .api("cudaStreamSynchronize", call + 10_000..end)
        .range("step[DECODE bs=1]", start - LATENCY - 1_000..end + 1_000)
}
