//! How much a collective moves, and what a link carries of it.

use serde_json::Value;
use steptally_trace_model::{Collective, CollectiveId, InputsId, OpInputs, Trace};

use crate::links::NO_OP;
use crate::view::LaneView;

/// Operators looked at, from the innermost outward, for what a collective is.
const PARENTS: usize = 4;

/// What is known about a communication kernel beside its times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) collective: CollectiveId,
    pub(super) bytes: Option<u64>,
    pub(super) group_size: Option<u32>,
}

/// The message of kernel `row`: as recorded with it, else with the operator that launched it, else
/// from that operator's shapes. `call` is its launch call; a graph's call launches many.
pub(super) fn message(view: &LaneView<'_>, row: usize, call: Option<u32>) -> Message {
    let trace = view.lane.trace;
    let own = trace.kernels.collective[row];
    if own != CollectiveId::default() {
        return recorded(trace, own);
    }
    let mut op = call.map_or(NO_OP, |call| view.tree.op_of_call[call as usize]);
    let innermost = op;
    for _ in 0..PARENTS {
        if op == NO_OP {
            break;
        }
        let collective = trace.cpu_ops.collective[op as usize];
        if collective != CollectiveId::default() {
            return recorded(trace, collective);
        }
        op = view.tree.parent[op as usize];
    }
    let shapes = (innermost != NO_OP).then(|| trace.cpu_ops.inputs[innermost as usize]);
    let bytes = shapes.filter(|id| *id != InputsId::default());
    let bytes = bytes.and_then(|id| largest_input(trace, &trace.inputs[id]));
    Message { collective: CollectiveId::default(), bytes, group_size: None }
}

fn recorded(trace: &Trace, id: CollectiveId) -> Message {
    let Collective { dtype, in_elements, out_elements, group_size, .. } = trace.collectives[id];
    let elements = in_elements.value().max(out_elements.value());
    let bytes = elements.zip(type_size(trace.text(dtype)));
    let bytes = bytes.and_then(|(elements, size)| elements.checked_mul(size));
    Message { collective: id, bytes, group_size: group_size.filter(|&n| n > 0) }
}

/// Bytes of the largest tensor among an operator's inputs.
fn largest_input(trace: &Trace, inputs: &OpInputs) -> Option<u64> {
    let dims: Value = serde_json::from_str(trace.text(inputs.dims)).ok()?;
    let types: Value = serde_json::from_str(trace.text(inputs.types)).ok()?;
    let tensors = dims.as_array()?.iter().zip(types.as_array()?);
    let bytes = tensors.filter_map(|(dims, dtype)| {
        let size = type_size(dtype.as_str()?)?;
        let dims = dims.as_array().filter(|dims| !dims.is_empty())?;
        dims.iter().try_fold(size, |product, dim| product.checked_mul(dim.as_u64()?))
    });
    bytes.max()
}

/// Bytes of an element of a type as torch names it, `BFloat16` or `c10::BFloat16`.
fn type_size(name: &str) -> Option<u64> {
    let name = name.strip_prefix("c10::").unwrap_or(name).to_ascii_lowercase();
    Some(match name.as_str() {
        "double" | "float64" | "long" | "long int" | "int64" | "complexfloat" => 8,
        "float" | "float32" | "int" | "int32" | "unsigned int" | "uint32" => 4,
        "half" | "float16" | "bfloat16" | "short" | "short int" | "int16" | "uint16" => 2,
        "byte" | "unsigned char" | "uint8" | "char" | "signed char" | "int8" | "bool" => 1,
        _ if name.starts_with("float8") => 1,
        _ => return None,
    })
}

/// Bus bandwidth over algorithm bandwidth for `n` ranks, as nccl-tests defines it: what each link
/// carries however the collective is done.
///
/// | collective | factor |
/// | --- | --- |
/// | all-reduce | 2(n-1)/n |
/// | all-gather, reduce-scatter, all-to-all | (n-1)/n |
/// | point-to-point | 1 |
pub(super) fn bus_factor(category: &str, n: u32) -> Option<f64> {
    let n = f64::from(n);
    let below = |prefix: &str| {
        category.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    if below("comm.allreduce") {
        Some(2.0 * (n - 1.0) / n)
    } else if below("comm.allgather") || below("comm.reducescatter") || below("comm.alltoall") {
        Some((n - 1.0) / n)
    } else {
        below("comm.p2p").then_some(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_the_size_that_torch_gives_them() {
        for (name, size) in [("BFloat16", 2), ("c10::Half", 2), ("Float", 4), ("Long", 8)] {
            assert_eq!(type_size(name), Some(size), "{name}");
        }
        assert_eq!(type_size("Float8_e4m3fn"), Some(1));
        assert_eq!(type_size("TensorList"), None);
    }

    #[test]
    fn bus_factors_are_those_of_nccl_tests() {
        assert_eq!(bus_factor("comm.allreduce.nccl", 8), Some(1.75));
        assert_eq!(bus_factor("comm.allgather", 4), Some(0.75));
        assert_eq!(bus_factor("comm.reducescatter", 2), Some(0.5));
        assert_eq!(bus_factor("comm.alltoall", 2), Some(0.5));
        assert_eq!(bus_factor("comm.p2p", 2), Some(1.0));
        assert_eq!(bus_factor("comm.other", 2), None);
    }
}
