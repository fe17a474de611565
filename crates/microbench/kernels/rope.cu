// Rotary positions in BF16: the first half of a head turns against its second half, by the angle
// whose cosine and sine lie in `table` (position x half, cosine then sine, FP32).
// One thread per pair; x is [tokens, heads, 2 half].

extern "C" __global__ void rope(u16* __restrict__ y, const u16* __restrict__ x,
                                const float* __restrict__ table,
                                const long long* __restrict__ positions, long long heads,
                                long long half, long long pairs) {
    for (long long i = thread_index(); i < pairs; i += thread_count()) {
        long long k = i % half, head = i / half, token = head / heads;
        const float* angle = table + (positions[token] * half + k) * 2;
        float c = angle[0], s = angle[1];
        long long at = head * 2 * half + k;
        float a = bf16_to_float(x[at]), b = bf16_to_float(x[at + half]);
        y[at] = float_to_bf16(a * c - b * s);
        y[at + half] = float_to_bf16(a * s + b * c);
    }
}
