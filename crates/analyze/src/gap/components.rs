//! Which accounts of the ledger are held against which parts of the bound.

use crate::results::{Account, AccountGroup, Component};
use crate::roofline::{Part, Roofline};

/// Where an account goes in the waterfall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Component(Component),
    Copies,
    Idle,
}

/// The components, in the order in which a step runs them.
pub(super) const COMPONENTS: [Component; 8] = [
    Component::Embedding,
    Component::Norms,
    Component::DenseGemm,
    Component::Attention,
    Component::Indexer,
    Component::Experts,
    Component::Communication,
    Component::OtherKernels,
];

/// Categories by their beginning; the first that fits decides.
const BY_CATEGORY: &[(&str, Place)] = &[
    ("kv.write", Place::Component(Component::Attention)),
    ("kv", Place::Copies),
    ("copy", Place::Copies),
    ("fill", Place::Copies),
    ("memcpy", Place::Copies),
    ("memset", Place::Copies),
    ("attn", Place::Component(Component::Attention)),
    ("rope", Place::Component(Component::Attention)),
    ("mla", Place::Component(Component::Attention)),
    ("indexer", Place::Component(Component::Indexer)),
    ("moe", Place::Component(Component::Experts)),
    ("gemm", Place::Component(Component::DenseGemm)),
    ("norm", Place::Component(Component::Norms)),
    ("embedding", Place::Component(Component::Embedding)),
];

pub(super) fn place(account: &Account) -> Place {
    match account.group {
        AccountGroup::Idle => return Place::Idle,
        AccountGroup::Memory => return Place::Copies,
        AccountGroup::Communication => return Place::Component(Component::Communication),
        AccountGroup::OpaqueGraph => return Place::Component(Component::OtherKernels),
        AccountGroup::Compute => {}
    }
    let below = |prefix: &str| {
        let rest = account.account.strip_prefix(prefix);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let found = BY_CATEGORY.iter().find(|(prefix, _)| below(prefix));
    found.map_or(Place::Component(Component::OtherKernels), |(_, place)| *place)
}

/// The component whose kernels do a part's work. The indexer's own matrices run as matrix products.
fn component_of(part: Part) -> Component {
    match part {
        Part::Embedding => Component::Embedding,
        Part::Norms => Component::Norms,
        Part::KvRead | Part::KvWrite => Component::Attention,
        Part::IndexKeys => Component::Indexer,
        Part::RoutedExperts => Component::Experts,
        Part::AttentionProjections
        | Part::Indexer
        | Part::Router
        | Part::SharedExperts
        | Part::DenseMlp
        | Part::DraftProjection
        | Part::LmHead => Component::DenseGemm,
    }
}

/// What the bound has for one component.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) ns: i64,
    pub(super) parts: Vec<Part>,
}

/// The bound of a step by component, in the order of [`COMPONENTS`]. The shares add up to
/// [`Roofline::step_ns`]; drafting, which has no category, is among the other kernels.
pub(super) fn shares(bound: &Roofline) -> [Share; COMPONENTS.len()] {
    let mut shares: [Share; COMPONENTS.len()] = Default::default();
    for row in &bound.components {
        let share = &mut shares[position(component_of(row.part))];
        share.ns += row.time_ns;
        if !share.parts.contains(&row.part) {
            share.parts.push(row.part);
        }
    }
    shares[position(Component::Communication)].ns += bound.collectives_ns;
    let rest = bound.step_ns - shares.iter().map(|share| share.ns).sum::<i64>();
    shares[position(Component::OtherKernels)].ns += rest;
    shares
}

/// Moves the share of a component without any kernel to the other kernels: its work is in another
/// category, as in a fused kernel or a graph recorded as a whole.
pub(super) fn move_unseen(shares: &mut [Share; COMPONENTS.len()], seen: &[i64; COMPONENTS.len()]) {
    let other = position(Component::OtherKernels);
    for at in 0..COMPONENTS.len() {
        if at != other && seen[at] == 0 {
            let unseen = std::mem::take(&mut shares[at]);
            shares[other].ns += unseen.ns;
            shares[other].parts.extend(unseen.parts);
        }
    }
}

pub(super) fn position(component: Component) -> usize {
    COMPONENTS.iter().position(|of| *of == component).unwrap_or(COMPONENTS.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::categories::Categories;
    use crate::results::Distribution;

    fn account(name: &str, group: AccountGroup) -> Account {
        let one =
            Distribution { n: 1, median: 1.0, p90: 1.0, p99: 1.0, min: 1.0, max: 1.0, mean: 1.0 };
        Account {
            account: name.to_owned(),
            group,
            ns_per_step: 1.0,
            ratio: 1.0,
            total_ns: 1,
            per_step_ns: one,
            rank_range_ns: None,
            meaning: String::new(),
        }
    }

    #[test]
    fn every_category_has_its_place() {
        use Component::{Attention, DenseGemm, Experts, Norms, OtherKernels};
        let of = |name: &str| place(&account(name, AccountGroup::Compute));
        for (name, component) in [
            ("attn.mla", Attention),
            ("rope.fused_norm", Attention),
            ("kv.write", Attention),
            ("moe.align_permute", Experts),
            ("gemm.fp8", DenseGemm),
            ("norm", Norms),
            ("normal", OtherKernels),
            ("quant.fp4", OtherKernels),
            ("uncategorised", OtherKernels),
        ] {
            assert_eq!(of(name), Place::Component(component), "{name}");
        }
        for name in ["copy.cast", "kv.dequant", "kv.offload", "fill", "memset"] {
            assert_eq!(of(name), Place::Copies, "{name}");
        }
        let of = |name: &str, group| place(&account(name, group));
        assert_eq!(of("memcpy.d2h", AccountGroup::Memory), Place::Copies);
        assert_eq!(of("idle.unknown", AccountGroup::Idle), Place::Idle);
        let communication = Place::Component(Component::Communication);
        let fused = "comm.allreduce.fused_norm";
        assert_eq!(of(fused, AccountGroup::Communication), communication);
    }

    #[test]
    fn prefixes_are_those_of_the_built_in_categories() {
        let categories = Categories::builtin();
        for (prefix, _) in BY_CATEGORY {
            let known = categories.rules().iter().any(|rule| {
                rule.category == *prefix || rule.category.starts_with(&format!("{prefix}."))
            });
            assert!(known, "{prefix}");
        }
    }

    #[test]
    fn a_share_without_kernels_goes_to_the_other_kernels() {
        let mut shares: [Share; COMPONENTS.len()] = Default::default();
        shares[0] = Share { ns: 5, parts: vec![Part::Embedding] };
        shares[1] = Share { ns: 7, parts: vec![Part::Norms] };
        move_unseen(&mut shares, &[0, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!((shares[0].ns, shares[1].ns, shares[7].ns), (0, 7, 5));
        assert_eq!(shares[7].parts, [Part::Embedding]);
    }
}
