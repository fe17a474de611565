//! What the file names of serving engines say beside the rank: profile id, stage, merged or not.
//!
//! `[{prefix}-]{profile_id}-TP-{r}[-DP-{r}][-PP-{r}][-EP-{r}][-EXTEND|-DECODE].trace.json.gz`, and
//! `merged-{profile_id}.trace.json.gz`.

use std::collections::HashSet;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Extend,
    Decode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ServerName<'a> {
    profile_id: &'a str,
    merged: bool,
    stage: Option<Stage>,
}

impl<'a> ServerName<'a> {
    fn parse(name: &'a str) -> Option<Self> {
        let end = [".trace.json", ".json", ".pt.trace"]
            .iter()
            .filter_map(|suffix| name.find(suffix))
            .min()
            .unwrap_or(name.len());
        let stem = &name[..end];
        if let Some(at) = stem.rfind("-TP-") {
            let tail = stem[at..].to_ascii_uppercase();
            let stage = if tail.ends_with("-EXTEND") || tail.ends_with("-PREFILL") {
                Some(Stage::Extend)
            } else if tail.ends_with("-DECODE") {
                Some(Stage::Decode)
            } else {
                None
            };
            return Some(Self { profile_id: profile_id(&stem[..at]), merged: false, stage });
        }
        let at = stem.rfind("merged-")?;
        let starts = !stem[..at].ends_with(|c: char| c.is_ascii_alphanumeric());
        let profile_id = profile_id(&stem[at + "merged-".len()..]);
        starts.then_some(Self { profile_id, merged: true, stage: None })
    }
}

/// The id at the end of `[{prefix}-]{profile_id}`: by default a time in seconds, so digits and a
/// point; another id cannot be told from the prefix and is taken with it.
fn profile_id(text: &str) -> &str {
    let id = text.trim_start_matches(|_| false);
    let digits = id.bytes().rev().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let id = if digits >= 6 { &text[text.len() - digits..] } else { text };
    id.trim_start_matches('.')
}

/// For each of the files of one run, by name, why it should be left out, if it should: one that was
/// merged from others here, or the extend stage where the decode stage is here.
pub(crate) fn left_out_by_name(names: &[&str]) -> Vec<Option<String>> {
    let parsed: Vec<_> = names.iter().map(|name| ServerName::parse(name)).collect();
    let ids_where = |wanted: &dyn Fn(&ServerName<'_>) -> bool| -> HashSet<&str> {
        let names = parsed.iter().flatten();
        names.filter(|name| wanted(name)).map(|name| name.profile_id).collect()
    };
    let per_rank = ids_where(&|name| !name.merged);
    let decoded = ids_where(&|name| name.stage == Some(Stage::Decode));
    parsed
        .iter()
        .map(|name| {
            let name = name.as_ref()?;
            let id = name.profile_id;
            if name.merged && per_rank.contains(id) {
                Some(format!("merged from the per-rank files of profile {id}, which are read"))
            } else if name.stage == Some(Stage::Extend) && decoded.contains(id) {
                Some(format!(
                    "EXTEND stage of profile {id}, whose DECODE stage is read; pass this file by \
                     itself to read it"
                ))
            } else {
                None
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_server_are_parsed() {
        let name = |profile_id, merged, stage| Some(ServerName { profile_id, merged, stage });
        for (text, expected) in [
            (
                "1795969546.3018537-TP-0-DECODE.trace.json.gz",
                name("1795969546.3018537", false, Some(Stage::Decode)),
            ),
            (
                "A_on__1795969546.30-TP-1-DP-0-prefill.trace.json.gz",
                name("1795969546.30", false, Some(Stage::Extend)),
            ),
            ("bench-run7-TP-0.trace.json.gz", name("bench-run7", false, None)),
            (
                "TP2__merged-1795970090.0486393.trace.json.gz",
                name("1795970090.0486393", true, None),
            ),
            ("merged-run7.trace.json", name("run7", true, None)),
            ("unmerged-run7.trace.json", None),
            ("rank-3.json.gz", None),
        ] {
            assert_eq!(ServerName::parse(text), expected, "{text}");
        }
    }

    #[test]
    fn merged_and_extend_files_are_left_out_beside_what_they_repeat() {
        let left_out = |names: &[&str]| {
            left_out_by_name(names).iter().map(Option::is_some).collect::<Vec<_>>()
        };
        let all = ["700000.5-TP-0.trace.json.gz", "700000.5-TP-1.trace.json.gz"];
        assert_eq!(
            left_out(&[all[0], all[1], "merged-700000.5.trace.json.gz"]),
            [false, false, true]
        );
        assert_eq!(left_out(&[all[0], "merged-800000.5.trace.json.gz"]), [false, false]);
        assert_eq!(left_out(&["merged-800000.5.trace.json.gz"]), [false]);
        let stages = ["700000.5-TP-0-EXTEND.trace.json.gz", "700000.5-TP-0-DECODE.trace.json.gz"];
        assert_eq!(left_out(&stages), [true, false]);
        assert_eq!(left_out(&stages[..1]), [false]);
        assert_eq!(left_out(&[stages[0], "800000.5-TP-0-DECODE.trace.json.gz"]), [false, false]);
    }
}
