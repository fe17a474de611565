//! What the DSL builds, written as torch JSON and read by the importer, is the same trace.
#![allow(clippy::unwrap_used)]

use steptally_import::ImportOptions;
use steptally_import::torch::read_torch;
use steptally_testkit::{AllReduce, DecodeMode, TraceDsl, decode_run, write_torch_json};
use steptally_trace_model::{FlowPhase, StreamId, StringId, ThreadId, Trace};

fn read_back(trace: &Trace) -> Trace {
    let json = write_torch_json(trace);
    let mut read = read_torch(json.as_bytes(), &ImportOptions::default()).unwrap();
    let issues: Vec<_> = read.issues.iter().collect();
    assert!(issues.is_empty(), "{issues:?}");
    assert_eq!(read.lanes.len(), 1);
    read.lanes.remove(0).trace
}

/// Every event as text, with ids of the trace resolved, so that two traces can be compared.
fn rows(trace: &Trace) -> Vec<String> {
    let text = |id: StringId| trace.text(id).to_owned();
    let thread = |id: ThreadId| {
        let thread = trace.threads[id];
        format!("{}/{}", text(trace.processes[thread.process].pid), text(thread.tid))
    };
    let stream = |id: StreamId| {
        let stream = trace.streams[id];
        format!("{:?}/{:?}/{:?}", stream.device, stream.context, stream.stream)
    };
    let mut rows = Vec::new();
    macro_rules! rows_of {
        ($($table:ident: $($plain:ident)* ; $($column:ident by $shown:expr),*;)*) => {$(
            for row in trace.$table.rows() {
                let mut shown = format!("{} {} {}", stringify!($table), row.start, row.duration);
                $(shown += &format!(" {}={:?}", stringify!($plain), row.$plain);)*
                $(shown += &format!(" {}={:?}", stringify!($column), $shown(row.$column));)*
                rows.push(shown);
            }
        )*};
    }
    let config = |id| trace.configs[id];
    let inputs = |id| {
        let inputs = trace.inputs[id];
        [inputs.dims, inputs.types, inputs.concrete].map(text)
    };
    let collective = |id| {
        let one = trace.collectives[id];
        let texts = [one.name, one.process_group, one.description, one.ranks, one.dtype].map(text);
        (texts, one.in_elements, one.out_elements, one.group_size, one.sequence)
    };
    rows_of! {
        kernels: correlation external graph_node graph;
            name by text, stream by stream, config by config, collective by collective;
        copies: kind pageable correlation external bytes graph_node;
            name by text, stream by stream;
        api_calls: correlation external; name by text, thread by thread;
        cpu_ops: external sequence;
            name by text, thread by thread, inputs by inputs, collective by collective;
        ranges: external kind open; name by text, thread by thread;
        frames: python parent; name by text, thread by thread;
        overheads: ; name by text, thread by thread;
        flows: id phase; category by text, thread by thread;
    }
    for row in trace.gpu_ranges.rows() {
        let stream = trace.streams[row.stream].stream;
        let (start, duration, name) = (row.start, row.duration, text(row.name));
        rows.push(format!("gpu_ranges {start} {duration} {name} {stream:?} {:?}", row.external));
    }
    rows
}

#[track_caller]
fn check(trace: &Trace) {
    let read = read_back(trace);
    for (written, read) in rows(trace).iter().zip(rows(&read)) {
        assert_eq!(*written, read);
    }
    assert_eq!(rows(trace).len(), rows(&read).len());
    assert_eq!(trace.meta.rank, read.meta.rank);
    assert_eq!(trace.meta.devices, read.meta.devices);
}

#[test]
fn every_kind_of_event_comes_back() {
    let trace = TraceDsl::rank(1)
        .world_size(2)
        .device(1)
        .gpu("NVIDIA H200")
        .window(-5_000..100_000)
        .range("step[DECODE bs=2]", 1..90_001)
        .external(1)
        .op("aten::mm", 5..40_123, "[[1, 2], [2, 3]]")
        .external(2)
        .input_types("[\"c10::BFloat16\", \"\"]")
        .concrete_inputs("[\"\", \"[4, 1]\"]")
        .sequence(3)
        .launch("cuLaunchKernelEx", 10..15, 7)
        .external(2)
        .kernel("void gemm<float, 4>(\"quoted\")", 20_001..60_999)
        .correlation(7)
        .external(2)
        .grid([4, 2, 1])
        .block([128, 1, 1])
        .registers(96)
        .shared_memory(1024)
        .occupancy(50)
        .launch("cudaLaunchKernel", 16..18, 8)
        .kernel("ncclDevKernel_AllReduce", 61_000..70_000)
        .correlation(8)
        .on_stream(9)
        .all_reduce(AllReduce {
            elements: 2048,
            dtype: "BFloat16",
            process_group: "3",
            group_size: 2,
            sequence: Some(4),
        })
        .graph_launch(70_000..71_000, 9)
        .kernel("node", 71_500..71_600)
        .correlation(9)
        .graph(5)
        .graph_node(6)
        .memcpy_d2h(72_000..73_000, 8)
        .correlation(10)
        .memcpy_h2d(73_000..74_000, 16)
        .pageable(true)
        .memcpy_d2d(74_000..75_000, 32)
        .memset(75_000..76_000, 64)
        .gpu_range("step[DECODE bs=2]", 20_001..76_000)
        .external(1)
        .thread("77")
        .frame("a.py(3): f", 100..2_000)
        .python_ids(11, None)
        .frame("b.py(4): <lambda>", 200..300)
        .python_ids(12, Some(11))
        .overhead("Activity Buffer Request", 400..500)
        .flow("fwdbwd", 1_000, 6, FlowPhase::Start)
        .build();
    check(&trace);
}

#[test]
fn generated_runs_come_back() {
    for mode in [DecodeMode::Eager, DecodeMode::Graph] {
        for trace in decode_run(mode, 2, 3, 2, 21).traces {
            check(&trace);
        }
    }
}
