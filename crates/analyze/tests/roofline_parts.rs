//! Every part of the bound on small invented models, worked out by hand. The GPU moves one byte per
//! nanosecond, so bytes are also times.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)] // helpers of tests

use steptally_analyze::roofline::{
    Bound, Deployment, Format, Gpu, Hardware, Measured, MeasuredAllReduce, ModelConfig, Part,
    Placement, Roofline, RooflineError, Speculation, roofline,
};

/// Hidden 16, vocabulary 100; 4 heads and 2 key/value heads of 8; layer 0 dense of width 20, layer 1
/// with 4 experts of width 10, one per token, and a shared one; BF16.
const SMALL: &str = include_str!("data/roofline/small.json");
/// Hidden 16; 2 heads; query rank 4, latent 6 + 2, heads of 3 + 2, values of 5; an indexer with 2
/// heads of 4 that picks 3 tokens, in layers 0 and 2 of 4; dense MLPs of width 20; BF16.
const SMALL_MLA: &str = include_str!("data/roofline/small-mla.json");

fn gpu() -> Gpu {
    let hardware = Hardware::parse(include_str!("data/roofline/gpu.toml")).unwrap();
    hardware.find("slow 1").unwrap().clone()
}

fn bound(config: &str, deployment: &Deployment) -> Roofline {
    let model = ModelConfig::parse(config, None).unwrap();
    roofline(&model, &gpu(), deployment, &Measured::default()).unwrap()
}

fn check(bound: &Roofline, part: Part, name: &str, layers: u32, bytes: u64, flops: u64) {
    let found = bound.components.iter().find(|c| c.part == part && c.name == name);
    let found = found.unwrap_or_else(|| panic!("no {name} in {:?}", bound.components));
    let seen = (found.layers, found.memory_bytes, found.total_flops);
    assert_eq!(seen, (layers, bytes, flops), "{name}");
    assert_eq!(found.time_ns, bytes as i64, "{name}");
    assert_eq!(found.bound, Bound::Memory);
}

#[test]
fn grouped_attention_and_experts_on_one_rank() {
    let bound = bound(SMALL, &Deployment::new(1, 2, 5));
    let attention = Part::AttentionProjections;
    // 2 requests; FLOP = 2 x weights x 2 tokens
    check(&bound, attention, "q_proj", 2, 2 * 16 * 32 * 2, 2 * 512 * 2 * 2);
    check(&bound, attention, "k_proj", 2, 2 * 16 * 16 * 2, 2 * 256 * 2 * 2);
    check(&bound, attention, "v_proj", 2, 2 * 16 * 16 * 2, 2 * 256 * 2 * 2);
    check(&bound, attention, "o_proj", 2, 2 * 32 * 16 * 2, 2 * 512 * 2 * 2);
    check(&bound, Part::DenseMlp, "mlp", 1, 960 * 2, 2 * 960 * 2); // 3 x 16 x 20
    check(&bound, Part::Router, "router", 1, 64 * 2, 2 * 64 * 2); // 16 x 4
    // an expert has 3 x 16 x 10 = 480 weights; 4 (1 - (3/4)^2) = 1.75 distinct ones: 840 x 2 B;
    // each token computes one
    check(&bound, Part::RoutedExperts, "experts", 1, 1680, 2 * 480 * 2);
    check(&bound, Part::SharedExperts, "shared experts", 1, 960, 2 * 480 * 2);
    check(&bound, Part::LmHead, "lm_head", 1, 3200, 2 * 1600 * 2);
    // widths (2 x 2 + 1) x 16 = 80; weight + 2 tokens in and out = 5 x 80 x 2 B; 4 FLOP x 80 x 2
    check(&bound, Part::Norms, "norms", 2, 800, 640);
    check(&bound, Part::Embedding, "embedding row", 1, 2 * 16 * 2, 0);
    // per layer and request 5 tokens x 2 heads x (8 + 8) = 160; x 2 x 2 x 2 B
    // FLOP: 2 x 4 heads x (8 + 8) per cached token; x 5 x 2 tokens x 2 layers
    check(&bound, Part::KvRead, "full", 2, 1280, 128 * 5 * 2 * 2);
    check(&bound, Part::KvWrite, "new tokens", 2, 32 * 2 * 2 * 2, 0);
    // 2048 + 1024 + 1024 + 2048 + 1920 + 128 + 1680 + 960 + 3200 + 800 + 64 + 1280 + 256
    assert_eq!((bound.memory_bytes, bound.step_ns), (16_432, 16_432));
    assert!(bound.collectives.is_empty());
    // 2 tokens in 16,432 ns
    assert!((bound.tokens_per_s - 2e9 / 16_432.0).abs() < 1e-6);
    // all experts lie there: 2 x 1536 + 960 + 64 + 4 x 480 + 480 + 1600 + table 1600 = 9696 x 2 B
    assert_eq!(bound.resident_weights_bytes, 19_392);
}

#[test]
fn two_ranks_share_the_work() {
    let bound = bound(SMALL, &Deployment::new(2, 2, 5));
    check(&bound, Part::AttentionProjections, "q_proj", 2, 1024, 2048);
    check(&bound, Part::AttentionProjections, "k_proj", 2, 512, 1024);
    check(&bound, Part::Router, "router", 1, 128, 256); // replicated
    check(&bound, Part::RoutedExperts, "experts", 1, 840, 960);
    check(&bound, Part::LmHead, "lm_head", 1, 1600, 3200);
    check(&bound, Part::KvRead, "full", 2, 640, 1280); // one of two heads
    let [all_reduce] = &bound.collectives[..] else { panic!("one kind") };
    // 2 x 2 layers of 2 tokens x 16 x 2 B = 64 B; a ring of two sends 2 x 1/2 of it: 64 ns > 50 ns
    assert_eq!((all_reduce.count, all_reduce.message_bytes, all_reduce.ring_bytes), (4, 64, 256));
    assert_eq!((all_reduce.time_ns, all_reduce.bound), (256, Bound::Link));
    assert_eq!(bound.step_ns, bound.components_ns + 256);
}

#[test]
fn key_value_heads_are_replicated_over_more_ranks() {
    let bound = bound(SMALL, &Deployment::new(4, 1, 5));
    check(&bound, Part::AttentionProjections, "q_proj", 2, 512, 512);
    check(&bound, Part::AttentionProjections, "k_proj", 2, 512, 512); // one of 2 heads each
    check(&bound, Part::KvRead, "full", 2, 320, 320); // 2 layers x 5 x 16 x 2 B; one query head
    let k = bound.components.iter().find(|c| c.name == "k_proj").unwrap();
    assert_eq!(k.placement, Placement::Replicated);
}

#[test]
fn expert_parallel_ranks_hold_whole_experts() {
    let deployment = Deployment { ep: 2, ..Deployment::new(2, 2, 5) };
    let bound = bound(SMALL, &deployment);
    check(&bound, Part::RoutedExperts, "experts", 1, 840, 960);
    let load = bound.experts.as_ref().unwrap();
    assert_eq!((load.distinct, load.per_group), (1.75, 0.875));
    // p = 1 - (3/4)^2 = 7/16, two groups of 2: F(0) = (9/16)^2 = 81/256, F(1) = 1 - 49/256 = 207/256
    let expected = 2.0 - (81.0_f64 / 256.0).powi(2) - (207.0_f64 / 256.0).powi(2);
    assert!((load.busiest_group - expected).abs() < 1e-9, "{}", load.busiest_group);
    assert!(bound.assumptions.iter().any(|line| line.starts_with("experts are spread evenly")));
}

#[test]
fn data_parallel_attention_attends_to_its_own_requests() {
    let deployment = Deployment { attention_dp: 2, ..Deployment::new(2, 3, 5) };
    let bound = bound(SMALL, &deployment);
    // 3 requests in 2 groups: the busier one has 2, and all the heads
    check(&bound, Part::AttentionProjections, "q_proj", 2, 2048, 2 * 512 * 2 * 2);
    check(&bound, Part::KvRead, "full", 2, 1280, 2560);
    check(&bound, Part::SharedExperts, "shared experts", 1, 480, 480 * 3); // 2 x 480 x 3 / 2
    let names: Vec<&str> = bound.collectives.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["all-gather before MLP", "reduce-scatter after MLP"]);
    // 2 groups x 2 requests x 32 B = 128 B; each rank sends half of it: 64 ns
    for collective in &bound.collectives {
        assert_eq!((collective.count, collective.message_bytes), (2, 128));
        assert_eq!((collective.ring_bytes, collective.time_ns), (128, 128));
    }
}

#[test]
fn latent_attention_with_an_indexer() {
    let bound = bound(SMALL_MLA, &Deployment::new(2, 1, 5));
    let attention = Part::AttentionProjections;
    check(&bound, attention, "q_a_proj", 4, 4 * 64 * 2, 4 * 2 * 64); // 16 x 4, replicated
    check(&bound, attention, "q_b_proj", 4, 4 * 20 * 2, 4 * 2 * 20); // 4 x 2 x 5, halved
    check(&bound, attention, "kv_a_proj_with_mqa", 4, 4 * 128 * 2, 4 * 2 * 128); // 16 x 8
    check(&bound, attention, "kv_b_proj", 4, 4 * 48 * 2, 4 * 2 * 48); // 6 x 2 x 8, halved
    check(&bound, attention, "o_proj", 4, 4 * 80 * 2, 4 * 2 * 80); // 2 x 5 x 16, halved
    check(&bound, Part::Indexer, "wq_b", 2, 2 * 32 * 2, 2 * 2 * 32); // 4 x 2 x 4
    check(&bound, Part::Indexer, "wk", 2, 2 * 64 * 2, 2 * 2 * 64);
    check(&bound, Part::Indexer, "weights_proj", 2, 2 * 32 * 2, 2 * 2 * 32);
    // 3 picked tokens x (6 + 2) x 2 B in 4 layers; FLOP 2 x 1 head x (8 + 6) x 3 x 4
    check(&bound, Part::KvRead, "selected tokens", 4, 192, 336);
    // 5 keys of 4 + 4 B in 2 layers; FLOP 2 x 2 x 4 x 5 x 2
    check(&bound, Part::IndexKeys, "index keys", 2, 80, 160);
    check(&bound, Part::KvWrite, "new tokens", 4, 64, 0);
    check(&bound, Part::KvWrite, "new index keys", 2, 16, 0);
    // (9 x 16 + 4 x (4 + 6)) = 184; x 3 x 2 B; x 4 FLOP
    check(&bound, Part::Norms, "norms", 4, 1104, 736);
}

#[test]
fn windows_limit_what_is_read() {
    let config = SMALL.replace(
        "\"model_type\"",
        "\"sliding_window\": 3, \"layer_types\": [\"sliding_attention\", \"full_attention\"], \
         \"model_type\"",
    );
    let bound = bound(&config, &Deployment::new(1, 2, 5));
    check(&bound, Part::KvRead, "sliding window", 1, 3 * 32 * 2 * 2, 128 * 3 * 2);
    check(&bound, Part::KvRead, "full", 1, 5 * 32 * 2 * 2, 128 * 5 * 2);
}

#[test]
fn linear_attention_keeps_a_state() {
    let config = SMALL.replace(
        "\"model_type\": \"glm4_moe\"",
        "\"model_type\": \"qwen3_next\", \"full_attention_interval\": 2, \
         \"linear_num_key_heads\": 2, \"linear_num_value_heads\": 4, \"linear_key_head_dim\": 3, \
         \"linear_value_head_dim\": 5, \"linear_conv_kernel_dim\": 4",
    );
    let bound = bound(&config, &Deployment::new(1, 2, 5));
    let attention = Part::AttentionProjections;
    // keys 6, values 20: 16 x 2 x 26 = 832; 16 x 2 x 4 = 128; (12 + 20) x 4 = 128; 20 x 16 = 320
    check(&bound, attention, "in_proj_qkvz", 1, 832 * 2, 2 * 832 * 2);
    check(&bound, attention, "in_proj_ba", 1, 256, 512);
    check(&bound, attention, "conv1d", 1, 256, 512);
    check(&bound, attention, "out_proj", 1, 640, 1280);
    // the query of the other layer also makes a gate: 16 x (32 + 32)
    check(&bound, attention, "q_proj", 1, 2048, 4096);
    // 4 x 3 x 5 = 60 values of 4 B for 2 requests; 6 FLOP each
    check(&bound, Part::KvRead, "linear attention state", 1, 480, 720);
    check(&bound, Part::KvWrite, "linear attention state", 1, 480, 0);
}

#[test]
fn narrow_caches_and_weights() {
    let config = SMALL.replace(
        "\"model_type\"",
        "\"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": [2, 8], \
         \"modules_to_not_convert\": [\"model.layers.0.self_attn\"]}, \"model_type\"",
    );
    let deployment = Deployment { kv_format: Some(Format::fp8()), ..Deployment::new(1, 2, 5) };
    let bound = bound(&config, &deployment);
    check(&bound, Part::KvRead, "full", 2, 640, 2560);
    check(&bound, Part::LmHead, "lm_head", 1, 3200, 6400); // stays as it is
    check(&bound, Part::Router, "router", 1, 128, 256);
    // 8 + 32 / 16 = 10 bits: 840 x 1.25 B
    check(&bound, Part::RoutedExperts, "experts", 1, 1050, 1920);
    // layer 0 is excluded, layer 1 is not: two rows
    let rows: Vec<_> = bound.components.iter().filter(|c| c.name == "q_proj").collect();
    let seen: Vec<_> = rows.iter().map(|c| (c.format.as_str(), c.memory_bytes)).collect();
    assert_eq!(seen, [("bf16", 1024), ("fp8 2x8", 640)]);
}

#[test]
fn a_large_batch_is_bound_by_the_peak() {
    let mut slow = gpu();
    slow.bf16_tflops.value = 1e-6; // 1 FLOP = 1 us
    let model = ModelConfig::parse(SMALL, None).unwrap();
    let deployment = Deployment { memory_bandwidth_ratio: 0.5, ..Deployment::new(1, 2, 5) };
    let bound = roofline(&model, &slow, &deployment, &Measured::default()).unwrap();
    let head = bound.components.iter().find(|c| c.part == Part::LmHead).unwrap();
    assert_eq!((head.time_ns, head.bound), (6_400_000, Bound::Compute));
    // at half the bandwidth a byte takes 2 ns
    let row = bound.components.iter().find(|c| c.part == Part::Embedding).unwrap();
    assert_eq!((row.time_ns, row.bound), (128, Bound::Memory));
}

#[test]
fn measurements_replace_the_data_file() {
    let model = ModelConfig::parse(SMALL, None).unwrap();
    let measured = Measured {
        device: Some("the one here".to_owned()),
        copy_bytes_per_s: Some(0.5e9),
        bf16_flops: Some(1e6),
        all_reduce: vec![MeasuredAllReduce { ranks: 2, message_bytes: 64, time_ns: 7.0 }],
        ..Measured::default()
    };
    let deployment = Deployment::new(2, 2, 5);
    let bound = roofline(&model, &gpu(), &deployment, &measured).unwrap();
    let row = bound.components.iter().find(|c| c.part == Part::Embedding).unwrap();
    assert_eq!(row.time_ns, 128);
    let head = bound.components.iter().find(|c| c.part == Part::LmHead).unwrap();
    assert_eq!(head.time_ns, 3_200_000); // half of 6400 FLOP
    assert_eq!((bound.collectives[0].time_ns, bound.collectives[0].bound), (28, Bound::Latency));
    assert!(bound.assumptions[0].contains("measured copy on the one here"));
    // what the user states comes first
    let stated = Deployment {
        memory_bytes_per_s: Some(2e9),
        all_reduce_ns: Some(1000),
        ..Deployment::new(2, 2, 5)
    };
    let bound = roofline(&model, &gpu(), &stated, &measured).unwrap();
    let row = bound.components.iter().find(|c| c.part == Part::Embedding).unwrap();
    assert_eq!((row.time_ns, bound.collectives_ns), (32, 4000));
}

#[test]
fn speculation_pays_for_drafting() {
    let speculation = Some(Speculation { draft_tokens: 1, accepted_tokens: 1.5 });
    let deployment = Deployment { speculation, ..Deployment::new(1, 1, 5) };
    let bound = bound(SMALL, &deployment);
    // verifying 2 tokens of one request is as 2 requests of one token, but reads the cache of one:
    // 16,432 - 640
    check(&bound, Part::KvRead, "full", 2, 640, 2560);
    let speculation = bound.speculation.as_ref().unwrap();
    assert_eq!(speculation.verify_ns, 15_792);
    // drafting, one layer, one token: attention 3072, router 128, one expert 960, shared 960,
    // head 3200, norms (3 x 16) x 3 x 2 = 288, embedding 32, cache 320 + 64,
    // projection 2 x 16 x 16 x 2 = 1024
    assert_eq!(speculation.draft_ns, 10_048);
    assert_eq!(bound.step_ns, 25_840);
    assert!((speculation.accepted_token_ns - 25_840.0 / 1.5).abs() < 1e-9);
    assert!((bound.tokens_per_s - 1.5e9 / 25_840.0).abs() < 1e-6);
}

#[test]
fn parts_can_be_left_out() {
    let exclude = Part::BESIDE_WEIGHTS.to_vec();
    let bound = bound(SMALL, &Deployment { exclude, ..Deployment::new(1, 2, 5) });
    assert_eq!(bound.memory_bytes, 14_032); // 16,432 - 800 - 64 - 1280 - 256
    let line = "left out: embedding, norms, index keys, KV read, KV write";
    assert!(bound.assumptions.iter().any(|l| l == line), "{:?}", bound.assumptions);
}

#[test]
fn impossible_deployments_are_refused() {
    let model = ModelConfig::parse(SMALL, None).unwrap();
    let base = Deployment::new(4, 1, 5);
    let speculation = Some(Speculation { draft_tokens: 1, accepted_tokens: 3.0 });
    for (deployment, message) in [
        (Deployment { batch: 0, ..base.clone() }, "roofline: `batch` is 0"),
        (Deployment { tp: 0, ..base.clone() }, "roofline: `tp` is 0"),
        (
            Deployment { ep: 3, ..base.clone() },
            "roofline: 4 ranks cannot form 3 equal groups (`ep`)",
        ),
        (
            Deployment { memory_bandwidth_ratio: 1.5, ..base.clone() },
            "roofline: `memory_bandwidth_ratio` is 1.5, must be above 0 and at most 1",
        ),
        (
            Deployment { memory_bytes_per_s: Some(-1.0), ..base.clone() },
            "roofline: `memory_bytes_per_s` is -1, must be a positive number",
        ),
        (
            Deployment { all_reduce_ns: Some(-1), ..base.clone() },
            "roofline: `all_reduce_ns` is -1, must be at least 0",
        ),
        (
            Deployment { speculation, ..base.clone() },
            "roofline: `accepted_tokens` is 3, must be between 1 and the drafted tokens plus one",
        ),
    ] {
        let error = roofline(&model, &gpu(), &deployment, &Measured::default()).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    let none = Deployment { tp: 0, ..base };
    let error = roofline(&model, &gpu(), &none, &Measured::default()).unwrap_err();
    assert_eq!(error, RooflineError::Zero { field: "tp" });
}
