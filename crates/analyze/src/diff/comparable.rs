//! Whether two analyses are about the same kind of thing.

use std::collections::{BTreeMap, BTreeSet};

use super::DiffInput;
use crate::results::{
    AccountGroup, Agreement, Comparability, ComparabilityCheck, Confidence, Grade,
};

/// Below this score there is no verdict.
const THRESHOLD: f64 = 0.5;

/// What a difference takes off the score: a fatal one alone, two serious ones, or several.
const FATAL: f64 = 0.6;
const SERIOUS: f64 = 0.3;
const MINOR: f64 = 0.1;

/// The least share of categories, and of kernel calls, that two sides with the same model have in
/// common. Another backend changes many names, so that alone is minor.
const CATEGORIES: f64 = 0.4;
const KERNEL_NAMES: f64 = 0.2;

pub(super) fn compare(a: &DiffInput, b: &DiffInput, forced: bool) -> Comparability {
    let checks = vec![
        kind(a, b),
        of("batch_size", FATAL, a, b, |side| side.steps.selected.as_ref()?.batch_size),
        context(a, b),
        of("model", FATAL, a, b, |side| side.baseline.as_ref()?.model.clone()),
        of("layers", FATAL, a, b, |side| side.layers.map(|layers| layers.count)),
        of("ranks", FATAL, a, b, |side| Some(side.ranks.len())),
        of("gpu", SERIOUS, a, b, gpu),
        categories(a, b),
        kernel_names(a, b),
        detection(a, b),
        quality(a, b),
    ];
    let penalties: f64 = checks.iter().map(|check| check.penalty).sum();
    let score = (1.0 - penalties).max(0.0);
    Comparability { score, threshold: THRESHOLD, comparable: score >= THRESHOLD, forced, checks }
}

fn check(code: &str, penalty: f64, outcome: Agreement, a: String, b: String) -> ComparabilityCheck {
    let penalty = if outcome == Agreement::Differs { penalty } else { 0.0 };
    ComparabilityCheck { code: code.to_owned(), outcome, penalty, a, b, shared_ratio: None }
}

/// A property that both sides should share, if both know it.
fn of<T: PartialEq + ToString>(
    code: &str,
    penalty: f64,
    a: &DiffInput,
    b: &DiffInput,
    property: impl Fn(&DiffInput) -> Option<T>,
) -> ComparabilityCheck {
    let (a, b) = (property(a), property(b));
    let outcome = match (&a, &b) {
        (Some(a), Some(b)) if a == b => Agreement::Same,
        (Some(_), Some(_)) => Agreement::Differs,
        _ => Agreement::Unknown,
    };
    let text = |value: Option<T>| value.map_or_else(|| "unknown".to_owned(), |v| v.to_string());
    check(code, penalty, outcome, text(a), text(b))
}

fn kind(a: &DiffInput, b: &DiffInput) -> ComparabilityCheck {
    let kind = |side: &DiffInput| match &side.steps.selected {
        Some(selected) if side.has_steps() => selected.kind.clone(),
        _ => "no steps".to_owned(),
    };
    let (kind_a, kind_b) = (kind(a), kind(b));
    let same = kind_a == kind_b && a.has_steps();
    let outcome = if same { Agreement::Same } else { Agreement::Differs };
    check("kind", 1.0, outcome, kind_a, kind_b)
}

/// How long the requests were, as the captures' manifests say.
fn context(a: &DiffInput, b: &DiffInput) -> ComparabilityCheck {
    of("context", SERIOUS, a, b, |side| {
        let baseline = side.baseline.as_ref()?;
        let (input, output) = (baseline.input_len?, baseline.output_len?);
        Some(format!("{input} in, {output} out, {} at once", baseline.batch_size?))
    })
}

fn gpu(side: &DiffInput) -> Option<String> {
    let names: BTreeSet<&str> =
        side.ranks.iter().filter_map(|rank| rank.gpu_name.as_deref()).collect();
    (!names.is_empty()).then(|| Vec::from_iter(names).join(", "))
}

/// Categories of kernels that the two have in common, of all that either has.
fn categories(a: &DiffInput, b: &DiffInput) -> ComparabilityCheck {
    let of = |side: &DiffInput| -> BTreeSet<String> {
        let of_kernels =
            |group| matches!(group, AccountGroup::Compute | AccountGroup::Communication);
        let accounts = side.ledger.accounts.iter().filter(|account| of_kernels(account.group));
        accounts.map(|account| account.account.clone()).collect()
    };
    let (of_a, of_b) = (of(a), of(b));
    let all = of_a.union(&of_b).count();
    let shared = of_a.intersection(&of_b).count();
    let text = |set: &BTreeSet<String>| format!("{} categories", set.len());
    overlap("categories", SERIOUS, CATEGORIES, shared as f64, all as f64, text(&of_a), text(&of_b))
}

/// Calls per step under the same kernel name, of all calls.
fn kernel_names(a: &DiffInput, b: &DiffInput) -> ComparabilityCheck {
    let mut calls: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for kernel in &a.kernels {
        calls.entry(&kernel.name).or_default().0 = kernel.calls_per_step;
    }
    for kernel in &b.kernels {
        calls.entry(&kernel.name).or_default().1 = kernel.calls_per_step;
    }
    let shared = calls.values().map(|of| of.0.min(of.1)).sum();
    let all = calls.values().map(|of| of.0.max(of.1)).sum();
    let text = |side: &DiffInput| format!("{} names", side.kernels.len());
    overlap("kernel_names", MINOR, KERNEL_NAMES, shared, all, text(a), text(b))
}

fn overlap(
    code: &str,
    penalty: f64,
    least: f64,
    shared: f64,
    all: f64,
    a: String,
    b: String,
) -> ComparabilityCheck {
    let ratio = (all > 0.0).then(|| shared / all);
    let outcome = match ratio {
        None => Agreement::Unknown,
        Some(ratio) if ratio < least => Agreement::Differs,
        Some(_) => Agreement::Same,
    };
    ComparabilityCheck { shared_ratio: ratio, ..check(code, penalty, outcome, a, b) }
}

/// Steps that were guessed, or found in different ways, may not be the same thing.
fn detection(a: &DiffInput, b: &DiffInput) -> ComparabilityCheck {
    let text = |side: &DiffInput| {
        let confidence = match side.steps.confidence {
            Confidence::None => "none",
            Confidence::Low => "low",
            Confidence::Medium => "medium",
            Confidence::High => "high",
        };
        format!("{}, confidence {confidence}", side.steps.detected_by)
    };
    let least = a.steps.confidence.min(b.steps.confidence);
    let (penalty, outcome) = if least <= Confidence::Low {
        (SERIOUS, Agreement::Differs)
    } else if a.steps.detected_by != b.steps.detected_by {
        (MINOR, Agreement::Differs)
    } else {
        (0.0, Agreement::Same)
    };
    check("detection", penalty, outcome, text(a), text(b))
}

/// Numbers that cannot be trusted cannot be compared.
fn quality(a: &DiffInput, b: &DiffInput) -> ComparabilityCheck {
    let worst = a.quality.grade.max(b.quality.grade);
    let (penalty, outcome) = match worst {
        Grade::A | Grade::B | Grade::C => (0.0, Agreement::Same),
        Grade::D => (MINOR, Agreement::Differs),
        Grade::E => (SERIOUS, Agreement::Differs),
        Grade::F => (1.0, Agreement::Differs),
    };
    let text = |side: &DiffInput| format!("grade {:?}", side.quality.grade);
    check("quality", penalty, outcome, text(a), text(b))
}
