//! `steptally demo`: a whole capture against a replay of a recorded server.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use steptally_capture::http::{Client, Keys};
use steptally_capture::replay::{Recorded, Replay, ReplayOptions};

use super::profile;
use crate::capture_args::{CaptureArgs, DemoArgs, RecordedActivity};
use crate::failure::{Code, Failure};
use crate::output;

pub(crate) fn run(args: DemoArgs) -> Result<Code, Failure> {
    let recorded = Recorded::demo();
    output::progress(&format!("REPLAY     of {}: no GPU is used", recorded.name));
    let address = start(ReplayOptions::new(recorded))?;
    let client = Client::new(&format!("http://{address}"), Keys::default())
        .map_err(|error| Failure::usage(error.to_string()))?;
    let folder = args
        .out
        .unwrap_or_else(|| profile::default_folder(&std::env::temp_dir(), "steptally-demo"));
    // The recording is of five steps of one request of 512 tokens.
    let capture = CaptureArgs {
        model: None,
        batch_size: 1,
        input_len: 512,
        output_len: 128,
        steps: 5,
        rounds: 5,
        activities: vec![RecordedActivity::Cpu, RecordedActivity::Gpu],
        no_shapes: false,
        with_stack: false,
        out: None,
        format: args.format,
        top: 10,
    };
    let mut options = profile::options(client, folder, &capture);
    // A replay leaves nothing behind that would pass: what is slower is this machine.
    options.limits.again = Duration::from_millis(500);
    profile::runtime()?.block_on(profile::explain(options, &capture))
}

/// A replay on a thread of its own, which ends with the program.
fn start(options: ReplayOptions) -> Result<SocketAddr, Failure> {
    let (sender, address) = std::sync::mpsc::channel();
    let runtime = profile::runtime()?;
    std::thread::spawn(move || {
        runtime.block_on(async move {
            let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            match Replay::listen(options, any).await {
                Ok(mut replay) => {
                    let _ = sender.send(Ok(replay.address()));
                    replay.serve().await;
                }
                Err(error) => {
                    let _ = sender.send(Err(error));
                }
            }
        });
    });
    let cannot = |why: String| Failure::capture(format!("cannot serve the replay: {why}"));
    match address.recv() {
        Ok(Ok(Some(address))) => Ok(address),
        Ok(Err(error)) => Err(cannot(error.to_string())),
        Ok(Ok(None)) | Err(_) => Err(cannot("it ended".to_owned())),
    }
}
