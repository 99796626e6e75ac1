/* libcudnn.so.9 (and .8) of a simulated machine: it can be loaded and reports its version, so that logs look like
 * those of a real machine; creating a handle, as for a convolution, fails. */
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
    if (handle) *handle = 0;
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
