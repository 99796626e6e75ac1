/* Preloaded into a TensorFlow that was built for CUDA, so that the plug-in's kernels do not meet its own.
 *
 * Every kernel is registered through tensorflow::KernelDefBuilder::Device(char const*). This one stands in
 * front of it and renames the device "GPU", except while the plug-in registers (gpuwatch_rename_pause). In a
 * build without CUDA, and in any other program, it changes nothing, so it may always be preloaded. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#define API __attribute__((visibility("default")))
#define FRAMEWORK "libtensorflow_framework.so.2"
#define SYMBOL "_ZN10tensorflow16KernelDefBuilder6DeviceEPKc"
#define IS_CUDA_BUILD "_ZN10tensorflow19IsGoogleCudaEnabledEv"

typedef void *(*device_function)(void *builder, const char *device);
typedef bool (*bool_function)(void);

static _Atomic int renamed;
static _Atomic bool paused;

/* TensorFlow's own. Python loads it without making its names global, so RTLD_NEXT may not find it. */
static void *find(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (found) return found;
    void *framework = dlopen(FRAMEWORK, RTLD_LAZY | RTLD_NOLOAD);
    return framework ? dlsym(framework, name) : NULL;
}

API void gpuwatch_rename_pause(int pause) { atomic_store(&paused, pause != 0); }
API int gpuwatch_rename_count(void) { return atomic_load(&renamed); }

API void *gpuwatch_rename_device(void *builder, const char *device) __asm__(SYMBOL);

API void *gpuwatch_rename_device(void *builder, const char *device) {
    static _Atomic(device_function) real; /* every thread that looks finds the same */
    static _Atomic int is_cuda_build = -1;
    device_function call = atomic_load(&real);
    if (!call) {
        call = (device_function)find(SYMBOL);
        bool_function ask = (bool_function)find(IS_CUDA_BUILD);
        atomic_store(&is_cuda_build, ask && ask());
        atomic_store(&real, call);
    }
    if (atomic_load(&is_cuda_build) == 1 && !atomic_load(&paused) && strcmp(device, "GPU") == 0) {
        atomic_fetch_add(&renamed, 1);
        device = "GPU_CUDA"; /* a type that no device has */
    }
    return call(builder, device);
}
