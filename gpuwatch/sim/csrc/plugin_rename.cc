/* Preloaded into a TensorFlow that was built for CUDA, so that the plug-in's kernels do not meet its own.
 *
 * Every kernel is registered through tensorflow::KernelDefBuilder::Device(char const*). This one stands in
 * front of it and renames the device "GPU", except while the plug-in registers (gpuwatch_rename_pause). In a
 * build without CUDA it changes nothing, so it may always be preloaded. */
#include <dlfcn.h>
#include <string.h>

#include <atomic>

#define API extern "C" __attribute__((visibility("default")))

namespace {

const char FRAMEWORK[] = "libtensorflow_framework.so.2";
const char SYMBOL[] = "_ZN10tensorflow16KernelDefBuilder6DeviceEPKc";
const char IS_CUDA[] = "_ZN10tensorflow19IsGoogleCudaEnabledEv";

using device_function = void *(*)(void *builder, const char *device);

std::atomic<int> renamed{0};
std::atomic<bool> paused{false};

/* TensorFlow's own. Python loads it without making its names global, so RTLD_NEXT may not find it. */
void *find(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (found) return found;
    void *framework = dlopen(FRAMEWORK, RTLD_LAZY | RTLD_NOLOAD);
    return framework ? dlsym(framework, name) : nullptr;
}

bool is_cuda_build() {
    auto ask = (bool (*)())find(IS_CUDA);
    return ask && ask();
}

}  // namespace

API void gpuwatch_rename_pause(int pause) { paused = pause != 0; }
API int gpuwatch_rename_count(void) { return renamed; }

API void *gpuwatch_rename_device(void *builder, const char *device) __asm__(
    "_ZN10tensorflow16KernelDefBuilder6DeviceEPKc");

API void *gpuwatch_rename_device(void *builder, const char *device) {
    static const device_function real = (device_function)find(SYMBOL);
    static const bool rename = is_cuda_build();
    if (rename && !paused && strcmp(device, "GPU") == 0) {
        renamed++;
        device = "GPU_CUDA"; /* a type that no device has */
    }
    return real(builder, device);
}
