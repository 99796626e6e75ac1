/* Shared by the simulated driver's two parts, the simulated runtime and cuBLAS. Numbers of CUresult and
 * enumerations are CUDA's. */
#ifndef GPUWATCH_SIM_CUDA_INTERNAL_H
#define GPUWATCH_SIM_CUDA_INTERNAL_H

#include "state.h"

#define API __attribute__((visibility("default")))

typedef int CUresult;
enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_DEVICE_UNAVAILABLE = 46,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_PEER_ACCESS_UNSUPPORTED = 217,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
    CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
    CUDA_ERROR_NOT_SUPPORTED = 801,
    CUDA_ERROR_UNKNOWN = 999,
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
