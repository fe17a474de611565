//! Why something could not be measured.

use std::path::PathBuf;

/// Why something could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A library could not be loaded.
    #[error(
        "{library} was not found: none of {} could be loaded by name or from {}",
        names.join(", "), folders(searched)
    )]
    NoLibrary {
        /// What it is.
        library: &'static str,
        /// File names that were tried.
        names: Vec<String>,
        /// Folders that were searched beside the dynamic linker's own.
        searched: Vec<PathBuf>,
    },
    /// A library lacks a function.
    #[error("{library} has no function `{function}`")]
    NoFunction {
        /// Which library.
        library: &'static str,
        /// Which function.
        function: &'static str,
    },
    /// The driver is older than what is needed.
    #[error(
        "the driver supports CUDA {}.{}, at least 12.8 is needed",
        version / 1000, version % 1000 / 10
    )]
    OldDriver {
        /// As `cuDriverGetVersion` gives it: 1000 x major + 10 x minor.
        version: i32,
    },
    /// There is no GPU at all.
    #[error("the driver is there, but it sees no GPU{}", reason(detail))]
    NoGpu {
        /// What the driver says.
        detail: String,
    },
    /// A GPU that was asked for is not there.
    #[error("there is no GPU {ordinal}; the driver sees {count}")]
    NoSuchGpu {
        /// Which was asked for.
        ordinal: u32,
        /// How many there are.
        count: u32,
    },
    /// A call of the driver failed.
    #[error("{call}: {detail}")]
    Driver {
        /// What was called.
        call: &'static str,
        /// The driver's own words.
        detail: String,
    },
    /// A kernel does not compile.
    #[error("kernel file {file} does not compile for sm_{arch}: {log}")]
    Compile {
        /// The file.
        file: &'static str,
        /// For which architecture.
        arch: u32,
        /// The compiler's words.
        log: String,
    },
    /// A result differs from the reference.
    #[error("{what}: element {index} is {value}, the reference says {expected}")]
    Wrong {
        /// What was computed.
        what: String,
        /// Which element.
        index: u64,
        /// What the device computed.
        value: f64,
        /// What it should be.
        expected: f64,
    },
    /// The device, or a library, cannot do it.
    #[error("not supported: {0}")]
    NotSupported(String),
    /// The clock gave no usable time.
    #[error("{what}: the times that were measured are not positive numbers")]
    NoTime {
        /// What was measured.
        what: String,
    },
}

fn folders(searched: &[PathBuf]) -> String {
    let shown: Vec<String> = searched.iter().map(|path| path.display().to_string()).collect();
    if shown.is_empty() { "any known folder".to_owned() } else { shown.join(", ") }
}

fn reason(detail: &str) -> String {
    if detail.is_empty() { String::new() } else { format!(" ({detail})") }
}

impl BenchError {
    /// What to do about it, if anything.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NoLibrary { library: "the CUDA driver", .. } | Self::NoGpu { .. } => Some(
                "steptally bench needs an NVIDIA GPU and its driver; the bound itself does not: \
                 steptally roofline",
            ),
            Self::NoLibrary { .. } => Some(
                "set LD_LIBRARY_PATH to the folder that has it, such as \
                 .../site-packages/nvidia/cu13/lib of a PyTorch installation",
            ),
            Self::OldDriver { .. } => Some("use driver 570 or newer"),
            Self::NoSuchGpu { .. } => Some("--devices takes ordinals that begin with 0"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_says_what_is_wrong() {
        let missing = BenchError::NoLibrary {
            library: "cuBLASLt",
            names: vec!["libcublasLt.so.13".to_owned()],
            searched: vec![PathBuf::from("/usr/local/cuda/lib64")],
        };
        let wrong =
            BenchError::Wrong { what: "copy".to_owned(), index: 3, value: 1.0, expected: 2.0 };
        for (error, text) in [
            (
                missing,
                "cuBLASLt was not found: none of libcublasLt.so.13 could be loaded by name \
                       or from /usr/local/cuda/lib64",
            ),
            (
                BenchError::NoFunction { library: "NCCL", function: "ncclAllReduce" },
                "NCCL has no function `ncclAllReduce`",
            ),
            (
                BenchError::OldDriver { version: 12040 },
                "the driver supports CUDA 12.4, at least 12.8 is needed",
            ),
            (
                BenchError::NoGpu { detail: String::new() },
                "the driver is there, but it sees no GPU",
            ),
            (
                BenchError::NoSuchGpu { ordinal: 2, count: 1 },
                "there is no GPU 2; the driver sees 1",
            ),
            (
                BenchError::Driver { call: "cuMemAlloc", detail: "out of memory".to_owned() },
                "cuMemAlloc: out of memory",
            ),
            (
                BenchError::Compile { file: "copy.cu", arch: 90, log: "no".to_owned() },
                "kernel file copy.cu does not compile for sm_90: no",
            ),
            (wrong, "copy: element 3 is 1, the reference says 2"),
            (
                BenchError::NotSupported("FP4 before sm_100".to_owned()),
                "not supported: FP4 before sm_100",
            ),
            (
                BenchError::NoTime { what: "copy".to_owned() },
                "copy: the times that were measured are not positive numbers",
            ),
        ] {
            assert_eq!(error.to_string(), text);
        }
    }

    #[test]
    fn hints_tell_what_to_do() {
        let missing = |library| BenchError::NoLibrary { library, names: vec![], searched: vec![] };
        assert!(missing("the CUDA driver").hint().unwrap().contains("needs an NVIDIA GPU"));
        assert!(missing("NCCL").hint().unwrap().contains("LD_LIBRARY_PATH"));
        assert!(BenchError::OldDriver { version: 1 }.hint().unwrap().contains("570"));
        assert!(BenchError::NotSupported(String::new()).hint().is_none());
    }
}
