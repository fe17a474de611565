//! Plausible decode runs from a seed, with the truth about every step.

use steptally_trace_model::Trace;

use crate::{AllReduce, TraceDsl};

/// How the engine launches a decode step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeMode {
    /// One launch per kernel, each under its operator.
    Eager,
    /// One `cudaGraphLaunch` per step; all kernels carry its correlation id and no external id.
    Graph,
}

/// What is true of one step on one rank, by construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepTruth {
    /// Start of the step's first GPU operation, in ns.
    pub first_gpu_start_ns: i64,
    /// End of its last GPU operation, in ns.
    pub last_gpu_end_ns: i64,
    /// Time with GPU work, in ns: kernels and copies never overlap in these runs, so it is both
    /// the sum and the union.
    pub gpu_busy_ns: i64,
    /// Kernels of the step.
    pub kernels: usize,
}

/// The traces of a run, one per rank, and what is true of them.
#[derive(Clone, Debug)]
pub struct SyntheticRun {
    /// One trace per rank, in rank order.
    pub traces: Vec<Trace>,
    /// Steps of each rank, in rank order, then step order.
    pub steps: Vec<Vec<StepTruth>>,
}

/// The same numbers for the same seed on every machine (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: i64) -> i64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        (mixed % bound.max(1) as u64) as i64
    }

    /// `ns` and up to a fifth more.
    fn about(&mut self, ns: i64) -> i64 {
        ns + self.below(ns / 5)
    }
}

/// One kernel of a step: operator, kernel, typical ns, whether all ranks meet in it.
struct Kernel {
    op: &'static str,
    dims: &'static str,
    name: &'static str,
    ns: i64,
    meets: bool,
}

const fn kernel(op: &'static str, dims: &'static str, name: &'static str, ns: i64) -> Kernel {
    Kernel { op, dims, name, ns, meets: false }
}

const ALL_REDUCE: Kernel = Kernel {
    op: "sgl_kernel::all_reduce",
    dims: "[[1, 2048]]",
    name: "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    ns: 5_000,
    meets: true,
};

const LAYER: [Kernel; 7] = [
    kernel(
        "sgl_kernel::fused_add_rmsnorm",
        "[[1, 2048], [1, 2048], [2048]]",
        "void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*)",
        2_400,
    ),
    kernel(
        "aten::mm",
        "[[1, 2048], [2048, 3072]]",
        "nvjet_sm90_tst_64x8_64x16_1x1_h_bz_TNT",
        5_000,
    ),
    kernel(
        "sgl_kernel::rotary_embedding",
        "[[1], [1, 2048], [1, 512]]",
        "void flashinfer::BatchQKApplyRotaryPosIdsCosSinCacheKernel<true, 128u>(__nv_bfloat16*)",
        2_100,
    ),
    kernel("attention_decode", "[[1, 16, 128]]", "_fwd_grouped_kernel_stage1", 9_600),
    kernel(
        "aten::mm",
        "[[1, 2048], [2048, 2048]]",
        "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT",
        5_800,
    ),
    ALL_REDUCE,
    kernel("moe_fused_experts", "[[1, 2048], [32, 1536, 2048]]", "fused_moe_kernel", 14_200),
];

const TAIL: [Kernel; 2] = [
    kernel(
        "aten::mm",
        "[[1, 2048], [2048, 32000]]",
        "nvjet_sm90_tst_256x8_64x6_2x1_v_bz_TNT",
        33_000,
    ),
    kernel(
        "aten::argmax",
        "[[1, 32000]]",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps>>",
        11_000,
    ),
];

/// Where one rank's clock hands stand while its timeline is written.
struct RankState {
    dsl: Option<TraceDsl>,
    host: i64,
    gpu: i64,
    external: u64,
    correlation: u64,
    steps: Vec<StepTruth>,
}

impl RankState {
    fn write(&mut self, event: impl FnOnce(TraceDsl) -> TraceDsl) {
        self.dsl = self.dsl.take().map(event);
    }

    fn note_gpu_work(&mut self, start: i64, end: i64, kernels: usize) {
        self.gpu = end;
        if let Some(step) = self.steps.last_mut() {
            step.first_gpu_start_ns = step.first_gpu_start_ns.min(start);
            step.last_gpu_end_ns = end;
            step.gpu_busy_ns += end - start;
            step.kernels += kernels;
        }
    }
}

/// A decode run at batch 1 as SGLang would mark it: `scheduler.*` and `step[DECODE bs=1]` ranges,
/// seven kernels a layer (without the all-reduce when there is one rank), logits, argmax, a copy of
/// the token to pinned memory, and a host that waits for it.
///
/// ```text
/// host   recv|batch|run_batch{ op(launch) op(launch) ... memcpy }|process_batch_result{sync}|recv
/// GPU                             kernel  kernel ...         copy
/// ```
///
/// Ranks meet in each all-reduce: a rank that arrives early waits in the kernel, and the ends agree.
/// The result is the same for the same arguments everywhere.
#[must_use]
pub fn decode_run(
    mode: DecodeMode,
    ranks: u32,
    steps: u32,
    layers: u32,
    seed: u64,
) -> SyntheticRun {
    let mut random = Random(seed);
    let mut states: Vec<_> = (0..ranks).map(|rank| new_rank(rank, ranks)).collect();
    let kernels: Vec<&Kernel> = (0..layers)
        .flat_map(|_| LAYER.iter())
        .chain(TAIL.iter())
        .filter(|kernel| ranks > 1 || !kernel.meets)
        .collect();
    for _ in 0..steps {
        run_step(mode, &mut states, &kernels, &mut random);
    }
    let mut run = SyntheticRun { traces: Vec::new(), steps: Vec::new() };
    for state in states {
        run.traces.extend(state.dsl.map(TraceDsl::build));
        run.steps.push(state.steps);
    }
    run
}

fn new_rank(rank: u32, ranks: u32) -> RankState {
    let name = match ranks {
        1 => "sglang::scheduler".into(),
        _ => format!("sglang::scheduler_TP{rank}"),
    };
    let dsl = TraceDsl::rank(rank)
        .world_size(ranks)
        .device(rank)
        .gpu("NVIDIA H200")
        .process(500 + rank)
        .process_name(&name)
        .meta(|meta| meta.record_shapes = Some(true));
    RankState {
        dsl: Some(dsl),
        host: 1_000_000,
        gpu: 0,
        external: 0,
        correlation: 0,
        steps: vec![],
    }
}

fn run_step(mode: DecodeMode, states: &mut [RankState], kernels: &[&Kernel], random: &mut Random) {
    let mut batch_starts = Vec::new();
    for state in states.iter_mut() {
        for (name, ns) in [
            ("scheduler.recv_requests", 90_000),
            ("scheduler.process_input_requests", 4_000),
            ("scheduler.get_next_batch_to_run", 160_000),
        ] {
            let (start, end) = (state.host, state.host + random.about(ns));
            state.write(|dsl| dsl.range(name, start..end));
            state.host = end + random.about(2_000);
        }
        batch_starts.push(state.host);
        state.host += random.about(40_000);
        state.steps.push(StepTruth {
            first_gpu_start_ns: i64::MAX,
            last_gpu_end_ns: i64::MIN,
            gpu_busy_ns: 0,
            kernels: 0,
        });
    }
    let step_starts: Vec<_> = states.iter().map(|state| state.host).collect();
    let replays: Vec<_> = match mode {
        DecodeMode::Eager => Vec::new(),
        DecodeMode::Graph => states.iter_mut().map(|state| replay(state, random)).collect(),
    };
    for &kernel in kernels {
        // When each rank could begin, and what to write it with.
        let ready: Vec<_> = states
            .iter_mut()
            .enumerate()
            .map(|(rank, state)| match replays.get(rank) {
                Some(&(correlation, launched)) => {
                    (correlation, None, launched.max(state.gpu) + random.about(600))
                }
                None => launch(state, kernel, random),
            })
            .collect();
        let meeting = ready.iter().map(|&(_, _, start)| start).max().unwrap_or(0);
        let length = random.about(kernel.ns);
        for (state, &(correlation, external, start)) in states.iter_mut().zip(&ready) {
            let own = if kernel.meets { meeting + length } else { start + random.about(kernel.ns) };
            state.write(|dsl| {
                let dsl = dsl.kernel(kernel.name, start..own).correlation(correlation);
                let dsl =
                    dsl.grid([132, 1, 1]).block([256, 1, 1]).registers(64).shared_memory(4096);
                let dsl = match external {
                    Some(external) => dsl.external(external),
                    None => dsl,
                };
                match kernel.meets {
                    true => dsl.all_reduce(AllReduce {
                        elements: 2048,
                        dtype: "BFloat16",
                        process_group: "3",
                        group_size: ready.len() as u32,
                        sequence: None,
                    }),
                    false => dsl,
                }
            });
            state.note_gpu_work(start, own, 1);
        }
    }
    for (rank, state) in states.iter_mut().enumerate() {
        finish_step(state, batch_starts[rank]..step_starts[rank], random);
    }
}

/// One operator with its launch; gives correlation id, external id and the earliest start.
fn launch(state: &mut RankState, kernel: &Kernel, random: &mut Random) -> (u64, Option<u64>, i64) {
    state.external += 1;
    state.correlation += 1;
    let (external, correlation) = (state.external, state.correlation);
    let op_start = state.host;
    let call_start = op_start + random.about(30_000);
    let call_end = call_start + random.about(6_000);
    let op_end = call_end + random.about(9_000);
    state.write(|dsl| {
        dsl.op(kernel.op, op_start..op_end, kernel.dims)
            .external(external)
            .launch("cudaLaunchKernel", call_start..call_end, correlation)
            .external(external)
    });
    state.host = op_end + random.about(5_000);
    (correlation, Some(external), (call_end - 1_000).max(state.gpu) + random.about(1_500))
}

/// One graph launch; gives its correlation id and the earliest start.
fn replay(state: &mut RankState, random: &mut Random) -> (u64, i64) {
    state.correlation += 1;
    let correlation = state.correlation;
    let start = state.host + random.about(20_000);
    let end = start + random.about(60_000);
    state.write(|dsl| dsl.graph_launch(start..end, correlation));
    state.host = end + random.about(8_000);
    (correlation, end - 20_000)
}

/// Copies the token to the host, closes the ranges, and waits for the copy.
///
/// `starts` holds where `run_batch` and, in its end, where `step[..]` began.
fn finish_step(state: &mut RankState, starts: std::ops::Range<i64>, random: &mut Random) {
    let step_end = state.host + random.about(10_000);
    state.correlation += 1;
    let correlation = state.correlation;
    let call = step_end + random.about(12_000);
    let call_end = call + random.about(9_000);
    let copy_start = (call_end - 2_000).max(state.gpu) + random.about(900);
    let copy_end = copy_start + random.about(1_300);
    state.write(|dsl| {
        dsl.range("scheduler.run_batch", starts.start..call_end + 3_000)
            .range("step[DECODE bs=1]", starts.end..step_end)
            .range("copy_result_to_cpu", step_end + 1_000..call_end + 1_000)
            .launch("cudaMemcpyAsync", call..call_end, correlation)
            .memcpy_d2h(copy_start..copy_end, 8)
            .correlation(correlation)
    });
    state.note_gpu_work(copy_start, copy_end, 0);
    let result_start = call_end + 3_000 + random.about(6_000);
    let wait_start = result_start + random.about(4_000);
    let wait_end = copy_end.max(wait_start) + random.about(5_000);
    let result_end = wait_end + random.about(120_000);
    state.write(|dsl| {
        dsl.range("scheduler.process_batch_result", result_start..result_end)
            .api("cudaEventSynchronize", wait_start..wait_end)
    });
    state.host = result_end + random.about(3_000);
}
