/* See gemm.h. Compiled with -O3 -march=native: the vectors are as wide as this CPU's. */
#include "gemm.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#define TILE_N 12 /* 24 of 32 registers hold results */
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#define TILE_N 6 /* 12 of 16 */
#elif defined(__aarch64__)
#define VECTOR_BYTES 16
#define TILE_N 12
#else
#define VECTOR_BYTES 16
#define TILE_N 6
#endif

static float bits_to_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t float_to_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float bfloat_to_float(uint16_t bits) { return bits_to_float((uint32_t)bits << 16); }

static uint16_t float_to_bfloat(float value) {
    uint32_t bits = float_to_bits(value);
    if (value != value) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16); /* to the nearest, ties to even */
}

static float half_to_float(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 1023;
    if (exponent == 31) return bits_to_float(sign | 0x7f800000 | fraction << 13);
    if (exponent) return bits_to_float(sign | (exponent + 112) << 23 | fraction << 13);
    float tiny = (float)fraction * 0x1p-24f; /* subnormal */
    return sign ? -tiny : tiny;
}

static uint16_t float_to_half(float value) {
    uint32_t bits = float_to_bits(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00);
    if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* 65520 and more round to infinity */
    if (magnitude < 0x38800000) {
        /* Below 2^-14: adding 0.5 leaves the fraction, rounded to multiples of 2^-24, in the low bits. */
        uint32_t rounded = float_to_bits(bits_to_float(magnitude) + 0.5f) - 0x3f000000;
        return (uint16_t)(sign | rounded);
    }
    uint32_t odd = magnitude >> 13 & 1;
    return (uint16_t)(sign | ((magnitude - 0x38000000 + 0xfff + odd) >> 13));
}

size_t gws_type_bytes(gws_type type) { return type == GWS_F64 ? 8 : type == GWS_F32 ? 4 : 2; }

double gws_load_scalar(gws_type type, const void *from) {
    uint16_t bits;
    float single;
    double wide;
    switch (type) {
    case GWS_F16: memcpy(&bits, from, 2); return half_to_float(bits);
    case GWS_BF16: memcpy(&bits, from, 2); return bfloat_to_float(bits);
    case GWS_F32: memcpy(&single, from, 4); return single;
    default: memcpy(&wide, from, 8); return wide;
    }
}

#define REAL float
#define NAME(x) x##_f32
#define LANES (VECTOR_BYTES / sizeof(float))
#include "gemm_core.h"
#undef REAL
#undef NAME
#undef LANES

#define REAL double
#define NAME(x) x##_f64
#define LANES (VECTOR_BYTES / sizeof(double))
#include "gemm_core.h"
#undef REAL
#undef NAME
#undef LANES

/* Work space is kept from call to call, since faulting in fresh pages costs more than a small product.
 * Each device runs one product at a time, so few are needed; more are made and freed again. */
typedef struct {
    void *memory;
    size_t bytes;
} work_space;

static work_space kept[4];
static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;

static work_space take_work(size_t bytes) {
    work_space work = {NULL, 0};
    pthread_mutex_lock(&kept_lock);
    for (int i = 0; i < 4 && !work.memory; i++)
        if (kept[i].memory) {
            work = kept[i];
            kept[i].memory = NULL;
        }
    pthread_mutex_unlock(&kept_lock);
    if (work.memory && work.bytes >= bytes) return work;
    free(work.memory);
    work.bytes = (bytes + 63) / 64 * 64;
    work.memory = aligned_alloc(64, work.bytes);
    return work;
}

static void return_work(work_space work) {
    pthread_mutex_lock(&kept_lock);
    for (int i = 0; i < 4 && work.memory; i++)
        if (!kept[i].memory) {
            kept[i] = work;
            work.memory = NULL;
        }
    pthread_mutex_unlock(&kept_lock);
    free(work.memory);
}

bool gws_gemm(bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k, double alpha, gws_type input,
              const void *a, size_t lda, const void *b, size_t ldb, double beta, gws_type output, void *c,
              size_t ldc) {
    if (m == 0 || n == 0) return true;
    if (k == 0 || alpha == 0) {
        size_t bytes = gws_type_bytes(output);
        for (size_t j = 0; j < n; j++)
            for (size_t i = 0; i < m; i++) {
                size_t at = i + j * ldc;
                store_f32(output, c, at, beta == 0 ? 0 : beta * gws_load_scalar(output, (char *)c + at * bytes));
            }
        return true;
    }
    size_t bytes = input == GWS_F64 ? work_bytes_f64(m, n, k) : work_bytes_f32(m, n, k);
    work_space work = take_work(bytes);
    if (!work.memory) return false;
    if (input == GWS_F64) {
        matrix_f64 left = {input, a, transpose_a ? lda : 1, transpose_a ? 1 : lda};
        matrix_f64 right = {input, b, transpose_b ? ldb : 1, transpose_b ? 1 : ldb};
        multiply_f64(m, n, k, alpha, &left, &right, beta, output, c, ldc, work.memory);
    } else {
        matrix_f32 left = {input, a, transpose_a ? lda : 1, transpose_a ? 1 : lda};
        matrix_f32 right = {input, b, transpose_b ? ldb : 1, transpose_b ? 1 : ldb};
        multiply_f32(m, n, k, alpha, &left, &right, beta, output, c, ldc, work.memory);
    }
    return_work(work);
    return true;
}
