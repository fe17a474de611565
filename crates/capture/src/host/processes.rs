//! Processes that are LLM servers, by their command lines.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Serialize;

use crate::engine::Engine;
use crate::secret::Redactor;

/// A server: the process that was started, and those that it started.
#[derive(Clone, Debug, Serialize)]
pub struct HostServer {
    /// `sglang`, `vllm`, `tensorrt_llm` or `llama_cpp`.
    pub engine: &'static str,
    /// The engine.
    #[serde(skip)]
    pub kind: Engine,
    /// The process that was started.
    pub pid: u32,
    /// User it runs as.
    pub user: Option<u32>,
    /// Its command line, redacted.
    pub command: Vec<String>,
    /// Processes that it started, and those that they started.
    pub workers: Vec<Worker>,
    /// Ports it listens on; none when another user may not see them.
    pub ports: Vec<u16>,
    /// Whether it has a file system of its own; `null`: not known.
    pub in_container: Option<bool>,
    /// Whether nsys started it.
    pub under_nsys: bool,
    /// The folder that a torch hook in it looks into.
    pub hook: Option<PathBuf>,
    /// Version of the engine's package.
    pub version: Option<String>,
    /// Version of the interpreter (3.12).
    pub python: Option<String>,
    /// Version of PyTorch.
    pub torch: Option<String>,
    /// Whether vLLM was told where to write traces by its environment (before 0.16).
    #[serde(skip)]
    pub(crate) vllm_profiler_folder: bool,
}

/// A process of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Worker {
    /// Its number.
    pub pid: u32,
    /// What it calls itself.
    pub name: String,
    /// How it came about.
    pub started: Started,
    /// Whether it has a GPU open; `null`: not known.
    pub uses_gpu: Option<bool>,
}

/// How a process came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Started {
    /// By fork and exec, as `multiprocessing` does under `spawn`.
    Spawn,
    /// By fork alone.
    Fork,
    /// It cannot be seen.
    Unknown,
}

impl HostServer {
    /// The value of the first of these options on the command line.
    pub(crate) fn option<T: FromStr>(&self, names: &[&str]) -> Option<T> {
        let mut words = self.command.iter();
        while let Some(word) = words.next() {
            if names.contains(&word.as_str()) {
                return words.next()?.parse().ok();
            }
            if let Some((name, value)) = word.split_once('=')
                && names.contains(&name)
            {
                return value.parse().ok();
            }
        }
        None
    }

    /// The workers that run the model: those with a GPU open, else those that bear the engine's name, else
    /// all.
    pub(crate) fn ranks(&self) -> Vec<&Worker> {
        let with = |is_rank: &dyn Fn(&Worker) -> bool| -> Vec<&Worker> {
            self.workers.iter().filter(|worker| is_rank(worker)).collect()
        };
        let choices = [
            with(&|worker| worker.uses_gpu == Some(true)),
            with(&|worker| worker.name.contains("::")),
        ];
        choices.into_iter().find(|some| !some.is_empty()).unwrap_or_else(|| with(&|_| true))
    }

    /// Whether one of these options is on the command line.
    pub(crate) fn has(&self, names: &[&str]) -> bool {
        self.command.iter().any(|word| names.contains(&word.split('=').next().unwrap_or_default()))
    }

    pub(crate) fn has_prefix(&self, prefix: &str) -> bool {
        self.command.iter().any(|word| word.starts_with(prefix))
    }
}

/// One process, as `/proc` tells.
struct Process {
    parent: u32,
    started: Started,
    command: Vec<String>,
}

/// Processes of Python and PyTorch that run no model: they count resources, and compile kernels.
const BOOKKEEPING: [&str; 2] = ["multiprocessing.resource_tracker", "compile_worker"];

/// Set by the kernel for a process that has not called exec since it was forked (`PF_FORKNOEXEC`).
const FORKED_WITHOUT_EXEC: u64 = 0x40;

/// The servers that run under `root`'s `proc`, by the number of their first process.
pub(crate) fn servers(root: &Path) -> Vec<HostServer> {
    let proc = root.join("proc");
    let processes = processes(&proc);
    let engines: HashMap<u32, Engine> = processes
        .iter()
        .filter_map(|(&pid, process)| Some((pid, engine(&process.command)?)))
        .collect();
    // A server's workers bear its engine's name too: the server is the uppermost of them.
    let mut roots: Vec<(u32, Engine)> = engines
        .iter()
        .filter(|&(&pid, engine)| {
            !ancestors(&processes, pid).iter().any(|above| engines.get(above) == Some(engine))
        })
        .map(|(&pid, &engine)| (pid, engine))
        .collect();
    roots.sort_by_key(|&(pid, _)| pid);
    roots.into_iter().map(|(pid, engine)| describe(root, &processes, pid, engine)).collect()
}

fn processes(proc: &Path) -> HashMap<u32, Process> {
    let entries = fs::read_dir(proc).into_iter().flatten().filter_map(Result::ok);
    entries
        .filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let (parent, started) = stat(&fs::read_to_string(entry.path().join("stat")).ok()?)?;
            let bytes = fs::read(entry.path().join("cmdline")).ok()?;
            Some((pid, Process { parent, started, command: words(&bytes) }))
        })
        .collect()
}

/// Parent, and whether exec was called, of a line of `/proc/PID/stat`. The name, in parentheses, may
/// hold anything.
fn stat(line: &str) -> Option<(u32, Started)> {
    let mut fields = line.rsplit_once(") ")?.1.split(' ');
    let parent = fields.nth(1)?.parse().ok()?;
    let flags: u64 = fields.nth(4)?.parse().ok()?;
    let started = if flags & FORKED_WITHOUT_EXEC == 0 { Started::Spawn } else { Started::Fork };
    Some((parent, started))
}

/// The words of a command line; a process that renamed itself has its name there.
fn words(bytes: &[u8]) -> Vec<String> {
    let words = bytes.split(|&byte| byte == 0).map(String::from_utf8_lossy);
    words.filter(|word| !word.trim().is_empty()).map(|word| word.trim().to_owned()).collect()
}

fn base_name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// The engine whose server, or worker, a command line is.
fn engine(command: &[String]) -> Option<Engine> {
    let first = command.first()?;
    // Workers rename themselves.
    if first.starts_with("sglang::") {
        return Some(Engine::Sglang);
    }
    if first.starts_with("VLLM::") {
        return Some(Engine::Vllm);
    }
    if base_name(first) == "llama-server" {
        return Some(Engine::LlamaCpp);
    }
    // `python -m MODULE`, `python FILE`, or a script in the interpreter's folder.
    let is_python = base_name(first).starts_with("python");
    let rest = &command[usize::from(is_python)..];
    let script = rest.iter().find(|word| !word.starts_with('-')).map(|word| base_name(word));
    let is_serving = |verb: &str| rest.iter().any(|word| word == verb);
    match script {
        Some("sglang") if is_serving("serve") => return Some(Engine::Sglang),
        Some("vllm") if is_serving("serve") => return Some(Engine::Vllm),
        Some("trtllm-serve") => return Some(Engine::TensorRtLlm),
        _ if !is_python => return None,
        _ => {}
    }
    let module = script.unwrap_or_default().trim_end_matches(".py");
    let path = rest.iter().find(|word| !word.starts_with('-')).map_or("", String::as_str);
    match module {
        "launch_server" if path.contains("sglang") => Some(Engine::Sglang),
        "sglang.launch_server" => Some(Engine::Sglang),
        "tensorrt_llm.commands.serve" => Some(Engine::TensorRtLlm),
        module if module.starts_with("vllm.entrypoints.") => Some(Engine::Vllm),
        "api_server" if path.contains("vllm/entrypoints") => Some(Engine::Vllm),
        _ => None,
    }
}

/// The processes above, nearest first.
fn ancestors(processes: &HashMap<u32, Process>, pid: u32) -> Vec<u32> {
    let mut above = Vec::new();
    let mut seen = HashSet::from([pid]);
    let mut next = processes.get(&pid).map(|process| process.parent);
    while let Some(parent) = next.filter(|&parent| parent > 0 && seen.insert(parent)) {
        above.push(parent);
        next = processes.get(&parent).map(|process| process.parent);
    }
    above
}

fn describe(
    root: &Path,
    processes: &HashMap<u32, Process>,
    pid: u32,
    engine: Engine,
) -> HostServer {
    let proc = root.join("proc");
    let own = proc.join(pid.to_string());
    let mut below: Vec<u32> = processes
        .keys()
        .copied()
        .filter(|&other| ancestors(processes, other).contains(&pid))
        .collect();
    below.sort_unstable();
    let command = processes.get(&pid).map(|process| process.command.clone()).unwrap_or_default();
    let workers = below.iter().filter_map(|&below| {
        let process = processes.get(&below)?;
        let is_bookkeeping = process
            .command
            .iter()
            .any(|word| BOOKKEEPING.iter().any(|module| word.contains(module)));
        let name = worker_name(&process.command)?;
        let uses_gpu = uses_gpu(&proc.join(below.to_string()));
        let started = process.started;
        (!is_bookkeeping).then_some(Worker { pid: below, name, started, uses_gpu })
    });
    let workers: Vec<Worker> = workers.collect();
    let environment = words_of_environment(&own);
    let variable = |name: &str| {
        let prefix = format!("{name}=");
        environment.iter().find_map(|word| word.strip_prefix(&prefix)).map(str::to_owned)
    };
    let parent_is_nsys = ancestors(processes, pid).iter().any(|above| {
        let first = processes.get(above).and_then(|process| process.command.first());
        first.is_some_and(|first| base_name(first).starts_with("nsys"))
    });
    let everyone: Vec<u32> = std::iter::once(pid).chain(below).collect();
    let mut packages: Vec<PathBuf> = everyone
        .iter()
        .find_map(|&pid| site_packages(&proc.join(pid.to_string())))
        .into_iter()
        .collect();
    let paths = variable("PYTHONPATH").unwrap_or_default();
    let paths = paths.split(':').filter_map(|path| path.strip_prefix('/'));
    packages.extend(paths.map(|path| own.join("root").join(path)));
    let package = |name: &str| packages.iter().find_map(|folder| version_in(folder, name));
    HostServer {
        engine: engine.code(),
        kind: engine,
        pid,
        user: user(&own),
        command: Redactor::default().command(&command),
        workers,
        ports: ports(&proc, &everyone),
        in_container: in_container(&proc, &own),
        under_nsys: parent_is_nsys || variable("NSYS_PROFILING_SESSION_ID").is_some(),
        hook: variable("STEPTALLY_HOOK_DIR").map(PathBuf::from),
        version: match engine {
            Engine::Sglang => package("sglang"),
            Engine::Vllm => package("vllm"),
            Engine::TensorRtLlm => package("tensorrt_llm"),
            Engine::LlamaCpp => None,
        },
        python: python(&own),
        torch: package("torch"),
        vllm_profiler_folder: variable("VLLM_TORCH_PROFILER_DIR").is_some(),
    }
}

/// `sglang::scheduler_TP0`, or the beginning of a command line.
fn worker_name(command: &[String]) -> Option<String> {
    let first = command.first()?;
    if first.contains("::") {
        return Some(first.clone());
    }
    if command.iter().any(|word| word.contains("multiprocessing.spawn")) {
        return Some("multiprocessing.spawn".to_owned());
    }
    Some(base_name(first).to_owned())
}

/// Environment, where this user may see it; nothing of it is passed on but what is asked for by name.
fn words_of_environment(process: &Path) -> Vec<String> {
    fs::read(process.join("environ")).map(|bytes| words(&bytes)).unwrap_or_default()
}

fn user(process: &Path) -> Option<u32> {
    let status = fs::read_to_string(process.join("status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn in_container(proc: &Path, process: &Path) -> Option<bool> {
    let theirs = fs::read_link(process.join("ns/mnt")).ok()?;
    let ours = fs::read_link(proc.join("self/ns/mnt")).ok()?;
    Some(theirs != ours)
}

/// Whether a device of NVIDIA's driver is open.
fn uses_gpu(process: &Path) -> Option<bool> {
    let mut descriptors = fs::read_dir(process.join("fd")).ok()?.filter_map(Result::ok);
    Some(descriptors.any(|descriptor| {
        let link = fs::read_link(descriptor.path());
        link.is_ok_and(|link| link.to_string_lossy().starts_with("/dev/nvidia"))
    }))
}

/// Ports that these processes listen on, in order.
fn ports(proc: &Path, pids: &[u32]) -> Vec<u16> {
    let mut ports = Vec::new();
    for pid in pids {
        let process = proc.join(pid.to_string());
        let sockets: HashSet<u64> = fs::read_dir(process.join("fd"))
            .into_iter()
            .flatten()
            .filter_map(|entry| {
                let link = fs::read_link(entry.ok()?.path()).ok()?;
                link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
            })
            .collect();
        for table in ["net/tcp", "net/tcp6"] {
            let table = fs::read_to_string(process.join(table)).unwrap_or_default();
            let listening = table.lines().skip(1).filter_map(listening);
            ports.extend(
                listening.filter(|(_, inode)| sockets.contains(inode)).map(|(port, _)| port),
            );
        }
    }
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// Port and inode of a listening socket, by a line of `/proc/net/tcp`.
fn listening(line: &str) -> Option<(u16, u64)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let port = fields.get(1)?.rsplit(':').next()?;
    (*fields.get(3)? == "0A")
        .then(|| Some((u16::from_str_radix(port, 16).ok()?, fields.get(9)?.parse().ok()?)))
        .flatten()
}

/// `3.12` of `/usr/bin/python3.12`.
fn python(process: &Path) -> Option<String> {
    let exe = fs::read_link(process.join("exe")).ok()?;
    let version = base_name(exe.to_str()?).strip_prefix("python")?.to_owned();
    (version.contains('.')).then_some(version)
}

/// The folder of Python packages that PyTorch was loaded from, as this process sees it.
fn site_packages(process: &Path) -> Option<PathBuf> {
    let maps = fs::read_to_string(process.join("maps")).ok()?;
    let loaded = maps.lines().find_map(|line| {
        let path = &line[line.find('/')?..];
        path.find("/torch/lib/libtorch").map(|end| path[1..end].to_owned())
    })?;
    Some(process.join("root").join(loaded))
}

/// `2.9.1+cu128` of `torch-2.9.1+cu128.dist-info`.
fn version_in(folder: &Path, package: &str) -> Option<String> {
    fs::read_dir(folder).ok()?.filter_map(Result::ok).find_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let version = name.strip_suffix(".dist-info")?.strip_prefix(package)?.strip_prefix('-')?;
        Some(version.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(command: &str) -> Option<Engine> {
        let words: Vec<String> = command.split('|').map(str::to_owned).collect();
        engine(&words)
    }

    #[test]
    fn command_lines_of_servers() {
        let sglang = Some(Engine::Sglang);
        assert_eq!(of("/usr/bin/python3|-m|sglang.launch_server|--model-path|/m"), sglang);
        assert_eq!(of("python|/x/sglang/launch_server.py|--port|1"), sglang);
        assert_eq!(of("/v/bin/python3|/v/bin/sglang|serve|--model-path|/m"), sglang);
        assert_eq!(of("sglang::scheduler_TP0"), sglang);
        let vllm = Some(Engine::Vllm);
        assert_eq!(of("/v/bin/python3|/v/bin/vllm|serve|/m"), vllm);
        assert_eq!(of("python3|-m|vllm.entrypoints.openai.api_server"), vllm);
        assert_eq!(of("VLLM::EngineCore"), vllm);
        assert_eq!(of("python3|/v/bin/trtllm-serve|/m"), Some(Engine::TensorRtLlm));
        assert_eq!(of("/opt/llama.cpp/build/bin/llama-server|-m|x.gguf"), Some(Engine::LlamaCpp));
    }

    #[test]
    fn command_lines_that_only_speak_of_servers() {
        for other in [
            "nsys|profile|python|-m|sglang.launch_server",
            "bash|-c|python -m sglang.launch_server",
            "grep|sglang.launch_server",
            "vim|vllm/entrypoints/openai/api_server.py",
            "python3|-m|http.server",
            "python3|/v/bin/vllm|bench",
            "",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn a_line_of_stat_with_any_name() {
        // Fields 4 (parent) and 9 (flags): 0x400040 is forked without exec, 0x400000 is not.
        let line = |flags: u64| format!("7 (a) b ( c) S 42 7 7 0 -1 {flags} 1 2 3");
        assert_eq!(stat(&line(0x0040_0040)), Some((42, Started::Fork)));
        assert_eq!(stat(&line(0x0040_0000)), Some((42, Started::Spawn)));
        assert_eq!(stat("7 (a) S"), None);
    }
}
