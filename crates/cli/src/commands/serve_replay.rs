//! `steptally serve-replay`: a server without a GPU, for tests.

use std::net::SocketAddr;

use steptally_capture::replay::{Recorded, Replay, ReplayOptions};

use super::profile;
use crate::capture_args::ServeReplayArgs;
use crate::failure::{Code, Failure};
use crate::output;

pub(crate) fn run(args: &ServeReplayArgs) -> Result<Code, Failure> {
    let recorded = Recorded::from_folder(&args.path).map_err(|failure| {
        let shown = Failure::input(failure.message);
        match failure.hint {
            Some(hint) => shown.hint(hint),
            None => shown,
        }
    })?;
    let ranks = recorded.traces.len();
    let ranks = if ranks == 1 { "1 rank".to_owned() } else { format!("{ranks} ranks") };
    let text = format!("REPLAY of {}, {ranks}", recorded.name);
    profile::runtime()?.block_on(async {
        let address = SocketAddr::from((args.host, args.port));
        let mut replay =
            Replay::listen(ReplayOptions::new(recorded), address).await.map_err(|error| {
                Failure::capture(format!("cannot listen on {address}: {error}"))
                    .hint("give another --port, or --port 0 for any that is free")
            })?;
        if let Some(address) = replay.address() {
            output::write(&format!("{text}\nhttp://{address}\n"), None)?;
        }
        tokio::select! {
            () = output::terminated() => {}
            () = replay.serve() => {}
        }
        Ok(Code::Ok)
    })
}
