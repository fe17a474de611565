//! What an operator reads and writes, from the shapes and types of its inputs; types of elements
//! from kernel names.

use serde_json::Value;

/// Bytes and types of one call.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Traffic {
    pub(super) read_bytes: Option<u64>,
    pub(super) written_bytes: Option<u64>,
    pub(super) source: Option<&'static str>,
    pub(super) destination: Option<&'static str>,
    /// Shapes of the operands that are read or written in whole.
    pub(super) whole: Vec<Vec<u64>>,
}

/// Types as operators record them (`c10::BFloat16`) and as kernel names have them, the name that
/// PyTorch shows, bytes per element.
const TYPES: &[(&str, &str, u64)] = &[
    ("c10::BFloat16", "bfloat16", 2),
    ("__nv_bfloat16", "bfloat16", 2),
    ("c10::Half", "float16", 2),
    ("__half", "float16", 2),
    ("half", "float16", 2),
    ("float", "float32", 4),
    ("double", "float64", 8),
    ("c10::Float8_e5m2fnuz", "float8_e5m2fnuz", 1),
    ("c10::Float8_e5m2", "float8_e5m2", 1),
    ("c10::Float8_e4m3fnuz", "float8_e4m3fnuz", 1),
    ("c10::Float8_e4m3fn", "float8_e4m3fn", 1),
    ("c10::Float8_e8m0fnu", "float8_e8m0fnu", 1),
    ("__nv_fp8_e4m3", "float8_e4m3fn", 1),
    ("__nv_fp8_e5m2", "float8_e5m2", 1),
    ("long int", "int64", 8),
    ("long long", "int64", 8),
    ("long", "int64", 8),
    ("int", "int32", 4),
    ("short int", "int16", 2),
    ("short", "int16", 2),
    ("signed char", "int8", 1),
    ("char", "int8", 1),
    ("unsigned char", "uint8", 1),
    ("unsigned short", "uint16", 2),
    ("unsigned int", "uint32", 4),
    ("unsigned long", "uint64", 8),
    ("bool", "bool", 1),
    ("c10::complex<float>", "complex64", 8),
    ("c10::complex<double>", "complex128", 16),
];

/// Name and size of a type.
pub(super) fn dtype(text: &str) -> Option<(&'static str, u64)> {
    let found = TYPES.iter().find(|(recorded, ..)| *recorded == text);
    found.map(|&(_, name, size)| (name, size))
}

/// The type that a kernel writes, as its name says: the argument of its innermost lambda, or of
/// its fill functor.
pub(super) fn written_by_kernel(name: &str) -> Option<&'static str> {
    let argument = |from: usize, close: char| {
        let rest = &name[from..];
        dtype(rest[..rest.find(close)?].trim()).map(|(name, _)| name)
    };
    // A float8_copy kernel's lambda has the type that it reads.
    if name.contains("float8_copy_kernel_cuda") {
        return None;
    }
    for known in ["bfloat16_copy_kernel_cuda", "float16_copy_kernel_cuda"] {
        if name.contains(known) {
            return Some(known.trim_end_matches("_copy_kernel_cuda"));
        }
    }
    if let Some(at) = name.find("FillFunctor<") {
        return argument(at + "FillFunctor<".len(), '>');
    }
    if !name.contains("direct_copy_kernel_cuda") {
        return None;
    }
    let lambdas = name.rmatch_indices("lambda(");
    let types: Vec<_> = lambdas.filter_map(|(at, word)| argument(at + word.len(), ')')).collect();
    // The lambda that turns an index into an element has an int as well.
    types.iter().find(|&&name| name != "int32").or(types.first()).copied()
}

/// How many elements a kernel of PyTorch's elementwise family goes over, rounded up to whole blocks:
/// blocks times threads times the elements of a thread, which the name states.
pub(super) fn elements_of_launch(name: &str, grid: [u32; 3], block: [u32; 3]) -> Option<u64> {
    let digits = |text: &str| -> Option<u64> {
        let text = text.strip_prefix("(int)").unwrap_or(text);
        text[..text.find(|c: char| !c.is_ascii_digit())?].parse().ok()
    };
    let per_thread = if name.contains("unrolled_elementwise_kernel<") {
        // `std::array<char*, 2ul>, 4, TrivialOffsetCalculator<..>`
        let before = name.split(", TrivialOffsetCalculator").next()?;
        digits(&format!("{},", before.rsplit(", ").next()?))?
    } else {
        // `elementwise_kernel<128, 4, ..>`
        let at = name.find(" at::native::elementwise_kernel<")?;
        let arguments = &name[at + " at::native::elementwise_kernel<".len()..];
        digits(arguments.split(", ").nth(1).map(|text| format!("{text},"))?.as_str())?
    };
    let sizes = grid.into_iter().chain(block).map(u64::from);
    let all = sizes.chain([per_thread]).try_fold(1u64, u64::checked_mul)?;
    (all > 0).then_some(all)
}

/// Inputs of an operator.
struct Inputs {
    dims: Vec<Value>,
    types: Vec<String>,
}

impl Inputs {
    fn parse(dims: &str, types: &str) -> Option<Self> {
        let dims = serde_json::from_str(dims).ok()?;
        let types = serde_json::from_str::<Vec<Value>>(types).unwrap_or_default();
        let text = |value: Value| value.as_str().unwrap_or_default().to_owned();
        Some(Self { dims, types: types.into_iter().map(text).collect() })
    }

    /// The shape of input `index`, when it is a tensor; without sizes: a scalar.
    fn shape(&self, index: usize) -> Option<Vec<u64>> {
        shape(self.dims.get(index)?)
    }

    /// The shapes of a list of tensors.
    fn list(&self, index: usize) -> Option<Vec<Vec<u64>>> {
        let shapes: Vec<_> = self.dims.get(index)?.as_array()?.iter().map(shape).collect();
        shapes.into_iter().collect::<Option<Vec<_>>>().filter(|shapes| !shapes.is_empty())
    }

    fn dtype(&self, index: usize) -> Option<(&'static str, u64)> {
        dtype(self.types.get(index)?)
    }
}

fn shape(value: &Value) -> Option<Vec<u64>> {
    value.as_array()?.iter().map(Value::as_u64).collect()
}

/// Number of elements; `None` when it does not fit.
fn elements(shape: &[u64]) -> Option<u64> {
    shape.iter().try_fold(1u64, |product, &size| product.checked_mul(size))
}

/// The first dimension of the first input that has two or more.
pub(super) fn leading_size(dims: &str) -> Option<u64> {
    let inputs = Inputs::parse(dims, "[]")?;
    let shapes = (0..inputs.dims.len()).filter_map(|index| inputs.shape(index));
    shapes.into_iter().find(|shape| shape.len() >= 2).map(|shape| shape[0])
}

/// What a call of `op` moves.
///
/// # Errors
/// A sentence that says why that is not known.
pub(super) fn traffic(op: &str, dims: &str, types: &str, kernel: &str) -> Result<Traffic, String> {
    if dims.is_empty() {
        return Err("input shapes were not recorded".to_owned());
    }
    let unreadable = || format!("the input shapes of {op} cannot be read");
    let inputs = Inputs::parse(dims, types).ok_or_else(unreadable)?;
    let name = op.strip_prefix("aten::").unwrap_or(op);
    let found = match name {
        // (destination, source, ...)
        "copy_" => copied(&inputs, 0, 1),
        "fill_" | "zero_" | "zeros_like" | "ones_like" | "full_like" => filled(&inputs),
        "clone" | "contiguous" | "_to_copy" | "to" => {
            let mut moved = copied(&inputs, 0, 0);
            if name == "_to_copy" || name == "to" {
                // The type that it becomes is no input.
                if let Some(moved) = &mut moved {
                    moved.destination = None;
                    moved.written_bytes = None;
                }
            }
            moved
        }
        "cat" | "stack" | "_foreach_copy_" => listed(&inputs, kernel),
        // (self, indices, values, ...)
        "_index_put_impl_" | "index_put_" => sized(&inputs, inputs.shape(2), 2),
        "index_select" => sized(&inputs, selected(&inputs, inputs.shape(2)), 0),
        "index" => {
            let indices = inputs.list(1);
            sized(
                &inputs,
                selected(&inputs, indices.filter(|l| l.len() == 1).map(|l| l[0].clone())),
                0,
            )
        }
        _ => return Err(format!("how much {op} moves does not follow from its input shapes")),
    };
    found.ok_or_else(|| format!("how much this call of {op} moves does not follow from its inputs"))
}

fn copied(inputs: &Inputs, to: usize, from: usize) -> Option<Traffic> {
    let (written, read) = (inputs.shape(to)?, inputs.shape(from)?);
    let (destination, source) = (inputs.dtype(to), inputs.dtype(from));
    let bytes = |shape: &[u64], dtype: Option<(&str, u64)>| elements(shape)?.checked_mul(dtype?.1);
    Some(Traffic {
        read_bytes: bytes(&read, source),
        written_bytes: bytes(&written, destination),
        source: source.map(|(name, _)| name),
        destination: destination.map(|(name, _)| name),
        whole: vec![written, read],
    })
    .filter(|traffic| traffic.source.is_some() || traffic.destination.is_some())
}

fn filled(inputs: &Inputs) -> Option<Traffic> {
    let (shape, (name, size)) = (inputs.shape(0)?, inputs.dtype(0)?);
    Some(Traffic {
        read_bytes: Some(0),
        written_bytes: Some(elements(&shape)?.checked_mul(size)?),
        source: None,
        destination: Some(name),
        whole: vec![shape],
    })
}

/// A list of tensors that is moved as a whole; the type of lists is not recorded, the size of an
/// element is in the kernel's name.
fn listed(inputs: &Inputs, kernel: &str) -> Option<Traffic> {
    let shapes = inputs.list(0)?;
    let rest = &kernel[kernel.find("OpaqueType<")? + "OpaqueType<".len()..];
    let digits = rest.find(|c: char| !c.is_ascii_digit())?;
    // nsys writes `<(unsigned int)2>`.
    let size: u64 = match rest.strip_prefix("(unsigned int)") {
        Some(rest) => rest[..rest.find(|c: char| !c.is_ascii_digit())?].parse().ok()?,
        None => rest[..digits].parse().ok()?,
    };
    let count = shapes.iter().try_fold(0u64, |sum, shape| sum.checked_add(elements(shape)?))?;
    let bytes = count.checked_mul(size)?;
    Some(Traffic {
        read_bytes: Some(bytes),
        written_bytes: Some(bytes),
        source: None,
        destination: None,
        whole: shapes,
    })
}

/// As many elements as `shape` has are read and written, with the type of input `index`; the
/// operand itself is only touched there.
fn sized(inputs: &Inputs, shape: Option<Vec<u64>>, index: usize) -> Option<Traffic> {
    let (name, size) = inputs.dtype(index)?;
    let bytes = elements(&shape?)?.checked_mul(size)?;
    Some(Traffic {
        read_bytes: Some(bytes),
        written_bytes: Some(bytes),
        source: Some(name),
        destination: Some(name),
        whole: Vec::new(),
    })
}

/// The shape that indexing the first dimension of input 0 gives.
fn selected(inputs: &Inputs, indices: Option<Vec<u64>>) -> Option<Vec<u64>> {
    let (indices, from) = (indices?, inputs.shape(0)?);
    let rest = from.get(1..).filter(|_| !indices.is_empty())?;
    Some(indices.into_iter().chain(rest.iter().copied()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cast_reads_one_type_and_writes_another() {
        // 131072 x 4 x 128 = 67108864 elements: 1 byte read, 2 bytes written each.
        let found = traffic(
            "aten::copy_",
            "[[131072, 4, 128], [131072, 4, 128], []]",
            r#"["c10::BFloat16", "c10::Float8_e5m2", "Scalar"]"#,
            "",
        )
        .unwrap();
        assert_eq!((found.read_bytes, found.written_bytes), (Some(67_108_864), Some(134_217_728)));
        assert_eq!((found.source, found.destination), (Some("float8_e5m2"), Some("bfloat16")));
    }

    #[test]
    fn bytes_of_other_operators() {
        let bytes = |op, dims, types, kernel| {
            traffic(op, dims, types, kernel).map(|t| (t.read_bytes, t.written_bytes))
        };
        let both = |n| Ok((Some(n), Some(n)));
        assert_eq!(
            bytes("aten::fill_", "[[32], []]", r#"["float", "Scalar"]"#, ""),
            Ok((Some(0), Some(128)))
        );
        // 3 rows of 2048 elements of 2 bytes.
        let types = r#"["c10::BFloat16", "Scalar", "long int"]"#;
        assert_eq!(
            bytes("aten::index_select", "[[32000, 2048], [], [3]]", types, ""),
            both(12_288)
        );
        // 4 x 4 x 128 bytes, whatever the pool's size.
        let types = r#"["unsigned char", "", "unsigned char", "Scalar"]"#;
        assert_eq!(
            bytes("aten::index_put_", "[[131072, 4, 128], [], [4, 4, 128], []]", types, ""),
            both(2048)
        );
        // 2 x (4 x 1024) elements of 2 bytes.
        let cat = "CatArrayBatchedCopy<at::native::OpaqueType<2u>, unsigned int, 2, 64, 64>";
        let types = r#"["TensorList", "Scalar"]"#;
        assert_eq!(bytes("aten::cat", "[[[4, 1024], [4, 1024]], []]", types, cat), both(16_384));
    }

    #[test]
    fn what_is_unknown_says_why() {
        let why = |op, dims, types| traffic(op, dims, types, "").unwrap_err();
        assert_eq!(why("aten::copy_", "", ""), "input shapes were not recorded");
        assert!(why("aten::copy_", "[[1", "").ends_with("cannot be read"));
        assert!(why("my::op", "[[1]]", "[]").contains("does not follow from its input shapes"));
        assert!(why("aten::index", "[[9], []]", r#"["long int", ""]"#).contains("this call"));
    }

    #[test]
    fn kernel_names_say_what_they_write() {
        let cast = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda\
                    (at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#12}::\
                    operator()() const::{lambda(c10::BFloat16)#1}, std::array<char*, 2ul>, 4>";
        assert_eq!(written_by_kernel(cast), Some("bfloat16"));
        let nsys = "direct_copy_kernel_cuda(at::TensorIteratorBase &)::[lambda() (instance 3)]::\
                    operator ()() const::[lambda(float) (instance 1)], std::array<char *, 2ul>";
        assert_eq!(written_by_kernel(nsys), Some("float32"));
        let fill = "vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array>";
        assert_eq!(written_by_kernel(fill), Some("float32"));
        // What the lambda has here is what is read: one of several types of 8 bits is written.
        let to_fp8 = "elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::\
                      float8_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(c10::BFloat16)#2}>";
        assert_eq!(written_by_kernel(to_fp8), None);
        // The lambda of an index kernel says nothing about elements.
        assert_eq!(written_by_kernel("index_elementwise_kernel<128, 4, {lambda(int)#1}>"), None);
    }

    #[test]
    fn launches_say_how_many_elements() {
        // The cast of 131072 x 4 x 128 elements ran with 131072 blocks of 128 threads.
        let elements = |name| elements_of_launch(name, [131_072, 1, 1], [128, 1, 1]);
        let unrolled = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_\
                        cuda(at::TensorIteratorBase&)::{lambda(c10::BFloat16)#1}, std::array<char*, \
                        2ul>, 4, TrivialOffsetCalculator<1, unsigned int>>";
        assert_eq!(elements(unrolled), Some(67_108_864));
        let strided = "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl>";
        assert_eq!(elements(strided), Some(33_554_432));
        assert_eq!(elements("nvjet_sm90"), None);
    }
}
