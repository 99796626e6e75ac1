/* The simulated runtime's further calls about memory, which PyTorch makes: pools, registered host memory, attributes
 * of pointers, copies of rectangles and between devices. */
#define _GNU_SOURCE
#include "cudart_internal.h"

#include <string.h>

#define ADDRESS(pointer) ((CUdeviceptr)(uintptr_t)(pointer))

API cudaError_t cudaMallocManaged(void **out, size_t bytes, unsigned flags) {
    NEED_CONTEXT();
    if (!out) return keep(cudaErrorInvalidValue);
    CUdeviceptr address;
    cudaError_t code = cuMemAllocManaged(&address, bytes, flags);
    if (!code) *out = (void *)(uintptr_t)address;
    return keep(code);
}

THE_DRIVERS_IN_CONTEXT(cudaHostRegister, (void *memory, size_t bytes, unsigned flags),
                       cuMemHostRegister_v2(memory, bytes, flags))
THE_DRIVERS_IN_CONTEXT(cudaHostUnregister, (void *memory), cuMemHostUnregister(memory))

API cudaError_t cudaHostGetDevicePointer(void **out, void *memory, unsigned flags) {
    NEED_CONTEXT();
    if (!out) return keep(cudaErrorInvalidValue);
    CUdeviceptr address;
    cudaError_t code = cuMemHostGetDevicePointer_v2(&address, memory, flags);
    if (!code) *out = (void *)(uintptr_t)address;
    return keep(code);
}

typedef struct {
    int type, device; /* 0 unregistered, 1 host, 2 device, 3 managed */
    void *device_pointer, *host_pointer;
#if CUDART_MAJOR >= 13
    long reserved[8];
#endif
} cudaPointerAttributes;
_Static_assert(sizeof(cudaPointerAttributes) == (CUDART_MAJOR >= 13 ? 88 : 24), "what the caller has room for");

/* Numbers of CUpointer_attribute. */
enum { MEMORY_TYPE = 2, IS_MANAGED = 8, DEVICE_ORDINAL = 9 };

API cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *out, const void *pointer) {
    START();
    if (!out) return keep(cudaErrorInvalidValue);
    memset(out, 0, sizeof *out);
    unsigned type = 0, managed = 0;
    if (cuPointerGetAttribute(&type, MEMORY_TYPE, ADDRESS(pointer))) { /* unknown memory is not an error */
        out->device = -2;
        out->host_pointer = (void *)pointer;
        return 0;
    }
    cuPointerGetAttribute(&managed, IS_MANAGED, ADDRESS(pointer));
    cuPointerGetAttribute(&out->device, DEVICE_ORDINAL, ADDRESS(pointer));
    out->type = managed ? 3 : (int)type;
    out->device_pointer = (void *)pointer;
    if (managed || type == 1) out->host_pointer = (void *)pointer;
    return 0;
}

/* --- copies ----------------------------------------------------------------------------------------- */

cudaError_t cudaMemcpy(void *, const void *, size_t, int);

API cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                             size_t height, int kind) {
    NEED_CONTEXT();
    for (size_t row = 0; row < height; row++) {
        cudaError_t code = cudaMemcpy((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width, kind);
        if (code) return code;
    }
    return 0;
}

API cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                                  size_t height, int kind, void *stream) {
    return cudaMemcpy2D(to, to_pitch, from, from_pitch, width, height, kind);
}

THE_DRIVERS_IN_CONTEXT(cudaMemcpyPeer, (void *to, int to_device, const void *from, int from_device, size_t bytes),
                       cuMemcpyDtoD_v2(ADDRESS(to), ADDRESS(from), bytes))

API cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes,
                                    void *stream) {
    return cudaMemcpyPeer(to, to_device, from, from_device, bytes);
}

/* --- pools: the driver's ---------------------------------------------------------------------------- */

THE_DRIVERS(cudaDeviceGetDefaultMemPool, (void **pool, int device), cuDeviceGetDefaultMemPool(pool, device))
THE_DRIVERS(cudaDeviceGetMemPool, (void **pool, int device), cuDeviceGetMemPool(pool, device))
THE_DRIVERS(cudaDeviceSetMemPool, (int device, void *pool), cuDeviceSetMemPool(device, pool))
THE_DRIVERS(cudaMemPoolCreate, (void **pool, const int *properties), cuMemPoolCreate(pool, properties))
THE_DRIVERS(cudaMemPoolDestroy, (void *pool), cuMemPoolDestroy(pool))
THE_DRIVERS(cudaMemPoolGetAttribute, (void *pool, int number, void *value), cuMemPoolGetAttribute(pool, number, value))
THE_DRIVERS(cudaMemPoolSetAttribute, (void *pool, int number, void *value), cuMemPoolSetAttribute(pool, number, value))
THE_DRIVERS(cudaMemPoolSetAccess, (void *pool, const void *map, size_t count), cuMemPoolSetAccess(pool, map, count))
THE_DRIVERS(cudaMemPoolTrimTo, (void *pool, size_t bytes), cuMemPoolTrimTo(pool, bytes))

API cudaError_t cudaMallocFromPoolAsync(void **out, size_t bytes, void *pool, void *stream) {
    NEED_CONTEXT();
    if (!out) return keep(cudaErrorInvalidValue);
    CUdeviceptr address;
    cudaError_t code = pool ? cuMemAllocFromPoolAsync(&address, bytes, pool, stream)
                            : cuMemAllocAsync(&address, bytes, stream);
    if (!code) *out = (void *)(uintptr_t)address;
    return keep(code);
}

API cudaError_t cudaMallocAsync(void **out, size_t bytes, void *stream) {
    return cudaMallocFromPoolAsync(out, bytes, NULL, stream);
}

THE_DRIVERS_IN_CONTEXT(cudaFreeAsync, (void *memory, void *stream), cuMemFreeAsync(ADDRESS(memory), stream))
