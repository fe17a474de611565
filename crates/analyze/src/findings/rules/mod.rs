//! The rules, one per file.

mod alloc001;
mod cap001;
mod cast001;
mod comm001;
mod comm002;
mod comm003;
mod fuse001;
mod fuse002;
mod gc001;
mod gemm001;
mod gemm002;
mod graph001;
mod host001;
mod host002;
mod host003;
mod jit001;
mod kv001;
mod mem001;
mod moe001;
mod prof001;

use super::Rule;

/// Every rule, in order of code.
pub(super) const ALL: &[Rule] = &[
    alloc001::RULE,
    cap001::RULE,
    cast001::RULE,
    comm001::RULE,
    comm002::RULE,
    comm003::RULE,
    fuse001::RULE,
    fuse002::RULE,
    gc001::RULE,
    gemm001::RULE,
    gemm002::RULE,
    graph001::RULE,
    host001::RULE,
    host002::RULE,
    host003::RULE,
    jit001::RULE,
    kv001::RULE,
    mem001::RULE,
    moe001::RULE,
    prof001::RULE,
];
