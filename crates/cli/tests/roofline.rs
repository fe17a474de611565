//! `steptally roofline` from outside: GLM-5 on eight RTX PRO 6000, and every error.

#![allow(clippy::unwrap_used)] // in the tests' own functions

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The fields of GLM-5's config.json that its cost depends on.
const GLM_5: &str = r#"{
  "model_type": "glm_moe_dsa", "dtype": "bfloat16", "hidden_size": 6144, "vocab_size": 154880,
  "num_hidden_layers": 78, "num_attention_heads": 64, "num_key_value_heads": 64, "head_dim": 64,
  "q_lora_rank": 2048, "kv_lora_rank": 512, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64,
  "v_head_dim": 256, "index_n_heads": 32, "index_head_dim": 128, "index_topk": 2048,
  "intermediate_size": 12288, "moe_intermediate_size": 2048, "first_k_dense_replace": 3,
  "moe_layer_freq": 1, "n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1,
  "num_nextn_predict_layers": 1, "tie_word_embeddings": false
}"#;

/// As ModelOpt writes it: attention and output head stay in BF16.
const NVFP4: &str = r#"{"quantization": {
  "quant_algo": "NVFP4", "group_size": 16, "kv_cache_quant_algo": "FP8",
  "exclude_modules": ["lm_head", "model.layers.*.self_attn*", "model.layers.78*"]
}}"#;

fn steptally(args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steptally"));
    let output = command.args(args).env("COLUMNS", "160").output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn model(folder: &Path) -> PathBuf {
    std::fs::write(folder.join("config.json"), GLM_5).unwrap();
    std::fs::write(folder.join("hf_quant_config.json"), NVFP4).unwrap();
    folder.to_owned()
}

/// Runs `roofline` on GLM-5 with `args`, which must succeed.
fn glm_5(args: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = model(folder.path());
    let model = ["roofline", "--model", path.to_str().unwrap(), "--gpu", "RTX PRO 6000"];
    let (code, stdout, stderr) = steptally(&[&model, args].concat());
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    stdout
}

/// Runs `args`, which must fail with `code`, an error and a hint that hold these texts.
fn fails(args: &[&str], code: i32, error: &str, hint: &str) {
    let (actual, stdout, stderr) = steptally(args);
    assert_eq!((actual, stdout.as_str()), (code, ""), "{stderr}");
    assert!(stderr.starts_with("error: ") && stderr.contains(error), "{stderr}");
    assert!(hint.is_empty() || stderr.contains("hint: ") && stderr.contains(hint), "{stderr}");
}

const ALL_IN_FOUR_BITS: &[&str] = &[
    "--tp",
    "8",
    "--batch",
    "1",
    "--context",
    "1024",
    "--precision",
    "nvfp4",
    "--sharding",
    "ideal",
    "--exclude",
    "beside-weights,indexer",
    "--all-reduce-us",
    "10",
];

const AS_PUBLISHED: &[&str] =
    &["--tp", "8", "--batch", "1", "--context", "1024", "--all-reduce-us", "10"];

#[test]
fn all_weights_in_four_bits() {
    // 24,094,261,248 B / 8 / 1.792 TB/s = 1.681 ms, + 156 x 10 us = 3.24 ms; 156 x 12288 B x 1.75
    let text = glm_5(ALL_IN_FOUR_BITS);
    assert!(text.contains("takes at least 3.24 ms: 309 tokens/s"), "{text}");
    assert!(text.contains("3.355") && text.contains("1.917"), "{text}");
    assert!(text.contains("ASSUMPTIONS") && text.contains("memory bandwidth 1792 GB/s"), "{text}");
    assert!(text.contains("left out: "), "{text}");
}

#[test]
fn as_the_checkpoint_is_published() {
    let text = glm_5(AS_PUBLISHED);
    assert!(text.contains("takes at least 6.73 ms: 149 tokens/s"), "{text}");
    assert!(text.contains("parameters 743.9 B"), "{text}");
    for name in ["q_a_proj", "lm_head", "weights_proj", "selected tokens", "replicated", "nvfp4"] {
        assert!(text.contains(name), "{name}: {text}");
    }
}

#[test]
fn json_has_exact_numbers_and_its_schema_names_them() {
    let args = [ALL_IN_FOUR_BITS, &["--format", "json"]].concat();
    let json: Value = serde_json::from_str(&glm_5(&args)).unwrap();
    assert_eq!(json["memory_bytes"], 3_011_782_656_u64);
    assert_eq!(json["collectives"][0]["ring_bytes"], 3_354_624);
    assert_eq!(json["collectives"][0]["count"], 156);
    assert_eq!(json["schema_version"], 1);
    let (code, schema, _) = steptally(&["roofline", "--json-schema"]);
    let schema: Value = serde_json::from_str(&schema).unwrap();
    assert_eq!(code, 0);
    for key in json.as_object().unwrap().keys() {
        assert!(schema["properties"].get(key).is_some(), "{key}");
    }
}

#[test]
fn a_single_file_with_the_quantisation_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = model(folder.path());
    let quant = folder.path().join("quant.json");
    std::fs::rename(path.join("hf_quant_config.json"), &quant).unwrap();
    let config = path.join("config.json");
    let base = ["roofline", "--model", config.to_str().unwrap(), "--gpu", "RTX PRO 6000"];
    let all = [&base, AS_PUBLISHED].concat();
    let (_, without, _) = steptally(&all);
    assert!(!without.contains("nvfp4"), "{without}");
    let (_, with, _) = steptally(&[all, vec!["--quantization", quant.to_str().unwrap()]].concat());
    assert!(with.contains("takes at least 6.73 ms"), "{with}");
}

#[test]
fn measurements_come_before_the_data_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("measured.json");
    let text = r#"{"device": "Card", "copy_bytes_per_s": 0.896e12,
        "all_reduce": [{"ranks": 8, "message_bytes": 12288, "time_ns": 20000}], "more": 1}"#;
    std::fs::write(&file, text).unwrap();
    // half the bandwidth: 3,011,782,656 B / 0.896 TB/s = 3.361364 ms; 156 x 20 us = 3.12 ms
    let mut args = ALL_IN_FOUR_BITS[..ALL_IN_FOUR_BITS.len() - 2].to_vec();
    args.extend(["--measured", file.to_str().unwrap(), "--format", "json"]);
    let json: Value = serde_json::from_str(&glm_5(&args)).unwrap();
    assert_eq!(json["collectives_ns"], 3_120_000);
    let parts = json["components_ns"].as_i64().unwrap();
    assert!((parts - 3_361_364).abs() <= 8, "{parts}");
    assert!(json["assumptions"][0].as_str().unwrap().contains("measured copy on Card"));
}

#[test]
fn measurements_of_another_gpu_are_cautioned() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("measured.json");
    let caution = |device: &str| {
        let text = format!(r#"{{"device": "{device}", "copy_bytes_per_s": 1.5e12}}"#);
        std::fs::write(&file, text).unwrap();
        glm_5(&["--measured", file.to_str().unwrap()]).contains("CAUTION: the measurements are of")
    };
    assert!(caution("NVIDIA H200"));
    assert!(!caution("NVIDIA RTX PRO 6000 Blackwell Server Edition"));
}

#[test]
fn speculation_is_shown_per_accepted_token() {
    let text =
        glm_5(&[AS_PUBLISHED, &["--draft-tokens", "3", "--accepted-tokens", "2.5"]].concat());
    assert!(text.contains("per accepted token of a request"), "{text}");
}

#[test]
fn lines_fit_the_columns() {
    let folder = tempfile::tempdir().unwrap();
    let path = model(folder.path());
    for width in [60, 80, 120] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_steptally"));
        command.args(["roofline", "--gpu", "H200", "--model"]).arg(&path);
        let output = command.env("COLUMNS", width.to_string()).output().unwrap();
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            let long_path = line.contains("config.json");
            assert!(long_path || line.chars().count() <= width, "{width}: {line}");
        }
    }
}

#[test]
fn errors_have_a_code_and_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let path = model(folder.path());
    let path = path.to_str().unwrap();
    let with = |more: &[&'static str]| {
        let base = ["roofline", "--model", path, "--gpu", "H200"];
        [&base, more].concat().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let check = |more: &[&'static str], code, error: &str, hint: &str| {
        let args = with(more);
        fails(&args.iter().map(String::as_str).collect::<Vec<_>>(), code, error, hint);
    };
    fails(&["roofline"], 2, "--model", "");
    let gpu = ["roofline", "--model", path, "--gpu", "TPU"];
    fails(&gpu, 2, "unknown GPU `TPU`; known are", "--hardware");
    let missing = ["roofline", "--model", "/nowhere", "--gpu", "H200"];
    fails(&missing, 3, "cannot read /nowhere", "config.json");
    check(&["--tp", "0"], 2, "`tp` is 0", "");
    check(&["--tp", "8", "--all-reduce-us", "inf"], 2, "number of microseconds", "");
    check(&["--tp", "8", "--all-reduce-us", "NaN"], 2, "number of microseconds", "");
    check(&["--tp", "8", "--all-reduce-us", "1e300"], 2, "no decode step does", "all-reduce");
    check(&["--batch", "18446744073709551615"], 2, "no decode step does", "batch size");
    check(&["--context", "18446744073709551615"], 2, "no decode step does", "context");
    check(&["--bandwidth", "1e-9"], 2, "no decode step does", "bandwidth");
    check(&["--bandwidth", "inf"], 2, "must be a positive number", "");
    check(&["--tp", "8", "--ep", "3"], 2, "8 ranks cannot form 3 equal groups", "");
    check(&["--bandwidth-ratio", "1.5"], 2, "`memory_bandwidth_ratio` is 1.5", "");
    check(&["--precision", "fp7"], 2, "expected bf16", "");
    check(&["--exclude", "wheels"], 2, "unknown variant `wheels`", "");
    check(&["--draft-tokens", "2"], 2, "--accepted-tokens", "");
    check(&["--measured", "/nowhere"], 3, "cannot read /nowhere", "steptally bench");
    check(&["--hardware", "/nowhere"], 3, "cannot read /nowhere", "");
    check(&["-o", "/nowhere/x"], 3, "cannot write /nowhere/x", "");

    let bad = folder.path().join("bad.json");
    let bad_path = bad.to_str().unwrap();
    std::fs::write(&bad, "{\"vocab_size\": 7}").unwrap();
    fails(&["roofline", "--model", bad_path, "--gpu", "H200"], 3, "no `hidden_size`", "");
    let measured = ["roofline", "--model", path, "--gpu", "H200", "--measured", bad_path];
    std::fs::write(&bad, "{\"bf16_flops\": -1}").unwrap();
    fails(&measured, 3, "`bf16_flops` is -1", "steptally bench");
    for other in [GLM_5, "{}"] {
        std::fs::write(&bad, other).unwrap();
        fails(&measured, 3, "not a `steptally bench` file", "steptally bench -o FILE");
    }
    let method = GLM_5.replacen('{', r#"{"quantization_config": {"quant_method": "odd"},"#, 1);
    std::fs::write(&bad, method).unwrap();
    let unknown = ["roofline", "--model", bad_path, "--gpu", "H200"];
    fails(&unknown, 3, "method `odd` is not known", "state one precision");
    let hardware = ["roofline", "--model", path, "--gpu", "H200", "--hardware", bad_path];
    fails(&hardware, 3, "hardware file: ", "hardware.toml");
}
