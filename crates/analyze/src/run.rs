//! All analyses in order.

use steptally_trace_model::Trace;

use crate::collectives::Communication;
use crate::gpu::{self, Lane};
use crate::links::{ApiIndex, OpTree};
use crate::results::{Analysis, Copies, DeviceUse, Dilation, Layers, RankSummary};
use crate::steps::{LaneSteps, LeftOutSteps, Selection};
use crate::{
    Config, Section, collectives, copies, findings, kernels, launches, layers, ledger, ops,
    quality, ranges, replays, steps, view,
};

/// Analyses the traces of one run, one per rank.
///
/// Ranks that `config` leaves out take part in nothing.
#[must_use]
pub fn analyze(traces: &[Trace], config: &Config) -> Analysis {
    let traces: Vec<&Trace> = traces
        .iter()
        .filter(|trace| config.rank.is_none() || trace.rank() == config.rank)
        .collect();
    let indexes: Vec<(ApiIndex, OpTree)> =
        in_parallel(&traces, |trace| (ApiIndex::new(trace), OpTree::new(trace)));

    // As recorded, then through the gate.
    let mut lanes: Vec<Lane<'_>> = Vec::new();
    let mut trace_of_lane: Vec<usize> = Vec::new();
    for (index, trace) in traces.iter().enumerate() {
        let of_trace = gpu::lanes(trace);
        trace_of_lane.extend(of_trace.iter().map(|_| index));
        lanes.extend(of_trace);
    }
    let mut devices: Vec<DeviceUse> = lanes.iter().map(gpu::device_use).collect();
    for (lane, device) in lanes.iter_mut().zip(&mut devices) {
        quality::gate(lane);
        device.left_out = lane.left_out;
    }

    let links: Vec<&(ApiIndex, OpTree)> =
        trace_of_lane.iter().map(|&trace| &indexes[trace]).collect();
    let apis: Vec<&ApiIndex> = links.iter().map(|(api, _)| api).collect();
    let detection = steps::detect(&lanes, &apis, config);
    let (lane_steps, selection) = steps::select(&detection, config);
    let views_of =
        |selection| view::views(&lanes, &links, &lane_steps, selection, &config.categories);
    let (scope, views) = views_of(selection.as_ref());
    // Only collectives tell which steps are not steady ones; all else is about the others.
    let Communication { collectives, window_starts, matched } =
        collectives::collectives(scope, &views);
    let (steady, left_out) = steady(selection.as_ref(), &lane_steps, &window_starts, config);
    let (scope, views) = match &steady {
        Some(steady) => views_of(Some(steady)),
        None => (scope, views),
    };
    let selection = steady.as_ref().or(selection.as_ref());
    let step_table = steps::step_table(&detection, &lanes, &lane_steps, selection, &left_out);

    let needs = |section| config.sections.needs(section);
    let layers_and_copies = || {
        if !needs(Section::Layers) && !needs(Section::Copies) {
            return <(Option<Layers>, Copies)>::default();
        }
        let (layers, parts) = layers::layers(&views, config.num_layers);
        let context =
            copies::Context { config, steps: &step_table, layers: layers.as_ref(), parts: &parts };
        let copies = copies::summarise(&views, &context);
        (layers, copies)
    };
    // Three shares, of which none is much more work than the others together.
    let ((ledger, gaps), (launches, replays), (layers, copies), (ranges, kernels, ops)) =
        std::thread::scope(|threads| {
            let ledger = threads.spawn(|| ledger::account_time(scope, &views, &config.categories));
            let launches = threads.spawn(|| {
                (
                    if_so(needs(Section::Launches), || launches::launches(&views)),
                    if_so(needs(Section::Replays), || replays::summarise(&views)),
                )
            });
            let layers_and_copies = layers_and_copies();
            let summaries = (
                if_so(needs(Section::Ranges), || ranges::summarise(&lanes, &apis)),
                if_so(needs(Section::Kernels), || kernels::summarise(&views)),
                if_so(needs(Section::Ops), || ops::summarise(&views)),
            );
            (joined(ledger), joined(launches), layers_and_copies, summaries)
        });
    let baseline = config.baseline.as_ref();
    let dilation = baseline.map(|baseline| Dilation::of(&step_table, &ledger, baseline));
    let quality = quality::judge(&quality::Inputs {
        traces: &traces,
        indexes: &indexes,
        lanes: &lanes,
        steps: &step_table,
        ledger: &ledger,
        dilation: dilation.as_ref(),
        config,
    });
    let facts = findings::Facts {
        views: &views,
        quality: &quality,
        steps: &step_table,
        ledger: &ledger,
        launches: &launches,
        layers: layers.as_ref(),
        copies: &copies,
        collectives: &collectives,
        matched: &matched,
        kernels: &kernels,
        tpot: config.baseline.as_ref().filter(|_| matches!(dilation, Some(Ok(_)))),
    };
    let findings = if_so(needs(Section::Findings), || findings::find(&facts));
    Analysis {
        sections: config.sections,
        quality,
        ranks: traces.iter().map(|trace| rank_summary(trace, &lanes)).collect(),
        devices,
        steps: step_table,
        dilation: dilation.and_then(Result::ok),
        findings,
        ledger,
        gaps,
        collectives,
        launches,
        replays,
        kernels,
        layers,
        copies,
        ranges,
        ops,
    }
}

/// The selection without the steps that are not steady ones (`None` when that changes nothing), and
/// which those are.
fn steady(
    selection: Option<&Selection>,
    lane_steps: &[LaneSteps],
    window_starts: &[(usize, usize)],
    config: &Config,
) -> (Option<Selection>, LeftOutSteps) {
    let Some(selection) = selection else {
        return <(Option<Selection>, LeftOutSteps)>::default();
    };
    let begun = selection.without(window_starts);
    let window_start_count = begun.as_ref().map_or(0, |_| window_starts.len() as u64);
    let kept = begun.as_ref().unwrap_or(selection);
    // Steps that were asked for by number are all wanted.
    let asked_for = config.steps.is_some();
    let outliers = if asked_for { Vec::new() } else { kept.outliers(lane_steps) };
    let steady = kept.without(&outliers).or(begun);
    (steady, LeftOutSteps { window_start_count, outliers })
}

/// What `work` yields, if it is needed.
fn if_so<T: Default>(is_needed: bool, work: impl FnOnce() -> T) -> T {
    if is_needed { work() } else { T::default() }
}

fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause))
}

/// `work` on each item, on as many threads as there are items or cores.
fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let share = items.len().div_ceil(cores).max(1);
    std::thread::scope(|scope| {
        let threads: Vec<_> = items
            .chunks(share)
            .map(|chunk| scope.spawn(|| chunk.iter().map(&work).collect::<Vec<R>>()))
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| {
                thread.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause))
            })
            .collect()
    })
}

fn rank_summary(trace: &Trace, lanes: &[Lane<'_>]) -> RankSummary {
    let own = lanes.iter().filter(|lane| std::ptr::eq(lane.trace, trace));
    let device = own.max_by_key(|lane| lane.ops.len()).and_then(|lane| lane.device);
    let rank = trace.meta.rank.as_ref();
    let properties = device.and_then(|device| trace.meta.device(device));
    let mut process_names: Vec<&str> =
        trace.process_names.values().map(|name| trace.text(*name)).collect();
    process_names.sort_unstable();
    let is_host = |name: &&&str| !name.is_empty() && !name.starts_with("GPU ");
    RankSummary {
        rank: trace.rank(),
        rank_source: rank.map(|rank| rank.source.code().to_owned()),
        label: rank.map(|rank| rank.label.clone()).filter(|label| !label.is_empty()),
        device,
        gpu_name: properties.map(|p| p.name.clone()).filter(|name| !name.is_empty()),
        world_size: trace.meta.world_size,
        process_name: process_names.iter().find(is_host).map(|name| (*name).to_owned()),
        event_count: trace.event_count() as u64,
        partial: trace.meta.partial,
    }
}
