//! COMM002: one rank is late at collectives, and the others wait for it.

use crate::findings::saving::Remedy;
use crate::findings::{Draft, Facts, Outcome, Rule, evidence};

/// The others wait at least this share of the period.
const LEAST_RATIO: f64 = 0.03;

pub(super) const RULE: Rule = Rule {
    code: "COMM002",
    name: "rank late at collectives",
    check,
    doc: "\
## What it is
One rank arrives last at most collectives. The others have their kernel running already and wait in it.

## Why it costs
The wait looks like communication time, and no faster link helps: every rank runs at the pace of the
slowest.

## How it is found
Collectives are matched over ranks, clocks aligned on their ends. What the waiting ranks spend until
the last one arrives is at least 3 % of the period on some rank. The rank that others wait for longest
is named, though another may be last more often.

## What to do
Look at what the late rank does (`collectives.cross_rank.late`): another process on its GPU or cores, a
scheduler thread without a core of its own, NUMA placement, clocks throttled, more experts or tokens
than the others. With CUDA graphs the host's share mostly vanishes.",
};

fn check(facts: &Facts<'_>) -> Outcome {
    let Some(cross) = &facts.collectives.cross_rank else {
        let reason = facts.collectives.no_cross_rank.clone();
        return Outcome::NotApplicable(reason.unwrap_or_else(|| "no collectives".to_owned()));
    };
    let waits = cross.ranks.iter().map(|rank| rank.wait_ns_per_step);
    let longest = waits.fold(0.0, f64::max);
    let late = (cross.ranks.iter())
        .max_by(|a, b| a.lateness_ns_per_step.total_cmp(&b.lateness_ns_per_step))
        .filter(|rank| rank.last_count > 0);
    let Some(late) = late.filter(|_| longest >= LEAST_RATIO * facts.period_ns()) else {
        return Outcome::Clear;
    };
    let name = late.rank.map_or("a rank".to_owned(), |rank| format!("rank {rank}"));
    let why = cross.late.iter().find(|l| l.rank == late.rank && l.device == late.device);
    let by_host = why.is_some_and(|why| why.host_late_ns >= why.gpu_late_ns);
    let doing = why.map_or(String::new(), |why| {
        let bound = if by_host { "its host" } else { "its GPU" };
        let activity = why.host_activity.iter().find(|activity| !activity.name.is_empty());
        match activity {
            Some(activity) => format!("; {bound} is late, most in {}", activity.name),
            None => format!("; {bound} is late"),
        }
    });
    // A rank that is last more often, by less.
    let other = (cross.ranks.iter())
        .filter(|rank| rank.last_count > late.last_count)
        .max_by_key(|rank| rank.last_count);
    let other = other.map_or(String::new(), |rank| {
        let name = rank.rank.map_or("another".to_owned(), |rank| format!("rank {rank}"));
        format!(
            " ({name} is last more often, {:.0} %, by {:.1} us)",
            100.0 * rank.last_ratio,
            rank.lateness_ns.unwrap_or(0.0) / 1000.0
        )
    });
    let period_ns = late.lateness_ns_per_step.min(longest);
    Outcome::Found(Box::new(Draft {
        headline: format!(
            "{name} costs the others most time: it arrives last at {:.0} % of the collectives, by \
             {:.1} us on average{other}{doing}",
            100.0 * late.last_ratio,
            late.lateness_ns.unwrap_or(0.0) / 1000.0
        ),
        evidence: vec![
            evidence("longest wait of a rank", longest, "ns"),
            evidence("collectives at which it is last", late.last_ratio, "ratio"),
            evidence("its lateness", late.lateness_ns_per_step, "ns"),
            evidence("uncertainty of the clocks", cross.uncertainty_ns as f64, "ns"),
        ],
        advice: "find what holds up the late rank: another process on its GPU or cores, NUMA \
                 placement, clocks, uneven experts"
            .to_owned(),
        remedy: if by_host {
            Remedy::LessWaiting { period_ns }
        } else {
            Remedy::UpperBound { period_ns, gpu_ns: 0.0 }
        },
    }))
}

#[cfg(test)]
mod tests {
    use crate::findings::testing::{no_steps, outcome_of};
    use steptally_testkit::TraceDsl;
    use steptally_trace_model::Trace;

    /// Six steps of 100 us of two ranks, with one all-reduce; rank 1 arrives `late` us after rank 0.
    fn ranks(late: i64) -> [Trace; 2] {
        [0, 1].map(|rank| {
            let mut dsl = TraceDsl::rank(rank);
            for step in 0..6i64 {
                let (at, id) = (step * 100_000, step as u64 * 2);
                let arrives = at + 40_000 + if rank == 1 { late * 1000 } else { 0 };
                dsl = dsl
                    .range("step[DECODE bs=1]", at..at + 99_000)
                    .launch("cudaLaunchKernel", at + 1000..at + 1500, id)
                    .kernel("nvjet_tst", at + 5000..at + 30_000)
                    .correlation(id)
                    .launch("cudaLaunchKernel", arrives - 2000..arrives - 1500, id + 1)
                    .kernel("ncclDevKernel_AllReduce", arrives..at + 45_000 + late * 1000)
                    .correlation(id + 1);
            }
            dsl.build()
        })
    }

    #[test]
    fn a_late_rank_is_named() {
        let (outcome, finding) = outcome_of(&ranks(20), "COMM002");
        assert_eq!(outcome, "found");
        let finding = finding.unwrap();
        assert!(
            finding.headline.starts_with(
                "rank 1 costs the others most time: it arrives last at 100 % of the collectives, by \
                 20.0 us on average; "
            ),
            "{}",
            finding.headline
        );
        assert_eq!(finding.evidence[0].value, 20_000.0);
        // Waiting is no work of the GPU, but it is the step's time.
        assert_eq!(finding.saving.gpu_ns_per_step, 0.0);
        let saving = finding.saving;
        assert_eq!(saving.period_before_ns.unwrap() - saving.period_after_ns.unwrap(), 20_000.0);
    }

    #[test]
    fn ranks_that_arrive_together_are_not() {
        assert_eq!(outcome_of(&ranks(1), "COMM002").0, "clear");
    }

    #[test]
    fn with_one_rank_it_does_not_apply() {
        let [rank, _] = ranks(20);
        assert_eq!(outcome_of(&[rank], "COMM002").0, "not_applicable");
        assert_eq!(outcome_of(&[no_steps()], "COMM002").0, "not_applicable");
    }
}
