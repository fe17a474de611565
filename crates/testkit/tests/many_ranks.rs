//! Ranks made from two small hand-written ones.

#![allow(clippy::unwrap_used)] // in the tests' own functions

use serde_json::{Value, json};
use steptally_testkit::{SlowRank, many_ranks};

/// A rank with a kernel, an all-reduce, and a host call over both.
fn captured(rank: u32, all_reduce: &str) -> String {
    let process = 70 + rank;
    format!(
        r#"{{"schemaVersion": 1, "deviceProperties": [{{"id": 0, "name": "G"}}, {{"id": 1, "name": "G"}}],
"distributedInfo": {{"rank": {rank}, "world_size": 2, "pg_config": [
{{"pg_name": "3", "pg_size": 2, "ranks": [0, 1]}}, {{"pg_name": "9", "pg_size": 1, "ranks": [{rank}]}}]}},
"baseTimeNanoseconds": 1000000000,
"traceEvents": [
{{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": {process}, "tid": {process}, "ts": 5000.001, "dur": 40.000}},
{{"ph": "X", "cat": "kernel", "name": "gemm", "pid": {rank}, "tid": 7, "ts": 5010.000, "dur": 5.000,
 "args": {{"device": {rank}, "stream": 7}}}},
{{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "pid": {rank}, "tid": 7, {all_reduce},
 "args": {{"device": {rank}, "Group size": 2, "Process Group Ranks": "[0, 1]"}}}},
{{"name": "process_name", "ph": "M", "ts": 5000.000, "pid": {process}, "tid": 0, "args": {{"name": "scheduler_TP{rank}"}}}},
{{"name": "process_labels", "ph": "M", "ts": 5000.000, "pid": 0, "tid": 0, "args": {{"labels": "GPU 0"}}}}
],
"traceName": "x"}}"#
    )
}

fn made(slow: Option<SlowRank>) -> Vec<Value> {
    let captured = [
        captured(0, r#""ts": 5016.000, "dur": 6.000"#),
        captured(1, r#""ts": 5018.000, "dur": 4.000"#),
    ];
    let texts = many_ranks(&captured, 4, slow).unwrap();
    texts.iter().map(|text| serde_json::from_str(text).unwrap()).collect()
}

/// Start and end of an event in us, on rank 0's clock as far as the header tells.
fn span(trace: &Value, event: usize) -> (f64, f64) {
    let base = (trace["baseTimeNanoseconds"].as_i64().unwrap() - 1_000_000_000) as f64 / 1e3;
    let event = &trace["traceEvents"][event];
    let start = event["ts"].as_f64().unwrap() + base;
    let round = |us: f64| (us * 1e3).round() / 1e3;
    (round(start), round(start + event["dur"].as_f64().unwrap()))
}

#[test]
fn each_rank_has_an_identity_of_its_own() {
    let made = made(None);
    assert_eq!(made.len(), 4);
    let third = &made[3];
    assert_eq!(third["distributedInfo"]["rank"], 3);
    assert_eq!(third["distributedInfo"]["world_size"], 4);
    assert_eq!(
        third["distributedInfo"]["pg_config"],
        json!([{"pg_name": "3", "pg_size": 4, "ranks": [0, 1, 2, 3]},
               {"pg_name": "9", "pg_size": 1, "ranks": [3]}])
    );
    assert_eq!(third["deviceProperties"].as_array().unwrap().len(), 4);
    assert_eq!(third["traceName"], "SYNTHETIC: rank 3 of 4, made from captured rank 1 of 2");
    let events = &third["traceEvents"];
    // Process 71 + 2, device 3.
    assert_eq!((&events[0]["pid"], &events[0]["tid"]), (&json!(73), &json!(73)));
    assert_eq!((&events[1]["pid"], &events[1]["tid"]), (&json!(3), &json!(7)));
    assert_eq!(
        events[2]["args"],
        json!({"device": 3, "Group size": 4, "Process Group Ranks": "[0, 1, 2, 3]"})
    );
    assert_eq!(events[3]["args"]["name"], "scheduler_TP3");
    assert_eq!(events[4]["pid"], 0);
    // The origin of its clock is 15 ms later, which its times make good, but for 3 us.
    assert_eq!(third["baseTimeNanoseconds"], 1_015_000_000);
    assert_eq!(events[2]["ts"], 5018.0 - 15_000.0 + 3.0);
    assert_eq!(span(third, 2), (5021.0, 5025.0));
    assert_eq!(span(&made[0], 2), (5016.0, 5022.0));
}

#[test]
fn a_slowed_rank_works_longer_and_the_others_wait() {
    let made = made(Some(SlowRank { rank: 1, delay_ns: 2_500 }));
    // Rank 1 (1 us of clock error): its kernel ends 2.5 us later, the all-reduce moves by as much.
    assert_eq!(span(&made[1], 1), (5011.0, 5018.5));
    assert_eq!(span(&made[1], 2), (5021.5, 5025.5));
    assert_eq!(span(&made[1], 0), (5001.001, 5043.501));
    // Rank 0: the all-reduce is longer, what comes before it as captured.
    assert_eq!(span(&made[0], 1), (5010.0, 5015.0));
    assert_eq!(span(&made[0], 2), (5016.0, 5024.5));
}

#[test]
fn what_is_no_such_run_is_an_error() {
    let error = |texts: &[String]| many_ranks(texts, 8, None).unwrap_err().to_string();
    assert_eq!(error(&["[]".into()]), "no object");
    assert_eq!(error(&[]), "the ranks took part in different collectives, or in none");
    let one = captured(0, r#""ts": 5016.000, "dur": 6.000"#);
    let none = one.replace("ncclDevKernel", "another");
    assert_eq!(error(&[one, none]), "the ranks took part in different collectives, or in none");
    assert_eq!(error(&[r#"{"traceEvents": []}"#.into()]), "no distributedInfo.rank");
}
