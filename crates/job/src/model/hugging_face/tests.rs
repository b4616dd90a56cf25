//! Published configurations, counted to the last parameter.

use super::*;

fn read(text: &str) -> Result<Model, HfError> {
    Model::from_hf(&serde_json::from_str(text).unwrap())
}

/// Oracle: totals that Hugging Face shows for the checkpoints of these configurations.
#[test]
fn published_configurations_give_the_published_counts() {
    let cases = [
        (MISTRAL_7B, 7_241_732_096),
        (QWEN2_7B, 7_615_616_512),
        (QWEN3_8B, 8_190_735_360),
        (QWEN3_30B_A3B, 30_532_122_624),
        (GPT_OSS_20B, 20_914_757_184),
        (GPT2, 124_439_808),
    ];
    for (text, count) in cases {
        let model = read(text).unwrap();
        assert_eq!(model.problems(), []);
        assert_eq!(model.parameters().total(), count, "{text}");
    }
}

/// Agreement: a configuration and the preset of the same model are the same.
#[test]
fn configurations_agree_with_presets() {
    for (text, preset) in [
        (LLAMA3_8B, "llama3-8b"),
        (MIXTRAL, "mixtral-8x7b"),
        (DEEPSEEK_V3, "deepseek-v3"),
        (DEEPSEEK_V2, "deepseek-v2"),
    ] {
        let model = Model { name: Cow::Borrowed(preset), ..read(text).unwrap() };
        assert_eq!(model, Model::preset(preset).unwrap());
    }
}

/// What files have beside the shape, or in odd places, changes nothing.
#[test]
fn traps_of_published_files() {
    let inside = format!(
        r#"{{"model_type": "mistral3", "text_config": {MISTRAL_7B},
        "vision_config": {{"model_type": "pixtral", "hidden_size": 1024}}}}"#
    );
    assert_eq!(read(&inside), read(MISTRAL_7B));
    let unknown = r#"{"model_type": "llama4", "text_config": {"model_type": "llama4_text"}}"#;
    assert!(read(unknown).unwrap_err().to_string().contains("`llama4_text` is not known"));
    let quantised = DEEPSEEK_V3.replacen(
        '{',
        r#"{"quantization_config": {"fmt": "e4m3", "quant_method": "fp8"}, "head_dim": 64,
            "torch_dtype": "bfloat16", "auto_map": {"AutoConfig": "x"}, "#,
        1,
    );
    assert_eq!(read(&quantised), read(DEEPSEEK_V3));
    let tied = LLAMA3_8B.replace("\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
    let (tied, free) = (read(&tied).unwrap(), read(LLAMA3_8B).unwrap());
    assert_eq!(free.parameters().total() - tied.parameters().total(), 128_256 * 4_096);
    let windowed = QWEN2_7B
        .replace("\"use_sliding_window\": false", "\"use_sliding_window\": true")
        .replace("\"max_window_layers\": 28", "\"max_window_layers\": 20");
    assert_eq!(read(&windowed).unwrap().window, Some(Window { tokens: 131_072, layers: 8 }));
    let lite = DEEPSEEK_V2
        .replace("\"q_lora_rank\": 1536", "\"q_lora_rank\": null")
        .replace("\"n_group\": 8", "\"n_group\": 8, \"topk_method\": \"greedy\"");
    let lite = read(&lite).unwrap();
    assert_eq!(lite.latent.unwrap().q_rank, None);
    assert_eq!((lite.experts.unwrap().groups, lite.experts.unwrap().group_limit), (1, 1));
    let null = QWEN2_7B.replace("\"num_key_value_heads\": 4", "\"num_key_value_heads\": null");
    assert_eq!(read(&null).unwrap().kv_heads, 28);
}

#[test]
fn gpt_oss_windows_every_other_layer() {
    let model = read(GPT_OSS_20B).unwrap();
    assert_eq!(model.window, Some(Window { tokens: 128, layers: 12 }));
}

#[test]
fn what_is_not_known_is_said() {
    let message = |text| read(text).unwrap_err().to_string();
    assert_eq!(message("{}"), "the configuration has no `model_type`");
    assert_eq!(
        message(r#"{"model_type": "grok-1"}"#),
        "model_type `grok-1` is not known; known are llama, mistral, mixtral, deepseek_v2, \
         deepseek_v3, qwen2, qwen3, qwen3_moe, gpt_oss, gpt2 (Grok has no configuration of this \
         form: use preset `grok-1`)"
    );
    assert_eq!(
        message(r#"{"model_type": "llama"}"#),
        "`hidden_size` is missing, and model_type `llama` needs it"
    );
    assert_eq!(
        message(&QWEN3_30B_A3B.replace("\"mlp_only_layers\": []", "\"mlp_only_layers\": [7]")),
        "`mlp_only_layers`: only leading layers can be dense, not [7]"
    );
}

const LLAMA3_8B: &str = r#"{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
    "head_dim": null, "vocab_size": 128256, "tie_word_embeddings": false, "rope_theta": 500000.0}"#;
const MISTRAL_7B: &str = r#"{"model_type": "mistral", "hidden_size": 4096,
    "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 8, "sliding_window": 4096, "vocab_size": 32000}"#;
const MIXTRAL: &str = r#"{"model_type": "mixtral", "hidden_size": 4096,
    "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2,
    "sliding_window": null, "vocab_size": 32000}"#;
const QWEN2_7B: &str = r#"{"model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944,
    "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4,
    "sliding_window": 131072, "use_sliding_window": false, "vocab_size": 152064,
    "max_window_layers": 28, "tie_word_embeddings": false}"#;
const QWEN3_8B: &str = r#"{"model_type": "qwen3", "hidden_size": 4096, "intermediate_size": 12288,
    "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8, "head_dim": 128,
    "attention_bias": false, "vocab_size": 151936, "tie_word_embeddings": false}"#;
const QWEN3_30B_A3B: &str = r#"{"model_type": "qwen3_moe", "hidden_size": 2048,
    "intermediate_size": 6144, "moe_intermediate_size": 768, "num_attention_heads": 32,
    "num_hidden_layers": 48, "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128,
    "num_experts_per_tok": 8, "decoder_sparse_step": 1, "mlp_only_layers": [],
    "attention_bias": false, "vocab_size": 151936, "tie_word_embeddings": false}"#;
const GPT_OSS_20B: &str = r#"{"model_type": "gpt_oss", "hidden_size": 2880,
    "intermediate_size": 2880, "num_attention_heads": 64, "num_hidden_layers": 24,
    "num_key_value_heads": 8, "head_dim": 64, "num_local_experts": 32, "num_experts_per_tok": 4,
    "experts_per_token": 4, "sliding_window": 128, "attention_bias": true, "vocab_size": 201088,
    "tie_word_embeddings": false}"#;
const GPT2: &str = r#"{"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12,
    "n_positions": 1024, "n_inner": null, "vocab_size": 50257}"#;
const DEEPSEEK_V2: &str = r#"{"model_type": "deepseek_v2", "hidden_size": 5120,
    "intermediate_size": 12288, "moe_intermediate_size": 1536, "num_attention_heads": 128,
    "num_hidden_layers": 60, "num_key_value_heads": 128, "n_routed_experts": 160,
    "n_shared_experts": 2, "num_experts_per_tok": 6, "n_group": 8, "topk_group": 3,
    "first_k_dense_replace": 1, "moe_layer_freq": 1, "kv_lora_rank": 512, "q_lora_rank": 1536,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 102400,
    "attention_bias": false, "tie_word_embeddings": false}"#;
const DEEPSEEK_V3: &str = r#"{"model_type": "deepseek_v3", "hidden_size": 7168,
    "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_attention_heads": 128,
    "num_hidden_layers": 61, "num_key_value_heads": 128, "n_routed_experts": 256,
    "n_shared_experts": 1, "num_experts_per_tok": 8, "n_group": 8, "topk_group": 4,
    "first_k_dense_replace": 3, "moe_layer_freq": 1, "kv_lora_rank": 512, "q_lora_rank": 1536,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 129280,
    "num_nextn_predict_layers": 1, "attention_bias": false, "tie_word_embeddings": false}"#;
