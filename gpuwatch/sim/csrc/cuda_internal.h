/* Shared by the simulated driver's two parts, the simulated runtime and cuBLAS. Numbers of CUresult and
 * enumerations are CUDA's. */
#ifndef GPUWATCH_SIM_CUDA_INTERNAL_H
#define GPUWATCH_SIM_CUDA_INTERNAL_H

#include "state.h"

#define API __attribute__((visibility("default")))

typedef int CUresult;
/* Number, name and text of each error. */
#define CUDA_ERRORS(row)                                                                                     \
    row(0, CUDA_SUCCESS, "no error")                                                                         \
    row(1, CUDA_ERROR_INVALID_VALUE, "invalid argument")                                                     \
    row(2, CUDA_ERROR_OUT_OF_MEMORY, "out of memory")                                                        \
    row(3, CUDA_ERROR_NOT_INITIALIZED, "initialization error")                                               \
    row(4, CUDA_ERROR_DEINITIALIZED, "driver shutting down")                                                 \
    row(34, CUDA_ERROR_STUB_LIBRARY, "CUDA driver is a stub library")                                        \
    row(46, CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA-capable device(s) is/are busy or unavailable")              \
    row(100, CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected")                                     \
    row(101, CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal")                                            \
    row(200, CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid")                                     \
    row(201, CUDA_ERROR_INVALID_CONTEXT, "invalid device context")                                           \
    row(205, CUDA_ERROR_MAP_FAILED, "mapping of buffer object failed")                                       \
    row(209, CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device")       \
    row(214, CUDA_ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error encountered")                            \
    row(217, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "peer access is not supported between these two devices")   \
    row(218, CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed")                                         \
    row(304, CUDA_ERROR_OPERATING_SYSTEM, "OS call failed or operation not supported on this OS")            \
    row(400, CUDA_ERROR_INVALID_HANDLE, "invalid resource handle")                                           \
    row(500, CUDA_ERROR_NOT_FOUND, "named symbol not found")                                                 \
    row(600, CUDA_ERROR_NOT_READY, "device not ready")                                                       \
    row(700, CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered")                         \
    row(701, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch")                  \
    row(702, CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated")                           \
    row(709, CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed")                                        \
    row(712, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "part or all of the requested memory range is already mapped")\
    row(713, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "pointer does not correspond to a registered memory region")\
    row(716, CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address")                                            \
    row(719, CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure")                                         \
    row(801, CUDA_ERROR_NOT_SUPPORTED, "operation not supported")                                            \
    row(802, CUDA_ERROR_SYSTEM_NOT_READY, "system not yet initialized")                                      \
    row(803, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "system has unsupported display driver / cuda driver combination")\
    row(804, CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, "forward compatibility was attempted on non supported HW")\
    row(999, CUDA_ERROR_UNKNOWN, "unknown error")
enum {
#define NUMBER(number, name, text) name = number,
    CUDA_ERRORS(NUMBER)
#undef NUMBER
};

typedef int CUdevice; /* an ordinal: the position among the visible devices */
typedef unsigned long long CUdeviceptr;

typedef struct CUctx_st {
    int ordinal;
    uint32_t device; /* index in the state */
    int references;  /* of a primary context */
    bool primary, alive;
    unsigned flags;
} *CUcontext;

/* The machine once cuInit has succeeded in this process, else NULL; NULL again in a forked child, where
 * CUDA does not work. */
gws_state *gws_cuda_state(void);
int gws_cuda_visible_count(void);
CUcontext gws_cuda_current(void); /* of this thread, or NULL */
/* For cuBLAS and the runtime: the device of the current context in the state, or -1. */
int gws_cuda_current_device(void);

/* Kernels are not run. For TensorFlow a launch succeeds and does nothing; once PyTorch's libraries are loaded,
 * every other launch fails, or programs would continue with numbers that were never computed. `caller` is an
 * address in the launching library, `kernel` a mangled name or NULL. Returns 0 or CUDA_ERROR_NOT_SUPPORTED. */
void gws_cuda_refuse_kernels(void);
bool gws_cuda_refuses_kernels(void);
CUresult gws_cuda_refuse_kernel(const void *caller, const char *kernel);

/* Starts every driver function: initialised? a fault for this call on the current device? */
#define ENTER()                                                                                              \
    gws_state *state = gws_cuda_state();                                                                     \
    if (!state) return CUDA_ERROR_NOT_INITIALIZED;                                                           \
    do {                                                                                                     \
        int code_ = gws_fault_check(state, __func__, gws_cuda_current_device());                             \
        if (code_) return code_;                                                                             \
    } while (0)

#define ENTER_CONTEXT()                                                                                      \
    ENTER();                                                                                                 \
    CUcontext context = gws_cuda_current();                                                                  \
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;                                                         \
    if (!context->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED

#define REQUIRE(condition)                                                                                   \
    if (!(condition)) return CUDA_ERROR_INVALID_VALUE

/* Frees what was allocated in a context that goes away; defined beside the allocations. */
void gws_cuda_free_all(gws_state *state, const struct CUctx_st *context);

#endif
