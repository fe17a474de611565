//! Finding the CUDA libraries at run time.
//!
//! Each is first asked for by name, which honours `LD_LIBRARY_PATH`; then it is looked for where
//! toolkits and PyTorch's packages put it. A library that was loaded once is found by its soname by
//! everyone who asks for it later, so `cudarc` needs no search of its own.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use libloading::Library;

use crate::error::BenchError;

/// A library and the names that its file may have, best first.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) title: &'static str,
    pub(crate) names: &'static [&'static str],
    /// How the names of files begin that it opens by itself, without looking beside its own file.
    pub(crate) companion: Option<&'static str>,
}

pub(crate) const DRIVER: Wanted =
    Wanted { title: "the CUDA driver", names: &["libcuda.so.1", "libcuda.so"], companion: None };
pub(crate) const NVRTC: Wanted = Wanted {
    title: "NVRTC",
    names: &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"],
    companion: Some("libnvrtc-builtins.so."),
};
pub(crate) const CUBLASLT: Wanted = Wanted {
    title: "cuBLASLt",
    names: &["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"],
    companion: None,
};
pub(crate) const NCCL: Wanted =
    Wanted { title: "NCCL", names: &["libnccl.so.2", "libnccl.so"], companion: None };

/// Loads a library and keeps it loaded.
pub(crate) fn load(wanted: &Wanted) -> Result<Library, BenchError> {
    let folders = folders();
    let by_name = wanted.names.iter().map(PathBuf::from);
    for path in by_name.chain(candidates(&folders, wanted.names)) {
        for companion in companions(&path, wanted.companion) {
            // Found by its soname later; without it the library itself says what it misses.
            std::mem::forget(open(&companion));
        }
        if let Some(library) = open(&path) {
            return Ok(library);
        }
    }
    Err(BenchError::NoLibrary {
        library: wanted.title,
        names: wanted.names.iter().map(|&name| name.to_owned()).collect(),
        searched: folders,
    })
}

#[allow(unsafe_code)]
fn open(path: &Path) -> Option<Library> {
    // SAFETY: loading runs the initialisers of NVIDIA's own libraries, which have no preconditions.
    unsafe { Library::new(path) }.ok()
}

/// Files in the folder of `path` whose names begin so.
fn companions(path: &Path, prefix: Option<&str>) -> Vec<PathBuf> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let (Some(folder), Some(prefix)) = (folder, prefix) else { return Vec::new() };
    entries(folder).into_iter().filter(|path| name_of(path).starts_with(prefix)).collect()
}

/// Folders of toolkits and Python packages that exist here.
fn folders() -> Vec<PathBuf> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let mut roots: Vec<PathBuf> =
        ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(variable).collect();
    roots.push("/usr/local/cuda".into());
    let mut folders: Vec<PathBuf> =
        roots.iter().flat_map(|root| [root.join("lib64"), root.join("lib")]).collect();
    folders.extend(
        ["/usr/local/nvidia/lib64", "/usr/lib64-nvidia", "/usr/lib/wsl/lib"].map(PathBuf::from),
    );
    let mut prefixes: Vec<PathBuf> =
        ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(variable).collect();
    prefixes.extend(python_prefix(std::env::var_os("PATH").as_deref()));
    prefixes.extend(["/usr/local", "/usr", "/opt/conda"].map(PathBuf::from));
    folders.extend(prefixes.iter().flat_map(|prefix| package_folders(prefix)));
    folders.retain(|folder| folder.is_dir());
    let mut seen = std::collections::HashSet::new();
    folders.retain(|folder| seen.insert(folder.clone()));
    folders
}

/// Where the `python3` of the search path is installed.
fn python_prefix(path: Option<&OsStr>) -> Vec<PathBuf> {
    let programs = path.into_iter().flat_map(std::env::split_paths).map(|dir| dir.join("python3"));
    let Some(program) = programs.into_iter().find(|program| program.is_file()) else {
        return Vec::new();
    };
    let real = program.canonicalize().ok();
    let prefixes = [Some(program), real].into_iter().flatten();
    prefixes.filter_map(|program| Some(program.parent()?.parent()?.to_owned())).collect()
}

/// `PREFIX/lib/python3*/{site,dist}-packages/nvidia/*/lib`, in the order of their names.
fn package_folders(prefix: &Path) -> Vec<PathBuf> {
    let versions = entries(&prefix.join("lib")).into_iter();
    let versions = versions.filter(|path| name_of(path).starts_with("python3"));
    let packages = versions.flat_map(|version| {
        ["site-packages", "dist-packages"].map(|packages| version.join(packages).join("nvidia"))
    });
    packages.flat_map(|nvidia| entries(&nvidia)).map(|package| package.join("lib")).collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
        .map(|read| read.filter_map(|entry| Some(entry.ok()?.path())).collect())
        .unwrap_or_default();
    paths.sort();
    paths
}

fn name_of(path: &Path) -> &str {
    path.file_name().and_then(OsStr::to_str).unwrap_or_default()
}

/// The files of these names in these folders; a better name in any folder comes first.
fn candidates(folders: &[PathBuf], names: &[&str]) -> Vec<PathBuf> {
    let all = names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    all.filter(|path| path.is_file()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_of_pytorch_are_found() {
        let root = std::env::temp_dir().join(format!("steptally-library-{}", std::process::id()));
        let nvidia = root.join("lib/python3.12/site-packages/nvidia");
        for (folder, name) in [("cu13", "libcublasLt.so.13"), ("nccl", "libnccl.so.2")] {
            let lib = nvidia.join(folder).join("lib");
            std::fs::create_dir_all(&lib).unwrap();
            std::fs::write(lib.join(name), "").unwrap();
        }
        let folders = package_folders(&root);
        assert_eq!(folders, [nvidia.join("cu13/lib"), nvidia.join("nccl/lib")]);
        assert_eq!(candidates(&folders, NCCL.names), [nvidia.join("nccl/lib/libnccl.so.2")]);
        assert_eq!(candidates(&folders, NVRTC.names), Vec::<PathBuf>::new());
        let (nvrtc, builtins) = (folders[0].join("libnvrtc.so.13"), "libnvrtc-builtins.so.13.0");
        std::fs::write(folders[0].join(builtins), "").unwrap();
        assert_eq!(companions(&nvrtc, NVRTC.companion), [folders[0].join(builtins)]);
        assert_eq!(
            companions(Path::new("libnvrtc.so.13"), NVRTC.companion),
            [""; 0].map(PathBuf::from)
        );

        std::fs::create_dir_all(root.join("bin")).unwrap();
        std::fs::write(root.join("bin/python3"), "").unwrap();
        let path = std::env::join_paths([Path::new("/nowhere"), &root.join("bin")]).unwrap();
        assert!(python_prefix(Some(&path)).contains(&root));
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_library_that_is_not_there_is_named() {
        let wanted =
            Wanted { title: "Nothing", names: &["libsteptally-nothing.so.9"], companion: None };
        let error = load(&wanted).unwrap_err().to_string();
        assert!(error.starts_with("Nothing was not found: none of libsteptally-nothing.so.9"));
    }
}
