//! The few functions of NCCL that an all-reduce needs. (cudarc does not look for the name under
//! which PyTorch's packages have it, `libnccl.so.2`.)

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::ManuallyDrop;

use libloading::Library;

use crate::error::BenchError;
use crate::gpu::Gpu;
use crate::library::{NCCL, load};

/// `ncclBfloat16` and `ncclSum`.
const BF16: c_int = 9;
const SUM: c_int = 0;

/// `ncclUniqueId`: what the ranks of one communicator share.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct UniqueId([u8; 128]);

type Status = c_int;
type Handle = *mut c_void;

/// The library's functions.
#[derive(Debug)]
pub(crate) struct Nccl {
    version: unsafe extern "C" fn(*mut c_int) -> Status,
    unique_id: unsafe extern "C" fn(*mut UniqueId) -> Status,
    init_rank: unsafe extern "C" fn(*mut Handle, c_int, UniqueId, c_int) -> Status,
    all_reduce: unsafe extern "C" fn(
        *const c_void,
        *mut c_void,
        usize,
        c_int,
        c_int,
        Handle,
        *mut c_void,
    ) -> Status,
    destroy: unsafe extern "C" fn(Handle) -> Status,
    error: unsafe extern "C" fn(Status) -> *const c_char,
    /// Never unloaded: NCCL leaves destructors of thread-local data behind, which run when the ranks'
    /// threads and the process end.
    _library: ManuallyDrop<Library>,
}

macro_rules! function {
    ($library:expr, $name:literal) => {{
        // SAFETY: the field's type is the function's signature in nccl.h.
        #[allow(unsafe_code)]
        let found = unsafe { $library.get(concat!($name, "\0").as_bytes()) };
        *found.map_err(|_| BenchError::NoFunction { library: "NCCL", function: $name })?
    }};
}

impl Nccl {
    pub(crate) fn open() -> Result<Self, BenchError> {
        let library = load(&NCCL)?;
        Ok(Self {
            version: function!(library, "ncclGetVersion"),
            unique_id: function!(library, "ncclGetUniqueId"),
            init_rank: function!(library, "ncclCommInitRank"),
            all_reduce: function!(library, "ncclAllReduce"),
            destroy: function!(library, "ncclCommDestroy"),
            error: function!(library, "ncclGetErrorString"),
            _library: ManuallyDrop::new(library),
        })
    }

    /// Its version, such as 22809 for 2.28.9.
    #[allow(unsafe_code)]
    pub(crate) fn version(&self) -> Result<i32, BenchError> {
        let mut version = 0;
        // SAFETY: the pointer is to a live integer.
        self.check("ncclGetVersion", unsafe { (self.version)(&mut version) })?;
        Ok(version)
    }

    /// A new id, for all ranks to join by.
    #[allow(unsafe_code)]
    pub(crate) fn unique_id(&self) -> Result<UniqueId, BenchError> {
        let mut id = UniqueId([0; 128]);
        // SAFETY: the pointer is to a live id.
        self.check("ncclGetUniqueId", unsafe { (self.unique_id)(&mut id) })?;
        Ok(id)
    }

    /// Joins as `rank` of `ranks`; returns when all have.
    #[allow(unsafe_code)]
    pub(crate) fn join(
        &self,
        gpu: &Gpu,
        id: UniqueId,
        rank: usize,
        ranks: usize,
    ) -> Result<Communicator<'_>, BenchError> {
        gpu.bind()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the pointer is to a live handle; this thread's device is the rank's own.
        let status = unsafe { (self.init_rank)(&mut handle, ranks as c_int, id, rank as c_int) };
        self.check("ncclCommInitRank", status)?;
        Ok(Communicator { nccl: self, handle })
    }

    #[allow(unsafe_code)]
    fn check(&self, call: &'static str, status: Status) -> Result<(), BenchError> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the library returns a static string for every status.
        let words = unsafe { CStr::from_ptr((self.error)(status)) };
        Err(BenchError::Driver { call, detail: words.to_string_lossy().into_owned() })
    }
}

/// One rank of a communicator.
#[derive(Debug)]
pub(crate) struct Communicator<'a> {
    nccl: &'a Nccl,
    handle: Handle,
}

impl Communicator<'_> {
    /// Puts the sum over all ranks of `count` BF16 values into the GPU's stream.
    #[allow(unsafe_code)]
    pub(crate) fn all_reduce(
        &self,
        gpu: &Gpu,
        from: u64,
        to: u64,
        count: u64,
    ) -> Result<(), BenchError> {
        let stream = gpu.stream.cu_stream().cast();
        let (from, to) = (from as *const c_void, to as *mut c_void);
        // SAFETY: callers give live buffers of `count` values on this rank's device.
        let status = unsafe {
            (self.nccl.all_reduce)(from, to, count as usize, BF16, SUM, self.handle, stream)
        };
        self.nccl.check("ncclAllReduce", status)
    }
}

impl Drop for Communicator<'_> {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: the handle is valid and destroyed once, after its work was waited for.
        let _ = unsafe { (self.nccl.destroy)(self.handle) };
    }
}
