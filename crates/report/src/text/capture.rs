//! What a capture says before its report: the server, its speed without a profiler, and problems.

use steptally_trace_model::manifest::{
    Baseline, CaptureManifest, CapturedServer, SpeedAfter, SpeedVerdict,
};

use super::style::{TerminalStyle, Tone, printable};
use super::units::{count, counted, duration, percent, three_digits};

/// The opening of a capture's report, to stand before [`terminal`](crate::terminal)'s text.
#[must_use]
pub fn capture_text(capture: &CaptureManifest, style: &TerminalStyle) -> String {
    let mut out = String::new();
    if capture.replay {
        let text = "of a recording: no GPU ran, times are those of the recorded server.";
        out.push_str(&labelled("REPLAY", Tone::Alarm, text, style));
    }
    if let Some(server) = &capture.server {
        out.push_str(&style.paint(Tone::Faint, &style.wrap(&server_line(server), 0)));
        out.push('\n');
    }
    if let Some(baseline) = &capture.baseline_before {
        let text = baseline_text(baseline);
        out.push_str(&style.paint(Tone::Strong, &style.wrap(&text, 0)));
        out.push('\n');
    }
    if let Some(after) = &capture.baseline_after {
        out.push_str(&style.wrap(&after_text(after, capture.speed_after.as_ref()), 0));
        out.push('\n');
    }
    let is_slower = |speed: &SpeedAfter| speed.verdict == SpeedVerdict::Slower;
    if capture.speed_after.as_ref().is_some_and(is_slower) {
        let text = "the server is slower than before the capture, and was so each time it was measured again: look \
                    whether others use it or its GPU, and into its log whether a profiler is still on.";
        out.push_str(&labelled("CAUTION", Tone::Warning, text, style));
    }
    for problem in &capture.problems {
        let mut text = printable(&problem.message);
        if let Some(hint) = &problem.hint {
            text.push_str(&format!(" (hint: {})", printable(hint)));
        }
        out.push_str(&labelled("PROBLEM", Tone::Alarm, &text, style));
    }
    out
}

fn labelled(label: &str, tone: Tone, text: &str, style: &TerminalStyle) -> String {
    format!("{}  {}\n", style.paint(tone, label), style.wrap(text, label.len() + 2))
}

/// `SGLang 0.5.16, /srv/model/A, TP 1, CUDA graphs, KV cache of 131,072 tokens, at http://..`
fn server_line(server: &CapturedServer) -> String {
    let engine = match server.engine.as_str() {
        "sglang" => "SGLang",
        "vllm" => "vLLM",
        "tensorrt_llm" => "TensorRT-LLM",
        "llama_cpp" => "llama.cpp",
        other => other,
    };
    let mut parts = vec![match &server.version {
        Some(version) => format!("{engine} {version}"),
        None => engine.to_owned(),
    }];
    parts.extend(server.model.clone());
    for name in ["tp", "dp", "pp", "ep"] {
        let size = server.parallel.get(name).copied();
        if let Some(size) = size.filter(|&size| size > 1 || name == "tp") {
            parts.push(format!("{} {size}", name.to_uppercase()));
        }
    }
    parts.extend(
        server
            .cuda_graphs
            .map(|on| if on { "CUDA graphs".to_owned() } else { "no CUDA graphs".to_owned() }),
    );
    parts.extend(server.speculative.as_ref().map(|name| format!("speculation by {name}")));
    parts.extend(
        server.kv_token_capacity.map(|tokens| format!("KV cache of {} tokens", count(tokens))),
    );
    printable(&format!("{}, at {}", parts.join(", "), server.url))
}

fn baseline_text(before: &Baseline) -> String {
    let (tpot, shape) = (before.tpot_ns, before.shape);
    format!(
        "Without a profiler an output token takes {} (TPOT, median of {}, {} to {}; batch size {}, \
         {} tokens in, {} out). The first takes {}: with it, {} tokens/s.",
        duration(tpot.median),
        counted(tpot.n, "request"),
        duration(tpot.min),
        duration(tpot.max),
        shape.batch_size,
        count(u64::from(shape.input_len)),
        count(u64::from(shape.output_len)),
        duration(before.ttft_ns.median),
        three_digits(before.tokens_per_s),
    )
}

/// `After the capture 1.14 ms (1.11 ms to 1.15 ms): within noise (3 %) of before.`
fn after_text(after: &Baseline, speed: Option<&SpeedAfter>) -> String {
    let tpot = after.tpot_ns;
    let mut text = format!(
        "After the capture {} ({} to {})",
        duration(tpot.median),
        duration(tpot.min),
        duration(tpot.max)
    );
    if let Some(speed) = speed {
        let noise = percent(speed.noise_ratio);
        let change = percent(speed.change_ratio.abs());
        text.push_str(&match speed.verdict {
            SpeedVerdict::WithinNoise => format!(": within noise ({noise}) of before"),
            SpeedVerdict::Slower => format!(": slower than before by {change} (noise {noise})"),
            SpeedVerdict::Faster => format!(": faster than before by {change} (noise {noise})"),
        });
    }
    text.push('.');
    text
}

#[cfg(test)]
mod tests {
    use steptally_trace_model::manifest::{CaptureProblem, LoadShape, Spread, Verification};

    use super::*;

    fn spread(median: f64) -> Spread {
        Spread { n: 3, median, mean: median, min: 1.11e6, p90: median, max: 1.15e6 }
    }

    #[test]
    fn a_capture() {
        let baseline = Baseline {
            shape: LoadShape { batch_size: 1, input_len: 512, output_len: 128 },
            ttft_ns: spread(17e6),
            tpot_ns: spread(1.139e6),
            tokens_per_s: 800.0,
            requests: 3,
            ..Baseline::default()
        };
        let capture = CaptureManifest {
            replay: true,
            server: Some(CapturedServer {
                url: "http://127.0.0.1:30000".into(),
                engine: "sglang".into(),
                version: Some("0.5.16".into()),
                model: Some("/srv/model/A".into()),
                parallel: [("tp".to_owned(), 2), ("pp".to_owned(), 1)].into(),
                kv_token_capacity: Some(131_072),
                cuda_graphs: Some(true),
                ..CapturedServer::default()
            }),
            baseline_before: Some(baseline),
            verification: Some(Verification {
                period_ns: Some(2.39e6),
                dilation_ratio: Some(2.1),
                ..Verification::default()
            }),
            problems: vec![CaptureProblem {
                code: "x".into(),
                message: "it broke".into(),
                hint: Some("mend it".into()),
            }],
            ..CaptureManifest::default()
        };
        let style = TerminalStyle { width: 1000, color: false, bars: false, top: 10 };
        assert_eq!(
            capture_text(&capture, &style),
            "REPLAY  of a recording: no GPU ran, times are those of the recorded server.\n\
             SGLang 0.5.16, /srv/model/A, TP 2, CUDA graphs, KV cache of 131,072 tokens, at http://127.0.0.1:30000\n\
             Without a profiler an output token takes 1.14 ms (TPOT, median of 3 requests, 1.11 ms to 1.15 ms; \
             batch size 1, 512 tokens in, 128 out). The first takes 17.0 ms: with it, 800 tokens/s.\n\
             PROBLEM  it broke (hint: mend it)\n"
        );
        assert_eq!(capture_text(&CaptureManifest::default(), &style), "");
    }

    #[test]
    fn after_a_capture() {
        let style = TerminalStyle { width: 1000, color: false, bars: false, top: 10 };
        let text = |verdict, change_ratio| {
            let after = Baseline { tpot_ns: spread(1.14e6), ..Baseline::default() };
            let capture = CaptureManifest {
                baseline_after: Some(after),
                speed_after: Some(SpeedAfter { verdict, change_ratio, noise_ratio: 0.05 }),
                ..CaptureManifest::default()
            };
            capture_text(&capture, &style)
        };
        let after = "After the capture 1.14 ms (1.11 ms to 1.15 ms): ";
        assert_eq!(
            text(SpeedVerdict::WithinNoise, -0.01),
            format!("{after}within noise (5.0 %) of before.\n")
        );
        assert_eq!(
            text(SpeedVerdict::Faster, -0.12),
            format!("{after}faster than before by 12.0 % (noise 5.0 %).\n")
        );
        let slower = text(SpeedVerdict::Slower, 0.12);
        let first = format!("{after}slower than before by 12.0 % (noise 5.0 %).\n");
        assert!(slower.starts_with(&format!("{first}CAUTION  the server is slower")), "{slower}");
    }
}
