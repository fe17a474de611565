//! The torch hook: a Python file that wraps the model runner's forward, armed by a file.
//!
//! For servers without a profile endpoint, or when only the forward pass is wanted. It is in the
//! server from its start, through `PYTHONPATH`; nothing of the server's source changes.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::{Backend, Pending, Recording, StartError, Stopped};
use crate::error::Failure;
use crate::session::Conduct;

/// The hook's files: name and content.
pub const HOOK_SOURCES: [(&str, &str); 2] = [
    ("sitecustomize.py", include_str!("../../python/sitecustomize.py")),
    ("steptally_hook.py", include_str!("../../python/steptally_hook.py")),
];

/// An order that nobody carried out by then is void, so that it cannot surprise a later server.
const ORDER_HOLDS: Duration = Duration::from_secs(900);

/// Writes the hook's files to `folder`, which is then to be in the server's `PYTHONPATH`.
///
/// # Errors
/// When a file cannot be written.
pub fn install_hook(folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder).map_err(|error| Failure::io("make the folder", folder, &error))?;
    for (name, source) in HOOK_SOURCES {
        let path = folder.join(name);
        if fs::read_to_string(&path)
            .is_ok_and(|there| there != source && !there.contains("steptally"))
        {
            return Err(Failure::new(
                "output_folder",
                format!("{} is there already and is somebody else's", path.display()),
            )
            .hint("give a folder of its own for the hook"));
        }
        fs::write(&path, source).map_err(|error| Failure::io("write", &path, &error))?;
    }
    Ok(())
}

/// The hook in a running server.
#[derive(Debug)]
pub struct TorchHook {
    control: PathBuf,
    recording: Recording,
    skip: u32,
    ranks: Vec<u32>,
    id: String,
}

impl TorchHook {
    /// The hook that looks into the folder `control`, skips `skip` decode steps, and records on
    /// `ranks`.
    #[must_use]
    pub fn new(control: PathBuf, recording: Recording, skip: u32, ranks: Vec<u32>) -> Self {
        Self { control, recording, skip, ranks, id: unix_seconds(SystemTime::now()).to_string() }
    }

    /// The processes that have the hook loaded, as their notes in `control` say.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn loaded_in(control: &Path) -> Result<Vec<u32>, Failure> {
        let entries = fs::read_dir(control)
            .map_err(|error| Failure::io("read the folder", control, &error))?;
        let mut pids: Vec<u32> = entries
            .filter_map(|entry| {
                let name = entry.ok()?.file_name().into_string().ok()?;
                name.strip_prefix("hook-")?.strip_suffix(".json")?.parse().ok()
            })
            .filter(|pid| {
                !Path::new("/proc").is_dir() || Path::new(&format!("/proc/{pid}")).is_dir()
            })
            .collect();
        pids.sort_unstable();
        Ok(pids)
    }

    fn order(&self) -> PathBuf {
        self.control.join("arm.json")
    }

    fn arm(&self) -> Result<(), Failure> {
        let loaded = Self::loaded_in(&self.control)?;
        if loaded.is_empty() {
            return Err(Failure::new(
                "hook_not_loaded",
                format!("no running process has the hook loaded: there is no note of one in {}", self.control.display()),
            )
            .hint("steptally doctor --write-hook DIR says how to start the server with it; a hook that has recorded takes itself away, so start the server again"));
        }
        if self.order().exists() {
            return Err(Failure::new(
                "already_profiling",
                format!("{} is there already", self.order().display()),
            )
            .hint("another capture uses this hook; remove the file when none does"));
        }
        let partial = self.control.join(".arm.json.partial");
        let failed = |error| Failure::io("write", &partial, &error);
        fs::write(&partial, self.request().to_string()).map_err(failed)?;
        fs::rename(&partial, self.order()).map_err(failed)
    }
}

fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl Backend for TorchHook {
    fn code(&self) -> &'static str {
        "torch_hook"
    }

    fn conduct(&self) -> Conduct {
        Conduct { ends_itself: true, wants_stop: true, ..Conduct::default() }
    }

    fn expected_ranks(&self) -> Option<Vec<String>> {
        Some(self.ranks.iter().map(|rank| format!("TP-{rank}")).collect())
    }

    fn rank_of(&self, file: &str) -> Option<String> {
        let stem = file.strip_suffix(".trace.json.gz")?;
        let number = stem.strip_prefix(&self.id)?.strip_prefix("-TP-")?;
        Some(format!("TP-{number}"))
    }

    fn request(&self) -> Value {
        let Recording { steps, activities, record_shapes, with_stack, server_folder, .. } =
            &self.recording;
        let activities: Vec<&str> = activities.iter().map(|activity| activity.name()).collect();
        json!({
            "id": self.id,
            "skip": self.skip,
            "record": steps,
            "ranks": self.ranks,
            "out": server_folder,
            "activities": activities,
            "record_shapes": record_shapes,
            "with_stack": with_stack,
            "keep": false,
            "expires": unix_seconds(SystemTime::now() + ORDER_HOLDS),
        })
    }

    fn start(&self) -> Pending<'_, Result<(), StartError>> {
        Box::pin(async { self.arm().map_err(|failure| StartError { failure, is_unclear: false }) })
    }

    fn stop(&self) -> Pending<'_, Result<Stopped, Failure>> {
        Box::pin(async {
            match fs::remove_file(self.order()) {
                Ok(()) => Ok(Stopped::Now),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Stopped::Before),
                Err(error) => Err(Failure::io("remove", &self.order(), &error)),
            }
        })
    }
}
