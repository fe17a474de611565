// Routing of tokens to experts: choose, sort by expert, gather rows.

// Softmax over the experts, then the k largest, largest first. One warp per token, at most 1024
// experts.
extern "C" __global__ void top_k(int* __restrict__ ids, float* __restrict__ weights,
                                 const float* __restrict__ logits, long long tokens,
                                 long long experts, long long k) {
    long long token = thread_index() / 32;
    int lane = threadIdx.x % 32;
    if (token >= tokens) return;
    const float* row = logits + token * experts;
    const int each = (int)((experts + 31) / 32);
    float mine[32];
    float largest = -3.4e38f;
#pragma unroll
    for (int i = 0; i < 32; ++i) {
        int expert = i * 32 + lane;
        mine[i] = (i < each && expert < experts) ? row[expert] : -3.4e38f;
        largest = fmaxf(largest, mine[i]);
    }
    for (int step = 16; step > 0; step /= 2)
        largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, step));
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 32; ++i)
        if (i < each && i * 32 + lane < experts) sum += __expf(mine[i] - largest);
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    for (int rank = 0; rank < k; ++rank) {
        float best = -3.4e38f;
        int which = 0x7fffffff;
#pragma unroll
        for (int i = 0; i < 32; ++i)
            if (i < each && mine[i] > best) {
                best = mine[i];
                which = i * 32 + lane;
            }
        for (int step = 16; step > 0; step /= 2) {
            float other = __shfl_xor_sync(~0u, best, step);
            int at = __shfl_xor_sync(~0u, which, step);
            if (other > best || (other == best && at < which)) {
                best = other;
                which = at;
            }
        }
#pragma unroll
        for (int i = 0; i < 32; ++i)
            if (i * 32 + lane == which) mine[i] = -3.4e38f;
        if (lane == 0) {
            ids[token * k + rank] = which;
            weights[token * k + rank] = __expf(best - largest) / sum;
        }
    }
}

// Sorts the choices by expert: where each expert begins (experts + 1 offsets), and which choice is
// at each place. One block; choices of one expert come in any order.
extern "C" __global__ void align(int* __restrict__ offsets, int* __restrict__ order,
                                 const int* __restrict__ ids, long long choices,
                                 long long experts) {
    __shared__ int count[1025];
    for (int e = threadIdx.x; e <= experts; e += blockDim.x) count[e] = 0;
    __syncthreads();
    for (long long i = threadIdx.x; i < choices; i += blockDim.x) atomicAdd(&count[ids[i] + 1], 1);
    __syncthreads();
    // a prefix sum by one warp, 32 experts at a time
    if (threadIdx.x < 32) {
        int before = 0;
        for (int base = 0; base <= experts; base += 32) {
            int at = base + (int)threadIdx.x;
            int value = at <= experts ? count[at] : 0;
            for (int step = 1; step < 32; step *= 2) {
                int left = __shfl_up_sync(~0u, value, step);
                if ((int)threadIdx.x >= step) value += left;
            }
            if (at <= experts) count[at] = value + before;
            before += __shfl_sync(~0u, value, 31);
        }
    }
    __syncthreads();
    for (int e = threadIdx.x; e <= experts; e += blockDim.x) offsets[e] = count[e];
    __syncthreads();
    for (long long i = threadIdx.x; i < choices; i += blockDim.x)
        order[atomicAdd(&count[ids[i]], 1)] = (int)i;
}

// Rows in the order of the experts: row p of `to` is row order[p] / k of `from`. One block per row.
extern "C" __global__ void permute(uint4* __restrict__ to, const uint4* __restrict__ from,
                                   const int* __restrict__ order, long long vectors, long long k) {
    const uint4* row = from + (long long)(order[blockIdx.x] / (int)k) * vectors;
    for (long long i = threadIdx.x; i < vectors; i += blockDim.x)
        to[blockIdx.x * vectors + i] = row[i];
}
