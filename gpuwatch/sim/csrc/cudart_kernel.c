/* Kernels in the simulated runtime other than their launch: registration, names, and addresses of driver functions. */
#define _GNU_SOURCE
#include "cudart_internal.h"

#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- names, for the message about a kernel that is not run ------------------------------------------- */

typedef struct {
    const void *function; /* the host's side of a kernel, which a launch names */
    const char *name;     /* mangled, in the registering library */
} kernel;

/* Libraries register while they are loaded, from one thread. Never freed: as long as the library, which stays. */
static struct {
    pthread_mutex_t lock;
    kernel *item;
    size_t count, room;
} kernels = {.lock = PTHREAD_MUTEX_INITIALIZER};

void gws_cudart_note_kernel(const void *function, const char *name) {
    if (!gws_cuda_refuses_kernels()) return; /* TensorFlow's tens of thousands are not needed */
    pthread_mutex_lock(&kernels.lock);
    if (kernels.count == kernels.room) {
        size_t room = kernels.room ? 2 * kernels.room : 4096;
        kernel *item = realloc(kernels.item, room * sizeof *item);
        if (item) {
            kernels.item = item;
            kernels.room = room;
        }
    }
    if (kernels.count < kernels.room) kernels.item[kernels.count++] = (kernel){function, name};
    pthread_mutex_unlock(&kernels.lock);
}

const char *gws_cudart_kernel_name(const void *function) {
    const char *name = NULL;
    pthread_mutex_lock(&kernels.lock);
    for (size_t i = 0; i < kernels.count && !name; i++)
        if (kernels.item[i].function == function) name = kernels.item[i].name;
    pthread_mutex_unlock(&kernels.lock);
    return name;
}

typedef struct {
    uintptr_t address;
    uintptr_t start, end; /* of the loaded segment with this address; 0 if none was found */
    int torch;
} segment;

static int look_for(struct dl_phdr_info *info, size_t size, void *found) {
    segment *wanted = found;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr, end = start + info->dlpi_phdr[i].p_memsz;
        if (info->dlpi_phdr[i].p_type != PT_LOAD || wanted->address < start || wanted->address >= end) continue;
        const char *slash = strrchr(info->dlpi_name, '/');
        wanted->start = start, wanted->end = end;
        wanted->torch = strncmp(slash ? slash + 1 : info->dlpi_name, "libtorch", 8) == 0;
        return 1;
    }
    return 0;
}

/* PyTorch's kernels are never skipped silently: see gws_cuda_refuse_kernel.
 *
 * TensorFlow's libraries call this a thousand times while they are loaded. dladdr would search their symbols each time
 * for a name that nobody needs: a sixth of the time of the import. */
void gws_cudart_note_library(const void *caller) {
    static segment last; /* libraries are loaded one after another, in whichever thread */
    segment found = {.address = (uintptr_t)caller};
    if (gws_cuda_refuses_kernels() || (found.address >= last.start && found.address < last.end)) return;
    dl_iterate_phdr(look_for, &found);
    last = found;
    if (found.torch) gws_cuda_refuse_kernels();
}

/* --- other ways of a launch -------------------------------------------------------------------------- */

/* CUDA 13's compiler looks a kernel up first; its handle here is the function itself. */
API cudaError_t __cudaGetKernel(const void **out, const void *function) {
    if (!out || !function) return keep(cudaErrorInvalidDeviceFunction);
    *out = function;
    return 0;
}

API cudaError_t __cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
                                   void *stream) {
    return gws_cudart_launch(function, __builtin_return_address(0));
}

API cudaError_t cudaLaunchKernelExC(const void *config, const void *function, void **arguments) {
    return gws_cudart_launch(function, __builtin_return_address(0));
}

API cudaError_t cudaLaunchCooperativeKernel(const void *function, dim3 grid, dim3 block, void **arguments,
                                            size_t shared, void *stream) {
    return gws_cudart_launch(function, __builtin_return_address(0));
}

API char __cudaInitModule(void **handle) {
    return 0;
}

API void __cudaRegisterHostVar(void **handle, const char *name, char *host, size_t bytes) {
}

API void __cudaRegisterManagedVar(void **handle, void **address, char *device, const char *name, int external,
                                  size_t bytes, int constant, int global) {
}

API char __cudaRegisterUnifiedTable(void *table) {
    return 0;
}

/* --- the driver's functions by name ------------------------------------------------------------------ */

API cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **out, unsigned version,
                                                 unsigned long long flags, int *status) {
    int found = 0;
    if (!symbol || !out) return keep(cudaErrorInvalidValue);
    if (cuGetProcAddress_v2(symbol, out, (int)version, flags, &found)) *out = NULL;
    if (status) *status = *out ? 0 : 1; /* "not found" is reported there, and is not an error */
    return *out || status ? 0 : keep(cudaErrorSymbolNotFound);
}

API cudaError_t cudaGetDriverEntryPoint(const char *symbol, void **out, unsigned long long flags, int *status) {
    return cudaGetDriverEntryPointByVersion(symbol, out, RUNTIME_VERSION, flags, status);
}

/* --- the rest ---------------------------------------------------------------------------------------- */

/* Reported only with PyTorch: TensorFlow tries some of these and has its own fallbacks. */
static cudaError_t not_modelled(const char *function, atomic_flag *told) {
    if (gws_cuda_refuses_kernels() && !atomic_flag_test_and_set(told))
        fprintf(stderr, "gpuwatch: the simulated driver lacks %s (CUDA error %d)\n", function, cudaErrorNotSupported);
    return keep(cudaErrorNotSupported);
}

#define NOT_MODELLED(function)                                                                               \
    API cudaError_t function(void) {                                                                         \
        static atomic_flag told = ATOMIC_FLAG_INIT;                                                          \
        return not_modelled(__func__, &told);                                                                \
    }
#include "cudart_not_modelled.h"
