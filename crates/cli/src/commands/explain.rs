//! `steptally explain`: what a finding means.

use steptally_analyze::findings::{Rule, all_rules};

use crate::args::ExplainArgs;
use crate::failure::{Code, Failure, list};
use crate::output;

pub(crate) fn run(args: &ExplainArgs) -> Result<Code, Failure> {
    let text = match &args.code {
        Some(code) => {
            let wanted = |rule: &&Rule| rule.code.eq_ignore_ascii_case(code);
            let rule = all_rules().iter().find(wanted).ok_or_else(|| {
                Failure::usage(format!("there is no finding {code}"))
                    .hint(format!("findings: {}", list(all_rules().iter().map(|rule| rule.code))))
            })?;
            section(rule, "#")
        }
        None => {
            let sections: Vec<String> =
                all_rules().iter().map(|rule| section(rule, "##")).collect();
            format!("# Findings\n\n{}", sections.join("\n"))
        }
    };
    output::write(&text, None)?;
    Ok(Code::Ok)
}

/// A rule's doc below a heading of the given depth.
fn section(rule: &Rule, heading: &str) -> String {
    let doc = rule.doc.replace("\n## ", &format!("\n{heading}# "));
    let doc = doc.strip_prefix("## ").map_or(doc.clone(), |rest| format!("{heading}# {rest}"));
    format!("{heading} {}: {}\n\n{doc}\n", rule.code, rule.name)
}
