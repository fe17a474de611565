//! KV001: a whole KV pool is cast or copied instead of the tokens in flight.

use crate::copies::{elements_of_kernel, is_in_graph};
use crate::findings::saving::Remedy;
use crate::findings::{Draft, Facts, Outcome, Rule, evidence};
use crate::gpu::{GpuKind, GpuOp};
use crate::kernels::launching_op;
use crate::results::CopySummary;
use crate::view::LaneView;

/// From this share of the period on it is worth a word.
const LEAST_RATIO: f64 = 0.005;
/// A cast of a few tokens takes 1.1 to 2.1 us on an H200 (this project's captures).
const SMALL_CAST_NS: i64 = 2_000;

pub(super) const RULE: Rule = Rule {
    code: "KV001",
    name: "whole KV pool cast or copied",
    check,
    doc: "\
## What it is
A cast or copy whose operand is the whole KV pool: all the tokens the server has room for, not the
tokens of the running requests. Typically the pool is FP8 and the attention backend wants BF16, so
`get_key_buffer(layer).to(q.dtype)` converts all of it in every layer of every step.

## Why it costs
The time grows with the size of the pool, not with the context: 495,000 tokens x 576 values cast from
FP8 to BF16 over 78 layers move 66.7 GB per step, 37 ms on a GPU of 1.8 TB/s, whatever the batch.

## How it is found
The operand of a cast or copy has the same first dimension in every layer and step, far above the
tokens in flight, or equal to the server's token capacity, and all such copies together take at least
0.5 % of the period. Graph replays record no shapes: there, a copy counts that by its launch
configuration goes over more than a million elements for each token in flight (for each of 64 where
the tokens are unknown).

## What to do
Use an attention backend that reads the pool in its own type (SGLang `--attention-backend`), or keep
the pool in the type the backend wants (`--kv-cache-dtype auto` or `bf16`, with a smaller pool), or
index the pool before the cast: `buffer[indices].to(dtype)`.

The saving leaves 2 us of each call, what a cast of a few tokens takes: with long contexts the cast of
the tokens in use takes longer.",
};

fn check(facts: &Facts<'_>) -> Outcome {
    let rows: Vec<&CopySummary> = facts.copies.rows.iter().collect();
    if rows.is_empty() {
        return Outcome::not_applicable("no casts or copies in the steps");
    }
    let pool: Vec<&CopySummary> = rows.into_iter().filter(|row| row.pool_sized).collect();
    let ns: f64 = pool.iter().map(|row| row.ns_per_step).sum();
    if pool.is_empty() || ns < LEAST_RATIO * facts.period_ns() {
        return Outcome::Clear;
    }
    let calls: f64 = pool.iter().map(|row| row.calls_per_step).sum();
    let largest = pool[0];
    let bytes: Option<f64> = pool
        .iter()
        .map(|row| Some(row.calls_per_step * (row.read_bytes? + row.written_bytes?)))
        .sum();
    let what = match (&largest.source_dtype, &largest.destination_dtype) {
        (Some(from), Some(to)) if from != to => format!("cast {from} -> {to}"),
        _ => "copied".to_owned(),
    };
    let mut numbers = vec![
        evidence("GPU time in pool-sized casts and copies", ns, "ns"),
        evidence("calls", calls, "per_step"),
    ];
    numbers.extend(bytes.map(|bytes| evidence("bytes read and written", bytes, "bytes")));
    let least_ns = bytes.zip(facts.copies.memory_bandwidth_bytes_per_s);
    let least_ns = least_ns.map(|(bytes, bandwidth)| bytes / bandwidth * 1e9);
    numbers.extend(least_ns.map(|ns| evidence("moving them takes at least", ns, "ns")));
    numbers.extend(
        largest
            .achieved_bytes_per_s
            .map(|rate| evidence("achieved bandwidth", rate, "bytes_per_s")),
    );
    numbers.extend(
        facts.copies.tokens_in_flight.map(|n| evidence("tokens in flight", n as f64, "count")),
    );
    Outcome::Found(Box::new(Draft {
        headline: format!(
            "the whole pool is {what}: {calls:.0} x {} in every step{}",
            asked_for(largest),
            largest.pool_reason.as_ref().map_or(String::new(), |reason| format!(" ({reason})")),
        ),
        evidence: numbers,
        advice: "use an attention backend that reads the KV cache in its own type, or keep the cache \
                 in the type the backend wants (--kv-cache-dtype), or index the pool before the cast"
            .to_owned(),
        remedy: shrinks(&pool),
    }))
}

/// What is copied, for a headline: the operator and its shapes, else the elements.
pub(super) fn asked_for(row: &CopySummary) -> String {
    match (&row.op, row.elements) {
        (Some(op), _) => format!("{op} {}", row.op_dims.as_deref().unwrap_or("")),
        (None, Some(elements)) if row.in_graph => {
            format!("{elements} elements, inside graph replays,")
        }
        (None, Some(elements)) => format!("{elements} elements"),
        (None, None) => row.name.clone(),
    }
}

/// What tells the kernels of a row: name, operator and shapes, else the elements, and whether they
/// are in a graph.
type Key = (String, Option<String>, Option<String>, Option<u64>, bool);

fn keys(rows: &[&CopySummary]) -> Vec<Key> {
    let key = |row: &&CopySummary| {
        let (op, dims) = (row.op.clone(), row.op_dims.clone());
        (row.name.clone(), op, dims, row.elements, row.in_graph)
    };
    rows.iter().map(key).collect()
}

/// Removes the kernels of these rows.
pub(super) fn removes(rows: &[&CopySummary]) -> Remedy {
    let keys = keys(rows);
    Remedy::remove(move |view, op| is_one_of(view, op, &keys))
}

/// Leaves of the kernels of these rows what few tokens take.
fn shrinks(rows: &[&CopySummary]) -> Remedy {
    let keys = keys(rows);
    Remedy::resize(move |view, op| {
        let length = (op.end - op.start).as_ns();
        is_one_of(view, op, &keys).then(|| length.min(SMALL_CAST_NS))
    })
}

fn is_one_of(view: &LaneView<'_>, op: GpuOp, keys: &[Key]) -> bool {
    let trace = view.lane.trace;
    if op.kind != GpuKind::Kernel {
        return false;
    }
    let row = op.row as usize;
    let name = trace.text(trace.kernels.name[row]);
    if !keys.iter().any(|(wanted, ..)| wanted == name) {
        return false;
    }
    let mut hint = 0;
    let launched_by = launching_op(view, op, &mut hint);
    let op_name = launched_by.map(|op| trace.text(trace.cpu_ops.name[op]));
    let dims = launched_by
        .map(|op| trace.text(trace.inputs[trace.cpu_ops.inputs[op]].dims))
        .filter(|dims| !dims.is_empty());
    let elements = if op_name.is_none() { elements_of_kernel(trace, row) } else { None };
    let in_graph = op_name.is_none() && is_in_graph(view, op);
    keys.iter().any(|(wanted, wanted_op, wanted_dims, wanted_elements, wanted_graph)| {
        wanted == name
            && *wanted_graph == in_graph
            && wanted_op.as_deref() == op_name
            && wanted_dims.as_deref() == dims
            && *wanted_elements == elements
    })
}

#[cfg(test)]
mod tests {
    use crate::findings::testing::{clear, found, no_steps, not_applicable, steps};
    use crate::results::SavingMethod;
    use steptally_trace_model::Trace;

    const CAST: &str = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(c10::BFloat16)#1}, at::native::memory::LoadWithCast<1>>";

    /// Six steps of 100 us; in each two layers cast `tokens` x 8 from FP8 to BF16 (20 us each) and
    /// multiply.
    fn casts(tokens: u64) -> Trace {
        steps(6, 100_000, |mut dsl, at, id| {
            for layer in 0..2 {
                let (host, gpu) = (at + layer * 3000, at + 10_000 + layer * 40_000);
                let id = id + layer as u64 * 10;
                dsl = dsl
                    .op(
                        "aten::copy_",
                        host..host + 900,
                        &format!("[[{tokens}, 2, 4], [{tokens}, 2, 4], []]"),
                    )
                    .input_types("[\"c10::BFloat16\", \"c10::Float8_e4m3fn\", \"Scalar\"]")
                    .launch("cudaLaunchKernel", host + 100..host + 200, id)
                    .kernel(CAST, gpu..gpu + 20_000)
                    .correlation(id)
                    .op("aten::mm", host + 1000..host + 1900, "[[1, 8], [8, 8]]")
                    .input_types("[\"c10::BFloat16\", \"c10::BFloat16\"]")
                    .launch("cudaLaunchKernel", host + 1100..host + 1200, id + 1)
                    .kernel("nvjet_tst", gpu + 21_000..gpu + 31_000)
                    .correlation(id + 1);
            }
            dsl
        })
    }

    #[test]
    fn a_cast_of_the_whole_pool_is_found() {
        let finding = found(casts(100_000), "KV001");
        // Two casts, of each of which 2 us stay.
        assert_eq!(finding.saving.gpu_ns_per_step, 36_000.0);
        assert_eq!(finding.saving.method, SavingMethod::Simulated);
        // 2 x 100,000 x 8 x (1 + 2 bytes).
        let bytes = finding.evidence.iter().find(|e| e.unit == "bytes").unwrap();
        assert_eq!(bytes.value, 4_800_000.0);
        assert_eq!(finding.saving.simulation_error_ns, Some(0));
    }

    #[test]
    fn a_cast_of_the_tokens_in_flight_is_not() {
        clear(casts(1), "KV001");
    }

    #[test]
    fn without_steps_it_does_not_apply() {
        not_applicable(no_steps(), "KV001");
    }
}
