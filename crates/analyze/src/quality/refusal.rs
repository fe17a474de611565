//! Verdicts that a trace cannot support.

use steptally_trace_model::{Trace, TraceFormat};

use super::Inputs;
use crate::gpu::GpuKind;
use crate::results::Refusal;
use crate::steps::count_marks;

/// A window this long with next to no GPU work is a capture without load.
const NO_LOAD_WINDOW_NS: i64 = 100_000_000;
const NO_LOAD_KERNELS: usize = 50;
const NO_LOAD_BUSY_RATIO: f64 = 0.001;

/// The gravest reason why no verdict can be given.
pub(super) fn refuse(inputs: &Inputs<'_>) -> Option<Refusal> {
    let refused = different_runs(inputs)
        .or_else(|| unrelated_files(inputs))
        .or_else(|| gpu_not_traced(inputs))
        .or_else(|| no_load(inputs))
        .or_else(|| empty_steps(inputs))?;
    let partial = inputs.traces.iter().any(|trace| trace.meta.partial);
    let of_files = ["different_runs", "unrelated_files"].contains(&refused.code.as_str());
    Some(if partial && !of_files { of_a_part(refused) } else { refused })
}

/// What is missing from a damaged file may be what was lost of it.
fn of_a_part(refused: Refusal) -> Refusal {
    Refusal {
        reason: format!("{} in the part that could be read", refused.reason),
        hint: "the input is damaged: what is missing may be in the part that was lost; get the \
               whole file"
            .to_owned(),
        ..refused
    }
}

/// Files of one job agree on how many ranks it has.
fn different_runs(inputs: &Inputs<'_>) -> Option<Refusal> {
    let mut sizes: Vec<u32> = inputs.traces.iter().filter_map(|t| t.meta.world_size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    if sizes.len() < 2 {
        return None;
    }
    let sizes: Vec<String> = sizes.iter().map(u32::to_string).collect();
    refusal(
        "different_runs",
        format!("the files are of different runs: jobs of {} ranks", sizes.join(" and ")),
        "analyse the files of one run at a time",
    )
}

/// Where nothing says of which rank a file is, it belongs to the run of the others only if its GPU
/// worked at the same time as theirs.
fn unrelated_files(inputs: &Inputs<'_>) -> Option<Refusal> {
    let traces = || inputs.traces.iter().filter(|trace| trace.gpu_event_count() > 0);
    let unknown = traces().filter(|trace| trace.rank().is_none()).count();
    if unknown == 0 || traces().count() < 2 {
        return None;
    }
    let spans: Option<Vec<(i64, i64)>> = traces().map(|trace| gpu_span(inputs, trace)).collect();
    if let Some(spans) = spans {
        let last_start = spans.iter().map(|span| span.0).max();
        let first_end = spans.iter().map(|span| span.1).min();
        if last_start < first_end {
            return None;
        }
    }
    refusal(
        "unrelated_files",
        format!(
            "nothing says of which rank {unknown} of {} traces are, nor that they were recorded at \
             one time: they cannot be taken for one run",
            traces().count()
        ),
        "analyse one file at a time (two captures: steptally diff); ranks of one run need file \
         names such as rank-0, rank-1",
    )
}

/// Epoch time in ns from the first to the last GPU work that counts; `None` when the file does not
/// tell epoch time.
fn gpu_span(inputs: &Inputs<'_>, trace: &Trace) -> Option<(i64, i64)> {
    let base = match (trace.meta.base_time_ns, trace.meta.format) {
        (None, TraceFormat::NsysSqlite) => return None,
        (base, _) => base.unwrap_or(0),
    };
    let lanes = inputs.lanes.iter().filter(|lane| std::ptr::eq(lane.trace, trace));
    let ops = || lanes.clone().flat_map(|lane| &lane.ops);
    let start = ops().map(|op| op.start.as_ns()).min()?;
    let end = ops().map(|op| op.end.as_ns()).max()?;
    Some((base.saturating_add(start), base.saturating_add(end)))
}

fn refusal(code: &str, reason: String, hint: &str) -> Option<Refusal> {
    Some(Refusal { code: code.to_owned(), reason, hint: hint.to_owned() })
}

fn gpu_not_traced(inputs: &Inputs<'_>) -> Option<Refusal> {
    if inputs.lanes.iter().any(|lane| !lane.ops.is_empty()) {
        return None;
    }
    let launches: usize = (inputs.traces.iter().zip(inputs.indexes))
        .map(|(trace, (api, _))| {
            trace.api_calls.name.iter().filter(|name| api.class(**name).enqueues()).count()
        })
        .sum();
    if launches > 0 {
        return refusal(
            "gpu_not_traced",
            format!(
                "GPU not traced: {launches} calls launched GPU work, but no GPU event was recorded"
            ),
            "check the recorder's log for CUPTI errors (permissions, a second profiler, wrong \
             LD_LIBRARY_PATH, WSL) and capture again with GPU activities on; accelerators other \
             than CUDA and ROCm GPUs are read only as far as they use the same event categories",
        );
    }
    let marks: usize = inputs.traces.iter().map(|trace| count_marks(trace, inputs.config)).sum();
    let steps =
        if marks > 0 { format!(", though {marks} steps are marked") } else { String::new() };
    refusal(
        "no_gpu_events",
        format!("no GPU kernels recorded: this is a trace of the host only{steps}"),
        "capture with GPU activities on (torch.profiler ProfilerActivity.CUDA, SGLang activities \
         [\"CPU\",\"GPU\"]); under nsys trace the worker processes",
    )
}

fn no_load(inputs: &Inputs<'_>) -> Option<Refusal> {
    if inputs.steps.selected.is_some() {
        return None;
    }
    let kernels: usize = inputs
        .lanes
        .iter()
        .map(|lane| lane.ops.iter().filter(|op| op.kind == GpuKind::Kernel).count())
        .sum();
    let window = inputs.traces.iter().filter_map(|trace| recorded_window_ns(trace)).max()?;
    let busy: i64 =
        inputs.lanes.iter().flat_map(|lane| &lane.ops).map(|op| (op.end - op.start).as_ns()).sum();
    let busy_ratio = busy as f64 / window as f64;
    if window < NO_LOAD_WINDOW_NS || kernels >= NO_LOAD_KERNELS || busy_ratio >= NO_LOAD_BUSY_RATIO
    {
        return None;
    }
    refusal(
        "no_load",
        format!("no load during the capture: {kernels} kernels in {} ms", window / 1_000_000),
        "send requests that outlast the capture window, then capture again",
    )
}

/// From the first host event or the window's start to the last host event or the window's end.
fn recorded_window_ns(trace: &Trace) -> Option<i64> {
    if let Some(window) = trace.meta.window
        && let Some(end) = window.end
    {
        return Some((end - window.start).as_ns());
    }
    let tables: [(&[_], &[_]); 4] = [
        (&trace.api_calls.start, &trace.api_calls.duration),
        (&trace.cpu_ops.start, &trace.cpu_ops.duration),
        (&trace.ranges.start, &trace.ranges.duration),
        (&trace.frames.start, &trace.frames.duration),
    ];
    let start = tables.iter().filter_map(|(start, _)| start.first()).min()?;
    let end = tables
        .iter()
        .filter_map(|(start, duration)| Some(*start.last()? + *duration.last()?))
        .max()?;
    Some((end - *start).as_ns())
}

fn empty_steps(inputs: &Inputs<'_>) -> Option<Refusal> {
    let steps = inputs.steps.steps.len();
    let empty = inputs.steps.steps.iter().filter(|s| s.start_ns.is_none() && s.kind != "idle");
    let empty = empty.count();
    if steps == 0 || empty * 2 <= steps {
        return None;
    }
    refusal(
        "steps_without_gpu_events",
        format!("{empty} of {steps} steps have no GPU event: the GPU side was recorded in part"),
        "capture fewer steps, after more warm-up, and check the recorder's log for dropped events",
    )
}
