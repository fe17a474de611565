//! Categories of events, as recorders name them.

use steptally_trace_model::CopyKind;

/// What an event of phase `X` (or a pair of `B` and `E`) is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Kernel,
    Copy,
    Api,
    CpuOp,
    Range,
    GpuRange,
    Frame,
    Sync,
    Overhead,
    GraphNode,
    /// The profiler's own span: the recorded window.
    Span,
    /// Known, and of no use here.
    Ignored,
    Unknown,
}

/// The kind of a category. Events without one are operators (old autograd traces, unitrace).
pub(super) fn kind_of(category: &[u8]) -> Kind {
    match category {
        b"kernel" | b"Kernel" => Kind::Kernel,
        b"gpu_memcpy" | b"gpu_memset" | b"Memcpy" | b"Memset" => Kind::Copy,
        b"cuda_runtime"
        | b"cuda_driver"
        | b"Runtime"
        | b"hip_runtime"
        | b"hip_driver"
        | b"xpu_runtime"
        | b"xpu_driver"
        | b"mtia_runtime"
        | b"privateuse1_runtime"
        | b"privateuse1_driver" => Kind::Api,
        b"cpu_op" | b"Operator" | b"operator" | b"" => Kind::CpuOp,
        b"user_annotation" | b"cpu_user_annotation" => Kind::Range,
        b"gpu_user_annotation" | b"xpu_user_annotation" => Kind::GpuRange,
        b"python_function" | b"Python function" | b"python" | b"Python" => Kind::Frame,
        b"cuda_sync" | b"xpu_sync" => Kind::Sync,
        b"overhead" | b"Overhead" => Kind::Overhead,
        b"graph_host_node" => Kind::GraphNode,
        b"Trace" => Kind::Span,
        b"__metadata" | b"cpu_instant_event" => Kind::Ignored,
        _ => Kind::Unknown,
    }
}

/// What a copy does, from its name (`Memcpy DtoD (Device -> Device)`) or, where that does not say,
/// from its `kind` argument (`DtoH`).
pub(super) fn copy_kind(name: &[u8], kind: &[u8]) -> CopyKind {
    [name, kind].into_iter().find_map(direction).unwrap_or_default()
}

fn direction(text: &[u8]) -> Option<CopyKind> {
    let has = |part: &str| memchr::memmem::find(text, part.as_bytes()).is_some();
    let any = |parts: &[&str]| parts.iter().any(|part| has(part));
    Some(if any(&["emset", "MEMSET"]) {
        CopyKind::Memset
    } else if any(&["HtoD", "HtoA", "HostToDevice", "M2D"]) {
        CopyKind::HostToDevice
    } else if any(&["DtoH", "AtoH", "DeviceToHost", "D2M"]) {
        CopyKind::DeviceToHost
    } else if any(&["PtoP", "PeerToPeer"]) {
        CopyKind::PeerToPeer
    } else if any(&["DtoD", "AtoA", "DtoA", "AtoD", "DeviceToDevice", "D2D"]) {
        CopyKind::DeviceToDevice
    } else if any(&["HtoH", "HostToHost", "M2M"]) {
        CopyKind::HostToHost
    } else {
        return None;
    })
}

/// Whether the host side of a copy is pageable, where its name says.
pub(super) fn pageable(name: &[u8]) -> Option<bool> {
    let has = |part: &str| memchr::memmem::find(name, part.as_bytes()).is_some();
    if has("Pageable") { Some(true) } else { has("Pinned").then_some(false) }
}

/// What an NPU executed, from `Task Type`: kernels have an engine in theirs, the others are waits
/// and notifications.
pub(super) fn npu_kind(task_type: &[u8]) -> Kind {
    let has = |part: &str| memchr::memmem::find(task_type, part.as_bytes()).is_some();
    if has("MEMCPY") || has("SDMA") {
        Kind::Copy
    } else if has("AI_") || has("AIC") || has("AIV") || has("MIX") || has("HCCL") {
        Kind::Kernel
    } else {
        Kind::Ignored
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_says_what_it_does() {
        let check = |name: &str, kind: &str, expected| {
            assert_eq!(copy_kind(name.as_bytes(), kind.as_bytes()), expected, "{name} {kind}");
        };
        check("Memcpy HtoD (Pinned -> Device)", "", CopyKind::HostToDevice);
        check("Memcpy DtoH (Device -> Pageable)", "", CopyKind::DeviceToHost);
        check("Memcpy DtoD (Device -> Device)", "", CopyKind::DeviceToDevice);
        check("Memcpy PtoP (Device -> Device)", "", CopyKind::PeerToPeer);
        check("Memset (Device)", "", CopyKind::Memset);
        check("CopyDeviceToHost", "", CopyKind::DeviceToHost);
        check("Memcpy", "DtoH", CopyKind::DeviceToHost);
        check("Memcpy", "", CopyKind::Unknown);
    }

    #[test]
    fn the_host_side_may_be_pageable() {
        assert_eq!(pageable(b"Memcpy DtoH (Device -> Pageable)"), Some(true));
        assert_eq!(pageable(b"Memcpy HtoD (Pinned -> Device)"), Some(false));
        assert_eq!(pageable(b"Memcpy DtoD (Device -> Device)"), None);
    }
}
