//! The text of layer-wise NVTX markers: a Python dict literal that names a module and its shapes.
//!
//! ```text
//! {'Module': 'model.layers.0.self_attn', 'TrainableParams': {'weight': [6144, 2048]},
//!  'Inputs': [[1, 6144]], 'StaticParams': {'eps': 1e-06}}
//! ```

/// What a layer-wise marker says about the module that is being called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleMark {
    /// Path of the module, `model.layers.0.self_attn`.
    pub module: String,
    /// Its parameters with their shapes, in elements.
    pub params: Vec<(String, Vec<u64>)>,
    /// Shapes of the input tensors, in elements.
    pub inputs: Vec<Vec<u64>>,
    /// Shapes of the output tensors, in elements.
    pub outputs: Vec<Vec<u64>>,
    /// Other settings of the module, values as the literal's text.
    pub static_params: Vec<(String, String)>,
}

/// Reads a layer-wise marker. `None` when the text is not a dict that has a `Module`. Unknown keys
/// are passed over, and a text that was cut gives what is there.
#[must_use]
pub fn parse_module_mark(text: &str) -> Option<ModuleMark> {
    let text = text.trim_start();
    // Cheap refusal first: most NVTX texts are something else.
    if !text.starts_with('{') || !text.contains("Module") {
        return None;
    }
    let mut parser = Parser { text, at: 0, depth: 0 };
    let Literal::Dict(entries) = parser.value()? else {
        return None;
    };
    let mut mark = ModuleMark::default();
    let mut named = false;
    for (key, value) in entries {
        match (key.as_str(), value) {
            ("Module", Literal::Text(module)) => {
                mark.module = module;
                named = true;
            }
            ("TrainableParams", Literal::Dict(params)) => {
                mark.params = params
                    .into_iter()
                    .filter_map(|(name, shape)| Some((name, shape.shape()?)))
                    .collect();
            }
            ("Inputs", value) => mark.inputs = value.shapes(),
            ("Outputs", value) => mark.outputs = value.shapes(),
            ("StaticParams", Literal::Dict(params)) => {
                mark.static_params =
                    params.into_iter().map(|(name, value)| (name, value.to_text())).collect();
            }
            _ => {}
        }
    }
    named.then_some(mark)
}

/// A Python literal, as far as markers use it.
#[derive(Clone, Debug, PartialEq)]
enum Literal {
    Text(String),
    /// A number, `None`, `True`, or any other bare word, as written.
    Word(String),
    /// A list or tuple.
    List(Vec<Literal>),
    Dict(Vec<(String, Literal)>),
}

impl Literal {
    fn shape(&self) -> Option<Vec<u64>> {
        let Self::List(items) = self else { return None };
        let size = |item: &Self| match item {
            Self::Word(word) => word.parse().ok(),
            _ => None,
        };
        items.iter().map(size).collect()
    }

    /// All shapes in nested lists, in order. A list of sizes is one shape; so is an empty list,
    /// within a list of shapes.
    fn shapes(&self) -> Vec<Vec<u64>> {
        let Self::List(items) = self else {
            return Vec::new();
        };
        if !items.is_empty()
            && let Some(shape) = self.shape()
        {
            return vec![shape];
        }
        let shapes = |item: &Self| match item {
            Self::List(inner) if inner.is_empty() => vec![Vec::new()],
            item => item.shapes(),
        };
        items.iter().flat_map(shapes).collect()
    }

    fn to_text(&self) -> String {
        match self {
            Self::Text(text) | Self::Word(text) => text.clone(),
            Self::List(items) => {
                let items: Vec<String> = items.iter().map(Self::to_text).collect();
                format!("[{}]", items.join(", "))
            }
            Self::Dict(entries) => {
                let entries: Vec<String> = entries
                    .iter()
                    .map(|(key, value)| format!("{key}: {}", value.to_text()))
                    .collect();
                format!("{{{}}}", entries.join(", "))
            }
        }
    }
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    /// Deeper texts are no markers.
    const DEPTH: usize = 32;

    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn skip_space(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn accept(&mut self, wanted: char) -> bool {
        self.skip_space();
        let found = self.peek() == Some(wanted);
        if found {
            self.at += wanted.len_utf8();
        }
        found
    }

    /// A value; `None` at the end of the text and at what cannot begin one.
    fn value(&mut self) -> Option<Literal> {
        self.skip_space();
        match self.peek()? {
            '{' => self.nested('}', Self::dict),
            '[' => self.nested(']', Self::list),
            '(' => self.nested(')', Self::list),
            '\'' | '"' => Some(Literal::Text(self.quoted())),
            _ => self.word(),
        }
    }

    fn nested(&mut self, close: char, items: fn(&mut Self, char) -> Literal) -> Option<Literal> {
        if self.depth == Self::DEPTH {
            return None;
        }
        self.depth += 1;
        self.at += 1;
        let items = items(self, close);
        self.depth -= 1;
        Some(items)
    }

    fn list(&mut self, close: char) -> Literal {
        let mut items = Vec::new();
        while !self.accept(close) {
            let Some(item) = self.value() else { break };
            items.push(item);
            if !self.accept(',') {
                self.accept(close);
                break;
            }
        }
        Literal::List(items)
    }

    fn dict(&mut self, close: char) -> Literal {
        let mut entries = Vec::new();
        while !self.accept(close) {
            let Some(key) = self.value() else { break };
            if !self.accept(':') {
                break;
            }
            let Some(value) = self.value() else { break };
            entries.push((key.to_text(), value));
            if !self.accept(',') {
                self.accept(close);
                break;
            }
        }
        Literal::Dict(entries)
    }

    /// A quoted string with Python's escapes; one that never ends goes up to the end of the text.
    fn quoted(&mut self) -> String {
        let mut chars = self.text[self.at..].char_indices();
        let quote = chars.next().map(|(_, quote)| quote);
        let mut value = String::new();
        while let Some((at, c)) = chars.next() {
            if Some(c) == quote {
                self.at += at + c.len_utf8();
                return value;
            }
            if c != '\\' {
                value.push(c);
                continue;
            }
            match chars.next().map(|(_, escaped)| escaped) {
                Some('n') => value.push('\n'),
                Some('t') => value.push('\t'),
                Some('r') => value.push('\r'),
                Some(other) => value.push(other),
                None => {}
            }
        }
        self.at = self.text.len();
        value
    }

    /// A bare word, with what it is called with: `torch.Size([1])`, `<class 'x'>`, `-1e-06`.
    fn word(&mut self) -> Option<Literal> {
        let rest = &self.text[self.at..];
        let (mut open, mut length) = (0_usize, rest.len());
        for (at, c) in rest.char_indices() {
            match c {
                '(' | '[' | '{' | '<' => open += 1,
                ')' | ']' | '}' | '>' if open > 0 => open -= 1,
                ',' | ':' | ')' | ']' | '}' if open == 0 => {
                    length = at;
                    break;
                }
                _ => {}
            }
        }
        let word = rest[..length].trim();
        self.at += length;
        (!word.is_empty()).then(|| Literal::Word(word.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_whole_marker() {
        let mark = parse_module_mark(
            "{'Module': 'model.layers.0.self_attn', 'TrainableParams': {'weight': [2112, 7168], \
             'weight_scale_inv': [17, 56]}, 'Inputs': [[1, 6144], [1]], 'Outputs': [[1, 2112]], \
             'positions': [[1]], 'StaticParams': {'eps': 1e-06, 'act': 'silu', 'dtype': \
             torch.bfloat16, 'shape': torch.Size([2, 3]), 'tp': (1, 2)}}",
        );
        let text = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(
            mark,
            Some(ModuleMark {
                module: "model.layers.0.self_attn".into(),
                params: vec![
                    ("weight".into(), vec![2112, 7168]),
                    ("weight_scale_inv".into(), vec![17, 56]),
                ],
                inputs: vec![vec![1, 6144], vec![1]],
                outputs: vec![vec![1, 2112]],
                static_params: vec![
                    text("eps", "1e-06"),
                    text("act", "silu"),
                    text("dtype", "torch.bfloat16"),
                    text("shape", "torch.Size([2, 3])"),
                    text("tp", "[1, 2]"),
                ],
            })
        );
    }

    #[test]
    fn only_the_module_is_needed() {
        let module = |text| parse_module_mark(text).map(|mark| mark.module);
        assert_eq!(module("{'Module': 'model'}").as_deref(), Some("model"));
        assert_eq!(module("{\"Module\": \"it's\"}").as_deref(), Some("it's"));
        assert_eq!(module(r"{'Module': 'it\'s'}").as_deref(), Some("it's"));
        assert_eq!(module("{'Inputs': [[1]]}"), None);
        assert_eq!(module("{'Module': 3}"), None);
        assert_eq!(module("Module"), None);
        assert_eq!(module(""), None);
    }

    #[test]
    fn a_cut_text_gives_what_is_there() {
        let mark =
            parse_module_mark("{'Module': 'a.b', 'TrainableParams': {'weight': [2, 3").unwrap();
        assert_eq!(mark.module, "a.b");
        assert_eq!(mark.params, [("weight".to_owned(), vec![2, 3])]);
        assert_eq!(parse_module_mark("{'Module': 'a.b").unwrap().module, "a.b");
    }

    #[test]
    fn scalars_and_nested_inputs() {
        let inputs = |text| parse_module_mark(text).unwrap().inputs;
        assert_eq!(
            inputs("{'Module': 'm', 'Inputs': [[[1, 2], [3]], []]}"),
            [vec![1, 2], vec![3], vec![]]
        );
        assert_eq!(inputs("{'Module': 'm', 'Inputs': [4, 5]}"), [vec![4, 5]]);
        assert!(inputs("{'Module': 'm', 'Inputs': None}").is_empty());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in r"\{?'Module'[\[\]{}(),:'\\ a1é]{0,40}") {
            let _ = parse_module_mark(&text);
        }
    }

    #[test]
    fn depth_is_bounded() {
        assert_eq!(
            parse_module_mark(&format!("{{'Module': 'm', 'x': {}", "[".repeat(100_000)))
                .unwrap()
                .module,
            "m"
        );
    }
}
