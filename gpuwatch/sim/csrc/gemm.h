/* Matrix multiplication on the host for the simulated cuBLAS: C = alpha * op(A) * op(B) + beta * C, with
 * column-major matrices. Single and double precision run at the CPU's speed; half and bfloat16 are widened
 * to single while they are packed. */
#ifndef GPUWATCH_SIM_GEMM_H
#define GPUWATCH_SIM_GEMM_H

#include <stdbool.h>
#include <stddef.h>

typedef enum { GWS_F32, GWS_F64, GWS_F16, GWS_BF16 } gws_type;

size_t gws_type_bytes(gws_type type);
double gws_load_scalar(gws_type type, const void *from);

/* All three matrices have one type, except that C may be GWS_F32 for half and bfloat16 inputs.
 * false: out of host memory. */
bool gws_gemm(bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k, double alpha, gws_type input,
              const void *a, size_t lda, const void *b, size_t ldb, double beta, gws_type output, void *c,
              size_t ldc);

#endif
