/* The matrix product for kernels that are made of it. */
#ifndef GPUWATCH_SIM_PLUGIN_LINEAR_H
#define GPUWATCH_SIM_PLUGIN_LINEAR_H

#include <stdint.h>

namespace gpuwatch {

/* c = op(a) op(b), or added to c; row-major, the strides are from row to row. */
template <class T>
void multiply(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const T *a, int64_t stride_a,
              const T *b, int64_t stride_b, T *c, int64_t stride_c, bool accumulate);

extern template void multiply(bool, bool, int64_t, int64_t, int64_t, const float *, int64_t, const float *, int64_t,
                              float *, int64_t, bool);
extern template void multiply(bool, bool, int64_t, int64_t, int64_t, const double *, int64_t, const double *,
                              int64_t, double *, int64_t, bool);

}  // namespace gpuwatch

#endif
