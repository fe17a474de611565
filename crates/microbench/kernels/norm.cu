// RMSNorm in BF16: y = x / sqrt(mean(x^2) + 1e-6) w. One block per row; width is a multiple of 8.

extern "C" __global__ void rms_norm(uint4* __restrict__ y, const uint4* __restrict__ x,
                                    const uint4* __restrict__ weight, long long width) {
    __shared__ float sums[32];
    long long vectors = width / 8;
    const uint4* row = x + blockIdx.x * vectors;
    float sum = 0.0f;
    for (long long i = threadIdx.x; i < vectors; i += blockDim.x) {
        uint4 v = row[i];
        const u32* pairs = (const u32*)&v;
        for (int p = 0; p < 4; ++p)
            sum += low(pairs[p]) * low(pairs[p]) + high(pairs[p]) * high(pairs[p]);
    }
    for (int lane = 16; lane > 0; lane /= 2) sum += __shfl_xor_sync(~0u, sum, lane);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    float total = 0.0f;
    for (int warp = 0; warp < (int)(blockDim.x / 32); ++warp) total += sums[warp];
    float scale = rsqrtf(total / (float)width + 1e-6f);
    for (long long i = threadIdx.x; i < vectors; i += blockDim.x) {
        uint4 v = row[i], w = weight[i], out;
        const u32 *pairs = (const u32*)&v, *weights = (const u32*)&w;
        u32* made = (u32*)&out;
        for (int p = 0; p < 4; ++p)
            made[p] = pack_bf16(low(pairs[p]) * scale * low(weights[p]),
                                high(pairs[p]) * scale * high(weights[p]));
        y[blockIdx.x * vectors + i] = out;
    }
}
