/* What the files of the simulated CUDA runtime share. Each is compiled twice, for the sonames of CUDA 12 and 13. */
#ifndef GPUWATCH_SIM_CUDART_INTERNAL_H
#define GPUWATCH_SIM_CUDART_INTERNAL_H

#include "cuda_internal.h"

#include <stddef.h>

#ifndef CUDART_MAJOR
#define CUDART_MAJOR 12
#endif
#define RUNTIME_VERSION (CUDART_MAJOR == 13 ? 13000 : 12050)

typedef int cudaError_t; /* its numbers are CUresult's where both know the error */
#define RUNTIME_ERRORS(row)                                                                                  \
    row(0, cudaSuccess)                                                                                      \
    row(1, cudaErrorInvalidValue)                                                                            \
    row(2, cudaErrorMemoryAllocation)                                                                        \
    row(3, cudaErrorInitializationError)                                                                     \
    row(35, cudaErrorInsufficientDriver)                                                                     \
    row(46, cudaErrorDevicesUnavailable)                                                                     \
    row(98, cudaErrorInvalidDeviceFunction)                                                                  \
    row(100, cudaErrorNoDevice)                                                                              \
    row(101, cudaErrorInvalidDevice)                                                                         \
    row(201, cudaErrorDeviceUninitialized)                                                                   \
    row(217, cudaErrorPeerAccessUnsupported)                                                                 \
    row(400, cudaErrorInvalidResourceHandle)                                                                 \
    row(500, cudaErrorSymbolNotFound)                                                                        \
    row(700, cudaErrorIllegalAddress)                                                                        \
    row(719, cudaErrorLaunchFailure)                                                                         \
    row(801, cudaErrorNotSupported)                                                                          \
    row(802, cudaErrorSystemNotReady)                                                                        \
    row(803, cudaErrorSystemDriverMismatch)                                                                  \
    row(804, cudaErrorCompatNotSupportedOnDevice)
enum {
#define NUMBER(number, name) name = number,
    RUNTIME_ERRORS(NUMBER)
#undef NUMBER
};

/* The driver's functions that are used here. */
CUresult cuInit(unsigned);
CUresult cuDriverGetVersion(int *);
CUresult cuGetErrorName(CUresult, const char **);
CUresult cuGetErrorString(CUresult, const char **);
CUresult cuDeviceGetCount(int *);
CUresult cuDeviceGetAttribute(int *, int, CUdevice);
CUresult cuDeviceGetPCIBusId(char *, int, CUdevice);
CUresult cuDevicePrimaryCtxRetain(CUcontext *, CUdevice);
CUresult cuDevicePrimaryCtxReset_v2(CUdevice);
CUresult cuCtxSetCurrent(CUcontext);
CUresult cuDeviceCanAccessPeer(int *, CUdevice, CUdevice);
CUresult cuMemAlloc_v2(CUdeviceptr *, size_t);
CUresult cuMemFree_v2(CUdeviceptr);
CUresult cuMemHostAlloc(void **, size_t, unsigned);
CUresult cuMemFreeHost(void *);
CUresult cuMemHostGetFlags(unsigned *, void *);
CUresult cuMemGetInfo_v2(size_t *, size_t *);
CUresult cuMemcpy(CUdeviceptr, CUdeviceptr, size_t);
CUresult cuMemcpyHtoD_v2(CUdeviceptr, const void *, size_t);
CUresult cuMemcpyDtoH_v2(void *, CUdeviceptr, size_t);
CUresult cuMemcpyDtoD_v2(CUdeviceptr, CUdeviceptr, size_t);
CUresult cuMemsetD8_v2(CUdeviceptr, unsigned char, size_t);
CUresult cuPointerGetAttribute(void *, int, CUdeviceptr);
CUresult cuDeviceGetByPCIBusId(CUdevice *, const char *);
CUresult cuDeviceGetDefaultMemPool(void **, CUdevice);
CUresult cuDeviceGetMemPool(void **, CUdevice);
CUresult cuDeviceSetMemPool(CUdevice, void *);
CUresult cuMemAllocManaged(CUdeviceptr *, size_t, unsigned);
CUresult cuMemAllocAsync(CUdeviceptr *, size_t, void *);
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *, size_t, void *, void *);
CUresult cuMemFreeAsync(CUdeviceptr, void *);
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *, void *, unsigned);
CUresult cuMemHostRegister_v2(void *, size_t, unsigned);
CUresult cuMemHostUnregister(void *);
CUresult cuMemPoolCreate(void **, const int *);
CUresult cuMemPoolDestroy(void *);
CUresult cuMemPoolGetAttribute(void *, int, void *);
CUresult cuMemPoolSetAccess(void *, const void *, size_t);
CUresult cuMemPoolSetAttribute(void *, int, const void *);
CUresult cuMemPoolTrimTo(void *, size_t);
CUresult cuGetProcAddress_v2(const char *, void **, int, unsigned long long, int *);
CUresult cuStreamCreateWithPriority(void **, unsigned, int);
CUresult cuStreamGetFlags(void *, unsigned *);
CUresult cuStreamGetPriority(void *, int *);
CUresult cuStreamDestroy_v2(void *);
CUresult cuEventCreate(void **, unsigned);
CUresult cuEventDestroy_v2(void *);
CUresult cuEventRecord(void *, void *);
CUresult cuEventQuery(void *);
CUresult cuEventElapsedTime(float *, void *, void *);
CUresult cuLaunchHostFunc(void *, void (*)(void *), void *);

/* Hidden: a process may have both runtimes, and each keeps its own. */
#define HERE __attribute__((visibility("hidden")))

/* Remembers an error for cudaGetLastError, and returns it. */
HERE cudaError_t gws_cudart_keep(cudaError_t code);
/* The first call initialises the driver; a call that needs the device retains its primary context. */
HERE cudaError_t gws_cudart_start(void);
HERE cudaError_t gws_cudart_need_context(void);
HERE int gws_cudart_device(void);

typedef struct {
    unsigned x, y, z;
} dim3;

/* A launch from the library that contains `caller`. */
HERE cudaError_t gws_cudart_launch(const void *function, const void *caller);
/* A library registers its kernels; one of them, with its mangled name; and that name again, or NULL. */
HERE void gws_cudart_note_library(const void *caller);
HERE void gws_cudart_note_kernel(const void *function, const char *name);
HERE const char *gws_cudart_kernel_name(const void *function);


#define keep gws_cudart_keep
#define START()                                                                                              \
    do {                                                                                                     \
        cudaError_t code_ = gws_cudart_start();                                                              \
        if (code_) return keep(code_);                                                                       \
    } while (0)
#define NEED_CONTEXT()                                                                                       \
    do {                                                                                                     \
        cudaError_t code_ = gws_cudart_need_context();                                                       \
        if (code_) return keep(code_);                                                                       \
    } while (0)

/* Functions of the runtime that are the driver's under another name: the second kind needs a context. */
#define THE_DRIVERS(function, parameters, call)                                                              \
    API cudaError_t function parameters {                                                                    \
        START();                                                                                             \
        return keep(call);                                                                                   \
    }
#define THE_DRIVERS_IN_CONTEXT(function, parameters, call)                                                   \
    API cudaError_t function parameters {                                                                    \
        NEED_CONTEXT();                                                                                      \
        return keep(call);                                                                                   \
    }

#endif
