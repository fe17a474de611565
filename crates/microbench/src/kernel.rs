//! The kernels of this crate: CUDA C, compiled at run time for the GPU at hand.

use std::ffi::{CString, c_void};
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaFunction, CudaModule, result as driver};
use cudarc::nvrtc::{Ptx, result, sys};

use crate::error::BenchError;
use crate::gpu::{During, Gpu};

/// A file of kernels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    pub(crate) file: &'static str,
    pub(crate) text: &'static str,
}

macro_rules! source {
    ($name:ident, $file:literal) => {
        pub(crate) const $name: Source =
            Source { file: $file, text: include_str!(concat!("../kernels/", $file)) };
    };
}

source!(CAST, "cast.cu");
source!(COPY, "copy.cu");
source!(EMPTY, "empty.cu");
source!(FILL, "fill.cu");
source!(GATHER, "gather.cu");
source!(NORM, "norm.cu");
source!(ROPE, "rope.cu");
source!(ROUTING, "routing.cu");

/// What every file begins with.
const PRELUDE: Source = Source { file: "number.cuh", text: include_str!("../kernels/number.cuh") };

/// A file, compiled and loaded.
#[derive(Debug)]
pub(crate) struct Module(Arc<CudaModule>);

/// One kernel. All its parameters are 8 bytes: addresses, `long long` and `double`.
#[derive(Debug)]
pub(crate) struct Kernel {
    function: CudaFunction,
    parameters: usize,
}

impl Module {
    /// Compiles a file for this GPU.
    pub(crate) fn compile(gpu: &Gpu, source: Source) -> Result<Self, BenchError> {
        let image = compile(source, gpu.facts.architecture)?;
        Self::load(&gpu.context, image)
    }

    fn load(context: &Arc<CudaContext>, image: Vec<u8>) -> Result<Self, BenchError> {
        let module = context.load_module(Ptx::from_binary(image)).during("cuModuleLoadData")?;
        Ok(Self(module))
    }

    /// The kernel of that name, which has that many parameters.
    pub(crate) fn kernel(&self, name: &str, parameters: usize) -> Result<Kernel, BenchError> {
        let function = self.0.load_function(name).during("cuModuleGetFunction")?;
        Ok(Kernel { function, parameters })
    }
}

impl Kernel {
    /// Puts the kernel into the GPU's stream.
    ///
    /// Addresses among `arguments` must be of live buffers, large enough for what the kernel does.
    #[allow(unsafe_code)]
    pub(crate) fn launch(
        &self,
        gpu: &Gpu,
        blocks: u64,
        threads: u32,
        arguments: &[u64],
    ) -> Result<(), BenchError> {
        assert_eq!(arguments.len(), self.parameters, "the kernel's number of parameters");
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX).max(1);
        let mut pointers: Vec<*mut c_void> =
            arguments.iter().map(|argument| std::ptr::from_ref(argument) as *mut c_void).collect();
        let (function, stream) = (self.function.cu_function(), gpu.stream.cu_stream());
        // SAFETY: as many 8-byte arguments as the kernel has parameters, copied by the call; the
        // addresses among them are the callers' obligation.
        unsafe {
            let (grid, block) = ((blocks, 1, 1), (threads, 1, 1));
            driver::launch_kernel(function, grid, block, 0, stream, &mut pointers)
        }
        .during("cuLaunchKernel")
    }
}

/// Machine code of a file for `sm_ARCHITECTURE`. Machine code rather than PTX, since a driver may
/// be older than the compiler's PTX.
#[allow(unsafe_code)]
fn compile(source: Source, architecture: u32) -> Result<Vec<u8>, BenchError> {
    let refused = |log: String| BenchError::Compile { file: source.file, arch: architecture, log };
    let text = format!("{}\n{}", PRELUDE.text, source.text);
    let (Ok(text), Ok(name)) = (CString::new(text), CString::new(source.file)) else {
        return Err(refused("the source has a NUL byte".to_owned()));
    };
    let options = [format!("--gpu-architecture=sm_{architecture}"), "--std=c++17".to_owned()];
    let program = result::create_program(&text, Some(&name)).map_err(|e| refused(said(e.0)))?;
    // SAFETY: the program is valid until it is destroyed below, and the image is as large as the
    // library said.
    unsafe {
        let compiled = result::compile_program(program, &options);
        let image = compiled.map_err(|error| error.0).and_then(|()| {
            let mut size = 0;
            sys::nvrtcGetCUBINSize(program, &mut size).result().map_err(|e| e.0)?;
            let mut image = vec![0_u8; size];
            let into = image.as_mut_ptr().cast();
            sys::nvrtcGetCUBIN(program, into).result().map_err(|e| e.0)?;
            Ok(image)
        });
        let log = result::get_program_log(program).unwrap_or_default();
        // An error here would hide the one of the compilation.
        let _ = result::destroy_program(program);
        image.map_err(|code| refused(format!("{}: {}", said(code), log_text(&log))))
    }
}

fn said(code: sys::nvrtcResult) -> String {
    format!("{code:?}")
}

fn log_text(log: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> = log.iter().map(|&c| c as u8).take_while(|&b| b != 0).collect();
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compiles every file where NVRTC can be loaded; it needs no GPU.
    #[test]
    #[allow(clippy::print_stderr)]
    fn every_file_compiles() {
        let Ok(library) = crate::library::load(&crate::library::NVRTC) else {
            eprintln!("SKIPPED: NVRTC is not installed");
            return;
        };
        std::mem::forget(library);
        for source in [CAST, COPY, EMPTY, FILL, GATHER, NORM, ROPE, ROUTING] {
            for architecture in [80, 90, 100, 120] {
                let image = compile(source, architecture).unwrap();
                assert_eq!(&image[..4], b"\x7fELF", "{} for {architecture}", source.file);
            }
        }
        let broken = Source { file: "broken.cu", text: "nonsense" };
        let error = compile(broken, 90).unwrap_err().to_string();
        assert!(error.starts_with("kernel file broken.cu does not compile for sm_90"), "{error}");
    }
}
