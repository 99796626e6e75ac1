/* libcudnn.so.9 (and .8) of a simulated machine: it can be loaded and reports its version, so that logs look like
 * those of a real machine; creating a handle, as for a convolution, fails.
 *
 * TensorFlow then says "Could not create cudnn handle", as it does when GPU memory is full. Two signs tell this
 * failure from that one: the line below on stderr, just before TensorFlow's, and the status NOT_SUPPORTED, which
 * NVIDIA's cudnnCreate does not return (it has NOT_INITIALIZED, ALLOC_FAILED, INTERNAL_ERROR and their like). */
#include <stdatomic.h>
#include <stdio.h>

#define API __attribute__((visibility("default")))

enum { MAJOR = 9, MINOR = 3, PATCH = 0, INVALID_VALUE = 2003, NOT_SUPPORTED = 3000 };

API unsigned long cudnnGetVersion(void) { return MAJOR * 10000 + MINOR * 100 + PATCH; }

API int cudnnGetProperty(int type, int *value) {
    static const int parts[] = {MAJOR, MINOR, PATCH};
    if (!value || type < 0 || type > 2) return INVALID_VALUE;
    *value = parts[type];
    return 0;
}

API int cudnnCreate(void **handle) {
    static atomic_flag told = ATOMIC_FLAG_INIT;
    if (handle) *handle = 0;
    if (!atomic_flag_test_and_set(&told))
        fprintf(stderr, "gpuwatch: the simulated driver lacks cuDNN (status %d): convolutions and recurrent layers of "
                        "cuDNN fail, whatever memory is free (--sim-tier plugin computes them)\n", NOT_SUPPORTED);
    return NOT_SUPPORTED;
}

API const char *cudnnGetErrorString(int status) {
    switch (status) {
    case 0: return "CUDNN_STATUS_SUCCESS";
    case INVALID_VALUE: return "CUDNN_STATUS_BAD_PARAM_NULL_POINTER";
    case NOT_SUPPORTED: return "CUDNN_STATUS_NOT_SUPPORTED";
    default: return "CUDNN_STATUS_UNKNOWN";
    }
}
