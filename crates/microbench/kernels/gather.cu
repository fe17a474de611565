// Rows of a pool by index, as a paged KV cache is read: row r of `to` is row rows[r] of `pool`.
// A row has `vectors` x 16 bytes; a warp takes a row.

extern "C" __global__ void gather(uint4* __restrict__ to, const uint4* __restrict__ pool,
                                  const int* __restrict__ rows, long long count,
                                  long long vectors) {
    int lane = threadIdx.x % 32;
    for (long long r = thread_index() / 32; r < count; r += thread_count() / 32) {
        const uint4* row = pool + (long long)rows[r] * vectors;
        for (long long i = lane; i < vectors; i += 32) __stcs(to + r * vectors + i, __ldcs(row + i));
    }
}
