//! The accounts there are.

use crate::categories::{Categories, UNCATEGORISED, copy_account};
use crate::results::AccountGroup;
use steptally_trace_model::CopyKind;

/// The host launched the next work after the GPU had run dry.
pub(crate) const IDLE_HOST_LATE: &str = "idle.host_launched_late";
/// The host waited in a synchronisation or device-to-host copy.
pub(crate) const IDLE_HOST_BLOCKED: &str = "idle.host_blocked";
/// Between the nodes of one graph replay.
pub(crate) const IDLE_GRAPH_GAP: &str = "idle.graph_gap";
/// The work was launched in time but did not start.
pub(crate) const IDLE_DEPENDENCY: &str = "idle.dependency_or_queue";
/// From the launch call to the start.
pub(crate) const IDLE_LAUNCH: &str = "idle.launch_latency";
/// The host was between two steps.
pub(crate) const IDLE_BETWEEN: &str = "idle.between_steps";
/// Nothing says why.
pub(crate) const IDLE_UNKNOWN: &str = "idle.unknown";

/// Position of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AccountId(u16);

impl AccountId {
    // The idle accounts come first, so that they need no search.
    pub(crate) const HOST_LATE: Self = Self(0);
    pub(crate) const HOST_BLOCKED: Self = Self(1);
    pub(crate) const GRAPH_GAP: Self = Self(2);
    pub(crate) const DEPENDENCY: Self = Self(3);
    pub(crate) const LAUNCH: Self = Self(4);
    pub(crate) const BETWEEN: Self = Self(5);
    pub(crate) const UNKNOWN: Self = Self(6);

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// An account's name and group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AccountKey<'a> {
    pub(crate) name: &'a str,
    pub(crate) group: AccountGroup,
}

/// All accounts: idle ones, copies, one per kernel category.
pub(crate) struct Accounts<'a> {
    keys: Vec<AccountKey<'a>>,
}

const IDLE: [&str; 7] = [
    IDLE_HOST_LATE,
    IDLE_HOST_BLOCKED,
    IDLE_GRAPH_GAP,
    IDLE_DEPENDENCY,
    IDLE_LAUNCH,
    IDLE_BETWEEN,
    IDLE_UNKNOWN,
];

const COPIES: [CopyKind; 7] = [
    CopyKind::HostToDevice,
    CopyKind::DeviceToHost,
    CopyKind::DeviceToDevice,
    CopyKind::PeerToPeer,
    CopyKind::HostToHost,
    CopyKind::Memset,
    CopyKind::Unknown,
];

pub(crate) const OPAQUE_GRAPH: &str = "graph.opaque";

impl<'a> Accounts<'a> {
    pub(crate) fn new(categories: &'a Categories) -> Self {
        let key = |name, group| AccountKey { name, group };
        let mut keys: Vec<AccountKey<'a>> =
            IDLE.into_iter().map(|name| key(name, AccountGroup::Idle)).collect();
        keys.extend(COPIES.map(|kind| key(copy_account(kind), AccountGroup::Memory)));
        keys.push(key(OPAQUE_GRAPH, AccountGroup::OpaqueGraph));
        keys.push(key(UNCATEGORISED, AccountGroup::Compute));
        for rule in categories.rules() {
            if !keys.iter().any(|key| key.name == rule.category) {
                keys.push(key(&rule.category, group_of_category(&rule.category)));
            }
        }
        Self { keys }
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn key(&self, id: AccountId) -> AccountKey<'a> {
        self.keys[id.index()]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (AccountId, AccountKey<'a>)> + '_ {
        (0u16..).map(AccountId).zip(self.keys.iter().copied())
    }

    /// The account of a category, copy account or `graph.opaque`.
    pub(crate) fn find(&self, name: &str) -> AccountId {
        let at = self.keys.iter().position(|key| key.name == name);
        at.map_or(AccountId::UNKNOWN, |at| AccountId(at as u16))
    }
}

/// Kernels of categories below `comm` communicate; a kernel that only copies or fills memory
/// (`copy.*`, `fill`, `memcpy`) computes nothing but runs as a kernel, so it counts as compute.
fn group_of_category(category: &str) -> AccountGroup {
    if category == "comm" || category.starts_with("comm.") {
        AccountGroup::Communication
    } else {
        AccountGroup::Compute
    }
}

/// What an account means, in one sentence.
pub(crate) fn meaning(key: AccountKey<'_>) -> &'static str {
    match key.name {
        IDLE_HOST_LATE => {
            "the GPU had nothing to do: the host launched the next work only after it ran dry"
        }
        IDLE_HOST_BLOCKED => {
            "the GPU had nothing to do: the host waited in a synchronisation or device-to-host copy"
        }
        IDLE_GRAPH_GAP => {
            "between the nodes of one graph replay; a profiler that records nodes widens these gaps"
        }
        IDLE_DEPENDENCY => {
            "the next work was launched in time but started later: it depended on other work or \
             the queue held it"
        }
        IDLE_LAUNCH => "from the call that launched the next work to its start",
        IDLE_BETWEEN => {
            "the host was between two steps: scheduling, sampling, detokenising, serving requests"
        }
        IDLE_UNKNOWN => "nothing in the trace says why the GPU was idle",
        OPAQUE_GRAPH => "a graph replay recorded as a whole: busy, content unknown",
        UNCATEGORISED => "kernels that no category rule knows",
        _ => category_meaning(key.name),
    }
}

fn category_meaning(name: &str) -> &'static str {
    let prefixes = [
        ("comm.allreduce", "all-reduce over ranks, waiting for the last rank included"),
        ("comm.alltoall", "expert dispatch and combine over ranks, waiting included"),
        ("comm", "communication between ranks, waiting included"),
        ("attn", "attention"),
        ("indexer", "sparse attention's indexer"),
        ("kv.dequant", "reads the KV cache into another precision"),
        ("kv", "moves KV cache"),
        ("moe.gemm", "matrix products of the routed experts"),
        ("moe", "routes tokens to experts and back"),
        ("quant", "quantises activations"),
        ("gemm", "matrix products"),
        ("norm", "normalisation"),
        ("rope", "rotary embedding"),
        ("mla", "multi-head latent attention's concatenations"),
        ("activation", "activation function"),
        ("sampling", "picks the next token"),
        ("sched", "prepares the next batch on the GPU"),
        ("embedding", "looks up embeddings"),
        ("copy.cast", "converts a tensor to another dtype"),
        ("copy", "copies or rearranges a tensor by a kernel"),
        ("fill", "fills a tensor with a constant"),
        ("memcpy.h2d", "copies from host to device"),
        ("memcpy.d2h", "copies from device to host"),
        ("memcpy", "copies by the copy engine"),
        ("memset", "fills memory"),
        ("reduce", "reductions"),
        ("elementwise", "elementwise kernels"),
        ("triton", "kernels generated by a compiler"),
    ];
    let below = |prefix: &str| {
        name.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    prefixes.iter().find(|(prefix, _)| below(prefix)).map_or("by rule", |(_, text)| text)
}
