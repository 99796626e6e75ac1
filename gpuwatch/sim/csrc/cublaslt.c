/* libcublasLt.so.12 (and .11) of a simulated machine. TensorFlow creates a handle for each cuBLAS handle, but uses
 * plain cuBLAS for products by default, so they are computed there. */
#include <stdlib.h>

#define API __attribute__((visibility("default")))

API int cublasLtCreate(void **handle) {
    if (!handle) return 7; /* CUBLAS_STATUS_INVALID_VALUE */
    *handle = malloc(1);
    return *handle ? 0 : 3;
}

API int cublasLtDestroy(void *handle) {
    free(handle);
    return 0;
}

API size_t cublasLtGetVersion(void) { return 120503; }
