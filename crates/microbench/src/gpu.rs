//! One GPU: its facts, its memory, its stream.

use std::sync::Arc;

use cudarc::driver::result::DriverError;
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, result, sys};
use schemars::JsonSchema;
use serde::Serialize;

use crate::error::BenchError;
use crate::library::{DRIVER, load};

/// The oldest driver whose functions are all there: `cuEventElapsedTime_v2` came with CUDA 12.8.
const OLDEST_DRIVER: i32 = 12080;

/// What a GPU is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DeviceFacts {
    /// Its ordinal.
    pub ordinal: u32,
    /// Its own name.
    pub name: String,
    /// Compute capability, 10 x major + minor.
    pub architecture: u32,
    /// Streaming multiprocessors.
    pub sm_count: u32,
    /// Size of its L2 cache.
    pub l2_bytes: u64,
    /// Size of its memory.
    pub memory_bytes: u64,
}

/// One GPU with the stream that everything on it runs in.
#[derive(Debug)]
pub(crate) struct Gpu {
    pub(crate) context: Arc<CudaContext>,
    pub(crate) stream: Arc<CudaStream>,
    pub(crate) facts: DeviceFacts,
}

/// Loads the driver, and tells its version (1000 x major + 10 x minor) and how many GPUs it sees.
#[allow(unsafe_code)]
pub(crate) fn start_driver() -> Result<(i32, u32), BenchError> {
    // The driver stays loaded, for cudarc finds it by its soname.
    std::mem::forget(load(&DRIVER)?);
    let mut version = 0;
    // SAFETY: the pointer is to a live integer; the function may be called before `cuInit`.
    let status = unsafe { sys::cuDriverGetVersion(&mut version) };
    status.result().during("cuDriverGetVersion")?;
    if version < OLDEST_DRIVER {
        return Err(BenchError::OldDriver { version });
    }
    match result::init() {
        Err(error) => Err(BenchError::NoGpu { detail: said(&error) }),
        Ok(()) => match CudaContext::device_count().during("cuDeviceGetCount")? {
            count if count > 0 => Ok((version, count.unsigned_abs())),
            _ => Err(BenchError::NoGpu { detail: String::new() }),
        },
    }
}

impl Gpu {
    /// Opens the GPU of that ordinal, of `count` that there are.
    #[allow(unsafe_code)]
    pub(crate) fn open(ordinal: u32, count: u32) -> Result<Self, BenchError> {
        if ordinal >= count {
            return Err(BenchError::NoSuchGpu { ordinal, count });
        }
        let context = CudaContext::new(ordinal as usize).during("cuDevicePrimaryCtxRetain")?;
        // SAFETY: no `CudaSlice` is ever made from this context; buffers are used in one stream
        // and freed after it was waited for.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().during("cuStreamCreate")?;
        let attribute = |which| context.attribute(which).during("cuDeviceGetAttribute");
        let (major, minor) = context.compute_capability().during("cuDeviceGetAttribute")?;
        use sys::CUdevice_attribute as Attribute;
        let sms = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let l2 = attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?;
        let facts = DeviceFacts {
            ordinal,
            name: context.name().during("cuDeviceGetName")?,
            architecture: (10 * major + minor).unsigned_abs(),
            sm_count: sms.unsigned_abs(),
            l2_bytes: u64::from(l2.unsigned_abs()),
            memory_bytes: context.total_mem().during("cuDeviceTotalMem")? as u64,
        };
        Ok(Self { context, stream, facts })
    }

    /// Makes this GPU the calling thread's own.
    pub(crate) fn bind(&self) -> Result<(), BenchError> {
        self.context.bind_to_thread().during("cuCtxSetCurrent")
    }

    /// Waits until all work is done.
    pub(crate) fn wait(&self) -> Result<(), BenchError> {
        self.stream.synchronize().during("cuStreamSynchronize")
    }

    /// Memory of at least one byte whose content is not known.
    #[allow(unsafe_code)]
    pub(crate) fn buffer(&self, bytes: u64) -> Result<Buffer, BenchError> {
        self.bind()?;
        let bytes = bytes.max(1);
        // SAFETY: the context is current; the content is written before it is read.
        let address = unsafe { result::malloc_sync(bytes as usize) }.during("cuMemAlloc")?;
        Ok(Buffer { address, bytes, stream: self.stream.clone() })
    }

    /// Memory with these values in it.
    #[allow(unsafe_code)]
    pub(crate) fn upload<T: Copy>(&self, values: &[T]) -> Result<Buffer, BenchError> {
        let buffer = self.buffer(size_of_val(values) as u64)?;
        // SAFETY: the buffer is as large as the values, which are read before the call returns.
        unsafe { result::memcpy_htod_sync(buffer.address, values) }.during("cuMemcpyHtoD")?;
        // The values may still be on their way, and the stream does not wait for them by itself.
        self.context.synchronize().during("cuCtxSynchronize")?;
        Ok(buffer)
    }

    /// Reads values from the buffer, beginning at byte `offset`, after all work is done.
    #[allow(unsafe_code)]
    pub(crate) fn download<T: Number>(
        &self,
        buffer: &Buffer,
        offset: u64,
        count: usize,
    ) -> Result<Vec<T>, BenchError> {
        self.wait()?;
        let mut values = vec![T::default(); count];
        let from = buffer.span(offset, (count * size_of::<T>()) as u64)?;
        // SAFETY: `span` checked the range, and every bit pattern is a `Number`.
        unsafe { result::memcpy_dtoh_sync(&mut values, from) }.during("cuMemcpyDtoH")?;
        Ok(values)
    }

    /// An event that keeps the time.
    pub(crate) fn event(&self) -> Result<CudaEvent, BenchError> {
        let flags = sys::CUevent_flags::CU_EVENT_DEFAULT;
        self.context.new_event(Some(flags)).during("cuEventCreate")
    }

    /// Copies within the device, in the stream.
    #[allow(unsafe_code)]
    pub(crate) fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), BenchError> {
        let stream = self.stream.cu_stream();
        // SAFETY: callers give ranges inside live buffers, which outlive the stream's work.
        unsafe { result::memcpy_dtod_async(to, from, bytes as usize, stream) }
            .during("cuMemcpyDtoDAsync")
    }
}

/// Numbers for which every bit pattern is a value.
pub(crate) trait Number: Copy + Default {}
impl Number for u8 {}
impl Number for u16 {}
impl Number for u32 {}
impl Number for i32 {}
impl Number for f32 {}

/// Memory of a GPU.
#[derive(Debug)]
pub(crate) struct Buffer {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    stream: Arc<CudaStream>,
}

impl Buffer {
    /// The address of `bytes` bytes at `offset`, which must lie inside.
    pub(crate) fn span(&self, offset: u64, bytes: u64) -> Result<u64, BenchError> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes => Ok(self.address + offset),
            _ => Err(BenchError::Driver {
                call: "buffer",
                detail: format!("{bytes} bytes at {offset} are outside of its {}", self.bytes),
            }),
        }
    }
}

impl Drop for Buffer {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // Nothing can be done about an error here; the next call reports it again.
        let _ = self.stream.synchronize();
        // SAFETY: the address came from `malloc_sync` and is freed once, after its last use.
        let _ = unsafe { result::free_sync(self.address) };
    }
}

/// Names the call that failed.
pub(crate) trait During<T> {
    fn during(self, call: &'static str) -> Result<T, BenchError>;
}

impl<T> During<T> for Result<T, DriverError> {
    fn during(self, call: &'static str) -> Result<T, BenchError> {
        self.map_err(|error| BenchError::Driver { call, detail: said(&error) })
    }
}

/// `CUDA_ERROR_X: words`.
fn said(error: &DriverError) -> String {
    let words = error.error_string().ok().map(|words| words.to_string_lossy().into_owned());
    format!("{:?}: {}", error.0, words.unwrap_or_default())
}
