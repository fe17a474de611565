//! All that a bound rests on, in words.

use super::config::ModelConfig;
use super::deployment::{Deployment, Precision, Sharding};
use super::hardware::{Figure, Gpu};
use super::measured::Measured;
use super::quant::ComputeType;
use super::{Part, Roofline, step};

/// The assumptions of a bound, most influential first.
pub(crate) fn assumptions(
    model: &ModelConfig,
    gpu: &Gpu,
    measured: &Measured,
    bound: &Roofline,
) -> Vec<String> {
    let deployment = &bound.deployment;
    let mut list = vec![memory(gpu, measured, bound)];
    list.extend(measured.of_other_gpu(gpu).map(|other| format!("CAUTION: {other}")));
    list.push(weights(model, deployment));
    if deployment.tp > 1 {
        let how = match deployment.sharding {
            Sharding::Ideal => "every matrix is split evenly over all ranks",
            Sharding::Served => {
                "replicated on every rank: the low-rank projections of latent attention, the \
                 indexer, the router, and key/value heads where there are fewer of them than ranks; \
                 all else is split evenly"
            }
        };
        list.push(how.to_owned());
    }
    let kv = step::kv_format(model, deployment);
    list.push(format!(
        "each of {} requests has {} tokens in a KV cache of {}",
        deployment.batch, deployment.context, kv.name
    ));
    if !deployment.exclude.is_empty() {
        let names: Vec<&str> = deployment.exclude.iter().map(|part| part_name(*part)).collect();
        list.push(format!("left out: {}", names.join(", ")));
    }
    experts(bound, &mut list);
    collectives(gpu, measured, bound, &mut list);
    peaks(model, gpu, measured, deployment, &mut list);
    list.push(
        "parts do not overlap; activations of matrix products stay in the caches, those of norms \
         are read and written; sampling, embedding and logits exchange are not counted"
            .to_owned(),
    );
    if let Some(indexer) = model.indexer.as_ref() {
        let full = model.layers.iter().filter(|layer| layer.indexer).count();
        list.push(format!(
            "sparse attention reads {} tokens; {full} of {} layers run the indexer, over all tokens \
             with FP8 keys",
            indexer.topk,
            model.layers.len()
        ));
    }
    if let Some(plan) = deployment.speculation {
        list.push(format!(
            "{} tokens are drafted and {} accepted per step; the tokens of one request read the \
             same cached tokens",
            plan.draft_tokens, plan.accepted_tokens
        ));
        if model.mtp_layers == 0 {
            list.push("the config has no draft layer: drafting is counted as free".to_owned());
        }
    }
    let capacity = gpu.memory_mib.value * 1024.0 * 1024.0;
    if bound.resident_weights_bytes as f64 > capacity {
        list.push(format!(
            "the weights of one rank ({:.1} GB) do not fit into its memory ({:.1} GB)",
            bound.resident_weights_bytes as f64 / 1e9,
            capacity / 1e9
        ));
    }
    list.extend(model.notes.iter().cloned());
    list
}

fn memory(gpu: &Gpu, measured: &Measured, bound: &Roofline) -> String {
    let deployment = &bound.deployment;
    let source = if deployment.memory_bytes_per_s.is_some() {
        "as stated by the user".to_owned()
    } else if measured.copy_bytes_per_s.is_some() {
        format!("measured copy on {}", measured.device.as_deref().unwrap_or(&gpu.name))
    } else {
        cited(&gpu.memory_gb_s)
    };
    let ratio = match deployment.memory_bandwidth_ratio {
        1.0 => "all of it reachable".to_owned(),
        ratio => format!("{:.1} % of it reachable", ratio * 100.0),
    };
    format!("memory bandwidth {:.0} GB/s ({source}), {ratio}", bound.memory_bytes_per_s / 1e9)
}

fn cited(figure: &Figure) -> String {
    let also = figure.also.iter().map(|other| format!("; {}: {}", other.value, other.source));
    format!("{}{}", figure.source, also.collect::<String>())
}

fn weights(model: &ModelConfig, deployment: &Deployment) -> String {
    match (&deployment.precision, model.quantization.method()) {
        (Precision::Uniform(format), _) => format!(
            "all matrices in {} ({} bits with scales); router, output head and embedding in {}",
            format.name, format.bits, model.base.name
        ),
        (Precision::Published, Some(method)) => format!(
            "weights as published ({method} with scales); excluded modules, router and embedding in \
             {}",
            model.base.name
        ),
        (Precision::Published, None) => format!("all weights in {}", model.base.name),
    }
}

fn experts(bound: &Roofline, list: &mut Vec<String>) {
    let Some(load) = &bound.experts else { return };
    list.push(format!(
        "tokens choose experts uniformly: {:.1} distinct ones per layer and step",
        load.distinct
    ));
    if bound.deployment.ep > 1 {
        list.push(format!(
            "experts are spread evenly over {} groups: {:.2} per group and layer are counted; the \
             busiest has {:.2} on average",
            bound.deployment.ep, load.per_group, load.busiest_group
        ));
    }
}

fn collectives(gpu: &Gpu, measured: &Measured, bound: &Roofline, list: &mut Vec<String>) {
    for collective in &bound.collectives {
        let message = collective.message_bytes;
        let source = if bound.deployment.all_reduce_ns.is_some() {
            "as stated by the user".to_owned()
        } else if measured.all_reduce_ns(collective.ranks, message as f64).is_some() {
            "measured all-reduce of that size".to_owned()
        } else {
            cited(&gpu.all_reduce_us)
        };
        list.push(format!(
            "{} x {} of {message} B over {} ranks, {:.1} us each ({source})",
            collective.count,
            collective.name,
            collective.ranks,
            collective.latency_ns / 1e3
        ));
    }
}

fn peaks(
    model: &ModelConfig,
    gpu: &Gpu,
    measured: &Measured,
    deployment: &Deployment,
    list: &mut Vec<String>,
) {
    let formats =
        model.weights().into_iter().map(|w| step::format_of(model, deployment, &w).compute);
    let mut used: Vec<ComputeType> = formats.collect();
    used.sort_unstable();
    used.dedup();
    for wanted in used {
        let (flops, runs_as) = gpu.peak(wanted, measured);
        let how = match wanted == runs_as {
            true => String::new(),
            false => format!(", as this GPU has no {wanted:?} figure"),
        };
        list.push(format!(
            "{wanted:?} products run at {:.1} TFLOPS ({runs_as:?}{how})",
            flops / 1e12
        ));
    }
}

fn part_name(part: Part) -> &'static str {
    match part {
        Part::Embedding => "embedding",
        Part::Norms => "norms",
        Part::AttentionProjections => "attention projections",
        Part::Indexer => "indexer",
        Part::IndexKeys => "index keys",
        Part::KvRead => "KV read",
        Part::KvWrite => "KV write",
        Part::Router => "router",
        Part::RoutedExperts => "routed experts",
        Part::SharedExperts => "shared experts",
        Part::DenseMlp => "dense MLP",
        Part::DraftProjection => "draft projection",
        Part::LmHead => "output head",
    }
}
