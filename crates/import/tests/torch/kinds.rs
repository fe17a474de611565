//! Each kind of event, with its arguments.

use steptally_import::ImportOptions;
use steptally_import::torch::read_torch;
use steptally_trace_model::TableKind;

use crate::support::{check_events, lines, read};

#[test]
fn a_kernel_has_its_launch_configuration() {
    let read = read(
        r#"{"traceEvents": [{
        "ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 13,
        "ts": 5112626522902.897, "dur": 1.824,
        "args": {
            "External id": 89, "queued": 0, "device": 0, "context": 1,      "stream": 13,
            "correlation": 232, "registers per thread": 32,
            "shared memory": 49152, "blocks per SM": 0.007576, "warps per SM": 0.03,
            "grid": [16, 2, 1], "block": [128, 1, 3], "est. achieved occupancy %": 37,
            "graph id": 4, "graph node id": 81
        }}]}"#,
    );
    let expected = "kernel `gemm` 5112626522902897+1824 device 0 context 1 stream 13 \
                    correlation 232 external 89 graph 4 node 81";
    assert_eq!(lines(&read), [expected]);
    let trace = &read.lanes[0].trace;
    let config = trace.configs[trace.kernels.config[0]];
    assert_eq!((config.grid, config.block), ([16, 2, 1], [128, 1, 3]));
    assert_eq!(config.registers, Some(32));
    assert_eq!(config.shared_memory_bytes, Some(49_152));
    assert_eq!(config.occupancy_percent, Some(37));
}

#[test]
fn a_collective_is_described() {
    let read = read(
        r#"[{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "pid": 0, "tid": 13,
        "ts": 1, "dur": 2, "args": {"Collective name": "allreduce", "In msg nelems": 2048,
        "Out msg nelems": 4096, "Group size": 2, "dtype": "BFloat16", "Seq": 17,
        "Process Group Name": "3", "Process Group Description": "undefined",
        "Process Group Ranks": [0, 1]}}]"#,
    );
    let trace = &read.lanes[0].trace;
    let collective = trace.collectives[trace.kernels.collective[0]];
    let texts = [
        collective.name,
        collective.process_group,
        collective.description,
        collective.ranks,
        collective.dtype,
    ];
    assert_eq!(
        texts.map(|id| trace.text(id)),
        ["allreduce", "3", "undefined", "[0, 1]", "BFloat16"]
    );
    assert_eq!(collective.in_elements.value(), Some(2048));
    assert_eq!(collective.out_elements.value(), Some(4096));
    assert_eq!((collective.group_size, collective.sequence.value()), (Some(2), Some(17)));
}

#[test]
fn an_operator_has_its_inputs_as_written() {
    let read = read(
        r#"[{"ph": "X", "cat": "cpu_op", "name": "aten::slice", "pid": 1, "tid": 1, "ts": 1,
        "dur": 2, "args": {"External id": 2, "Sequence number": 5,
        "Concrete Inputs": ["", "0", "[4, 1]"], "Input type": ["long int", "Scalar"],
        "Input Dims": [[121389], [], []], "Ev Idx": 1}},
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 9, "dur": 2,
        "args": {"Input Dims": "[[64, 768], [768, 8]]"}}]"#,
    );
    assert_eq!(
        lines(&read),
        [
            "op `aten::slice` 1000+2000 on 1/1 external 2 sequence 5",
            "op `aten::mm` 9000+2000 on 1/1"
        ]
    );
    let trace = &read.lanes[0].trace;
    let inputs = trace.inputs[trace.cpu_ops.inputs[0]];
    assert_eq!(trace.text(inputs.dims), "[[121389], [], []]");
    assert_eq!(trace.text(inputs.types), r#"["long int", "Scalar"]"#);
    assert_eq!(trace.text(inputs.concrete), r#"["", "0", "[4, 1]"]"#);
    let inputs = trace.inputs[trace.cpu_ops.inputs[1]];
    assert_eq!(trace.text(inputs.dims), "[[64, 768], [768, 8]]");
}

#[test]
fn every_other_kind_has_its_table() {
    let events = r#"{"ph":"X","cat":"user_annotation","name":"step[DECODE bs=1]","pid":5,"tid":5,"ts":1,
            "dur":9,"args":{"External id":453}},
           {"ph":"X","cat":"gpu_user_annotation","name":"step[DECODE bs=1]","pid":0,"tid":13,
            "ts":3,"dur":4,"args":{"External id":453}},
           {"ph":"X","cat":"python_function","name":"f","pid":5,"tid":5,"ts":1,"dur":2,
            "args":{"Python parent id":null,"Python id":1}},
           {"ph":"X","cat":"python_function","name":"g","pid":5,"tid":5,"ts":1,"dur":1,
            "args":{"Python parent id":1,"Python id":2}},
           {"ph":"X","cat":"cuda_sync","name":"Event Sync","pid":0,"tid":7,"ts":1,"dur":1,
            "args":{"stream":-1,"correlation":24,"device":0,"context":1,"wait_on_stream":20,
            "wait_on_cuda_event_record_corr_id":22,"wait_on_cuda_event_id":9}},
           {"ph":"X","cat":"overhead","name":"CUPTI","pid":-1,"tid":0,"ts":1,"dur":1},
           {"ph":"X","cat":"graph_host_node","name":"n","pid":5,"tid":5,"ts":1,"dur":1,
            "args":{"graph id":3,"graph node id":4}},
           {"ph":"s","id":7,"pid":5,"tid":5,"ts":1,"cat":"fwdbwd","name":"fwdbwd"},
           {"ph":"f","id":7,"pid":5,"tid":6,"ts":2,"cat":"fwdbwd","name":"fwdbwd","bp":"e"},
           {"ph":"s","id":8,"pid":5,"tid":5,"ts":1,"cat":"ac2g","name":"ac2g"},
           {"ph":"X","cat":"mtia_ccp_events","name":"x","pid":17,"tid":1,"ts":1,"dur":1},
           {"ph":"X","cat":"hpu_op","name":"x","pid":17,"tid":1,"ts":1,"dur":1}"#;
    let unknown = events.find(r#"{"ph":"X","cat":"mtia"#).unwrap();
    check_events(
        events,
        &[
            "range `step[DECODE bs=1]` 1000+9000 on 5/5 external 453",
            "gpu range `step[DECODE bs=1]` 3000+4000 device 0 stream 13 external 453",
            "frame `f` 1000+2000 on 5/5 id 1",
            "frame `g` 1000+1000 on 5/5 id 2 parent 1",
            "sync `Event Sync` 1000+1000 device 0 context 1 correlation 24 waits on stream 20 \
             waits on correlation 22",
            "overhead `CUPTI` 1000+1000 on -1/0",
            "graph node `n` 1000+1000 on 5/5 graph 3 node 4",
            "flow fwdbwd Start 1000 on 5/5 id 7",
            "flow fwdbwd End 2000 on 5/6 id 7",
            &format!("Info unknown_category x2 at {}", 16 + unknown),
        ],
    );
}

#[test]
fn a_range_on_the_gpu_is_on_the_stream_of_its_kernels() {
    check_events(
        r#"{"ph":"X","cat":"gpu_user_annotation","name":"step","pid":0,"tid":13,"ts":1,"dur":4},
           {"ph":"X","cat":"gpu_user_annotation","name":"step","pid":0,"tid":14,"ts":2,"dur":4},
           {"ph":"X","cat":"kernel","name":"k","pid":0,"tid":13,"ts":1,"dur":1,
            "args":{"device":0,"context":1,"stream":13}}"#,
        &[
            "kernel `k` 1000+1000 device 0 context 1 stream 13",
            "gpu range `step` 1000+4000 device 0 context 1 stream 13",
            "gpu range `step` 2000+4000 device 0 stream 14",
        ],
    );
}

#[test]
fn processes_and_threads_have_names() {
    let read = read(
        r#"[{"name":"process_name","ph":"M","ts":1,"pid":5,"tid":0,"args":{"name":"sglang::x"}},
            {"name":"thread_name","ph":"M","ts":1,"pid":5,"tid":6,"args":{"name":"thread 6"}},
            {"name":"process_labels","ph":"M","ts":1,"pid":5,"tid":0,"args":{"labels":"CPU"}},
            {"name":"op","ph":"X","cat":"cpu_op","ts":1,"dur":1,"pid":5,"tid":6}]"#,
    );
    let trace = &read.lanes[0].trace;
    let thread = trace.cpu_ops.thread[0];
    assert_eq!(trace.text(trace.thread_names[&thread]), "thread 6");
    let process = trace.threads[thread].process;
    assert_eq!(trace.text(trace.process_names[&process]), "sglang::x");
}

#[test]
fn arguments_are_kept_on_demand() {
    let options = ImportOptions {
        keep_args: vec!["Python module id".into(), "Ev Idx".into()],
        ..ImportOptions::default()
    };
    let text = r#"[{"ph":"X","cat":"python_function","name":"g","pid":5,"tid":5,"ts":2,"dur":1,
        "args":{"Python module id":0,"Python id":2,"Ev Idx":9}},
        {"ph":"X","cat":"cpu_op","name":"o","pid":5,"tid":5,"ts":1,"dur":1,"args":{"Ev Idx":8}}]"#;
    let read = read_torch(text.as_bytes(), &options).unwrap();
    let trace = &read.lanes[0].trace;
    let found: Vec<_> = trace
        .extra_args
        .iter()
        .map(|arg| (arg.table, arg.row, trace.text(arg.key), trace.text(arg.value)))
        .collect();
    assert_eq!(
        found,
        [
            (TableKind::CpuOp, 0, "Ev Idx", "8"),
            (TableKind::Frame, 0, "Python module id", "0"),
            (TableKind::Frame, 0, "Ev Idx", "9"),
        ]
    );
}

#[test]
fn escaped_names_are_decoded() {
    check_events(
        r#"{"ph":"X","cat":"cpu_op","name":"\u003clambda\u003e \"q\"","pid":5,"tid":5,"ts":1,"dur":1}"#,
        &[r#"op `<lambda> "q"` 1000+1000 on 5/5"#],
    );
}

#[test]
fn keys_may_come_in_any_order_and_spacing() {
    check_events(
        "{ \"args\" : { \"correlation\" : 3 , \"stream\":7,\"device\" :1 } ,\r\n\t\"dur\" : 2 , \
         \"ts\" : \"1.5\" , \"tid\" : 9 , \"pid\" : 0 , \"name\" : \"k\" , \"cat\" : \"kernel\" , \
         \"extra\" : {\"a\": [1, {\"b\": \"}\"}]} , \"ph\" : \"X\" }",
        &["kernel `k` 1500+2000 device 1 stream 7 correlation 3"],
    );
}
