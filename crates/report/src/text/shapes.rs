//! Operator inputs as short text.

use serde_json::Value;

use super::style::printable;

/// Input shapes with their types, scalars and absent inputs left out:
/// `[[4, 2048], []]` with `["c10::BFloat16", "Scalar"]` becomes `bf16[4,2048]`.
/// What is not such a list stays as recorded.
pub(super) fn shapes(dims: &str, types: &str) -> String {
    let Ok(Value::Array(dims_list)) = serde_json::from_str::<Value>(dims) else {
        return printable(dims);
    };
    let types: Vec<String> = serde_json::from_str(types).unwrap_or_default();
    let mut shown = Vec::new();
    for (index, dims) in dims_list.iter().enumerate() {
        let Some(shape) = shape(dims) else { continue };
        let kind = types.get(index).map_or("", String::as_str);
        shown.push(format!("{}{shape}", short_type(kind)));
    }
    printable(&shown.join(" "))
}

/// A tensor's shape, or a list's first shape and how many there are.
fn shape(dims: &Value) -> Option<String> {
    let items = dims.as_array().filter(|items| !items.is_empty())?;
    if items.iter().all(Value::is_number) {
        let sizes: Vec<String> = items.iter().map(Value::to_string).collect();
        return Some(format!("[{}]", sizes.join(",")));
    }
    let first = items.iter().find_map(shape)?;
    Some(format!("{first}x{}", items.len()))
}

fn short_type(name: &str) -> &str {
    match name {
        "c10::BFloat16" => "bf16",
        "c10::Half" => "f16",
        "float" => "f32",
        "double" => "f64",
        "int" => "i32",
        "long int" | "long" => "i64",
        "bool" => "bool",
        "unsigned char" => "u8",
        "signed char" => "i8",
        "c10::Float8_e4m3fn" => "e4m3",
        "c10::Float8_e5m2" => "e5m2",
        "GenericList" | "TensorList" | "Scalar" | "ScalarList" => "",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_carry_their_types() {
        let dims = "[[4, 2048], [], [2048], [[1, 2], [3, 4]]]";
        let types = r#"["c10::BFloat16", "Scalar", "float", "TensorList"]"#;
        assert_eq!(shapes(dims, types), "bf16[4,2048] f32[2048] [1,2]x2");
        assert_eq!(shapes("[[4], []]", ""), "[4]");
        assert_eq!(shapes("[[], \"\"]", "[]"), "");
        assert_eq!(shapes("what\u{7}ever", ""), "what\u{fffd}ever");
        assert_eq!(shapes("", ""), "");
    }
}
