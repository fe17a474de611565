//! Matrix products through cuBLASLt: `y[m, n] = x[m, k] w[n, k]^T`, in BF16, FP8 or FP4 with BF16
//! results, the fastest of the library's suggestions.
//!
//! The library counts columns first, so that `w` (k x n there) goes in transposed, `x` (k x m) as it
//! is, and `y` comes out as n x m: all three lie in memory as named above.

use std::ffi::c_void;

use cudarc::cublaslt::{result, sys};

use crate::error::BenchError;
use crate::gpu::{Buffer, Gpu};
use crate::library::{CUBLASLT, load};
use crate::model::Product;
use crate::result::Compute;
use crate::sample::elapsed;

use result::CublasError;
use sys::{cublasLtMatmulDescAttributes_t as Of, cublasLtMatrixLayout_t as Layout, cudaDataType};

/// Memory that the library may use beside the matrices.
const WORKSPACE_BYTES: u64 = 64 << 20;

/// Suggestions of the library that are tried.
const SUGGESTIONS: usize = 8;

/// `CUBLAS_OP_T`.
const TRANSPOSED: i32 = 1;

/// A scale of one as an unsigned E4M3.
const SCALE_ONE: u8 = 0x38;

/// The library, opened for one GPU.
#[derive(Debug)]
pub(crate) struct Blas {
    handle: sys::cublasLtHandle_t,
    workspace: Buffer,
}

impl Blas {
    #[allow(unsafe_code)]
    pub(crate) fn open(gpu: &Gpu) -> Result<Self, BenchError> {
        // The library stays loaded, for cudarc finds it by its soname.
        std::mem::forget(load(&CUBLASLT)?);
        gpu.bind()?;
        let workspace = gpu.buffer(WORKSPACE_BYTES)?;
        let handle = result::create_handle().map_err(|e| failed("cublasLtCreate", &e))?;
        Ok(Self { handle, workspace })
    }
}

impl Drop for Blas {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: the handle is valid and destroyed once; products borrow the library.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}

/// Where the matrices of one product lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operands {
    pub(crate) w: u64,
    pub(crate) x: u64,
    pub(crate) y: u64,
}

/// A product that is ready to run.
#[derive(Debug)]
pub(crate) struct Matmul<'a> {
    blas: &'a Blas,
    description: sys::cublasLtMatmulDesc_t,
    w: Layout,
    x: Layout,
    y: Layout,
    algorithm: sys::cublasLtMatmulAlgo_t,
    /// Scales of FP4 operands, all one; kept for as long as the product is.
    _scales: Vec<Buffer>,
}

/// Bits of one element of the inputs.
pub(crate) fn bits(compute: Compute) -> u64 {
    match compute {
        Compute::Bf16 => 16,
        Compute::Fp8 => 8,
        Compute::Fp4 => 4,
    }
}

/// Whether an architecture has products in that type.
pub(crate) fn supports(architecture: u32, compute: Compute) -> bool {
    architecture
        >= match compute {
            Compute::Bf16 => 80,
            Compute::Fp8 => 89,
            Compute::Fp4 => 100,
        }
}

/// Bytes of FP4 scales for a matrix of `rows x columns`: one byte for each 16 of a row, in tiles of
/// 128 rows and 4 scales.
fn scale_bytes(rows: u64, columns: u64) -> u64 {
    rows.next_multiple_of(128) * columns.div_ceil(16).next_multiple_of(4)
}

impl<'a> Matmul<'a> {
    /// Prepares a product and picks its fastest algorithm by trying it on `operands`.
    ///
    /// # Errors
    /// [`BenchError::NotSupported`] when the library has no algorithm for it.
    #[allow(unsafe_code)]
    pub(crate) fn new(
        gpu: &Gpu,
        blas: &'a Blas,
        product: &Product,
        compute: Compute,
        operands: Operands,
    ) -> Result<Self, BenchError> {
        let Product { m, n, k, count, .. } = *product;
        let input = match compute {
            Compute::Bf16 => cudaDataType::CUDA_R_16BF,
            Compute::Fp8 => cudaDataType::CUDA_R_8F_E4M3,
            Compute::Fp4 => cudaDataType::CUDA_R_4F_E2M1,
        };
        let single = cudaDataType::CUDA_R_32F;
        let wide = sys::cublasComputeType_t::CUBLAS_COMPUTE_32F;
        let description = result::create_matmul_desc(wide, single)
            .map_err(|e| failed("cublasLtMatmulDescCreate", &e))?;
        let mut matmul = Self {
            blas,
            description,
            w: std::ptr::null_mut(),
            x: std::ptr::null_mut(),
            y: std::ptr::null_mut(),
            algorithm: sys::cublasLtMatmulAlgo_t { data: [0; 8] },
            _scales: Vec::new(),
        };
        matmul.describe(Of::CUBLASLT_MATMUL_DESC_TRANSA, TRANSPOSED)?;
        matmul.w = layout(input, k, n, count)?;
        matmul.x = layout(input, k, m, count)?;
        matmul.y = layout(cudaDataType::CUDA_R_16BF, n, m, count)?;
        if compute == Compute::Fp8 {
            // The matrix units' full rate: sums are kept with fewer bits.
            matmul.describe(Of::CUBLASLT_MATMUL_DESC_FAST_ACCUM, 1_i8)?;
        }
        if compute == Compute::Fp4 {
            matmul.scale_by_one(gpu, product)?;
        }
        matmul.algorithm = matmul.fastest(gpu, operands)?;
        Ok(matmul)
    }

    #[allow(unsafe_code)]
    fn describe<T>(&self, attribute: Of, value: T) -> Result<(), BenchError> {
        let from = std::ptr::from_ref(&value).cast::<c_void>();
        // SAFETY: the description is valid; the library copies `value`, whose size is given.
        unsafe {
            result::set_matmul_desc_attribute(self.description, attribute, from, size_of::<T>())
        }
        .map_err(|e| failed("cublasLtMatmulDescSetAttribute", &e))
    }

    /// FP4 needs a scale for each 16 elements of a row; all are one here.
    fn scale_by_one(&mut self, gpu: &Gpu, product: &Product) -> Result<(), BenchError> {
        const VECTOR_16_E4M3: i32 = 1;
        for (rows, pointer, mode) in [
            (
                product.n,
                Of::CUBLASLT_MATMUL_DESC_A_SCALE_POINTER,
                Of::CUBLASLT_MATMUL_DESC_A_SCALE_MODE,
            ),
            (
                product.m,
                Of::CUBLASLT_MATMUL_DESC_B_SCALE_POINTER,
                Of::CUBLASLT_MATMUL_DESC_B_SCALE_MODE,
            ),
        ] {
            let bytes = product.count * scale_bytes(rows, product.k);
            let scales = gpu.upload(&vec![SCALE_ONE; bytes as usize])?;
            self.describe(mode, VECTOR_16_E4M3)?;
            self.describe(pointer, scales.address)?;
            self._scales.push(scales);
        }
        Ok(())
    }

    /// The fastest of the algorithms that the library suggests.
    #[allow(unsafe_code)]
    fn fastest(
        &self,
        gpu: &Gpu,
        operands: Operands,
    ) -> Result<sys::cublasLtMatmulAlgo_t, BenchError> {
        let preference = result::create_matmul_pref()
            .map_err(|e| failed("cublasLtMatmulPreferenceCreate", &e))?;
        let workspace = WORKSPACE_BYTES as usize;
        let most =
            sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        let mut found = Vec::with_capacity(SUGGESTIONS);
        let mut count = 0;
        // SAFETY: all handles are valid; at most `SUGGESTIONS` results are written to memory that
        // holds as many, and `count` says how many they are.
        let status = unsafe {
            let from = std::ptr::from_ref(&workspace).cast::<c_void>();
            result::set_matmul_pref_attribute(preference, most, from, size_of::<usize>())
                .and_then(|()| {
                    sys::cublasLtMatmulAlgoGetHeuristic(
                        self.blas.handle,
                        self.description,
                        self.w,
                        self.x,
                        self.y,
                        self.y,
                        preference,
                        SUGGESTIONS as i32,
                        found.as_mut_ptr(),
                        &mut count,
                    )
                    .result()
                })
                .map(|()| found.set_len(count.clamp(0, SUGGESTIONS as i32) as usize))
        };
        // SAFETY: the preference is valid and destroyed once.
        let _ = unsafe { result::destroy_matmul_pref(preference) };
        if let Err(error) = status
            && error.0 != sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED
        {
            return Err(failed("cublasLtMatmulAlgoGetHeuristic", &error));
        }
        let found: Vec<sys::cublasLtMatmulHeuristicResult_t> = found;
        let usable =
            found.iter().filter(|f| f.state.result().is_ok() && f.workspaceSize <= workspace);
        let mut best: Option<(f64, sys::cublasLtMatmulAlgo_t)> = None;
        for suggestion in usable {
            let algorithm = suggestion.algo;
            let run = || self.run(gpu, &algorithm, operands);
            let ns = run().and_then(|()| elapsed(gpu, || (0..5).try_for_each(|_| run())));
            match ns {
                Ok(ns) if best.is_none_or(|(least, _)| ns < least) => best = Some((ns, algorithm)),
                _ => {}
            }
        }
        let missing = || BenchError::NotSupported("cuBLASLt has no algorithm for it".to_owned());
        best.map(|(_, algorithm)| algorithm).ok_or_else(missing)
    }

    /// Puts the product into the GPU's stream.
    pub(crate) fn launch(&self, gpu: &Gpu, operands: Operands) -> Result<(), BenchError> {
        self.run(gpu, &self.algorithm, operands)
    }

    #[allow(unsafe_code)]
    fn run(
        &self,
        gpu: &Gpu,
        algorithm: &sys::cublasLtMatmulAlgo_t,
        Operands { w, x, y }: Operands,
    ) -> Result<(), BenchError> {
        let (one, zero) = (1.0_f32, 0.0_f32);
        let scalar = |value: &f32| std::ptr::from_ref(value).cast::<c_void>();
        let workspace = &self.blas.workspace;
        // SAFETY: handles are valid; callers give addresses of live buffers of the layouts' sizes;
        // the two scalars are read before the call returns.
        unsafe {
            result::matmul(
                self.blas.handle,
                self.description,
                scalar(&one),
                scalar(&zero),
                w as *const c_void,
                self.w,
                x as *const c_void,
                self.x,
                y as *const c_void,
                self.y,
                y as *mut c_void,
                self.y,
                algorithm,
                workspace.address as *mut c_void,
                workspace.bytes as usize,
                gpu.stream.cu_stream().cast(),
            )
        }
        .map_err(|e| failed("cublasLtMatmul", &e))
    }
}

impl Drop for Matmul<'_> {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        for layout in [self.w, self.x, self.y].into_iter().filter(|layout| !layout.is_null()) {
            // SAFETY: the layout is valid and destroyed once.
            let _ = unsafe { result::destroy_matrix_layout(layout) };
        }
        // SAFETY: as above.
        let _ = unsafe { result::destroy_matmul_desc(self.description) };
    }
}

/// `count` matrices of `rows x columns`, columns first, one after the other.
#[allow(unsafe_code)]
fn layout(of: cudaDataType, rows: u64, columns: u64, count: u64) -> Result<Layout, BenchError> {
    let layout = result::create_matrix_layout(of, rows, columns, rows.cast_signed())
        .map_err(|e| failed("cublasLtMatrixLayoutCreate", &e))?;
    use sys::cublasLtMatrixLayoutAttribute_t as Of;
    let (matrices, stride) = (count as i32, (rows * columns).cast_signed());
    // SAFETY: the layout is valid; the library copies both values, whose sizes are given.
    let set = unsafe {
        let count = std::ptr::from_ref(&matrices).cast::<c_void>();
        let which = Of::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT;
        result::set_matrix_layout_attribute(layout, which, count, size_of::<i32>()).and_then(|()| {
            let stride = std::ptr::from_ref(&stride).cast::<c_void>();
            let which = Of::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET;
            result::set_matrix_layout_attribute(layout, which, stride, size_of::<i64>())
        })
    };
    set.map(|()| layout).map_err(|e| failed("cublasLtMatrixLayoutSetAttribute", &e))
}

fn failed(call: &'static str, error: &CublasError) -> BenchError {
    BenchError::Driver { call, detail: format!("{:?}", error.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_by_architecture() {
        let types = |sm| [Compute::Bf16, Compute::Fp8, Compute::Fp4].map(|t| supports(sm, t));
        assert_eq!(types(80), [true, false, false]);
        assert_eq!(types(89), [true, true, false]);
        assert_eq!(types(90), [true, true, false]);
        assert_eq!(types(120), [true, true, true]);
    }

    #[test]
    fn scales_fill_whole_tiles() {
        // 130 rows are 256, 80 columns are 5 scales, 8 with padding
        assert_eq!(scale_bytes(130, 80), 256 * 8);
        assert_eq!(scale_bytes(128, 64), 128 * 4);
    }
}
