//! The texts by which engines mark steps.
//!
//! - SGLang: `step[DECODE bs=8]`, `step[EXTEND bs=1 toks=1024]`, further `key=value` pairs allowed.
//! - vLLM: `execute_context_C(CT)_generation_G(GT)` and
//!   `execute_N_context_C(sq..)_generation_G(sq..)`: C prompts and G decoding requests.
//! - PyTorch: `ProfilerStep#N`.
//! - Generic: `step`, `step 3`, `step_3`, `decode step 3`, `iteration 7`, `graph step 2`.

use std::fmt;

/// What a step does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum StepKind {
    Extend,
    Decode,
    Mixed,
    Verify,
    Draft,
    Idle,
    /// A kind that is not known, by the mark's own name.
    Other(String),
}

impl fmt::Display for StepKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Extend => "extend",
            Self::Decode => "decode",
            Self::Mixed => "mixed",
            Self::Verify => "verify",
            Self::Draft => "draft",
            Self::Idle => "idle",
            Self::Other(name) => name,
        })
    }
}

/// Which grammar a mark is of, most telling first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Grammar {
    Pattern,
    SgLang,
    Vllm,
    ProfilerStep,
    Generic,
}

impl Grammar {
    pub(crate) fn code(self) -> &'static str {
        match self {
            Self::Pattern => "marks.pattern",
            Self::SgLang => "marks.sglang",
            Self::Vllm => "marks.vllm",
            Self::ProfilerStep => "marks.profiler_step",
            Self::Generic => "marks.generic",
        }
    }

    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Pattern => "ranges that match the given pattern",
            Self::SgLang => "step[..] marks of SGLang",
            Self::Vllm => "execute_.. marks of vLLM",
            Self::ProfilerStep => "ProfilerStep# marks",
            Self::Generic => "ranges named like steps",
        }
    }
}

/// A parsed mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MarkText {
    pub(crate) grammar: Grammar,
    pub(crate) kind: StepKind,
    pub(crate) batch_size: Option<u64>,
}

/// Reads a mark's text; `None` when it does not mark a step.
pub(crate) fn parse(text: &str) -> Option<MarkText> {
    sglang(text).or_else(|| vllm(text)).or_else(|| profiler_step(text)).or_else(|| generic(text))
}

/// Reads the text of a range that the user's pattern matched.
pub(crate) fn parse_matched(text: &str) -> MarkText {
    let kind_of_text = || MarkText {
        grammar: Grammar::Pattern,
        kind: StepKind::Other(without_number(text).to_owned()),
        batch_size: None,
    };
    let known = parse(text).map(|mark| MarkText { grammar: Grammar::Pattern, ..mark });
    known.unwrap_or_else(kind_of_text)
}

fn sglang(text: &str) -> Option<MarkText> {
    let inside = text.strip_prefix("step[")?.split(']').next()?;
    let mut words = inside.split_whitespace();
    let name = words.next()?;
    let kind = match name.to_ascii_uppercase().as_str() {
        "EXTEND" | "PREFILL" | "SPLIT_PREFILL" => StepKind::Extend,
        "DECODE" => StepKind::Decode,
        "MIXED" => StepKind::Mixed,
        "VERIFY" | "TARGET_VERIFY" => StepKind::Verify,
        "IDLE" => StepKind::Idle,
        upper if upper.starts_with("DRAFT") => StepKind::Draft,
        _ => StepKind::Other(name.to_ascii_lowercase()),
    };
    let batch_size = words.find_map(|word| word.strip_prefix("bs=")?.parse().ok());
    Some(MarkText { grammar: Grammar::SgLang, kind, batch_size })
}

fn vllm(text: &str) -> Option<MarkText> {
    let rest = text.strip_prefix("execute_")?;
    let context = count_after(rest, "context_")?;
    let generation = count_after(rest, "generation_")?;
    let kind = match (context, generation) {
        (0, 0) => StepKind::Idle,
        (0, _) => StepKind::Decode,
        (_, 0) => StepKind::Extend,
        _ => StepKind::Mixed,
    };
    let batch_size = Some(context.saturating_add(generation));
    Some(MarkText { grammar: Grammar::Vllm, kind, batch_size })
}

fn count_after(text: &str, key: &str) -> Option<u64> {
    let rest = &text[text.find(key)? + key.len()..];
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    rest[..digits].parse().ok()
}

fn profiler_step(text: &str) -> Option<MarkText> {
    text.strip_prefix("ProfilerStep")?;
    let kind = StepKind::Other("profiler_step".to_owned());
    Some(MarkText { grammar: Grammar::ProfilerStep, kind, batch_size: None })
}

fn generic(text: &str) -> Option<MarkText> {
    let name = without_number(text).to_ascii_lowercase();
    let kind = match name.as_str() {
        "decode" | "decode step" | "decode_step" => StepKind::Decode,
        "prefill" | "prefill step" | "prefill_step" | "extend" => StepKind::Extend,
        "step" | "iteration" | "iter" | "graph step" | "train step" | "forward step" => {
            StepKind::Other(name)
        }
        _ => return None,
    };
    Some(MarkText { grammar: Grammar::Generic, kind, batch_size: None })
}

/// The text without a number at its end and what ties it: `step_3`, `step #3`, `step 3`.
fn without_number(text: &str) -> &str {
    text.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches([' ', '_', '#', ':', '-'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, grammar: Grammar, kind: &str, batch_size: Option<u64>) {
        let mark = parse(text).unwrap_or_else(|| panic!("{text} is not a mark"));
        assert_eq!(
            (mark.grammar, mark.kind.to_string().as_str(), mark.batch_size),
            (grammar, kind, batch_size),
            "{text}"
        );
    }

    #[test]
    fn engines_marks_are_read() {
        check("step[DECODE bs=64]", Grammar::SgLang, "decode", Some(64));
        check("step[EXTEND bs=4 toks=16384]", Grammar::SgLang, "extend", Some(4));
        check("step[DECODE bs=8 g_sq=8 g_sk=900 forward_id=3]", Grammar::SgLang, "decode", Some(8));
        check("step[MIXED bs=62]", Grammar::SgLang, "mixed", Some(62));
        check("step[TARGET_VERIFY bs=2]", Grammar::SgLang, "verify", Some(2));
        check("step[DRAFT_EXTEND bs=2]", Grammar::SgLang, "draft", Some(2));
        check("step[IDLE]", Grammar::SgLang, "idle", None);
        check("step[PREBUILT bs=1]", Grammar::SgLang, "prebuilt", Some(1));
        check("execute_context_0(0)_generation_8(8)", Grammar::Vllm, "decode", Some(8));
        check("execute_context_2(900)_generation_0(0)", Grammar::Vllm, "extend", Some(2));
        check("execute_context_1(512)_generation_3(3)", Grammar::Vllm, "mixed", Some(4));
        check(
            "execute_515_context_1(sq4sk4sqsq16sqsk16)_generation_3(sq3sk9sqsq3sqsk9)",
            Grammar::Vllm,
            "mixed",
            Some(4),
        );
        check("ProfilerStep#12", Grammar::ProfilerStep, "profiler_step", None);
        check("step", Grammar::Generic, "step", None);
        check("step 3", Grammar::Generic, "step", None);
        check("graph step 2", Grammar::Generic, "graph step", None);
        check("decode_step_7", Grammar::Generic, "decode", None);
    }

    #[test]
    fn other_ranges_are_no_steps() {
        for text in ["scheduler.run_batch", "layer 3", "aten::mm", "stepper", "execute_model", ""] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_matched_range_takes_its_kind_from_its_text() {
        assert_eq!(parse_matched("forward 12").kind.to_string(), "forward");
        assert_eq!(parse_matched("step[DECODE bs=2]").kind, StepKind::Decode);
    }
}
