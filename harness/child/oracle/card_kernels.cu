// The oracle's passes over large values, for one kind of stored value (KIND): 0 is bfloat16,
// 1 half, 2 float, 3 double. harness/child/oracle/card_kernels.py launches them.

typedef long long Index;
#if KIND == 3
typedef double Wide;
#else
typedef float Wide;
#endif
#if KIND <= 1
typedef unsigned short Stored;
#else
typedef Wide Stored;
#endif

#define THREADS 256
#define EACH 8                      // values, or vectors of 16 bytes, of a thread
#define VECTOR (16 / sizeof(Stored))

union Vector {
    uint4 bits;
    Stored values[VECTOR];
};

__device__ inline Wide widen(Stored value) {
#if KIND == 0
    return __uint_as_float((unsigned)value << 16);
#elif KIND == 1
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value));
    return wide;
#else
    return value;
#endif
}

__device__ inline Stored narrow(Wide value) {
#if KIND == 0
    unsigned bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (bits >> 16) | 0x40;  // NaN
    return (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
#elif KIND == 1
    unsigned short half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
#else
    return value;
#endif
}

__device__ inline float infinity() { return __uint_as_float(0x7f800000u); }

template <typename Value>
__device__ inline bool is_finite(Value value) { return value - value == 0; }

__device__ inline double block_sum(double value) {
    __shared__ double sums[THREADS / 32];
    for (int other = 16; other; other /= 2)
        value += __shfl_down_sync(0xffffffffu, value, other);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
    __syncthreads();
    value = 0;
    for (int warp = 0; warp < THREADS / 32; warp++) value += sums[warp];
    return value;
}

__device__ inline float warp_largest(float value) {
    for (int other = 16; other; other /= 2)
        value = fmaxf(value, __shfl_down_sync(0xffffffffu, value, other));
    return value;
}

// out[row][i * step] = values[starts[row] + i] * factors[offsets[row] + i], drawn towards `center`
extern "C" __global__ void write_windows(
    Stored *__restrict__ out, Index row_stride, Index step, const Stored *__restrict__ values,
    const Stored *__restrict__ factors, const Index *__restrict__ starts,
    const Index *__restrict__ offsets, Index length, double center_of_all) {
    Index row = blockIdx.y, first = (Index)blockIdx.x * THREADS * EACH + threadIdx.x;
    const Wide center = (Wide)center_of_all;
    out += row * row_stride;
    values += starts[row];
    factors += offsets[row];
    Wide result[EACH];
#pragma unroll
    for (int n = 0; n < EACH; n++) {
        Index at = first + n * THREADS;
        if (at < length)
            result[n] = (widen(values[at]) - center) * widen(factors[at]) + center;
    }
#pragma unroll
    for (int n = 0; n < EACH; n++) {
        Index at = first + n * THREADS;
        if (at < length) out[at * step] = narrow(result[n]);
    }
}

// By row: the sum of the squares of `want` where it is finite, and the bits of the largest
// absolute difference.
extern "C" __global__ void scan_rows(
    const Stored *__restrict__ got, Index got_stride, const Stored *__restrict__ want,
    Index want_stride, Index columns, Index vectors, double *squares, unsigned *farthest) {
    Index row = blockIdx.y, block = (Index)blockIdx.x * THREADS * EACH;
    got += row * got_stride;
    want += row * want_stride;
    double square = 0;
    float far = 0;
#define COMPARE(g, w)                                                \
    {                                                                \
        Wide wanted = widen(w), off = fabs(widen(g) - wanted);       \
        if (is_finite(wanted)) square += (double)wanted * wanted;    \
        if (g != w) far = fmaxf(far, off < infinity() ? (float)off : infinity()); \
    }
    Vector left[EACH], right[EACH];
#pragma unroll
    for (int n = 0; n < EACH; n++) {
        Index at = block + n * THREADS + threadIdx.x;
        if (at < vectors) {
            left[n].bits = ((const uint4 *)got)[at];
            right[n].bits = ((const uint4 *)want)[at];
        }
    }
#pragma unroll
    for (int n = 0; n < EACH; n++) {
        Index at = block + n * THREADS + threadIdx.x;
        if (at < vectors)
            for (int i = 0; i < VECTOR; i++) COMPARE(left[n].values[i], right[n].values[i])
    }
    Index rest = columns - vectors * VECTOR, blocks = gridDim.x;  // what is in no vector
    for (Index at = blockIdx.x * THREADS + threadIdx.x; at < rest; at += blocks * THREADS) {
        Stored g = got[vectors * VECTOR + at], w = want[vectors * VECTOR + at];
        COMPARE(g, w)
    }
    double sum = block_sum(square);
    if (threadIdx.x == 0) atomicAdd(squares + row, sum);
    far = warp_largest(far);
    if (threadIdx.x % 32 == 0 && far > 0) atomicMax(farthest + row, __float_as_uint(far));
}

// By row: the largest relative difference, or a bound of it that is within the limit.
extern "C" __global__ void relative_rows(
    const Stored *__restrict__ got, Index got_stride, const Stored *__restrict__ want,
    Index want_stride, Index columns, const double *squares, const unsigned *farthest,
    double limit, unsigned *worst) {
    Index row = blockIdx.y, first = (Index)blockIdx.x * THREADS * EACH + threadIdx.x;
    float scale = (float)sqrt(squares[row] / columns), far = __uint_as_float(farthest[row]);
    if (!(scale > 0 && scale < infinity())) scale = 1;
    if (far <= (float)limit * scale) {
        if (blockIdx.x == 0 && threadIdx.x == 0) worst[row] = __float_as_uint(far / scale);
        return;
    }
    got += row * got_stride;
    want += row * want_stride;
    float largest = 0;
    for (Index at = first; at < columns && at < first + THREADS * EACH; at += THREADS) {
        Stored g = got[at], w = want[at];
        if (g == w) continue;
        Wide left = widen(g), right = widen(w);
        bool is_left = is_finite(left), is_right = is_finite(right);
        if (is_left != is_right)
            largest = infinity();
        else if (is_left)
            largest = fmaxf(largest, (float)(fabs(left - right) /
                                             (fabs(right) > scale ? fabs(right) : (Wide)scale)));
    }
    largest = warp_largest(largest);
    if (threadIdx.x % 32 == 0 && largest > 0) atomicMax(worst + row, __float_as_uint(largest));
}

// The bits of the largest absolute and relative error, and the number of values that are not
// finite although they should be.
extern "C" __global__ void measure_errors(
    const Stored *__restrict__ got, const double *__restrict__ want, Index count, double scale,
    unsigned long long *results) {
    double absolute = 0, relative = 0;
    unsigned long long bad = 0;
    Index first = (Index)blockIdx.x * THREADS * EACH + threadIdx.x;
#pragma unroll
    for (int n = 0; n < EACH; n++) {
        Index at = first + n * THREADS;
        if (at >= count) continue;
        double left = widen(got[at]), right = want[at];
        if (!is_finite(right)) continue;
        if (!is_finite(left)) {
            bad++;
            continue;
        }
        double off = fabs(left - right);
        absolute = fmax(absolute, off);
        relative = fmax(relative, off / fmax(fabs(right), scale));
    }
    for (int other = 16; other; other /= 2) {
        absolute = fmax(absolute, __shfl_down_sync(0xffffffffu, absolute, other));
        relative = fmax(relative, __shfl_down_sync(0xffffffffu, relative, other));
        bad += __shfl_down_sync(0xffffffffu, bad, other);
    }
    if (threadIdx.x % 32) return;
    if (absolute > 0) atomicMax(results, (unsigned long long)__double_as_longlong(absolute));
    if (relative > 0) atomicMax(results + 1, (unsigned long long)__double_as_longlong(relative));
    if (bad) atomicAdd(results + 2, bad);
}
