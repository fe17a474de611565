//! Several processes in one export: what belongs to whom, ranks, and what was not traced.

use steptally_trace_model::{RankSource, Severity};

use crate::schemas::{kernel, launch, tables};
use crate::support::{Export, global};

#[test]
fn equal_correlation_ids_of_two_processes_stay_apart() {
    let export = Export::new(&format!(
        "{} {} {} {} {}",
        tables(),
        launch([1, 2], 5, 40) + &kernel([10, 20], 0, 5, 40),
        launch([3, 4], 5, 41) + &kernel([30, 45], 1, 5, 41),
        format_args!("INSERT INTO PROCESSES VALUES ({}, 50, 'helper');", global(50)),
        launch([5, 6], 5, 50),
    ));
    let read = export.read();
    let ranks: Vec<_> = read
        .traces
        .iter()
        .map(|trace| {
            let rank = trace.meta.rank.as_ref().unwrap();
            assert_eq!(trace.api_calls.correlation[0], trace.kernels.correlation[0]);
            (rank.number, rank.source, trace.kernels.duration[0].as_ns(), trace.api_calls.len())
        })
        .collect();
    assert_eq!(ranks, [(0, RankSource::DeviceOrder, 10, 1), (1, RankSource::DeviceOrder, 15, 1)]);
    let idle = read.issues.find("process_without_gpu_work").unwrap();
    assert_eq!(idle.count, 1);
    assert_eq!(
        idle.first.text,
        "1 host events of processes without GPU work are left out (first: process 50)"
    );
}

#[test]
fn equal_os_process_ids_on_two_machines_are_two_processes() {
    let elsewhere = (2_i64 << 48) | (40 << 24);
    let export = Export::new(&format!(
        "{} {} INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL(start, end, deviceId, globalPid, shortName)
         VALUES (7, 9, 0, {elsewhere}, 2);",
        tables(),
        kernel([10, 20], 0, 5, 40),
    ));
    let durations: Vec<_> = export
        .read()
        .traces
        .iter()
        .map(|trace| (trace.rank(), trace.kernels.duration[0].as_ns()))
        .collect();
    assert_eq!(durations, [(Some(0), 10), (Some(1), 2)]);
}

#[test]
fn tensor_parallel_ranks_by_title_and_physical_gpu() {
    // Each process sees one GPU as its device 0; titles say the ranks, in another order.
    let mut sql = tables().to_owned();
    sql += "CREATE TABLE TARGET_INFO_CUDA_DEVICE(gpuId INTEGER, cudaId INTEGER, pid INTEGER);
        CREATE TABLE GPU_METRICS(timestamp INTEGER, typeId INTEGER, metricId INTEGER, value INTEGER);
        CREATE TABLE TARGET_INFO_GPU_METRICS(typeId INTEGER, sourceId INTEGER, typeName TEXT,
            metricId INTEGER, metricName TEXT);";
    for gpu in 0..4 {
        let (pid, rank) = (40 + gpu, 3 - gpu);
        sql += &kernel([10, 20 + gpu], 0, 1, pid);
        sql += &format!(
            "INSERT INTO PROCESSES VALUES ({}, {pid}, 'sglang::scheduler_TP{rank}');
             INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES ({gpu}, 0, {pid});
             INSERT INTO TARGET_INFO_GPU VALUES ({gpu}, 'H200 number {gpu}', 1000, 2000, 132, {gpu});
             INSERT INTO GPU_METRICS VALUES (15, 72057594037927936 + {gpu}, 4, {gpu} * 10);
             INSERT INTO TARGET_INFO_GPU_METRICS VALUES
                (72057594037927936 + {gpu}, 0, 'GH100', 4, 'SMs Active [Throughput %]');",
            global(pid),
        );
    }
    let read = Export::new(&sql).read();
    assert!(read.issues.is_empty(), "{:?}", read.issues);
    for (index, trace) in read.traces.iter().enumerate() {
        let rank = trace.meta.rank.as_ref().unwrap();
        assert_eq!((rank.number as usize, rank.source), (index, RankSource::ProcessTitle));
        assert_eq!(rank.label, format!("sglang::scheduler_TP{index}"));
        let gpu = 3 - index;
        assert_eq!(trace.kernels.duration[0].as_ns(), 10 + gpu as i64);
        let [device] = trace.meta.devices.as_slice() else { panic!("{:?}", trace.meta.devices) };
        assert_eq!((device.device, device.name.as_str()), (0, &*format!("H200 number {gpu}")));
        let [sample] = trace.counters.rows().collect::<Vec<_>>()[..] else { panic!() };
        assert_eq!((sample.start.as_ns(), sample.value), (15, gpu as f64 * 10.0));
        assert_eq!(sample.device.value(), Some(0));
        assert_eq!(trace.text(sample.name), "SMs Active [Throughput %]");
    }
}

#[test]
fn gpus_without_kernels_are_the_first_remark() {
    let gpus: String = (0..4)
        .map(|gpu| format!("INSERT INTO TARGET_INFO_GPU VALUES ({gpu}, 'H200', 1, 1, 132, {gpu});"))
        .collect();
    let sql = format!("{} {gpus} {}", tables(), kernel([1, 2], 0, 1, 40));
    // One process on a machine of four GPUs is ordinary: noted, and no remark.
    let read = Export::new(&sql).read();
    assert_eq!(read.traces[0].meta.diagnostics, Vec::<String>::new());
    let note = read.issues.find("gpus_without_kernels").unwrap();
    assert_eq!(note.severity, Severity::Info);
    assert!(note.first.text.starts_with("4 GPUs known, kernels on 1, by one process"));
    // Several processes are a job of several ranks.
    let read = Export::new(&format!("{sql} {}", kernel([3, 4], 0, 1, 41))).read();
    for trace in &read.traces {
        let remark = &trace.meta.diagnostics[0];
        assert!(remark.starts_with("4 GPUs known, kernels on 1: if the job uses more"), "{remark}");
    }
    assert_eq!(read.issues.find("gpus_without_kernels").unwrap().severity, Severity::Info);
    // The titles of processes show that there were more ranks.
    let titles: String = (0..4)
        .map(|rank| {
            let pid = 40 + rank;
            format!("INSERT INTO PROCESSES VALUES ({}, {pid}, 'VllmWorker TP{rank}');", global(pid))
        })
        .collect();
    let read = Export::new(&(sql + &titles)).read();
    let remark = &read.traces[0].meta.diagnostics[0];
    assert!(
        remark.starts_with("4 GPUs known, kernels on 1: the workers were not traced (4 ranks"),
        "{remark}"
    );
    assert_eq!(read.issues.find("gpus_without_kernels").unwrap().severity, Severity::Warning);
    assert_eq!(read.traces[0].rank(), Some(0));
}

#[test]
fn ranks_by_thread_by_range_and_by_environment() {
    let base = tables().to_owned() + &kernel([1, 2], 0, 1, 40) + &launch([0, 1], 1, 40);
    let tid = global(40) + 40;
    let rank = |more: &str| {
        let trace = Export::new(&(base.clone() + more)).trace();
        trace.meta.rank.map(|rank| (rank.number, rank.source))
    };
    assert_eq!(rank(""), None);
    let thread = format!(
        "INSERT INTO StringIds VALUES (8, 'VllmWorker TP3');
         INSERT INTO ThreadNames VALUES (8, 0, {tid});"
    );
    assert_eq!(rank(&thread), Some((3, RankSource::ThreadName)));
    let range = format!(
        "INSERT INTO NVTX_EVENTS(start, eventType, text, globalTid) VALUES (1, 34, 'rank 6', {tid}),
            (2, 34, 'send to rank 1', {tid});"
    );
    assert_eq!(rank(&range), Some((6, RankSource::RangeName)));
    let environment = "CREATE TABLE META_DATA_CAPTURE(name TEXT, value TEXT);
        INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:ENVIRONMENT_VARIABLE', 'RANK=\"5\"'),
            ('PROCESS_0:ENVIRONMENT_VARIABLE', 'LOCAL_RANK=\"1\"');";
    assert_eq!(rank(environment), Some((5, RankSource::Environment)));
}

#[test]
fn rows_without_process_go_to_the_only_process() {
    let orphan = "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL(start, end, deviceId, shortName)
        VALUES (50, 55, 0, 2);";
    let one = tables().to_owned() + &kernel([1, 2], 0, 1, 40) + orphan;
    let read = Export::new(&one).read();
    assert_eq!(read.traces.len(), 1);
    assert_eq!(read.traces[0].kernels.len(), 2);
    assert_eq!(read.issues.find("row_without_process").unwrap().count, 1);
    let two = one + &kernel([3, 4], 1, 1, 41);
    let read = Export::new(&two).read();
    let kernels: Vec<_> = read.traces.iter().map(|trace| trace.kernels.len()).collect();
    assert_eq!(kernels, [1, 1, 1]);
}

#[test]
fn diagnostics_of_the_recorder() {
    let sql = format!(
        "{} {} CREATE TABLE DIAGNOSTIC_EVENT(severity INTEGER, text TEXT, globalPid INTEGER);
         INSERT INTO DIAGNOSTIC_EVENT VALUES (1, 'Profiling has started.', 0),
            (2, 'Not all NVTX events might have been collected.', {}), (3, 'other', {}),
            (1, 'Number of CUPTI events produced: \t0, CUPTI buffers: 1.', -144115188075855872);",
        tables(),
        kernel([1, 2], 0, 1, 40),
        global(40),
        global(41),
    );
    assert_eq!(
        Export::new(&sql).trace().meta.diagnostics,
        [
            "Not all NVTX events might have been collected.",
            "Number of CUPTI events produced: 0, CUPTI buffers: 1.",
        ]
    );
}
