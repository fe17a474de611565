//! The bound of GLM-5 on eight RTX PRO 6000: one engine, two sets of assumptions.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)] // helpers of tests

use steptally_analyze::roofline::{
    Deployment, Format, Hardware, Measured, ModelConfig, Part, Precision, Roofline, Sharding,
    roofline,
};

const CONFIG: &str = include_str!("data/roofline/glm-5.json");
const QUANT: &str = include_str!("data/roofline/glm-5-nvfp4.quant.json");

fn bound(deployment: &Deployment) -> Roofline {
    let model = ModelConfig::parse(CONFIG, Some(QUANT)).unwrap();
    let hardware = Hardware::built_in().unwrap();
    let gpu = hardware.find("RTX PRO 6000").unwrap();
    roofline(&model, gpu, deployment, &Measured::default()).unwrap()
}

fn part_bytes(bound: &Roofline, part: Part, name: &str) -> u64 {
    let found = bound.components.iter().filter(|c| c.part == part && c.name == name);
    found.map(|component| component.memory_bytes).sum()
}

#[test]
fn all_weights_in_four_bits_and_sharded() {
    let deployment = Deployment {
        precision: Precision::Uniform(Format::nvfp4(16)),
        sharding: Sharding::Ideal,
        exclude: [&Part::BESIDE_WEIGHTS[..], &[Part::Indexer]].concat(),
        all_reduce_ns: Some(10_000),
        ..Deployment::new(8, 1, 1024)
    };
    let bound = bound(&deployment);
    // weights of one token without indexer, router, head: 12,871,532,544 + 679,477,248 +
    // 25,480,396,800 = 39,031,406,592 at 4.5 bits = 21,955,166,208 B
    // router 117,964,800 x 2 = 235,929,600 B, head 951,582,720 x 2 = 1,903,165,440 B
    // sum 24,094,261,248 B / 8 = 3,011,782,656 B / 1.792 TB/s = 1.680682 ms
    assert_eq!(bound.memory_bytes, 3_011_782_656);
    assert!((bound.components_ns - 1_680_682).abs() <= 6, "{}", bound.components_ns);
    // 2 x 78 all-reduces of 10 us; message 6144 x 2 B, ring x 2 x 7/8: 156 x 12288 x 1.75
    let [all_reduce] = &bound.collectives[..] else { panic!("one kind of collective") };
    assert_eq!((all_reduce.count, all_reduce.message_bytes), (156, 12_288));
    assert_eq!((all_reduce.payload_bytes, all_reduce.ring_bytes), (1_916_928, 3_354_624));
    assert_eq!(bound.collectives_ns, 1_560_000);
    assert!((bound.step_ns - 3_240_682).abs() <= 6); // 3.24 ms
    assert_eq!(bound.tokens_per_s.round(), 309.0);
}

#[test]
fn the_published_checkpoint_as_it_is_served() {
    let deployment = Deployment { all_reduce_ns: Some(10_000), ..Deployment::new(8, 1, 1024) };
    let bound = bound(&deployment);
    let attention = Part::AttentionProjections;
    for (part, name, bytes) in [
        (attention, "q_a_proj", 1_962_934_272_u64), // 78 x 12,582,912 x 2, replicated
        (attention, "q_b_proj", 654_311_424),       // 78 x 33,554,432 x 2 / 8
        (attention, "kv_a_proj_with_mqa", 552_075_264), // 78 x 3,538,944 x 2, replicated
        (attention, "kv_b_proj", 286_261_248),      // 78 x 14,680,064 x 2 / 8
        (attention, "o_proj", 1_962_934_272),       // 78 x 100,663,296 x 2 / 8
        (Part::Indexer, "wq_b", 1_308_622_848),     // 78 x 8,388,608 x 2, replicated
        (Part::Indexer, "wk", 122_683_392),         // 78 x 786,432 x 2
        (Part::Indexer, "weights_proj", 30_670_848), // 78 x 196,608 x 2
        (Part::RoutedExperts, "experts", 1_592_524_800), // 75 x 8 x 37,748,736 x 0.5625 / 8
        (Part::SharedExperts, "shared experts", 199_065_600), // 75 x 37,748,736 x 0.5625 / 8
        (Part::DenseMlp, "mlp", 47_775_744),        // 3 x 226,492,416 x 0.5625 / 8
        (Part::Router, "router", 235_929_600),      // 75 x 1,572,864 x 2, replicated
        (Part::LmHead, "lm_head", 237_895_680),     // 951,582,720 x 2 / 8
        (Part::KvRead, "selected tokens", 46_006_272), // 78 x 1024 x 576 x 1
        (Part::IndexKeys, "index keys", 10_543_104), // 78 x 1024 x (128 + 4)
        (Part::KvWrite, "new tokens", 44_928),      // 78 x 576
        (Part::KvWrite, "new index keys", 10_296),  // 78 x 132
        // (157 x 6144 + 78 x (2048 + 512)) x 3 x 2: weight, input, output
        (Part::Norms, "norms", 6_985_728),
        (Part::Embedding, "embedding row", 12_288),
    ] {
        assert_eq!(part_bytes(&bound, part, name), bytes, "{name}");
    }
    // their sum, 9,257,287,608 B / 1.792 TB/s = 5.165897 ms, + 1.56 ms = 6.725897 ms
    assert_eq!(bound.memory_bytes, 9_257_287_608);
    assert!((bound.step_ns - 6_725_897).abs() <= 10, "{}", bound.step_ns);
    assert_eq!((bound.step_ns as f64 / 1e4).round(), 673.0);
    assert_eq!(bound.tokens_per_s.round(), 149.0);
    // weights of one rank fit into 95.6 GiB
    assert!(!bound.assumptions.iter().any(|line| line.contains("do not fit")));
    assert!(bound.assumptions[0].starts_with("memory bandwidth 1792 GB/s (aiconfigurator"));
    assert!(bound.assumptions[0].contains("1597: NVIDIA product page"));
}

#[test]
fn the_same_with_the_server_cards_bandwidth_or_without_indexer() {
    let published = Deployment { all_reduce_ns: Some(10_000), ..Deployment::new(8, 1, 1024) };
    // 9,257,287,608 / 1.597e12 = 5.796674 ms + 1.56 = 7.356674 ms
    let server = Deployment { memory_bytes_per_s: Some(1.597e12), ..published.clone() };
    let server = bound(&server);
    assert_eq!((server.step_ns as f64 / 1e4).round(), 736.0);
    assert_eq!((server.tokens_per_s * 10.0).round(), 1359.0);
    // less the indexer's 1,461,977,088 B: 7,795,310,520 / 1.792e12 = 4.350062 ms + 1.56 = 5.91 ms
    let without = bound(&Deployment { exclude: vec![Part::Indexer], ..published });
    assert_eq!((without.step_ns as f64 / 1e4).round(), 591.0);
    assert_eq!(without.tokens_per_s.round(), 169.0);
}

#[test]
fn long_context_is_paid_in_index_keys() {
    let bound = bound(&Deployment::new(8, 1, 131_072));
    // 78 x 131072 x 132 = 1,349,517,312 B = 753 us; 78 x 2048 x 576 = 92,012,544 B = 51 us
    let find = |part| bound.components.iter().find(|c| c.part == part).unwrap();
    assert_eq!(find(Part::IndexKeys).memory_bytes, 1_349_517_312);
    assert_eq!(find(Part::IndexKeys).time_ns, 753_079);
    assert_eq!(find(Part::KvRead).memory_bytes, 92_012_544);
    assert_eq!(find(Part::KvRead).time_ns, 51_346);
}

#[test]
fn the_draft_layer_is_excluded_from_quantisation() {
    let model = ModelConfig::parse(CONFIG, Some(QUANT)).unwrap();
    let draft = model.draft().unwrap();
    assert_eq!(draft.layers.len(), 1);
    // 'model.layers.78*' keeps it in BF16, so one token reads its experts at 2 B:
    // its weights (active, with head): 165,019,648 + 9,371,648 + 1,572,864 + 9 x 37,748,736 +
    // 951,582,720
    assert_eq!(draft.parameters().active, 1_467_285_504);
    let name = "model.layers.78.mlp.experts.0.down_proj";
    assert!(model.quantization.format_of(name).is_none());
}
