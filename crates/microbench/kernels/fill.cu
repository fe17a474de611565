// Test data that the host can compute too: see numbers.rs.

__device__ __forceinline__ u32 hash(u64 index, u64 seed) {
    u32 x = (u32)index ^ ((u32)(index >> 32) * 0x9e3779b9u);
    x += (u32)seed * 0x85ebca6bu;
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ (x >> 16);
}

// BF16: -128..127 by 128.
extern "C" __global__ void fill_bf16(u16* to, long long count, long long seed) {
    for (long long i = thread_index(); i < count; i += thread_count())
        to[i] = float_to_bf16((float)((int)(hash(i, seed) >> 24) - 128) / 128.0f);
}

// FP8 E4M3: -8..7 by 8, by hand: sign, exponent + 7, three bits of mantissa.
__device__ __forceinline__ u8 small_e4m3(int eighths) {
    u32 sign = eighths < 0 ? 0x80u : 0u;
    u32 size = eighths < 0 ? -eighths : eighths;
    if (size == 0) return 0;
    int top = 31 - __clz(size);  // the value is size / 8 = 2^(top - 3) (1 + ..)
    u32 mantissa = (size << (3 - top)) & 7u;
    return (u8)(sign | ((u32)(top - 3 + 7) << 3) | mantissa);
}

extern "C" __global__ void fill_fp8(u8* to, long long count, long long seed) {
    for (long long i = thread_index(); i < count; i += thread_count())
        to[i] = small_e4m3((int)(hash(i, seed) >> 28) - 8);
}

// Any byte: two FP4 E2M1.
extern "C" __global__ void fill_bytes(u8* to, long long count, long long seed) {
    for (long long i = thread_index(); i < count; i += thread_count())
        to[i] = (u8)(hash(i, seed) >> 24);
}

extern "C" __global__ void fill_constant(u8* to, long long count, long long value) {
    for (long long i = thread_index(); i < count; i += thread_count()) to[i] = (u8)value;
}

extern "C" __global__ void fill_float(float* to, long long count, long long seed) {
    for (long long i = thread_index(); i < count; i += thread_count())
        to[i] = (float)((int)(hash(i, seed) >> 8) - (1 << 23)) / (float)(1 << 21);
}
