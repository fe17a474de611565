//! Kernel names for people: C++ signatures without what every kernel has.

use std::collections::HashMap;

/// Template arguments that say nothing about what a kernel does.
const NOISE: [&str; 7] = [
    "array<",
    "TrivialOffsetCalculator<",
    "OffsetCalculator<",
    "LoadWithCast<",
    "StoreWithCast<",
    "LoadWithoutCast",
    "StoreWithoutCast",
];

/// Templates that only wrap the function that matters.
const WRAPPERS: [&str; 5] = [
    "gpu_kernel_impl_nocast<",
    "gpu_kernel_impl<",
    "gpu_index_kernel<",
    "device_kernel<",
    "enable_sm90_or_later<",
];

/// Different spellings of one type.
const TYPES: [(&str, &str); 11] = [
    ("__nv_bfloat16", "bf16"),
    ("BFloat16", "bf16"),
    ("bfloat16_t", "bf16"),
    ("__half", "f16"),
    ("Half", "f16"),
    ("half_t", "f16"),
    ("float", "f32"),
    ("double", "f64"),
    ("Float8_e4m3fn", "e4m3"),
    ("Float8_e5m2", "e5m2"),
    ("unsigned int", "uint"),
];

/// Nesting beyond which a name is left as it is.
const MAX_DEPTH: u32 = 48;

/// A kernel's name without return type, parameters, namespaces and arguments that every kernel of
/// its kind has:
///
/// `void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16>,
/// std::array<char*, 3ul> >(int, ...)` becomes `vectorized_elementwise_kernel<8,
/// CUDAFunctor_add<bf16>>`. Names that are no C++ signatures stay as they are.
#[must_use]
pub fn short_kernel_name(name: &str) -> String {
    let signature = name.strip_prefix("void ").unwrap_or(name);
    if !(signature.contains("::") || signature.contains('<') || signature.len() < name.len()) {
        return name.to_owned();
    }
    let mut parser = Parser { rest: signature };
    match parser.path(0) {
        Some(short) if !short.is_empty() && is_tail(parser.rest) => short,
        _ => name.to_owned(),
    }
}

/// What may follow a signature: nothing, or a compiler's note such as ` [clone .kd]`.
fn is_tail(rest: &str) -> bool {
    rest.trim().is_empty() || rest.trim_start().starts_with('[') || rest.starts_with(".kd")
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    /// Reads up to the partner of an opening bracket that was just read.
    fn bracketed(&mut self, open: char, close: char) -> Option<&'a str> {
        let mut depth = 1;
        for (at, c) in self.rest.char_indices() {
            if c == open {
                depth += 1;
            } else if c == close {
                depth -= 1;
                if depth == 0 {
                    let inside = &self.rest[..at];
                    self.rest = &self.rest[at + close.len_utf8()..];
                    return Some(inside);
                }
            }
        }
        None
    }

    /// One type or function, up to a `,` or `>` that is not its own. `None`: not understood.
    fn path(&mut self, depth: u32) -> Option<String> {
        if depth > MAX_DEPTH {
            return None;
        }
        let mut parts: Vec<String> = Vec::new();
        let mut part = String::new();
        let mut lambda = None;
        let mut instance = "";
        while let Some(c) = self.rest.chars().next() {
            if matches!(c, ',' | '>') || (depth == 0 && c == '[') {
                break;
            }
            self.next();
            match c {
                ':' if self.rest.starts_with(':') => {
                    self.next();
                    parts.push(std::mem::take(&mut part));
                }
                '<' => {
                    let arguments = self.arguments(depth)?;
                    part = with_arguments(&part, &arguments);
                }
                '(' => {
                    let inside = self.bracketed('(', ')')?;
                    if part == "&" {
                        let function = Parser { rest: inside }.path(depth + 1)?;
                        part =
                            function.rsplit_once(' ').map_or(function.clone(), |(_, f)| f.into());
                    } else if part == "operator" {
                        part.push_str("()");
                    }
                    // Else a cast, `(anonymous namespace)` or parameters: left out.
                }
                '{' => {
                    let inside = self.bracketed('{', '}')?;
                    let parameters =
                        inside.strip_prefix("lambda(").and_then(|p| p.rsplit_once(')'));
                    if let Some((parameters, _)) = parameters {
                        lambda = Some(parameters);
                    }
                }
                // nvcc's lambdas: `function(int)::[lambda(int) (instance 2)]`.
                '[' => {
                    let inside = self.bracketed('[', ']')?;
                    let number = inside.rsplit_once("(instance ").map(|(_, number)| number);
                    match number.filter(|_| inside.starts_with("lambda")) {
                        Some(number) => instance = number.trim_end_matches(')'),
                        None => part.push_str(&format!("[{inside}]")),
                    }
                }
                _ => part.push(c),
            }
        }
        parts.push(part);
        let name =
            parts.iter().rev().map(|part| part.trim().trim_end_matches(" const")).find(|part| {
                !part.is_empty() && *part != "const" && !part.starts_with("operator()")
            })?;
        let mut name = plain(name);
        match lambda {
            Some(parameter) if !name.starts_with('\u{1}') && is_type(parameter) => {
                name = format!("{name}({})", Parser { rest: parameter }.path(depth + 1)?);
            }
            _ => {}
        }
        if !instance.is_empty() {
            name = format!("{name}#{instance}");
        }
        Some(name.trim_start_matches('\u{1}').to_owned())
    }

    /// Template arguments after `<`, up to and including `>`.
    fn arguments(&mut self, depth: u32) -> Option<Vec<String>> {
        let mut arguments = Vec::new();
        loop {
            if self.rest.trim_start().starts_with('>') {
                self.rest = &self.rest.trim_start()[1..];
                return Some(arguments);
            }
            let argument = self.path(depth + 1)?;
            if !NOISE.iter().any(|noise| argument.starts_with(noise)) {
                arguments.push(argument);
            }
            match self.next()? {
                ',' => self.rest = self.rest.trim_start(),
                '>' => return Some(arguments),
                _ => return None,
            }
        }
    }
}

/// Whether a lambda's parameters are a single scalar type, which then says what the lambda does.
fn is_type(parameters: &str) -> bool {
    !parameters.is_empty() && !parameters.contains([',', '*', '&', '<', '('])
}

/// A template with its arguments; wrappers give way to what they wrap. The mark `\u{1}` keeps the
/// caller from adding the wrapper's own lambda.
fn with_arguments(template: &str, arguments: &[String]) -> String {
    let name = template.trim();
    if let [wrapped, ..] = arguments
        && WRAPPERS.iter().any(|wrapper| wrapper.trim_end_matches('<') == name)
    {
        return format!("\u{1}{wrapped}");
    }
    if arguments.is_empty() {
        return name.to_owned();
    }
    format!("{name}<{}>", arguments.join(", "))
}

/// One spelling for each type, and numbers without suffix.
fn plain(word: &str) -> String {
    if let Some((_, short)) = TYPES.iter().find(|(long, _)| *long == word) {
        return (*short).to_owned();
    }
    let digits = word.trim_end_matches(['u', 'l', 'U', 'L']);
    if !digits.is_empty() && digits.trim_start_matches('-').bytes().all(|b| b.is_ascii_digit()) {
        return digits.to_owned();
    }
    word.to_owned()
}

/// Cuts names to `width` characters so that different names stay different.
///
/// Names that would come out alike are cut in the middle instead, keeping what sets them apart.
pub(crate) fn fit_names(names: &[String], width: usize) -> Vec<String> {
    let mut cut: Vec<String> = names.iter().map(|name| cut_end(name, width)).collect();
    let mut groups: HashMap<String, Vec<usize>> = HashMap::new();
    for (index, name) in cut.iter().enumerate() {
        groups.entry(name.clone()).or_default().push(index);
    }
    for group in groups.into_values().filter(|group| group.len() > 1) {
        let common = common_prefix(group.iter().map(|&index| names[index].as_str()));
        for index in group {
            let name = &names[index];
            let length = name.chars().count();
            if length > width && width > 8 {
                // As much of the start as leaves room for what differs, but at least half.
                let head = width.saturating_sub(1 + length.saturating_sub(common)).max(width / 2);
                let tail: String = name.chars().skip(common.max(head)).collect();
                let head: String = name.chars().take(head).collect();
                cut[index] = cut_end(&format!("{head}…{tail}"), width);
            }
        }
    }
    cut
}

/// Cuts `text` to `width` characters, the last being an ellipsis if anything was cut.
pub(crate) fn cut_end(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(width.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

fn common_prefix<'a>(mut names: impl Iterator<Item = &'a str>) -> usize {
    let Some(first) = names.next() else { return 0 };
    names.fold(first.chars().count(), |common, name| {
        first.chars().zip(name.chars()).take(common).take_while(|(a, b)| a == b).count()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, expected: &str) {
        assert_eq!(short_kernel_name(name), expected);
    }

    #[test]
    fn signatures_lose_what_every_kernel_has() {
        check(
            "void at::native::vectorized_elementwise_kernel<8, \
             at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul> >(int, \
             at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul>)",
            "vectorized_elementwise_kernel<8, CUDAFunctor_add<bf16>>",
        );
        check(
            "void (anonymous namespace)::fused_qknorm_warp<128l, true, __nv_bfloat16>((anonymous \
             namespace)::QKNormParams)",
            "fused_qknorm_warp<128, true, bf16>",
        );
        check(
            "void flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)0, \
             2u, flashinfer::DefaultAttention<false, false>, Params>(Params)",
            "BatchDecodeWithPagedKVCacheKernel<0, 2, DefaultAttention<false, false>, Params>",
        );
        check(
            "void flashinfer::activation::act_and_mul_kernel<__nv_bfloat16, &(float \
             silu<float>(float const&))>(__nv_bfloat16*, __nv_bfloat16 const*, int)",
            "act_and_mul_kernel<bf16, silu<f32>>",
        );
        check(
            "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
        );
    }

    #[test]
    fn lambdas_of_nvcc_stay_apart() {
        let of = |number: u32| {
            short_kernel_name(&format!(
                "void clover::par_ranged2d_kernel<build_field(global_variables &)::[lambda(int, int) \
                 (instance {number})]>(clover::Range2d, T1)"
            ))
        };
        assert_eq!(of(1), "par_ranged2d_kernel<build_field#1>");
        assert_eq!(of(2), "par_ranged2d_kernel<build_field#2>");
    }

    #[test]
    fn lambdas_are_named_by_their_function_and_type() {
        check(
            "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::\
             TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#12}::operator()() \
             const::{lambda(c10::BFloat16)#1}, std::array<char*, 2ul>, 4, \
             TrivialOffsetCalculator<1, unsigned int>, TrivialOffsetCalculator<1, unsigned int>, \
             at::native::memory::LoadWithCast<1>, at::native::memory::StoreWithCast<1> >(int, at)",
            "unrolled_elementwise_kernel<direct_copy_kernel_cuda(bf16), 4>",
        );
        check(
            "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<\
             at::native::float8_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(c10::BFloat16)\
             #2}>(at::TensorIteratorBase&, at::native::float8_copy_kernel_cuda(at::\
             TensorIteratorBase&)::{lambda(c10::BFloat16)#2} const&)::{lambda(int)#1}>(int, x)",
            "elementwise_kernel<128, 4, float8_copy_kernel_cuda(bf16)>",
        );
        check(
            "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<\
             at::native::index_kernel_impl<at::native::OpaqueType<8> >(at::TensorIteratorBase&, \
             c10::ArrayRef<long>)::{lambda(char*, char const*, long)#1}>(at::TensorIteratorBase&)\
             ::{lambda(int)#1}>(int, x)",
            "index_elementwise_kernel<128, 4, index_kernel_impl<OpaqueType<8>>>",
        );
    }

    #[test]
    fn other_names_stay_as_they_are() {
        for name in [
            "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT",
            "Memcpy DtoD (Device -> Device)",
            "_fwd_grouped_kernel_stage1",
            "void broken<unclosed",
            "void a::b(",
            "::",
            "",
        ] {
            check(name, name);
        }
        let deep = format!("void f{}", "<a".repeat(5000));
        check(&deep, &deep);
    }

    #[test]
    fn cut_names_stay_different() {
        let names = ["kernel<128, 4, first_functor>", "kernel<128, 4, other_functor>", "nvjet"];
        let names = names.map(str::to_owned);
        let cut = fit_names(&names, 16);
        assert_eq!(cut, ["kernel<1…first_…", "kernel<1…other_…", "nvjet"]);
        let names = ["nvjet_64x8_64x16_v_bz_TNT", "nvjet_64x8_64x16_v_bz_splitK_TNT"];
        let cut = fit_names(&names.map(str::to_owned), 20);
        // What differs begins after 22 characters: "TNT" and "splitK_TNT".
        assert_eq!(cut, ["nvjet_64x8_64x16…TNT", "nvjet_64x8…splitK_T…"]);
    }
}
