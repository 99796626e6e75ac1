/* libcublas.so.12 (and .11) and .13 of a simulated machine: products are really computed, in host memory, and their
 * time counts as busy time of the device and the process. */
#define _GNU_SOURCE
#include "cuda_internal.h"
#include "gemm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if CUDART_MAJOR == 13
enum { VERSION_MAJOR = 13, VERSION_MINOR = 0, VERSION_PATCH = 0 };
#else
enum { VERSION_MAJOR = 12, VERSION_MINOR = 5, VERSION_PATCH = 3 };
#endif

typedef int cublasStatus_t;
enum {
    CUBLAS_SUCCESS = 0,
    CUBLAS_NOT_INITIALIZED = 1,
    CUBLAS_ALLOC_FAILED = 3,
    CUBLAS_INVALID_VALUE = 7,
    CUBLAS_INTERNAL_ERROR = 14,
    CUBLAS_NOT_SUPPORTED = 15,
};

typedef struct {
    int math_mode, pointer_mode, atomics_mode;
    void *stream;
} *cublasHandle_t;

API cublasStatus_t cublasCreate_v2(cublasHandle_t *handle) {
    if (!handle) return CUBLAS_INVALID_VALUE;
    if (!gws_cuda_state()) return CUBLAS_NOT_INITIALIZED;
    *handle = calloc(1, sizeof **handle);
    return *handle ? CUBLAS_SUCCESS : CUBLAS_ALLOC_FAILED;
}

API cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
    if (!handle) return CUBLAS_NOT_INITIALIZED;
    free(handle);
    return CUBLAS_SUCCESS;
}

API cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int *version) {
    if (!version) return CUBLAS_INVALID_VALUE;
    *version = VERSION_MAJOR * 10000 + VERSION_MINOR * 100 + VERSION_PATCH;
    return CUBLAS_SUCCESS;
}

API cublasStatus_t cublasGetProperty(int type, int *value) {
    static const int parts[] = {VERSION_MAJOR, VERSION_MINOR, VERSION_PATCH};
    if (!value || type < 0 || type > 2) return CUBLAS_INVALID_VALUE;
    *value = parts[type];
    return CUBLAS_SUCCESS;
}

API const char *cublasGetStatusName(cublasStatus_t status) {
    switch (status) {
    case 0: return "CUBLAS_STATUS_SUCCESS";
    case 1: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case 3: return "CUBLAS_STATUS_ALLOC_FAILED";
    case 7: return "CUBLAS_STATUS_INVALID_VALUE";
    case 13: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case 14: return "CUBLAS_STATUS_INTERNAL_ERROR";
    case 15: return "CUBLAS_STATUS_NOT_SUPPORTED";
    default: return "CUBLAS_STATUS_UNKNOWN";
    }
}

API const char *cublasGetStatusString(cublasStatus_t status) { return cublasGetStatusName(status); }

/* Settings are stored and returned, but do not change results. */
#define SETTING(Name, member)                                                                                \
    API cublasStatus_t cublasSet##Name(cublasHandle_t handle, int value) {                                   \
        if (!handle) return CUBLAS_NOT_INITIALIZED;                                                          \
        handle->member = value;                                                                              \
        return CUBLAS_SUCCESS;                                                                               \
    }                                                                                                        \
    API cublasStatus_t cublasGet##Name(cublasHandle_t handle, int *value) {                                  \
        if (!handle) return CUBLAS_NOT_INITIALIZED;                                                          \
        if (!value) return CUBLAS_INVALID_VALUE;                                                             \
        *value = handle->member;                                                                             \
        return CUBLAS_SUCCESS;                                                                               \
    }
SETTING(MathMode, math_mode)
SETTING(PointerMode_v2, pointer_mode) /* device memory is host memory: scalars are read alike */
SETTING(AtomicsMode, atomics_mode)

API cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, void *stream) {
    if (!handle) return CUBLAS_NOT_INITIALIZED;
    handle->stream = stream;
    return CUBLAS_SUCCESS;
}

API cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, void **stream) {
    if (!handle) return CUBLAS_NOT_INITIALIZED;
    if (!stream) return CUBLAS_INVALID_VALUE;
    *stream = handle->stream;
    return CUBLAS_SUCCESS;
}

API cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *work, size_t bytes) {
    return handle ? CUBLAS_SUCCESS : CUBLAS_NOT_INITIALIZED;
}

/* --- products --------------------------------------------------------------------------------------- */

typedef struct {
    int transpose_a, transpose_b, m, n, k, lda, ldb, ldc;
    gws_type input, output;
    double alpha, beta;
} problem;

static bool sane(const problem *p) {
    int rows_a = p->transpose_a ? p->k : p->m, rows_b = p->transpose_b ? p->n : p->k;
    return p->m >= 0 && p->n >= 0 && p->k >= 0 && p->transpose_a >= 0 && p->transpose_a <= 2 &&
           p->transpose_b >= 0 && p->transpose_b <= 2 && p->lda >= (rows_a > 1 ? rows_a : 1) &&
           p->ldb >= (rows_b > 1 ? rows_b : 1) && p->ldc >= (p->m > 1 ? p->m : 1);
}

/* Runs `count` products as one kernel; pointers come from arrays, or from a start and a step in elements. */
static cublasStatus_t run(cublasHandle_t handle, const problem *p, int count, const void *a, long long step_a,
                          const void *b, long long step_b, void *c, long long step_c, bool arrays) {
    gws_state *state = gws_cuda_state();
    int device = gws_cuda_current_device();
    if (!handle || !state || device < 0) return CUBLAS_NOT_INITIALIZED;
    if (!sane(p) || count < 0) return CUBLAS_INVALID_VALUE;
    int code = gws_fault_check(state, "cublasGemm", device);
    if (code) return code;
    if (!count || !p->m || !p->n) return CUBLAS_SUCCESS;
    size_t in = gws_type_bytes(p->input), out = gws_type_bytes(p->output);
    bool done = true;
    uint64_t began_ns = gws_kernel_begin(state, (uint32_t)device);
    for (int i = 0; i < count && done; i++) {
        const char *left = arrays ? ((const char *const *)a)[i] : (const char *)a + (long long)in * step_a * i;
        const char *right = arrays ? ((const char *const *)b)[i] : (const char *)b + (long long)in * step_b * i;
        char *result = arrays ? ((char *const *)c)[i] : (char *)c + (long long)out * step_c * i;
        done = gws_gemm(p->transpose_a, p->transpose_b, (size_t)p->m, (size_t)p->n, (size_t)p->k, p->alpha, p->input,
                        left, (size_t)p->lda, right, (size_t)p->ldb, p->beta, p->output, result, (size_t)p->ldc);
    }
    uint64_t m = (uint64_t)p->m, n = (uint64_t)p->n, k = (uint64_t)p->k;
    gws_kernel_end(state, (uint32_t)device, began_ns, (uint64_t)count * ((m + n) * k * in + m * n * out));
    return done ? CUBLAS_SUCCESS : CUBLAS_ALLOC_FAILED;
}

#define GEMM_FAMILY(letter, real, kind)                                                                      \
    API cublasStatus_t cublas##letter##gemm_v2(cublasHandle_t handle, int ta, int tb, int m, int n, int k,   \
                                               const real *alpha, const real *a, int lda, const real *b,     \
                                               int ldb, const real *beta, real *c, int ldc) {                \
        if (!alpha || !beta) return CUBLAS_INVALID_VALUE;                                                    \
        problem p = {ta, tb, m, n, k, lda, ldb, ldc, kind, kind, *alpha, *beta};                             \
        return run(handle, &p, 1, a, 0, b, 0, c, 0, false);                                                  \
    }                                                                                                        \
    API cublasStatus_t cublas##letter##gemmStridedBatched(                                                   \
        cublasHandle_t handle, int ta, int tb, int m, int n, int k, const real *alpha, const real *a, int lda, \
        long long step_a, const real *b, int ldb, long long step_b, const real *beta, real *c, int ldc,      \
        long long step_c, int count) {                                                                       \
        if (!alpha || !beta) return CUBLAS_INVALID_VALUE;                                                    \
        problem p = {ta, tb, m, n, k, lda, ldb, ldc, kind, kind, *alpha, *beta};                             \
        return run(handle, &p, count, a, step_a, b, step_b, c, step_c, false);                               \
    }                                                                                                        \
    API cublasStatus_t cublas##letter##gemmBatched(cublasHandle_t handle, int ta, int tb, int m, int n, int k, \
                                                   const real *alpha, const real *const *a, int lda,         \
                                                   const real *const *b, int ldb, const real *beta,          \
                                                   real *const *c, int ldc, int count) {                     \
        if (!alpha || !beta) return CUBLAS_INVALID_VALUE;                                                    \
        problem p = {ta, tb, m, n, k, lda, ldb, ldc, kind, kind, *alpha, *beta};                             \
        return run(handle, &p, count, (const void *)a, 0, (const void *)b, 0, (void *)c, 0, true);           \
    }                                                                                                        \
    /* y = alpha op(A) x + beta y: a product with one column, for vectors without gaps */                    \
    API cublasStatus_t cublas##letter##gemv_v2(cublasHandle_t handle, int ta, int m, int n, const real *alpha, \
                                               const real *a, int lda, const real *x, int step_x,            \
                                               const real *beta, real *y, int step_y) {                      \
        if (!alpha || !beta) return CUBLAS_INVALID_VALUE;                                                    \
        if (step_x != 1 || step_y != 1) return CUBLAS_NOT_SUPPORTED;                                         \
        int rows = ta ? n : m, depth = ta ? m : n;                                                           \
        problem p = {ta, 0, rows, 1, depth, lda, depth > 1 ? depth : 1, rows > 1 ? rows : 1, kind, kind,     \
                     *alpha, *beta};                                                                         \
        return run(handle, &p, 1, a, 0, x, 0, y, 0, false);                                                  \
    }

GEMM_FAMILY(S, float, GWS_F32)
GEMM_FAMILY(D, double, GWS_F64)

/* cudaDataType: 0 float, 1 double, 2 half, 14 bfloat16. */
static bool read_type(int number, gws_type *out) {
    switch (number) {
    case 0: *out = GWS_F32; return true;
    case 1: *out = GWS_F64; return true;
    case 2: *out = GWS_F16; return true;
    case 14: *out = GWS_BF16; return true;
    default: return false;
    }
}

/* The type in which the scalars are given follows the computation: 64, 65 half, 70, 71 double, else float. */
static bool describe(problem *p, const void *alpha, const void *beta, int type_a, int type_b, int type_c,
                     int compute) {
    if (type_a != type_b || !read_type(type_a, &p->input) || !read_type(type_c, &p->output)) return false;
    if ((p->input == GWS_F64) != (p->output == GWS_F64)) return false;
    if (p->input != p->output && p->output != GWS_F32) return false;
    gws_type scalar = compute == 64 || compute == 65 ? GWS_F16 : compute == 70 || compute == 71 ? GWS_F64 : GWS_F32;
    if (!alpha || !beta || (scalar == GWS_F64) != (p->input == GWS_F64)) return false;
    p->alpha = gws_load_scalar(scalar, alpha);
    p->beta = gws_load_scalar(scalar, beta);
    return true;
}

API cublasStatus_t cublasGemmEx(cublasHandle_t handle, int ta, int tb, int m, int n, int k, const void *alpha,
                                const void *a, int type_a, int lda, const void *b, int type_b, int ldb,
                                const void *beta, void *c, int type_c, int ldc, int compute, int algorithm) {
    problem p = {.transpose_a = ta, .transpose_b = tb, .m = m, .n = n, .k = k, .lda = lda, .ldb = ldb, .ldc = ldc};
    if (!describe(&p, alpha, beta, type_a, type_b, type_c, compute)) return CUBLAS_NOT_SUPPORTED;
    return run(handle, &p, 1, a, 0, b, 0, c, 0, false);
}

API cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, int ta, int tb, int m, int n, int k,
                                              const void *alpha, const void *a, int type_a, int lda,
                                              long long step_a, const void *b, int type_b, int ldb, long long step_b,
                                              const void *beta, void *c, int type_c, int ldc, long long step_c,
                                              int count, int compute, int algorithm) {
    problem p = {.transpose_a = ta, .transpose_b = tb, .m = m, .n = n, .k = k, .lda = lda, .ldb = ldb, .ldc = ldc};
    if (!describe(&p, alpha, beta, type_a, type_b, type_c, compute)) return CUBLAS_NOT_SUPPORTED;
    return run(handle, &p, count, a, step_a, b, step_b, c, step_c, false);
}

API cublasStatus_t cublasGemmBatchedEx(cublasHandle_t handle, int ta, int tb, int m, int n, int k,
                                       const void *alpha, const void *const *a, int type_a, int lda,
                                       const void *const *b, int type_b, int ldb, const void *beta, void *const *c,
                                       int type_c, int ldc, int count, int compute, int algorithm) {
    problem p = {.transpose_a = ta, .transpose_b = tb, .m = m, .n = n, .k = k, .lda = lda, .ldb = ldb, .ldc = ldc};
    if (!describe(&p, alpha, beta, type_a, type_b, type_c, compute)) return CUBLAS_NOT_SUPPORTED;
    return run(handle, &p, count, (const void *)a, 0, (const void *)b, 0, (void *)c, 0, true);
}

/* Single precision scalars, and matrices of a narrower type. */
API cublasStatus_t cublasSgemmEx(cublasHandle_t handle, int ta, int tb, int m, int n, int k, const float *alpha,
                                 const void *a, int type_a, int lda, const void *b, int type_b, int ldb,
                                 const float *beta, void *c, int type_c, int ldc) {
    return cublasGemmEx(handle, ta, tb, m, n, k, alpha, a, type_a, lda, b, type_b, ldb, beta, c, type_c, ldc,
                        68 /* computed in single precision */, -1);
}

/* --- the rest that TensorFlow reaches with dense real matrices -------------------------------------- */

#define VECTOR_FAMILY(letter, real)                                                                          \
    /* x = alpha x */                                                                                        \
    API cublasStatus_t cublas##letter##scal_v2(cublasHandle_t handle, int n, const real *alpha, real *x, int step) { \
        gws_state *state = gws_cuda_state();                                                                 \
        int device = gws_cuda_current_device();                                                              \
        if (!handle || !state || device < 0) return CUBLAS_NOT_INITIALIZED;                                  \
        if (!alpha || (n > 0 && !x)) return CUBLAS_INVALID_VALUE;                                            \
        if (n <= 0 || step <= 0) return CUBLAS_SUCCESS;                                                      \
        uint64_t began_ns = gws_kernel_begin(state, (uint32_t)device);                                       \
        for (size_t i = 0; i < (size_t)n; i++) x[i * (size_t)step] *= *alpha;                                \
        gws_kernel_end(state, (uint32_t)device, began_ns, 2 * sizeof(real) * (size_t)n);                     \
        return CUBLAS_SUCCESS;                                                                               \
    }                                                                                                        \
    /* C = alpha op(A) + beta op(B): sums and transposes */                                                  \
    API cublasStatus_t cublas##letter##geam(cublasHandle_t handle, int ta, int tb, int m, int n,             \
                                            const real *alpha, const real *a, int lda, const real *beta,     \
                                            const real *b, int ldb, real *c, int ldc) {                      \
        gws_state *state = gws_cuda_state();                                                                 \
        int device = gws_cuda_current_device();                                                              \
        if (!handle || !state || device < 0) return CUBLAS_NOT_INITIALIZED;                                  \
        if (!alpha || !beta || m < 0 || n < 0 || !c) return CUBLAS_INVALID_VALUE;                            \
        size_t row_a = ta ? (size_t)lda : 1, column_a = ta ? 1 : (size_t)lda;                                \
        size_t row_b = tb ? (size_t)ldb : 1, column_b = tb ? 1 : (size_t)ldb;                                \
        uint64_t began_ns = gws_kernel_begin(state, (uint32_t)device);                                       \
        for (size_t j = 0; j < (size_t)n; j++)                                                               \
            for (size_t i = 0; i < (size_t)m; i++) {                                                         \
                real sum = 0; /* a matrix whose factor is 0 is not read */                                   \
                if (*alpha != 0) sum += *alpha * a[i * row_a + j * column_a];                                \
                if (*beta != 0) sum += *beta * b[i * row_b + j * column_b];                                  \
                c[i + j * (size_t)ldc] = sum;                                                                \
            }                                                                                                \
        gws_kernel_end(state, (uint32_t)device, began_ns, 3 * sizeof(real) * (size_t)m * (size_t)n);         \
        return CUBLAS_SUCCESS;                                                                               \
    }

VECTOR_FAMILY(S, float)
VECTOR_FAMILY(D, double)

/* --- the rest ---------------------------------------------------------------------------------------- */

static cublasStatus_t not_modelled(const char *function, atomic_flag *told) {
    if (gws_cuda_refuses_kernels() && !atomic_flag_test_and_set(told))
        fprintf(stderr, "gpuwatch: the simulated driver lacks %s (cuBLAS status %d)\n", function, CUBLAS_NOT_SUPPORTED);
    return CUBLAS_NOT_SUPPORTED;
}

#define NOT_MODELLED(function)                                                                               \
    API cublasStatus_t function(void) {                                                                      \
        static atomic_flag told = ATOMIC_FLAG_INIT;                                                          \
        return not_modelled(__func__, &told);                                                                \
    }
#include "cublas_not_modelled.h"
