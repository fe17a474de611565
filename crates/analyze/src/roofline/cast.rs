//! A cast of the whole KV pool: what it moves and what that costs at least.

use serde::Serialize;

/// Bytes and least time of casting a KV pool.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct PoolCast {
    /// Read and written in one layer.
    pub layer_bytes: u64,
    /// Read and written in one step, over all layers.
    pub step_bytes: u64,
    /// Least time of a step's casts: `step_bytes / bandwidth`.
    pub time_ns: i64,
}

/// The cost of casting every slot of a KV pool once per layer:
/// `bytes = pool_tokens x width x (source_bytes + target_bytes) x layers`.
///
/// `width` is the number of elements of one token in one layer (MLA: `kv_lora_rank +
/// qk_rope_head_dim`), `source_bytes` and `target_bytes` the size of one element before and after.
/// The cost depends on the size of the pool alone, not on batch or context.
#[must_use]
pub fn pool_cast(
    pool_tokens: u64,
    width: u64,
    source_bytes: u64,
    target_bytes: u64,
    layers: u64,
    bandwidth_bytes_per_s: f64,
) -> PoolCast {
    let elements = pool_tokens.saturating_mul(width);
    let layer_bytes = elements.saturating_mul(source_bytes.saturating_add(target_bytes));
    let step_bytes = layer_bytes.saturating_mul(layers);
    let time_ns = (step_bytes as f64 / bandwidth_bytes_per_s * 1e9).round() as i64;
    PoolCast { layer_bytes, step_bytes, time_ns }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_of_495_000_tokens_costs_37_ms() {
        // 495,000 x 576 = 285,120,000 elements; FP8 read 1 B + BF16 written 2 B = 855,360,000 B a
        // layer; x 78 = 66,718,080,000 B; / 1.792e12 B/s = 37.23107... ms
        let cast = pool_cast(495_000, 576, 1, 2, 78, 1.792e12);
        assert_eq!(cast.layer_bytes, 855_360_000);
        assert_eq!(cast.step_bytes, 66_718_080_000);
        assert_eq!(cast.time_ns, 37_231_071);
    }
}
