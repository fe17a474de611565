// Conversions between types, 16 values a thread and turn. FP8 is E4M3.

// Two FP8 to two BF16, by way of FP16, which holds every E4M3 exactly.
__device__ __forceinline__ u32 two_fp8_to_bf16(u16 pair) {
#if __CUDA_ARCH__ >= 890
    u32 halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(pair));
    return pack_bf16(half_to_float((u16)(halves & 0xffffu)), half_to_float((u16)(halves >> 16)));
#else
    return 0;
#endif
}

__device__ __forceinline__ u16 two_bf16_to_fp8(u32 pair) {
#if __CUDA_ARCH__ >= 890
    u16 narrow;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(narrow) : "f"(high(pair)), "f"(low(pair)));
    return narrow;
#else
    return 0;
#endif
}

extern "C" __global__ void fp8_to_bf16(uint4* __restrict__ to, const uint4* __restrict__ from,
                                       long long vectors) {
    for (long long i = thread_index(); i < vectors; i += thread_count()) {
        uint4 in = from[i], out[2];
        const u16* pairs = (const u16*)&in;
        u32* made = (u32*)out;
        for (int p = 0; p < 8; ++p) made[p] = two_fp8_to_bf16(pairs[p]);
        to[2 * i] = out[0];
        to[2 * i + 1] = out[1];
    }
}

extern "C" __global__ void bf16_to_fp8(uint4* __restrict__ to, const uint4* __restrict__ from,
                                       long long vectors) {
    for (long long i = thread_index(); i < vectors; i += thread_count()) {
        uint4 in[2] = {from[2 * i], from[2 * i + 1]}, out;
        const u32* pairs = (const u32*)in;
        u16* made = (u16*)&out;
        for (int p = 0; p < 8; ++p) made[p] = two_bf16_to_fp8(pairs[p]);
        to[i] = out;
    }
}

extern "C" __global__ void fp32_to_bf16(uint4* __restrict__ to, const float4* __restrict__ from,
                                        long long vectors) {
    for (long long i = thread_index(); i < vectors; i += thread_count()) {
        uint4 out[2];
        u32* made = (u32*)out;
        for (int p = 0; p < 4; ++p) {
            float4 in = from[4 * i + p];
            made[2 * p] = pack_bf16(in.x, in.y);
            made[2 * p + 1] = pack_bf16(in.z, in.w);
        }
        to[2 * i] = out[0];
        to[2 * i + 1] = out[1];
    }
}
