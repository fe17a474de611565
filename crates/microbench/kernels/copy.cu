// A copy in units of 16 bytes; each thread has four of them in flight.

extern "C" __global__ void copy(uint4* __restrict__ to, const uint4* __restrict__ from,
                                long long count) {
    long long stride = thread_count();
    long long i = thread_index();
    for (; i + 3 * stride < count; i += 4 * stride) {
        uint4 a = __ldcs(from + i);
        uint4 b = __ldcs(from + i + stride);
        uint4 c = __ldcs(from + i + 2 * stride);
        uint4 d = __ldcs(from + i + 3 * stride);
        __stcs(to + i, a);
        __stcs(to + i + stride, b);
        __stcs(to + i + 2 * stride, c);
        __stcs(to + i + 3 * stride, d);
    }
    for (; i < count; i += stride) __stcs(to + i, __ldcs(from + i));
}
