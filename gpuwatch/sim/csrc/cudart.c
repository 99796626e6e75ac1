/* libcudart.so.12 (and .11.0) and .13 of a simulated machine: the part of the CUDA runtime that TensorFlow's and
 * PyTorch's GPU code calls, over the simulated driver. Kernels are registered but not run. */
#define _GNU_SOURCE
#include "cudart_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static __thread int chosen_device; /* set by cudaSetDevice, until a context shows otherwise */
static __thread cudaError_t last_error;

cudaError_t gws_cudart_keep(cudaError_t code) {
    if (code) last_error = code;
    return code;
}

cudaError_t gws_cudart_start(void) {
    int driver;
    if (cuDriverGetVersion(&driver) == 0 && driver / 1000 < RUNTIME_VERSION / 1000)
        return cudaErrorInsufficientDriver;
    return gws_cuda_state() ? 0 : cuInit(0);
}

int gws_cudart_device(void) {
    CUcontext context = gws_cuda_current();
    return context && context->alive ? context->ordinal : chosen_device;
}

/* As in the real runtime, the first call that needs the device retains its primary context. */
cudaError_t gws_cudart_need_context(void) {
    cudaError_t code = gws_cudart_start();
    CUcontext context = gws_cuda_current();
    if (code || (context && context->alive)) return code;
    code = cuDevicePrimaryCtxRetain(&context, chosen_device);
    return code ? code : cuCtxSetCurrent(context);
}

/* --- errors and versions ---------------------------------------------------------------------------- */

API cudaError_t cudaGetLastError(void) {
    cudaError_t code = last_error;
    last_error = 0;
    return code;
}

API cudaError_t cudaPeekAtLastError(void) { return last_error; }

API const char *cudaGetErrorName(cudaError_t code) {
    switch (code) {
#define NAME(number, name) case number: return #name;
        RUNTIME_ERRORS(NAME)
    default: return "cudaErrorUnknown";
    }
}

API const char *cudaGetErrorString(cudaError_t code) {
    const char *text = NULL;
    if (code == cudaErrorInvalidDeviceFunction) return "invalid device function";
    if (code == cudaErrorInsufficientDriver) return "CUDA driver version is insufficient for CUDA runtime version";
    if (code == cudaErrorNotSupported && gws_cuda_refuses_kernels())
        return "operation not supported: the GPU is simulated, and the simulated driver lacks it";
    return cuGetErrorString(code, &text) == 0 ? text : "unrecognized error code";
}

API cudaError_t cudaRuntimeGetVersion(int *version) {
    if (!version) return keep(cudaErrorInvalidValue);
    *version = RUNTIME_VERSION;
    return 0;
}

API cudaError_t cudaDriverGetVersion(int *version) { return keep(cuDriverGetVersion(version)); }

/* --- devices ---------------------------------------------------------------------------------------- */

API cudaError_t cudaGetDeviceCount(int *count) {
    if (!count) return keep(cudaErrorInvalidValue);
    *count = 0;
    START();
    return keep(cuDeviceGetCount(count));
}

API cudaError_t cudaGetDevice(int *device) {
    START();
    if (!device) return keep(cudaErrorInvalidValue);
    *device = gws_cudart_device();
    return 0;
}

API cudaError_t cudaSetDevice(int device) {
    START();
    if (device < 0 || device >= gws_cuda_visible_count()) return keep(cudaErrorInvalidDevice);
    chosen_device = device;
    CUcontext context = gws_cuda_current();
    if (context && context->alive && context->ordinal == device) return 0;
    /* Since CUDA 12 the context is created at once. TensorFlow creates its own right after, and its error message
     * is better known. */
    if ((!context || !context->alive) && !gws_cuda_refuses_kernels()) return 0;
    cudaError_t code = cuDevicePrimaryCtxRetain(&context, device);
    return keep(code ? code : cuCtxSetCurrent(context));
}

THE_DRIVERS(cudaDeviceGetAttribute, (int *value, int number, int device),
            cuDeviceGetAttribute(value, number, device))
THE_DRIVERS(cudaDeviceGetPCIBusId, (char *text, int length, int device), cuDeviceGetPCIBusId(text, length, device))
THE_DRIVERS(cudaDeviceGetByPCIBusId, (int *device, const char *text), cuDeviceGetByPCIBusId(device, text))

API cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    START();
    if (peer < 0 || peer >= gws_cuda_visible_count()) return keep(cudaErrorInvalidDevice);
    return keep(cudaErrorPeerAccessUnsupported);
}

THE_DRIVERS(cudaDeviceCanAccessPeer, (int *can, int device, int peer), cuDeviceCanAccessPeer(can, device, peer))

/* cudaDeviceProp of CUDA 12. CUDA 11's has the same members up to `reserved`; CUDA 13's lacks some. */
#if CUDART_MAJOR < 13
#define BEFORE_13(members) members
#else
#define BEFORE_13(members)
#endif
typedef struct {
    char name[256];
    unsigned char uuid[16];
    char luid[8];
    unsigned luid_mask;
    size_t total_memory, shared_per_block;
    int registers_per_block, warp_size;
    size_t pitch;
    int threads_per_block, threads_dim[3], grid_size[3];
    BEFORE_13(int clock_khz;)
    size_t constant_bytes;
    int major, minor;
    size_t texture_alignment, texture_pitch_alignment;
    BEFORE_13(int overlap;)
    int multiprocessors;
    BEFORE_13(int timeout;)
    int integrated, can_map_host;
    BEFORE_13(int compute_mode; int texture_1d_linear;)
    int textures[39];
    size_t surface_alignment;
    int concurrent_kernels, ecc, pci_bus, pci_device, pci_domain, tcc, copy_engines, unified_addressing;
    BEFORE_13(int memory_clock_khz;)
    int memory_bus_width, l2_bytes, persisting_l2, threads_per_multiprocessor, priorities, global_l1, local_l1;
    size_t shared_per_multiprocessor;
    int registers_per_multiprocessor, managed, multi_gpu_board, board_group, native_atomics;
    BEFORE_13(int single_to_double;)
    int pageable, concurrent_managed, preemption, host_pointer, cooperative;
    BEFORE_13(int cooperative_multi;)
    size_t shared_optin;
    int host_page_tables, direct_managed, blocks_per_multiprocessor, access_window;
    size_t reserved_shared;
    int host_register, sparse_arrays, host_register_read_only, timeline, memory_pools, gpu_direct;
    int rest[70];
} cudaDeviceProp;
#define AT(member, before_13, since_13)                                                                      \
    _Static_assert(offsetof(cudaDeviceProp, member) == (CUDART_MAJOR < 13 ? before_13 : since_13), #member)
AT(major, 360, 360);
AT(multiprocessors, 388, 384);
AT(surface_alignment, 568, 552);
AT(pci_bus, 584, 568);
AT(l2_bytes, 616, 596);
AT(threads_per_multiprocessor, 624, 604);
AT(registers_per_multiprocessor, 648, 632);
AT(shared_optin, 696, 672);
AT(memory_pools, 744, 720);
_Static_assert(sizeof(cudaDeviceProp) == (CUDART_MAJOR < 13 ? 1032 : 1008), "what the caller has room for");

static cudaError_t properties(cudaDeviceProp *out, int device, size_t room) {
    START();
    if (!out) return keep(cudaErrorInvalidValue);
    if (device < 0 || device >= gws_cuda_visible_count()) return keep(cudaErrorInvalidDevice);
    gws_state *state = gws_cuda_state();
    const gws_device *card = NULL;
    char bus_id[32];
    cudaError_t code = cuDeviceGetPCIBusId(bus_id, sizeof bus_id, device);
    if (code) return keep(code);
    for (uint32_t i = 0; i < state->device_count; i++)
        if (strcmp(state->device[i].pci_bus_id, bus_id) == 0) card = &state->device[i];
    if (!card) return keep(cudaErrorInvalidDevice);
    cudaDeviceProp all = {
        .total_memory = card->total_bytes,
        .shared_per_block = 49152,
        .registers_per_block = 65536,
        .warp_size = 32,
        .pitch = 2147483647,
        .threads_per_block = 1024,
        .threads_dim = {1024, 1024, 64},
        .grid_size = {2147483647, 65535, 65535},
        .constant_bytes = 65536,
        .major = gws_capability(state, card) / 10,
        .minor = gws_capability(state, card) % 10,
        .texture_alignment = 512,
        .texture_pitch_alignment = 32,
        .multiprocessors = gws_multiprocessors(state, card),
        .can_map_host = 1,
        .surface_alignment = 512,
        .concurrent_kernels = 1,
        .pci_bus = (int)card->pci_bus,
        .copy_engines = 2,
        .unified_addressing = 1,
        .memory_bus_width = 384,
        .l2_bytes = 6291456,
        .threads_per_multiprocessor = 1536,
        .priorities = 1,
        .global_l1 = 1,
        .local_l1 = 1,
        .shared_per_multiprocessor = 102400,
        .registers_per_multiprocessor = 65536,
        .managed = 1,
        .concurrent_managed = 1,
        .preemption = 1,
        .cooperative = 1,
        .shared_optin = 101376,
        .blocks_per_multiprocessor = 16,
        .reserved_shared = 1024,
        .memory_pools = 1,
    };
    BEFORE_13({
        all.clock_khz = (int)card->sm_clock_full_mhz * 1000;
        all.memory_clock_khz = (int)card->memory_clock_full_mhz * 1000;
        all.overlap = 1;
        all.single_to_double = 32;
    })
    snprintf(all.name, sizeof all.name, "%s", card->name);
    memcpy(all.uuid, card->uuid_bytes, sizeof all.uuid);
    memcpy(out, &all, room);
    return 0;
}

API cudaError_t cudaGetDeviceProperties_v2(cudaDeviceProp *out, int device) {
    return properties(out, device, sizeof(cudaDeviceProp));
}

/* CUDA 11's struct ends earlier (728 bytes in 11.2, the shortest that TensorFlow was built with), and CUDA 13 has
 * its own one under the old name. */
API cudaError_t cudaGetDeviceProperties(cudaDeviceProp *out, int device) {
    return properties(out, device, CUDART_MAJOR < 13 ? 728 : sizeof(cudaDeviceProp));
}

API cudaError_t cudaDeviceSynchronize(void) {
    NEED_CONTEXT();
    return 0;
}

THE_DRIVERS(cudaDeviceReset, (void), cuDevicePrimaryCtxReset_v2(gws_cudart_device()))

API cudaError_t cudaDeviceSetSharedMemConfig(int config) {
    return 0;
}

API cudaError_t cudaDeviceSetLimit(int limit, size_t value) {
    return 0;
}

API cudaError_t cudaProfilerStart(void) { return 0; }
API cudaError_t cudaProfilerStop(void) { return 0; }

API cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return 0;
}

/* --- memory ----------------------------------------------------------------------------------------- */

API cudaError_t cudaMalloc(void **out, size_t bytes) {
    NEED_CONTEXT();
    if (!out) return keep(cudaErrorInvalidValue);
    *out = NULL;
    if (!bytes) return 0;
    CUdeviceptr address;
    cudaError_t code = cuMemAlloc_v2(&address, bytes);
    if (!code) *out = (void *)(uintptr_t)address;
    return keep(code);
}

THE_DRIVERS_IN_CONTEXT(cudaFree, (void *memory), cuMemFree_v2((CUdeviceptr)(uintptr_t)memory))
THE_DRIVERS_IN_CONTEXT(cudaHostAlloc, (void **out, size_t bytes, unsigned flags), cuMemHostAlloc(out, bytes, flags))

API cudaError_t cudaMallocHost(void **out, size_t bytes) { return cudaHostAlloc(out, bytes, 0); }

API cudaError_t cudaFreeHost(void *memory) {
    NEED_CONTEXT();
    return memory ? keep(cuMemFreeHost(memory)) : 0;
}

THE_DRIVERS_IN_CONTEXT(cudaHostGetFlags, (unsigned *flags, void *memory), cuMemHostGetFlags(flags, memory))
THE_DRIVERS_IN_CONTEXT(cudaMemGetInfo, (size_t *free_bytes, size_t *total_bytes),
                       cuMemGetInfo_v2(free_bytes, total_bytes))

API cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, int kind) {
    NEED_CONTEXT();
    CUdeviceptr there = (CUdeviceptr)(uintptr_t)to, here = (CUdeviceptr)(uintptr_t)from;
    switch (kind) {
    case 0: memmove(to, from, bytes); return 0;
    case 1: return keep(cuMemcpyHtoD_v2(there, from, bytes));
    case 2: return keep(cuMemcpyDtoH_v2(to, here, bytes));
    case 3: return keep(cuMemcpyDtoD_v2(there, here, bytes));
    case 4: return keep(cuMemcpy(there, here, bytes));
    default: return keep(21); /* cudaErrorInvalidMemcpyDirection */
    }
}

API cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream) {
    return cudaMemcpy(to, from, bytes, kind);
}

API cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes, size_t offset, int kind) {
    NEED_CONTEXT();
    return 0; /* a kernel's variables are not modelled, and no kernel reads them */
}

THE_DRIVERS_IN_CONTEXT(cudaMemset, (void *to, int value, size_t bytes),
                       cuMemsetD8_v2((CUdeviceptr)(uintptr_t)to, (unsigned char)value, bytes))

API cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, void *stream) {
    return cudaMemset(to, value, bytes);
}

API cudaError_t cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t height, void *stream) {
    for (size_t row = 0; row < height; row++) {
        cudaError_t code = cudaMemset((char *)to + row * pitch, value, width);
        if (code) return code;
    }
    return 0;
}

/* --- streams and events: the driver's ---------------------------------------------------------------- */

THE_DRIVERS_IN_CONTEXT(cudaStreamCreateWithPriority, (void **stream, unsigned flags, int priority),
                       cuStreamCreateWithPriority(stream, flags, priority))

API cudaError_t cudaStreamCreateWithFlags(void **stream, unsigned flags) {
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

API cudaError_t cudaStreamCreate(void **stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
API cudaError_t cudaStreamDestroy(void *stream) { return keep(cuStreamDestroy_v2(stream)); }

API cudaError_t cudaStreamQuery(void *stream) {
    return 0;
}

API cudaError_t cudaStreamSynchronize(void *stream) {
    return 0;
}

API cudaError_t cudaStreamWaitEvent(void *stream, void *event, unsigned flags) {
    return 0;
}

API cudaError_t cudaStreamIsCapturing(void *stream, int *status) {
    if (!status) return keep(cudaErrorInvalidValue);
    *status = 0;
    return 0;
}

THE_DRIVERS(cudaStreamGetPriority, (void *stream, int *priority), cuStreamGetPriority(stream, priority))
THE_DRIVERS(cudaStreamGetFlags, (void *stream, unsigned *flags), cuStreamGetFlags(stream, flags))

/* Graphs are not modelled: no stream is ever being captured, and the mode of captures is only kept. */
API cudaError_t cudaThreadExchangeStreamCaptureMode(int *mode) {
    static __thread int now;
    if (!mode) return keep(cudaErrorInvalidValue);
    int before = now;
    now = *mode;
    *mode = before;
    return 0;
}

API cudaError_t cudaStreamGetCaptureInfo(void *stream, int *status, unsigned long long *id) {
    return cudaStreamIsCapturing(stream, status);
}

API cudaError_t cudaStreamGetCaptureInfo_v2(void *stream, int *status, unsigned long long *id) {
    return cudaStreamGetCaptureInfo(stream, status, id);
}

API cudaError_t cudaStreamGetCaptureInfo_v3(void *stream, int *status, unsigned long long *id) {
    return cudaStreamGetCaptureInfo(stream, status, id);
}

THE_DRIVERS_IN_CONTEXT(cudaLaunchHostFunc, (void *stream, void (*function)(void *), void *data),
                       cuLaunchHostFunc(stream, function, data))

API cudaError_t cudaStreamAddCallback(void *stream, void (*callback)(void *, cudaError_t, void *), void *data,
                                      unsigned flags) {
    if (!callback || flags) return keep(cudaErrorInvalidValue);
    callback(stream, 0, data);
    return 0;
}

THE_DRIVERS_IN_CONTEXT(cudaEventCreateWithFlags, (void **event, unsigned flags), cuEventCreate(event, flags))

API cudaError_t cudaEventCreate(void **event) { return cudaEventCreateWithFlags(event, 0); }
API cudaError_t cudaEventDestroy(void *event) { return keep(cuEventDestroy_v2(event)); }
API cudaError_t cudaEventRecord(void *event, void *stream) { return keep(cuEventRecord(event, stream)); }

API cudaError_t cudaEventRecordWithFlags(void *event, void *stream, unsigned flags) {
    return cudaEventRecord(event, stream);
}

API cudaError_t cudaEventQuery(void *event) { return keep(cuEventQuery(event)); }
API cudaError_t cudaEventSynchronize(void *event) { return keep(cuEventQuery(event)); }
API cudaError_t cudaEventElapsedTime(float *ms, void *start_event, void *end_event) {
    return keep(cuEventElapsedTime(ms, start_event, end_event));
}

/* --- kernels ---------------------------------------------------------------------------------------- */

typedef struct {
    size_t shared, constant, local;
    int threads_per_block, registers, ptx, binary, cache, dynamic_shared, carveout;
    int rest[10];
} cudaFuncAttributes;

API cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *out, const void *function) {
    if (!out || !function) return keep(cudaErrorInvalidDeviceFunction);
    out->shared = out->constant = out->local = 0;
    out->threads_per_block = 1024;
    out->registers = 32;
    out->ptx = out->binary = 86;
    out->cache = 0;
    out->dynamic_shared = 49152;
    out->carveout = -1;
    return 0;
}

API cudaError_t cudaFuncSetAttribute(const void *function, int number, int value) {
    return function ? 0 : keep(cudaErrorInvalidDeviceFunction);
}

API cudaError_t cudaFuncSetCacheConfig(const void *function, int config) {
    return function ? 0 : keep(cudaErrorInvalidDeviceFunction);
}

API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *function,
                                                                       int threads, size_t shared, unsigned flags) {
    if (!blocks || !function || threads <= 0) return keep(cudaErrorInvalidValue);
    *blocks = threads > 1024 ? 0 : 1536 / threads > 16 ? 16 : 1536 / threads;
    return 0;
}

API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int threads,
                                                              size_t shared) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared, 0);
}

cudaError_t gws_cudart_launch(const void *function, const void *caller) {
    NEED_CONTEXT();
    if (!function) return keep(cudaErrorInvalidDeviceFunction);
    const char *name = gws_cuda_refuses_kernels() ? gws_cudart_kernel_name(function) : NULL;
    return keep(gws_cuda_refuse_kernel(caller, name));
}

API cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
                                 void *stream) {
    return gws_cudart_launch(function, __builtin_return_address(0));
}

/* What the compiler puts around function<<<grid, block, shared, stream>>>(...). */
static __thread struct {
    dim3 grid, block;
    size_t shared;
    void *stream;
} call;

API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream) {
    call.grid = grid;
    call.block = block;
    call.shared = shared;
    call.stream = stream;
    return 0;
}

API cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
    *grid = call.grid;
    *block = call.block;
    *shared = call.shared;
    *(void **)stream = call.stream;
    return 0;
}

static void *registered[8]; /* what the handle of a binary points at; nothing is kept there */

API void **__cudaRegisterFatBinary(void *binary) {
    gws_cudart_note_library(__builtin_return_address(0));
    return registered;
}

API void __cudaRegisterFatBinaryEnd(void **handle) {}
API void __cudaUnregisterFatBinary(void **handle) {}

API void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit,
                                void *thread, void *block, void *block_size, void *grid_size, int *warp) {
    gws_cudart_note_kernel(host, name);
}

API void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int external, size_t bytes,
                           int constant, int global) {
}
