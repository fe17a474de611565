// Narrow floats without headers, so that the run-time compiler needs no toolkit.
// Every kernel parameter has 8 bytes: an address, a long long or a double.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

__device__ __forceinline__ float bf16_to_float(u16 x) { return __uint_as_float((u32)x << 16); }

// Nearest, ties to even.
__device__ __forceinline__ u16 float_to_bf16(float x) {
    u32 bits = __float_as_uint(x);
    return (u16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

__device__ __forceinline__ float low(u32 pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }

// Two BF16 in one word, by the conversion instruction (sm_80 and newer).
__device__ __forceinline__ u32 pack_bf16(float lower, float upper) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(upper), "f"(lower));
    return pair;
}

__device__ __forceinline__ float half_to_float(u16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
}

// The index of this thread among all, and their number.
__device__ __forceinline__ long long thread_index() {
    return (long long)blockIdx.x * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ long long thread_count() { return (long long)gridDim.x * blockDim.x; }
