//! What is written as an nsys export is read back as it was.
#![allow(clippy::unwrap_used)]

use steptally_import::ImportOptions;
use steptally_import::nsys::read_nsys;
use steptally_testkit::{TraceDsl, write_nsys_sqlite};
use steptally_trace_model::{CopyKind, RangeKind, Trace};

fn read_back(traces: &[Trace]) -> Vec<Trace> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("export.sqlite");
    write_nsys_sqlite(traces, &path);
    let read = read_nsys(&path, &ImportOptions::default()).unwrap();
    assert_eq!(read.format, "nsys SQLite 3.24.0");
    read.traces
}

#[test]
fn every_kind_of_event_comes_back() {
    let trace = TraceDsl::rank(0)
        .process(500)
        .process_name("server")
        .gpu("NVIDIA H200")
        .range("step", 0..900)
        .launch("cudaLaunchKernel", 10..15, 7)
        .kernel("gemm", 20..60)
        .correlation(7)
        .grid([4, 2, 1])
        .block([128, 1, 1])
        .registers(40)
        .shared_memory(2048)
        .api("cudaDeviceSynchronize", 60..90)
        .memcpy_d2h(80..118, 4)
        .build();
    let [read] = read_back(std::slice::from_ref(&trace)).try_into().unwrap();
    assert_eq!(read.kernels.len(), 1);
    let kernel = read.kernels.row(0);
    assert_eq!((kernel.start.as_ns(), kernel.duration.as_ns()), (20, 40));
    assert_eq!((read.text(kernel.name), kernel.correlation.value()), ("gemm", Some(7)));
    let config = read.configs[kernel.config];
    assert_eq!((config.grid, config.block), ([4, 2, 1], [128, 1, 1]));
    assert_eq!((config.registers, config.shared_memory_bytes), (Some(40), Some(2048)));
    let copy = read.copies.row(0);
    assert_eq!((copy.kind, copy.bytes.value()), (CopyKind::DeviceToHost, Some(4)));
    assert_eq!((copy.start.as_ns(), copy.duration.as_ns()), (80, 38));
    assert_eq!(read.text(copy.name), trace.text(trace.copies.name[0]));
    let calls: Vec<_> = read.api_calls.rows().map(|call| read.text(call.name)).collect();
    assert_eq!(calls, ["cudaLaunchKernel", "cudaDeviceSynchronize"]);
    let range = read.ranges.row(0);
    assert_eq!((read.text(range.name), range.kind), ("step", RangeKind::NvtxPushPop));
    assert_eq!((range.start.as_ns(), range.duration.as_ns()), (0, 900));
    assert_eq!(read.meta.devices[0].name, "NVIDIA H200");
}

#[test]
fn each_trace_is_a_process_with_its_own_ids() {
    let rank = |number: u32| {
        TraceDsl::rank(number)
            .process(500 + number)
            .process_name(&format!("sglang::scheduler_TP{number}"))
            .device(number)
            .launch("cudaLaunchKernel", 10..15, 7)
            .kernel("gemm", i64::from(20 + number)..60)
            .correlation(7)
            .build()
    };
    let read = read_back(&[rank(1), rank(0)]);
    let ranks: Vec<_> = read.iter().map(Trace::rank).collect();
    assert_eq!(ranks, [Some(0), Some(1)]);
    let starts: Vec<_> = read.iter().map(|trace| trace.kernels.start[0].as_ns()).collect();
    assert_eq!(starts, [20, 21]);
}

#[test]
#[should_panic(expected = "ids of 24 bits")]
fn process_ids_that_nsys_cannot_have_are_refused() {
    let trace = TraceDsl::new().process(1 << 24).launch("cudaLaunchKernel", 1..2, 1).build();
    write_nsys_sqlite(&[trace], &std::env::temp_dir().join("steptally-never-written.sqlite"));
}
