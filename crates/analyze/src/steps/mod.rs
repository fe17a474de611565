//! Step detection: where one decode step ends and the next begins, on the GPU.
//!
//! In order of preference: marks of the engine or the user, mapped to the GPU by correlation id;
//! graph launches; the period of the sequence of kernels; gaps. A step's period runs from the start
//! of its first GPU work to the start of the next step's first GPU work:
//!
//! ```text
//!   marks (host)   |--step 0--|     |--step 1--|     |--step 2--|
//!   GPU                ## ### #  #     ## ### #  #      ## ### #
//!   periods            |<- step 0 ---->|<- step 1 ----->|  (step 2 has no successor: cut)
//! ```

mod gaps;
mod grammar;
mod marks;
mod named_layers;
mod select;
mod sequence;

use steptally_trace_model::interval::Interval;
use steptally_trace_model::{ThreadId, Timestamp};

use crate::Config;
use crate::gpu::Lane;
use crate::links::ApiIndex;
use crate::results::Confidence;

pub(crate) use grammar::StepKind;
pub(crate) use marks::{count_marks, marks_beyond_gpu_work};
pub(crate) use select::{LaneSteps, LeftOutSteps, OUTLIER_FACTOR, Selection, select, step_table};

/// A step as detected on one lane.
#[derive(Clone, Debug)]
pub(crate) struct DetectedStep {
    pub(crate) kind: StepKind,
    pub(crate) batch_size: Option<u64>,
    /// The mark on the host.
    pub(crate) mark: Option<Mark>,
    /// Start of the first GPU work; `None` when the step has none.
    pub(crate) start: Option<Timestamp>,
    /// Whether it began before the capture did.
    pub(crate) cut_at_start: bool,
}

/// A range on the host that marks a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub(crate) thread: ThreadId,
    pub(crate) interval: Interval,
}

/// How steps were found, the same for all lanes of a run.
#[derive(Clone, Debug)]
pub(crate) struct Detection {
    pub(crate) detected_by: &'static str,
    pub(crate) confidence: Confidence,
    pub(crate) explanation: String,
    /// One list per lane, in order of time.
    pub(crate) lanes: Vec<Vec<DetectedStep>>,
}

/// Finds the steps of every lane. `apis` has the API index of each lane's trace.
pub(crate) fn detect(lanes: &[Lane<'_>], apis: &[&ApiIndex], config: &Config) -> Detection {
    if let Some(detection) = marks::detect(lanes, apis, config) {
        return detection;
    }
    let none = |explanation: String| Detection {
        detected_by: "none",
        confidence: Confidence::None,
        explanation,
        lanes: vec![Vec::new(); lanes.len()],
    };
    let marks: usize = lanes.iter().map(|lane| count_marks(lane.trace, config)).sum();
    let of_marks = match marks {
        0 => "no step marks".to_owned(),
        n => format!("{n} step marks, but no GPU work could be tied to them by correlation id"),
    };
    if let Some(pattern) = &config.step_pattern {
        return none(format!("{of_marks} (pattern `{pattern}`)"));
    }
    let found = sequence::detect(lanes, apis).or_else(|| gaps::detect(lanes));
    match found {
        Some(found) => {
            Detection { explanation: format!("{of_marks}; {}", found.explanation), ..found }
        }
        None => none(format!(
            "{of_marks}, no repeated graph launches, no periodic kernel sequence and no regular gaps"
        )),
    }
}
