/* Preloaded into TensorFlow on the plug-in tier. It stands in front of the three functions through which every
 * kernel of TensorFlow is registered (register_kernel::Name, KernelDefBuilder::Device and ::TypeConstraint),
 * and changes two things in what they are told:
 *
 * - In a build for CUDA, the kernels for "GPU" get the name of a device type that nobody has, so that those of
 *   the plug-in do not meet them. The plug-in pauses this while it registers its own.
 * - The ops that change a variable in place, or look rows up in it, are out of a plug-in's reach: the C API has
 *   no access to variables (its experimental one is not in TensorFlow's packages any more). An op on a variable
 *   does not fall back either, since it must run where the variable is. But the memory of simulated GPUs is
 *   host memory, so TensorFlow's own CPU kernels can serve. They are registered for "DEFAULT", which TensorFlow
 *   takes for any device without a kernel of its own, the CPU among them: the ops that have CUDA kernels, in
 *   the types of real numbers. Nothing counts their time.
 *
 * In any other program nothing calls it. Where a function has no such name (before 2.16), nothing does either:
 * gpuwatch_rename_count then tells the plug-in that CUDA kernels are in the way. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define API __attribute__((visibility("default")))
#define FRAMEWORK "libtensorflow_framework.so.2"
#define NAME "_ZN10tensorflow15register_kernel4NameC1EPKc"
#define DEVICE "_ZN10tensorflow16KernelDefBuilder6DeviceEPKc"
#define TYPE_CONSTRAINT "_ZN10tensorflow16KernelDefBuilder14TypeConstraintEPKcNS_8DataTypeE"
#define IS_CUDA_BUILD "_ZN10tensorflow19IsGoogleCudaEnabledEv"

enum { TYPE_FLOAT = 1, TYPE_DOUBLE = 2 };

static const char *const variable_ops[] = {
    "ResourceApplyAdaMax",         "ResourceApplyAdadelta",         "ResourceApplyAdagrad",
    "ResourceApplyAdagradV2",      "ResourceApplyAdam",             "ResourceApplyAdamWithAmsgrad",
    "ResourceApplyAddSign",        "ResourceApplyCenteredRMSProp",  "ResourceApplyFtrl",
    "ResourceApplyFtrlV2",         "ResourceApplyGradientDescent",  "ResourceApplyKerasMomentum",
    "ResourceApplyMomentum",       "ResourceApplyPowerSign",        "ResourceApplyProximalAdagrad",
    "ResourceApplyRMSProp",        "ResourceGather",                "ResourceGatherNd",
    "ResourceScatterAdd",          "ResourceScatterDiv",            "ResourceScatterMax",
    "ResourceScatterMin",          "ResourceScatterMul",            "ResourceScatterNdAdd",
    "ResourceScatterNdMax",        "ResourceScatterNdMin",          "ResourceScatterNdSub",
    "ResourceScatterNdUpdate",     "ResourceScatterSub",            "ResourceScatterUpdate",
    "ResourceSparseApplyAdadelta", "ResourceSparseApplyAdagrad",    "ResourceSparseApplyAdagradV2",
    "ResourceSparseApplyFtrl",     "ResourceSparseApplyFtrlV2",     "ResourceSparseApplyKerasMomentum",
    "ResourceStridedSliceAssign",  "ResourceSparseApplyProximalAdagrad",
};

static _Atomic int renamed;
static _Atomic bool paused;
static __thread const char *op;           /* that the latest builder of this thread was made for */
static __thread const void *variable_cpu; /* the builder, if it is the CPU kernel of one of variable_ops */

/* TensorFlow's own. Python loads it without making its names global, so RTLD_NEXT may not find it. */
static void *find(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (found) return found;
    void *framework = dlopen(FRAMEWORK, RTLD_LAZY | RTLD_NOLOAD);
    return framework ? dlsym(framework, name) : NULL;
}

static void *found_once(_Atomic(void *) *kept, const char *name) {
    void *function = atomic_load(kept);
    if (!function) atomic_store(kept, function = find(name)); /* every thread finds the same */
    return function;
}

static bool is_cuda_build(void) {
    static _Atomic int known = -1;
    if (atomic_load(&known) < 0) {
        bool (*ask)(void) = (bool (*)(void))find(IS_CUDA_BUILD);
        atomic_store(&known, ask && ask());
    }
    return atomic_load(&known) == 1;
}

static bool is_variable_op(const char *name) {
    if (!name || strncmp(name, "Resource", 8) != 0) return false;
    for (size_t i = 0; i < sizeof variable_ops / sizeof *variable_ops; i++)
        if (strcmp(variable_ops[i], name) == 0) return true;
    return false;
}

API void gpuwatch_rename_pause(int pause) { atomic_store(&paused, pause != 0); }
API int gpuwatch_rename_count(void) { return atomic_load(&renamed); }

API void gpuwatch_rename_name(void *builder, const char *name) __asm__(NAME);
API void *gpuwatch_rename_device(void *builder, const char *device) __asm__(DEVICE);
API void *gpuwatch_rename_type(void *builder, const char *attribute, int type) __asm__(TYPE_CONSTRAINT);

static void *real_device(void *builder, const char *device) {
    static _Atomic(void *) kept;
    return ((void *(*)(void *, const char *))found_once(&kept, DEVICE))(builder, device);
}

API void gpuwatch_rename_name(void *builder, const char *name) {
    static _Atomic(void *) kept;
    op = name;
    ((void (*)(void *, const char *))found_once(&kept, NAME))(builder, name);
}

API void *gpuwatch_rename_device(void *builder, const char *device) {
    if (atomic_load(&paused)) return real_device(builder, device);
    variable_cpu = strcmp(device, "CPU") == 0 && is_variable_op(op) ? builder : NULL;
    op = NULL;
    if (strcmp(device, "GPU") == 0 && is_cuda_build()) {
        atomic_fetch_add(&renamed, 1);
        device = "GPU_CUDA";
    }
    return real_device(builder, device);
}

API void *gpuwatch_rename_type(void *builder, const char *attribute, int type) {
    static _Atomic(void *) kept;
    void *(*call)(void *, const char *, int) = (void *(*)(void *, const char *, int))found_once(&kept, TYPE_CONSTRAINT);
    bool of_values = strcmp(attribute, "T") == 0 || strcmp(attribute, "dtype") == 0;
    if (builder == variable_cpu && of_values && (type == TYPE_FLOAT || type == TYPE_DOUBLE))
        real_device(builder, "DEFAULT");
    return call(builder, attribute, type);
}
