//! The shapes in which a model's decode step calls its kernels.

/// Sizes of a model, in elements. [`ModelShape::typical`] stands in where no model is given.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelShape {
    /// What to call it.
    pub name: String,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Rows of the output head.
    pub vocab: u64,
    /// Sizes of the attention.
    pub attention: AttentionShape,
    /// Inner width of a dense MLP; 0 when no layer has one.
    pub dense_width: u64,
    /// The experts, if it has some.
    pub moe: Option<MoeShape>,
}

/// Sizes of attention.
#[derive(Clone, Debug, PartialEq)]
pub enum AttentionShape {
    /// Query heads that share key/value heads.
    Grouped {
        /// Query heads.
        heads: u64,
        /// Key/value heads.
        kv_heads: u64,
        /// Elements of a head.
        head: u64,
    },
    /// Multi-head latent attention.
    Latent {
        /// Heads.
        heads: u64,
        /// Rank of the query's low-rank form, if it has one.
        q_rank: Option<u64>,
        /// Rank of the latent.
        kv_rank: u64,
        /// Elements of a head without position.
        nope: u64,
        /// Elements of a head with position.
        rope: u64,
        /// Elements of a value head.
        value_head: u64,
    },
}

/// Sizes of a mixture of experts.
#[derive(Clone, Debug, PartialEq)]
pub struct MoeShape {
    /// Routed experts.
    pub experts: u64,
    /// Experts that a token goes to.
    pub topk: u64,
    /// Inner width of one.
    pub width: u64,
    /// Inner width of all shared experts together, 0 without any.
    pub shared_width: u64,
}

/// A matrix product `y[m, n] = x[m, k] w[n, k]^T`, `count` times with different matrices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Product {
    /// What it is in the model.
    pub name: String,
    /// Rows of the input: tokens.
    pub m: u64,
    /// Rows of the weight: outputs.
    pub n: u64,
    /// Columns of both.
    pub k: u64,
    /// How many of them in one call.
    pub count: u64,
}

impl Product {
    fn new(name: &str, m: u64, n: u64, k: u64) -> Self {
        Self { name: name.to_owned(), m, n, k, count: 1 }
    }

    /// A square one, for the peak rate.
    #[must_use]
    pub fn square(size: u64) -> Self {
        Self::new("square", size, size, size)
    }

    /// `2 m n k` for each.
    #[must_use]
    pub fn flops(&self) -> u64 {
        2 * self.count * self.m * self.n * self.k
    }

    /// `m x n x k`, with the number in front.
    #[must_use]
    pub fn shape(&self) -> String {
        let count = if self.count > 1 { format!("{} x ", self.count) } else { String::new() };
        format!("{count}m={} n={} k={}", self.m, self.n, self.k)
    }
}

impl ModelShape {
    /// Sizes as mid-sized models have them, for want of a model: hidden 4096, 64 heads of 128 with
    /// 4 key/value heads, 128 experts of 1536, 8 per token.
    #[must_use]
    pub fn typical() -> Self {
        Self {
            name: "typical shapes (no model given)".to_owned(),
            hidden: 4096,
            vocab: 151_936,
            attention: AttentionShape::Grouped { heads: 64, kv_heads: 4, head: 128 },
            dense_width: 12_288,
            moe: Some(MoeShape { experts: 128, topk: 8, width: 1536, shared_width: 0 }),
        }
    }

    /// The dense products of a step on one of `tp` ranks, each shape once: heads and widths are
    /// split, low-rank projections and the router are whole on every rank, and projections of one
    /// input are one product, as engines fuse them.
    #[must_use]
    pub fn products(&self, tokens: u64, tp: u64) -> Vec<Product> {
        let mut list = Vec::new();
        let mut push = |name: &str, n: u64, k: u64| {
            if n > 0 && k > 0 {
                list.push(Product::new(name, tokens, n, k));
            }
        };
        let hidden = self.hidden;
        match self.attention {
            AttentionShape::Grouped { heads, kv_heads, head } => {
                let heads = heads.div_ceil(tp);
                let kv_heads = kv_heads.div_ceil(tp);
                push("qkv_proj", (heads + 2 * kv_heads) * head, hidden);
                push("o_proj", hidden, heads * head);
            }
            AttentionShape::Latent { heads, q_rank, kv_rank, nope, rope, value_head } => {
                let heads = heads.div_ceil(tp);
                let low = kv_rank + rope;
                match q_rank {
                    Some(rank) => {
                        push("qkv_a_proj", rank + low, hidden);
                        push("q_b_proj", heads * (nope + rope), rank);
                    }
                    None => {
                        push("q_proj", heads * (nope + rope), hidden);
                        push("kv_a_proj", low, hidden);
                    }
                }
                push("kv_b_proj", heads * (nope + value_head), kv_rank);
                push("o_proj", hidden, heads * value_head);
            }
        }
        let dense = self.dense_width.div_ceil(tp);
        push("gate_up_proj", 2 * dense, hidden);
        push("down_proj", hidden, dense);
        if let Some(moe) = &self.moe {
            let shared = moe.shared_width.div_ceil(tp);
            push("shared gate_up", 2 * shared, hidden);
            push("shared down", hidden, shared);
            push("router", moe.experts, hidden);
        }
        push("lm_head", self.vocab.div_ceil(tp), hidden);
        list
    }

    /// The routed experts' two products on one of `tp` ranks: one matrix for each distinct expert
    /// that `tokens` tokens are expected to touch, `E (1 - (1 - k/E)^B)`, each with an equal share
    /// of the choices.
    #[must_use]
    pub fn expert_products(&self, tokens: u64, tp: u64) -> Vec<Product> {
        let Some(moe) = &self.moe else { return Vec::new() };
        let experts = moe.experts as f64;
        let missed = (1.0 - (moe.topk as f64 / experts).min(1.0)).powf(tokens as f64);
        let count = ((experts * (1.0 - missed)).round() as u64).clamp(1, moe.experts);
        let m = (tokens * moe.topk).div_ceil(count);
        let width = moe.width.div_ceil(tp);
        let product = |name: &str, n, k| Product { count, ..Product::new(name, m, n, k) };
        vec![
            product("experts gate_up", 2 * width, self.hidden),
            product("experts down", self.hidden, width),
        ]
    }

    /// Bytes of one token's entry in a layer's KV cache, with values of `value_bytes`, on one of
    /// `tp` ranks.
    #[must_use]
    pub fn kv_row_bytes(&self, value_bytes: u64, tp: u64) -> u64 {
        match self.attention {
            AttentionShape::Grouped { kv_heads, head, .. } => {
                2 * kv_heads.div_ceil(tp) * head * value_bytes
            }
            AttentionShape::Latent { kv_rank, rope, .. } => (kv_rank + rope) * value_bytes,
        }
    }

    /// Heads that turn with the position on one of `tp` ranks, and elements of each that do.
    #[must_use]
    pub fn rotated(&self, tp: u64) -> (u64, u64) {
        match self.attention {
            AttentionShape::Grouped { heads, kv_heads, head } => {
                (heads.div_ceil(tp) + kv_heads.div_ceil(tp), head)
            }
            AttentionShape::Latent { heads, rope, .. } => (heads.div_ceil(tp) + 1, rope),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn glm_5() -> ModelShape {
        ModelShape {
            name: "glm_moe_dsa".to_owned(),
            hidden: 6144,
            vocab: 154_880,
            attention: AttentionShape::Latent {
                heads: 64,
                q_rank: Some(2048),
                kv_rank: 512,
                nope: 192,
                rope: 64,
                value_head: 256,
            },
            dense_width: 12_288,
            moe: Some(MoeShape { experts: 256, topk: 8, width: 2048, shared_width: 2048 }),
        }
    }

    fn shapes(products: &[Product]) -> Vec<(&str, u64, u64, u64)> {
        products.iter().map(|p| (p.name.as_str(), p.n, p.k, p.count)).collect()
    }

    #[test]
    fn latent_attention_on_eight_ranks() {
        // 8 heads per rank: q_b 8 x 256, kv_b 8 x (192 + 256), o from 8 x 256; MLP 12288 / 8 = 1536;
        // shared 2048 / 8 = 256; head 154880 / 8 = 19360; low-rank 2048 + 512 + 64 = 2624 whole
        assert_eq!(
            shapes(&glm_5().products(1, 8)),
            [
                ("qkv_a_proj", 2624, 6144, 1),
                ("q_b_proj", 2048, 2048, 1),
                ("kv_b_proj", 3584, 512, 1),
                ("o_proj", 6144, 2048, 1),
                ("gate_up_proj", 3072, 6144, 1),
                ("down_proj", 6144, 1536, 1),
                ("shared gate_up", 512, 6144, 1),
                ("shared down", 6144, 256, 1),
                ("router", 256, 6144, 1),
                ("lm_head", 19_360, 6144, 1),
            ]
        );
    }

    #[test]
    fn grouped_attention_on_one_rank() {
        let list = ModelShape::typical().products(4, 1);
        // (64 + 2 x 4) x 128 = 9216; 64 x 128 = 8192
        assert_eq!(shapes(&list)[..2], [("qkv_proj", 9216, 4096, 1), ("o_proj", 4096, 8192, 1)]);
        assert!(list.iter().all(|product| product.m == 4 && !product.name.starts_with("shared")));
        // fewer key/value heads than ranks: each rank has one
        let split = ModelShape::typical().products(4, 8);
        assert_eq!(split[0].n, (8 + 2) * 128);
    }

    #[test]
    fn distinct_experts_share_the_choices() {
        let one = glm_5().expert_products(1, 8);
        assert_eq!(
            shapes(&one),
            [("experts gate_up", 512, 6144, 8), ("experts down", 6144, 256, 8)]
        );
        assert_eq!(one[0].m, 1);
        // 256 (1 - (31/32)^64) = 256 x 0.8689.. = 222; 512 choices / 222 = 3 in the busiest
        let many = glm_5().expert_products(64, 1);
        assert_eq!((many[0].count, many[0].m), (222, 3));
        assert_eq!(many[0].flops(), 2 * 222 * 3 * 4096 * 6144);
        assert_eq!(many[0].shape(), "222 x m=3 n=4096 k=6144");
    }

    #[test]
    fn cache_rows_and_rotated_heads() {
        assert_eq!(glm_5().kv_row_bytes(1, 8), 576);
        assert_eq!(glm_5().rotated(8), (9, 64));
        // 2 x 4 x 128 x 2; one head at least on each rank
        assert_eq!(ModelShape::typical().kv_row_bytes(2, 1), 2048);
        assert_eq!(ModelShape::typical().kv_row_bytes(2, 8), 512);
        assert_eq!(ModelShape::typical().rotated(1), (68, 128));
    }

    #[test]
    fn a_square_names_itself() {
        assert_eq!(Product::square(8192).shape(), "m=8192 n=8192 k=8192");
        assert_eq!(Product::square(10).flops(), 2000);
    }
}
