//! Reading configs: aliases, pitfalls, precisions and errors.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)] // helpers of tests

use serde_json::{Value, json};
use steptally_analyze::roofline::{Attention, ConfigError, ModelConfig, Span};

/// A dense model's config with `extra` fields on top.
fn config(extra: &Value) -> String {
    let mut base = json!({
        "model_type": "llama", "torch_dtype": "bfloat16", "hidden_size": 64, "vocab_size": 100,
        "num_hidden_layers": 6, "num_attention_heads": 4, "intermediate_size": 128,
    });
    for (name, value) in extra.as_object().unwrap() {
        base[name] = value.clone();
    }
    base.to_string()
}

fn read(extra: &Value) -> ModelConfig {
    ModelConfig::parse(&config(extra), None).unwrap()
}

fn sparse_layers(extra: &Value) -> Vec<usize> {
    let mut fields = json!({"num_experts": 8, "num_experts_per_tok": 2});
    for (name, value) in extra.as_object().unwrap() {
        fields[name] = value.clone();
    }
    let layers = read(&fields).layers;
    layers.iter().enumerate().filter(|(_, layer)| layer.moe).map(|(at, _)| at).collect()
}

fn error(extra: &Value) -> ConfigError {
    ModelConfig::parse(&config(extra), None).unwrap_err()
}

fn quantized(extra: &Value, module: &str) -> Option<(String, f64)> {
    let model = read(&json!({"quantization_config": extra}));
    model.quantization.format_of(module).map(|format| (format.name.clone(), format.bits))
}

#[test]
fn heads_absent_or_different() {
    let Attention::Grouped { kv_heads, head, .. } = read(&json!({})).attention else { panic!() };
    assert_eq!((kv_heads, head), (4, 16));
    let other = json!({"head_dim": 8, "num_key_value_heads": 2});
    let Attention::Grouped { kv_heads, head, .. } = read(&other).attention else { panic!() };
    assert_eq!((kv_heads, head), (2, 8));
    // with latent attention head_dim is something else and is not read
    let latent = json!({"head_dim": 64, "kv_lora_rank": 6, "q_lora_rank": null,
        "qk_nope_head_dim": 3, "qk_rope_head_dim": 2, "v_head_dim": 5});
    let expected =
        Attention::Latent { heads: 4, q_rank: None, kv_rank: 6, nope: 3, rope: 2, value_head: 5 };
    assert_eq!(read(&latent).attention, expected);
}

#[test]
fn a_text_model_inside_another() {
    let outer = json!({
        "model_type": "qwen3_5_moe", "quantization_config": {"quant_method": "fp8"},
        "text_config": {"model_type": "qwen3_5_moe_text", "dtype": "bfloat16", "hidden_size": 32,
            "vocab_size": 10, "num_hidden_layers": 2, "num_attention_heads": 2,
            "num_experts": 4, "num_experts_per_tok": 1, "moe_intermediate_size": 8,
            "shared_expert_intermediate_size": 24},
    });
    let model = ModelConfig::parse(&outer.to_string(), None).unwrap();
    assert_eq!((model.model_type.as_str(), model.hidden), ("qwen3_5_moe_text", 32));
    assert_eq!(model.quantization.method(), Some("fp8"));
    assert_eq!(model.moe.unwrap().shared_width, 24);
}

#[test]
fn rules_for_layers_with_experts() {
    assert_eq!(sparse_layers(&json!({})), [0, 1, 2, 3, 4, 5]);
    assert_eq!(sparse_layers(&json!({"first_k_dense_replace": 4})), [4, 5]);
    assert_eq!(sparse_layers(&json!({"moe_layer_freq": 2, "first_k_dense_replace": 1})), [2, 4]);
    assert_eq!(sparse_layers(&json!({"moe_layer_freq": [0, 1, 0, 1, 1, 0]})), [1, 3, 4]);
    assert_eq!(sparse_layers(&json!({"decoder_sparse_step": 2, "mlp_only_layers": [3]})), [1, 5]);
    let types = ["dense", "dense", "sparse", "sparse", "dense", "sparse"];
    assert_eq!(sparse_layers(&json!({"mlp_layer_types": types})), [2, 3, 5]);
    assert_eq!(read(&json!({"num_experts": 0})).moe, None);
}

#[test]
fn names_of_expert_fields() {
    for (experts, topk) in [
        ("n_routed_experts", "num_experts_per_tok"),
        ("num_experts", "experts_per_token"),
        ("num_local_experts", "moe_topk"),
        ("moe_num_experts", "moe_k"),
    ] {
        let moe = read(&json!({experts: 8, topk: 2})).moe.unwrap();
        // no moe_intermediate_size: the experts have intermediate_size
        assert_eq!((moe.experts, moe.topk, moe.width, moe.shared_width), (8, 2, 128, 0));
    }
}

#[test]
fn windows() {
    let spans = |extra: &Value| -> Vec<bool> {
        let sliding = |span: Span| span == Span::Sliding(9);
        read(extra).layers.iter().map(|layer| sliding(layer.attention)).collect()
    };
    assert_eq!(spans(&json!({"sliding_window": 9})), [true; 6]);
    assert_eq!(spans(&json!({"sliding_window": 9, "use_sliding_window": false})), [false; 6]);
    let gemma = json!({"sliding_window": 9, "sliding_window_pattern": 3});
    assert_eq!(spans(&gemma), [true, true, false, true, true, false]);
    let qwen = json!({"sliding_window": 9, "max_window_layers": 4, "model_type": "qwen2"});
    assert_eq!(spans(&qwen), [false, false, false, false, true, true]);
}

#[test]
fn indexer_layers_by_list_pattern_and_rule() {
    let indexed = |extra: Value| -> Vec<bool> {
        let mut fields = json!({"kv_lora_rank": 6, "q_lora_rank": 4, "qk_nope_head_dim": 3,
            "qk_rope_head_dim": 2, "v_head_dim": 5, "index_n_heads": 2, "index_head_dim": 4,
            "index_topk": 3});
        for (name, value) in extra.as_object().unwrap() {
            fields[name] = value.clone();
        }
        let layers = read(&fields).layers;
        assert!(layers.iter().all(|layer| layer.attention == Span::Sparse(3)));
        layers.iter().map(|layer| layer.indexer).collect()
    };
    assert_eq!(indexed(json!({})), [true; 6]);
    let types = ["full", "shared", "full", "shared", "shared", "full"];
    let by_list = [true, false, true, false, false, true];
    assert_eq!(indexed(json!({"indexer_types": types})), by_list);
    assert_eq!(indexed(json!({"index_topk_pattern": "FSFSSF"})), by_list);
    let by_rule = indexed(json!({"index_topk_freq": 3, "index_skip_topk_offset": 2}));
    assert_eq!(by_rule, [true, true, false, false, true, false]);
}

#[test]
fn precision_of_modules() {
    let (attention, expert) = ("model.layers.1.self_attn.o_proj", "model.layers.1.mlp.experts.0.w");
    let named = |name: &str, bits: f64| Some((name.to_owned(), bits));
    let block = json!({"quant_method": "fp8", "weight_block_size": [128, 128]});
    assert_eq!(quantized(&block, attention), named("fp8 128x128", 8.0 + 32.0 / 16384.0));
    assert_eq!(quantized(&block, "lm_head"), None);
    let mxfp4 =
        json!({"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]});
    assert_eq!(quantized(&mxfp4, attention), None);
    assert_eq!(quantized(&mxfp4, expert), named("mxfp4", 4.25));
    let awq = json!({"quant_method": "awq", "bits": 4, "group_size": 128,
        "modules_to_not_convert": ["self_attn"]});
    assert_eq!(quantized(&awq, expert), named("int4", 4.125));
    assert_eq!(quantized(&awq, attention), None);
    let groups = json!({"quant_method": "compressed-tensors", "ignore": ["lm_head", "re:.*q_proj$"],
        "config_groups": {
            "a": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float"},
                "input_activations": {"num_bits": 8}},
            "b": {"targets": ["re:.*experts.*"], "weights": {"num_bits": 4, "type": "float", "group_size": 16},
                "input_activations": {"num_bits": 4}}}});
    assert_eq!(quantized(&groups, attention), named("fp8", 8.0));
    assert_eq!(quantized(&groups, expert), named("nvfp4", 4.5));
    assert_eq!(quantized(&groups, "model.layers.1.self_attn.q_proj"), None);
    let modelopt = json!({"quant_method": "modelopt", "quant_algo": "NVFP4",
        "ignore": ["model.layers.1.self_attn*"],
        "kv_cache_scheme": {"num_bits": 8, "type": "float"}});
    assert_eq!(quantized(&modelopt, attention), None);
    assert_eq!(quantized(&modelopt, expert), named("nvfp4", 4.5));
    let model = read(&json!({"quantization_config": modelopt}));
    assert_eq!(model.quantization.cache().map(|format| format.bits), Some(8.0));
}

#[test]
fn a_separate_file_with_mixed_precision() {
    let separate = json!({"quantization": {"quant_algo": "MIXED_PRECISION",
        "kv_cache_quant_algo": "FP8", "quantized_layers": {
            "model.layers.1.self_attn.o_proj": {"quant_algo": "FP8"},
            "model.layers.1.mlp.experts*": {"quant_algo": "NVFP4", "group_size": 16}}}});
    let model = ModelConfig::parse(&config(&json!({})), Some(&separate.to_string())).unwrap();
    let name = |module: &str| model.quantization.format_of(module).map(|f| f.name.clone());
    assert_eq!(name("model.layers.1.self_attn.o_proj").as_deref(), Some("fp8"));
    assert_eq!(name("model.layers.1.mlp.experts.0.w").as_deref(), Some("nvfp4"));
    assert_eq!(name("model.layers.2.self_attn.o_proj"), None);
}

#[test]
fn an_unknown_architecture_is_read_with_a_note() {
    let model = read(&json!({"model_type": "brand_new"}));
    let note = "model type `brand_new` is not known: read as a plain decoder-only transformer";
    assert_eq!(model.notes, [note]);
    let typeless = json!({"hidden_size": 64, "vocab_size": 9, "n_layer": 1, "n_head": 4,
        "intermediate_size": 8, "dtype": "float16"});
    let model = ModelConfig::parse(&typeless.to_string(), None).unwrap();
    assert!(model.notes[0].starts_with("model type `unknown`"));
}

#[test]
fn tied_embeddings_are_counted_once() {
    let (apart, tied) = (read(&json!({})), read(&json!({"tie_word_embeddings": true})));
    assert_eq!(apart.parameters().total - tied.parameters().total, 6400);
    assert_eq!(apart.parameters().active, tied.parameters().active);
}

#[test]
fn errors_name_the_field() {
    for (extra, message) in [
        (json!({"hidden_size": null}), "config.json: no `hidden_size` (nor n_embd, d_model, dim)"),
        (
            json!({"num_attention_heads": "four"}),
            "config.json: `num_attention_heads` is \"four\", expected a whole number",
        ),
        (json!({"vocab_size": 0}), "config.json: `vocab_size` is 0, expected a positive number"),
        (
            json!({"num_hidden_layers": 1_000_000}),
            "config.json: `num_hidden_layers` is 1000000, expected at most 10000",
        ),
        (json!({"kv_lora_rank": 6}), "config.json: no `qk_nope_head_dim`"),
        (
            json!({"intermediate_size": null}),
            "config.json: no `intermediate_size` (nor n_inner, ffn_dim)",
        ),
        (
            json!({"layer_types": ["full_attention"]}),
            "config.json: `layer_types` is \"a list of 1\", expected one entry per layer",
        ),
        (
            json!({"num_experts": 4, "num_experts_per_tok": 5}),
            "config.json: `num_experts_per_tok` is 5, expected at most the experts",
        ),
        (
            json!({"num_experts": 4, "num_experts_per_tok": 2, "moe_layer_freq": 0}),
            "config.json: `moe_layer_freq` is 0, expected a positive number",
        ),
        (
            json!({"torch_dtype": "complex64"}),
            "config.json: `dtype` is \"complex64\", expected a float type such as bfloat16",
        ),
        (
            json!({"quantization_config": {"quant_method": "magic"}}),
            "quantisation: method `magic` is not known\nhint: state one precision for all weights",
        ),
    ] {
        assert_eq!(error(&extra).to_string(), message);
    }
    let broken = ModelConfig::parse("[1]", None).unwrap_err().to_string();
    assert!(broken.starts_with("config.json: not a JSON object: invalid type"), "{broken}");
    let broken = ModelConfig::parse(&config(&json!({})), Some("{")).unwrap_err().to_string();
    assert!(broken.starts_with("hf_quant_config.json: not a JSON object: EOF"), "{broken}");
}
