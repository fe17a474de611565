//! Measuring several commands in turns, and judging the ratios between them.

use std::process::Command;

use anyhow::Result;

use super::Bench;
use super::measure::{Cost, measure};

impl Bench {
    /// Medians of what each command costs, printed under its name.
    pub(super) fn measure<const N: usize>(
        &self,
        commands: [(&str, Vec<&str>); N],
    ) -> Result<[Cost; N]> {
        let mut costs: [Vec<Cost>; N] = std::array::from_fn(|_| Vec::new());
        // Taking turns spreads a noisy moment over all; the first round only fills the page cache.
        for round in 0..=self.runs {
            for (index, (_, command)) in commands.iter().enumerate() {
                let pinned: Vec<&str> = self.pin.iter().chain(command).copied().collect();
                let cost = measure(&pinned)?;
                if round > 0 {
                    costs[index].push(cost);
                }
            }
        }
        let medians = costs.map(|costs| median_cost(&costs));
        println!("\nmedians of {} runs", self.runs);
        println!("{:<40}{:>10}{:>10}{:>12}", "", "CPU s", "wall s", "peak MB");
        for ((name, _), cost) in commands.iter().zip(&medians) {
            let peak_mb = cost.peak_bytes / 1e6;
            println!("{name:<40}{:>10.3}{:>10.3}{peak_mb:>12.0}", cost.cpu_s, cost.wall_s);
        }
        println!();
        Ok(medians)
    }
}

/// A ratio that must not be larger than a limit.
pub(super) struct Limit {
    name: &'static str,
    ratio: f64,
    limit: f64,
}

impl Limit {
    pub(super) fn new(name: &'static str, ratio: f64, limit: f64) -> Self {
        Self { name, ratio, limit }
    }
}

/// Prints every ratio with its verdict; true when all hold.
pub(super) fn judge(limits: &[Limit]) -> bool {
    let mut passed = true;
    for Limit { name, ratio, limit } in limits {
        let holds = ratio <= limit;
        passed &= holds;
        println!(
            "{name:<48}{ratio:>7.3}  limit {limit:.2}  {}",
            if holds { "pass" } else { "FAIL" }
        );
    }
    passed
}

/// What to put before a command so that it has two cores, where there are more.
pub(super) fn pin_to_two_cores() -> Vec<&'static str> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if cores <= 2 {
        return Vec::new();
    }
    let pin = ["taskset", "-c", "0,1"];
    let works = Command::new(pin[0]).args(&pin[1..]).arg("true").status();
    if works.is_ok_and(|status| status.success()) {
        return pin.to_vec();
    }
    println!("note: {cores} cores in use, taskset does not work here");
    Vec::new()
}

fn median_cost(costs: &[Cost]) -> Cost {
    let median = |of: fn(&Cost) -> f64| {
        let mut values: Vec<f64> = costs.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        match values.len() % 2 {
            0 => f64::midpoint(values[middle - 1], values[middle]),
            _ => values[middle],
        }
    };
    Cost {
        cpu_s: median(|cost| cost.cpu_s),
        wall_s: median(|cost| cost.wall_s),
        peak_bytes: median(|cost| cost.peak_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_taken_column_by_column() {
        let cost = |cpu_s, wall_s, peak_bytes| Cost { cpu_s, wall_s, peak_bytes };
        let costs = [cost(3.0, 1.0, 10.0), cost(1.0, 2.0, 30.0), cost(2.0, 9.0, 20.0)];
        assert_eq!(median_cost(&costs), cost(2.0, 2.0, 20.0));
        assert_eq!(median_cost(&costs[..2]), cost(2.0, 1.5, 20.0));
    }
}
