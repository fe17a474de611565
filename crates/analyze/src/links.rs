//! Which host event caused which GPU work: correlation id to API call, API call to operator.

use steptally_trace_model::{CopyKind, OptionalId, StringId, Trace};

/// What kind of work an API call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApiClass {
    /// Enqueues one kernel.
    Launch,
    /// Enqueues a graph.
    GraphLaunch,
    /// Enqueues a copy or fill.
    AsyncCopy,
    /// Copies, and returns when it is done.
    BlockingCopy,
    /// Waits for the GPU.
    Sync,
    /// Begins to take the launches of a stream into a graph.
    BeginCapture,
    /// Ends it.
    EndCapture,
    /// Anything else.
    Other,
}

impl ApiClass {
    /// By function name: CUDA runtime and driver, HIP, Level Zero.
    fn of_name(name: &str) -> Self {
        let copies = name.contains("Memcpy") || name.contains("memcpy");
        let fills = name.contains("Memset") || name.contains("memset");
        if name.contains("GraphLaunch") {
            Self::GraphLaunch
        } else if name.contains("Synchronize") {
            Self::Sync
        } else if name.contains("StreamBeginCapture") {
            Self::BeginCapture
        } else if name.contains("StreamEndCapture") {
            Self::EndCapture
        } else if name.contains("LaunchKernel")
            || name.contains("LaunchCooperative")
            || name.contains("ModuleLaunch")
            || name.starts_with("cuLaunch")
            || name.starts_with("hipLaunch")
            || name.starts_with("hipExtLaunch")
        {
            Self::Launch
        } else if (copies && name.contains("Async")) || fills {
            Self::AsyncCopy
        } else if copies {
            Self::BlockingCopy
        } else {
            Self::Other
        }
    }

    /// Whether a call of this class puts work on the GPU.
    pub(crate) fn enqueues(self) -> bool {
        !matches!(self, Self::Sync | Self::BeginCapture | Self::EndCapture | Self::Other)
    }
}

/// API calls of one trace by class and by correlation id.
#[derive(Debug)]
pub(crate) struct ApiIndex {
    class_of_name: Vec<Option<ApiClass>>,
    /// (correlation, row), sorted; the first row of a correlation is the outermost call.
    by_correlation: Vec<(u64, u32)>,
    blocking: Vec<bool>,
}

impl ApiIndex {
    pub(crate) fn new(trace: &Trace) -> Self {
        let mut class_of_name = vec![None; trace.strings.len()];
        for name in &trace.api_calls.name {
            class_of_name[name.index()].get_or_insert_with(|| ApiClass::of_name(trace.text(*name)));
        }
        let mut by_correlation: Vec<(u64, u32)> = (trace.api_calls.correlation.iter().zip(0u32..))
            .filter_map(|(id, row)| Some((id.value()?, row)))
            .collect();
        if !by_correlation.is_sorted() {
            by_correlation.sort_unstable();
        }
        let mut index = Self { class_of_name, by_correlation, blocking: Vec::new() };
        index.blocking = index.find_blocking(trace);
        index
    }

    /// The class of calls of this name.
    pub(crate) fn class(&self, name: StringId) -> ApiClass {
        self.class_of_name.get(name.index()).copied().flatten().unwrap_or(ApiClass::Other)
    }

    /// Whether any call is of this class.
    pub(crate) fn has(&self, class: ApiClass) -> bool {
        self.class_of_name.contains(&Some(class))
    }

    /// The row of the call with this correlation id.
    pub(crate) fn call(&self, correlation: OptionalId) -> Option<u32> {
        let id = correlation.value()?;
        let at = self.by_correlation.partition_point(|&(other, _)| other < id);
        let &(found, row) = self.by_correlation.get(at)?;
        (found == id).then_some(row)
    }

    /// Like [`call`](Self::call) for ids asked for in nearly ascending order: looks near the last
    /// answer first.
    pub(crate) fn call_near(&self, correlation: OptionalId, hint: &mut usize) -> Option<u32> {
        let id = correlation.value()?;
        let near = *hint..(*hint + 4).min(self.by_correlation.len());
        if let Some(at) = near.into_iter().find(|&at| self.by_correlation[at].0 == id) {
            // Only the first of equal ids is the outermost call.
            if at == 0 || self.by_correlation[at - 1].0 != id {
                *hint = at;
                return Some(self.by_correlation[at].1);
            }
        }
        let at = self.by_correlation.partition_point(|&(other, _)| other < id);
        let &(found, row) = self.by_correlation.get(at)?;
        *hint = at;
        (found == id).then_some(row)
    }

    /// The class of the call with this correlation id; `None` when none was recorded.
    pub(crate) fn class_of_launch(
        &self,
        trace: &Trace,
        correlation: OptionalId,
    ) -> Option<ApiClass> {
        Some(self.class(trace.api_calls.name[self.call(correlation)? as usize]))
    }

    /// For every API call, whether the host waits in it for the GPU: synchronisation, blocking
    /// copies, and asynchronous device-to-host copies that return only after the copy's end (as
    /// copies into pageable memory do).
    pub(crate) fn blocking_calls(&self) -> &[bool] {
        &self.blocking
    }

    fn find_blocking(&self, trace: &Trace) -> Vec<bool> {
        let calls = &trace.api_calls;
        let mut blocking: Vec<bool> = calls
            .name
            .iter()
            .map(|&name| matches!(self.class(name), ApiClass::Sync | ApiClass::BlockingCopy))
            .collect();
        for row in 0..trace.copies.len() {
            if trace.copies.kind[row] != CopyKind::DeviceToHost {
                continue;
            }
            if let Some(call) = self.call(trace.copies.correlation[row]) {
                blocking[call as usize] |= calls.end(call as usize) >= trace.copies.end(row);
            }
        }
        blocking
    }
}

/// Which operator each API call and each operator is made in, by nesting on the thread.
#[derive(Debug)]
pub(crate) struct OpTree {
    /// For each API call the innermost operator around its start, [`NO_OP`] if none.
    pub(crate) op_of_call: Vec<u32>,
    /// For each operator the one around it, [`NO_OP`] if none.
    pub(crate) parent: Vec<u32>,
}

/// No operator.
pub(crate) const NO_OP: u32 = u32::MAX;

impl OpTree {
    pub(crate) fn new(trace: &Trace) -> Self {
        let (ops, calls) = (&trace.cpu_ops, &trace.api_calls);
        let mut tree =
            Self { op_of_call: vec![NO_OP; calls.len()], parent: vec![NO_OP; ops.len()] };
        let mut stacks: Vec<Vec<u32>> = vec![Vec::new(); trace.threads.len()];
        let (mut op, mut call) = (0, 0);
        while op < ops.len() || call < calls.len() {
            // An operator that starts with a call is around it.
            let take_op =
                op < ops.len() && (call >= calls.len() || ops.start[op] <= calls.start[call]);
            let (start, thread) = if take_op {
                (ops.start[op], ops.thread[op])
            } else {
                (calls.start[call], calls.thread[call])
            };
            let stack = &mut stacks[thread.index()];
            while stack.last().is_some_and(|&top| ops.end(top as usize) <= start) {
                stack.pop();
            }
            let around = stack.last().copied().unwrap_or(NO_OP);
            if take_op {
                tree.parent[op] = around;
                stack.push(op as u32);
                op += 1;
            } else {
                tree.op_of_call[call] = around;
                call += 1;
            }
        }
        tree
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_names_fall_into_classes() {
        let table = [
            ("cudaLaunchKernel", ApiClass::Launch),
            ("cudaLaunchKernelExC", ApiClass::Launch),
            ("cuLaunchKernelEx", ApiClass::Launch),
            ("hipExtModuleLaunchKernel", ApiClass::Launch),
            ("cudaGraphLaunch", ApiClass::GraphLaunch),
            ("hipGraphLaunch", ApiClass::GraphLaunch),
            ("cudaMemcpyAsync", ApiClass::AsyncCopy),
            ("cuMemcpyHtoDAsync_v2", ApiClass::AsyncCopy),
            ("cudaMemsetAsync", ApiClass::AsyncCopy),
            ("cudaMemcpy", ApiClass::BlockingCopy),
            ("hipMemcpyWithStream", ApiClass::BlockingCopy),
            ("cudaStreamSynchronize", ApiClass::Sync),
            ("cudaEventRecord", ApiClass::Other),
        ];
        for (name, class) in table {
            assert_eq!(ApiClass::of_name(name), class, "{name}");
        }
    }
}
