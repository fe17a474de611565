//! Parameter totals of published models, from the fields of their configs.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)] // helpers of tests

use std::path::PathBuf;

use steptally_analyze::roofline::{ModelConfig, Span};

/// Totals in units of 0.1 B, as the model cards and an independent count state them.
fn check(config: &str, total: f64, active: f64) -> ModelConfig {
    let model = ModelConfig::parse(config, None).unwrap();
    let counted = model.parameters();
    let tenths = |count: u64| (count as f64 / 1e8).round() / 10.0;
    assert_eq!((tenths(counted.total), tenths(counted.active)), (total, active));
    model
}

macro_rules! config {
    ($name:literal) => {
        include_str!(concat!("data/roofline/", $name, ".json"))
    };
}

#[test]
fn totals_of_published_models() {
    check(config!("deepseek-v3"), 671.0, 36.6);
    check(config!("kimi-k2"), 1026.4, 31.7);
    check(config!("qwen3-235b-a22b"), 235.1, 21.6);
    check(config!("qwen3-30b-a3b"), 30.5, 3.0);
    check(config!("llama-3.1-70b"), 70.6, 69.5);
    check(config!("gpt-oss-120b"), 116.8, 5.1);
    // active: 32 x (2 x 4096^2 + 2 x 4096 x 1024 + 4096 x 8 + 2 x 3 x 4096 x 14336) + 32000 x 4096
    // = 12,748,587,008: 12.7; stated elsewhere as 12.8, which is 0.05 B away
    check(config!("mixtral-8x7b"), 46.7, 12.7);
    check(config!("glm-4.5"), 352.8, 32.9);
    check(config!("glm-4.5-air"), 106.9, 12.8);
}

#[test]
fn glm_5_to_the_last_weight() {
    // per layer: q_a 6144 x 2048 = 12,582,912; q_b 2048 x 64 x 256 = 33,554,432;
    // kv_a 6144 x 576 = 3,538,944; kv_b 512 x 64 x 448 = 14,680,064; o 16384 x 6144 = 100,663,296
    // => 165,019,648; indexer 2048 x 4096 + 6144 x 128 + 6144 x 32 = 9,371,648
    // 78 layers: 12,871,532,544 + 730,988,544
    // dense 3 x 3 x 6144 x 12288 = 679,477,248; router 75 x 6144 x 256 = 117,964,800
    // expert 3 x 6144 x 2048 = 37,748,736; x 257 x 75 = 727,606,886,400; x 9 x 75 = 25,480,396,800
    // head 154880 x 6144 = 951,582,720
    let model = check(config!("glm-5"), 743.9, 40.8);
    let counted = model.parameters();
    assert_eq!(counted.total, 743_910_014_976);
    assert_eq!(counted.active, 40_831_942_656);
    assert_eq!(counted.indexer, 730_988_544);
}

#[test]
fn the_indexer_is_part_of_the_totals() {
    // 61 layers of 1536 x 64 x 128 + 7168 x 128 + 7168 x 64 = 13,959,168: 0.85 B on top of V3
    let model = check(config!("deepseek-v3.2"), 671.9, 37.5);
    let counted = model.parameters();
    assert_eq!(counted.indexer, 61 * 13_959_168);
    // without it, what V3 has
    let v3 = ModelConfig::parse(config!("deepseek-v3"), None).unwrap().parameters();
    assert_eq!(counted.total - counted.indexer, v3.total);
    assert_eq!(counted.active - counted.indexer, v3.active);
    // GLM-5.2 runs it in 21 of 78 layers: 21 x 9,371,648
    let model = check(config!("glm-5.2"), 743.4, 40.3);
    assert_eq!(model.parameters().indexer, 21 * 9_371_648);
}

#[test]
fn gpt_oss_alternates_its_windows() {
    let model = ModelConfig::parse(config!("gpt-oss-120b"), None).unwrap();
    assert_eq!(model.layers[0].attention, Span::Sliding(128));
    assert_eq!(model.layers[1].attention, Span::Full);
    assert!(model.notes.iter().any(|note| note == "biases are not counted"));
}

/// The same over the published files themselves, where they are at hand.
#[test]
fn totals_of_whole_files() {
    let shared = std::env::var_os("STEPTALLY_SHARED").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
        PathBuf::from,
    );
    let folder = shared.join("facts/configs");
    if !folder.is_dir() {
        eprintln!("SKIPPED: no published configs in {}", folder.display());
        return;
    }
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    for (name, total, active) in [
        ("deepseek-ai--DeepSeek-V3_config.json", 671.0, 36.6),
        ("deepseek-ai--DeepSeek-V3.2_config.json", 671.9, 37.5),
        ("moonshotai--Kimi-K2-Instruct_config.json", 1026.4, 31.7),
        ("Qwen--Qwen3-235B-A22B_config.json", 235.1, 21.6),
        ("Qwen--Qwen3-30B-A3B_config.json", 30.5, 3.0),
        ("Qwen--Qwen3-30B-A3B-FP8_config.json", 30.5, 3.0),
        ("Qwen--Qwen3-8B_config.json", 8.2, 7.6),
        ("meta-llama--Meta-Llama-3.1-70B_config.json", 70.6, 69.5),
        ("openai--gpt-oss-120b_config.json", 116.8, 5.1),
        ("mistralai--Mixtral-8x7B-v0.1_config.json", 46.7, 12.7),
        ("zai-org--GLM-4.5-Air_fields.json", 106.9, 12.8),
        ("zai-org--GLM-5_config.json", 743.9, 40.8),
        ("zai-org--GLM-5.2_config.json", 743.4, 40.3),
        ("nvidia--GLM-5-NVFP4_config.json", 743.9, 40.8),
        ("nvidia--GLM-5.2-NVFP4_config.json", 743.4, 40.3),
    ] {
        check(&read(name), total, active);
    }
    // the separate file and the config of one checkpoint say the same
    let config = read("nvidia--GLM-5.2-NVFP4_config.json");
    let quant = read("nvidia--GLM-5.2-NVFP4_hf_quant_config.json");
    let inner = ModelConfig::parse(&config, None).unwrap().quantization;
    let separate = ModelConfig::parse(&config, Some(&quant)).unwrap().quantization;
    for (module, name) in [
        ("model.layers.0.mlp.down_proj", None),
        ("model.layers.5.mlp.experts.0.down_proj", Some("nvfp4")),
        ("model.layers.10.mlp.experts.0.down_proj", Some("nvfp4")),
        ("model.layers.5.mlp.shared_experts.down_proj", None),
        ("model.layers.77.self_attn.o_proj", None),
        ("lm_head", None),
    ] {
        for read in [&inner, &separate] {
            assert_eq!(read.format_of(module).map(|f| f.name.as_str()), name, "{module}");
        }
    }
    let quant = read("nvidia--GLM-5-NVFP4_hf_quant_config.json");
    let quantization = ModelConfig::parse(&config, Some(&quant)).unwrap().quantization;
    let name = |module: &str| quantization.format_of(module).map(|format| format.name.clone());
    assert_eq!(name("model.layers.0.mlp.down_proj").as_deref(), Some("nvfp4"));
    assert_eq!(name("model.layers.7.self_attn.q_a_proj"), None);
    assert_eq!(name("model.layers.78.mlp.experts.0.down_proj"), None);
    assert_eq!(quantization.cache().map(|format| format.bits), Some(8.0));
}
