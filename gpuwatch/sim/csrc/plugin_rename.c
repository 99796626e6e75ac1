/* Preloaded into TensorFlow on the plug-in tier. It stands in front of the functions through which every kernel of
 * TensorFlow is registered (register_kernel::Name and KernelDefBuilder's), and changes what they are told:
 *
 * - In a build for CUDA, the kernels for "GPU" get the name of a device type that nobody has, so that those of
 *   the plug-in do not meet them. The plug-in pauses this while it registers its own. A few that launch nothing
 *   on a GPU (host_code: iterators, the datasets of prefetch_to_device) stay.
 * - The memory of simulated GPUs is host memory, so TensorFlow's own CPU kernels can serve. Those of
 *   plugin_cpu_kernels.h are registered for "DEFAULT", which TensorFlow takes for any device without a kernel of
 *   its own, the CPU among them. The plug-in has kernels only where the CPU's would not do (plugin_move.cc,
 *   plugin_network.cc).
 * - A device that runs a kernel (PluggableDevice::Compute) is busy meanwhile.
 *
 * In any other program nothing calls it. Where a function has no such name (before 2.16), nothing does either:
 * gpuwatch_rename_count then tells the plug-in that CUDA kernels are in the way. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "plugin_cpu_kernels.h"

#define API __attribute__((visibility("default")))
#define FRAMEWORK "libtensorflow_framework.so.2"
#define NAME "_ZN10tensorflow15register_kernel4NameC1EPKc"
#define DEVICE "_ZN10tensorflow16KernelDefBuilder6DeviceEPKc"
#define TYPE_CONSTRAINT "_ZN10tensorflow16KernelDefBuilder14TypeConstraintEPKcNS_8DataTypeE"
#define HOST_MEMORY "_ZN10tensorflow16KernelDefBuilder10HostMemoryEPKc"
#define BUILD "_ZN10tensorflow16KernelDefBuilder5BuildEv"
#define COMPUTE "_ZN10tensorflow15PluggableDevice7ComputeEPNS_8OpKernelEPNS_15OpKernelContextE"
#define DESCRIBE "_ZN10tensorflow15PluggableDevice26ComputeOpKernelDebugStringB5cxx11ERKNS_8OpKernelEi"
#define IS_CUDA_BUILD "_ZN10tensorflow19IsGoogleCudaEnabledEv"

enum { MAX_ROWS = 8 };        /* of one op */
enum { MAX_CLASSES = 1 << 13 }; /* of kernels; a power of two, several times as many as TensorFlow has for GPUs */

/* By TensorFlow's DataType, as in plugin_cpu_kernels.h; '-': of no interest. */
static const char type_letters[] = "-fdiCsc-zlB---b--SZh--IL";

/* Names of ops, each between spaces: of kernels for GPUs that are host code. */
static const char host_code[] =
    " AnonymousIterator AnonymousIteratorV2 AnonymousIteratorV3 DeleteIterator FinalizeDataset GeneratorDataset"
    " GetOptions IteratorFromStringHandleV2 IteratorGetNext IteratorGetNextAsOptional IteratorGetNextSync"
    " IteratorToStringHandle IteratorV2 MakeIterator OptionalFromValue OptionalGetValue OptionalHasValue"
    " OptionalNone OptionsDataset PrefetchDataset TensorArray TensorArrayV2 TensorArrayV3 TensorListSetItem ";

/* The plug-in's own that are in no row of plugin_cpu_kernels.h. */
static const char own_code[] = " Tile ";

static _Atomic int renamed;
static _Atomic bool paused;

/* What this thread builds. */
static __thread struct {
    const void *builder;
    const char *op;
    short rows[MAX_ROWS]; /* in cpu_kernels: those of the op */
    int row_count;
    bool out[MAX_ROWS]; /* the kernel has a type that this row does not allow */
    int types_seen;
    bool for_cpu;
} made;

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

/* Whether the name is one of a list's. */
static bool lists(const char *names, const char *name) {
    size_t length = name ? strlen(name) : 0;
    for (const char *at = names; length && (at = strstr(at, name)); at += length)
        if ((at == names || at[-1] == ' ') && (at[length] == ' ' || !at[length])) return true;
    return false;
}

/* The types that a row allows for an attribute; NULL: it does not name it. */
static const char *allowed(const char *types, const char *attribute) {
    size_t length = strlen(attribute);
    for (; *types; types += strcspn(types, " "), types += *types == ' ')
        if (strncmp(types, attribute, length) == 0 && types[length] == '=') return types + length + 1;
    return NULL;
}

API void gpuwatch_rename_pause(int pause) { atomic_store(&paused, pause != 0); }
API int gpuwatch_rename_count(void) { return atomic_load(&renamed); }

API void gpuwatch_rename_name(void *builder, const char *name) __asm__(NAME);
API void *gpuwatch_rename_device(void *builder, const char *device) __asm__(DEVICE);
API void *gpuwatch_rename_type(void *builder, const char *attribute, int type) __asm__(TYPE_CONSTRAINT);
API const void *gpuwatch_rename_build(void *builder) __asm__(BUILD);

static void *real_device(void *builder, const char *device) {
    static _Atomic(void *) kept;
    return ((void *(*)(void *, const char *))found_once(&kept, DEVICE))(builder, device);
}

/* The kernels of an op are mostly registered one after the other. */
static void find_rows(const char *op) {
    if (made.op && strcmp(made.op, op) == 0) return;
    made.row_count = 0;
    for (size_t i = 0; i < sizeof cpu_kernels / sizeof *cpu_kernels && made.row_count < MAX_ROWS; i++)
        if (lists(cpu_kernels[i].ops, op)) made.rows[made.row_count++] = (short)i;
}

API void gpuwatch_rename_name(void *builder, const char *name) {
    static _Atomic(void *) kept;
    find_rows(name);
    made.builder = builder;
    made.op = name;
    made.for_cpu = false;
    made.types_seen = 0;
    memset(made.out, 0, sizeof made.out);
    ((void (*)(void *, const char *))found_once(&kept, NAME))(builder, name);
}

API void *gpuwatch_rename_device(void *builder, const char *device) {
    if (atomic_load(&paused)) return real_device(builder, device);
    bool known = builder == made.builder;
    made.for_cpu = known && strcmp(device, "CPU") == 0;
    if (strcmp(device, "GPU") == 0 && is_cuda_build()) {
        atomic_fetch_add(&renamed, 1);
        if (!known || !lists(host_code, made.op)) device = "GPU_CUDA";
    }
    return real_device(builder, device);
}

API void *gpuwatch_rename_type(void *builder, const char *attribute, int type) {
    static _Atomic(void *) kept;
    if (builder == made.builder) {
        char letter = type > 0 && (size_t)type < sizeof type_letters - 1 ? type_letters[type] : '-';
        made.types_seen++;
        for (int i = 0; i < made.row_count; i++) {
            const char *types = allowed(cpu_kernels[made.rows[i]].types, attribute);
            if (letter == '-' || !types || !memchr(types, letter, strcspn(types, " "))) made.out[i] = true;
        }
    }
    return ((void *(*)(void *, const char *, int))found_once(&kept, TYPE_CONSTRAINT))(builder, attribute, type);
}

static void add_host_memory(void *builder, const char *names) {
    static _Atomic(void *) kept;
    char name[64];
    for (size_t length; *names; names += length + (names[length] == ' ')) {
        length = strcspn(names, " ");
        if (length >= sizeof name) return;
        memcpy(name, names, length);
        name[length] = 0;
        ((void *(*)(void *, const char *))found_once(&kept, HOST_MEMORY))(builder, name);
    }
}

/* The kernel's types are known: is it one of the table's? */
API const void *gpuwatch_rename_build(void *builder) {
    static _Atomic(void *) kept;
    bool known = builder == made.builder && made.for_cpu;
    made.builder = NULL;
    for (int i = 0; known && i < made.row_count; i++) {
        int types = 0;
        for (const char *at = cpu_kernels[made.rows[i]].types; (at = strchr(at, '=')); at++) types++;
        if (made.out[i] || types != made.types_seen) continue;
        known = false;
        real_device(builder, "DEFAULT");
        add_host_memory(builder, cpu_kernels[made.rows[i]].host);
    }
    return ((const void *(*)(void *))found_once(&kept, BUILD))(builder);
}

/* --- the time of kernels ----------------------------------------------------------------------------- */

/* Those of the plug-in, which has a device's time. */
static uint64_t (*_Atomic time_begins)(void *context, int *ordinal);
static void (*_Atomic time_ends)(int ordinal, uint64_t began_ns);

API void gpuwatch_rename_time(uint64_t (*begin)(void *, int *), void (*end)(int, uint64_t)) {
    atomic_store(&time_ends, end);
    atomic_store(&time_begins, begin);
}

/* Whether a GPU would run a kernel, by what TensorFlow's tracing would write of it: "NAME op OP on GPU ...". */
static bool launches(void *device, void *kernel) {
    typedef struct {
        char *text; /* so long that it is not inside of the object */
        size_t length;
        char inside[16];
    } std_string;
    static _Atomic(void *) kept;
    std_string (*describe)(void *, void *, int) = (std_string(*)(void *, void *, int))found_once(&kept, DESCRIBE);
    if (!describe) return false;
    char *described = describe(device, kernel, 0).text, *op = strstr(described, " op "), *rest;
    op = op ? strtok_r(op + 4, " ", &rest) : NULL;
    bool found = lists(own_code, op);
    for (size_t i = 0; op && !found && i < sizeof cpu_kernels / sizeof *cpu_kernels; i++)
        found = lists(cpu_kernels[i].ops, op);
    free(described);
    return found;
}

/* The same, asked once for each class of kernels: an object of C++ begins with the address of its class's table. */
static bool is_timed(void *device, void *kernel) {
    static _Atomic uintptr_t classes[MAX_CLASSES]; /* the lowest bit: timed */
    uintptr_t class = *(uintptr_t *)kernel;
    for (size_t i = class / 8 * 0x9e3779b97f4a7c15u >> 32, tries = 0; tries < 64; i++, tries++) {
        _Atomic uintptr_t *place = &classes[i % MAX_CLASSES];
        uintptr_t known = atomic_load_explicit(place, memory_order_relaxed);
        if ((known & ~(uintptr_t)1) == class) return known & 1;
        if (known) continue;
        bool timed = launches(device, kernel);
        if (atomic_compare_exchange_strong(place, &known, class | timed)) return timed;
        if ((known & ~(uintptr_t)1) == class) return known & 1; /* another thread was faster */
    }
    return launches(device, kernel);
}

API void gpuwatch_rename_compute(void *device, void *kernel, void *context) __asm__(COMPUTE);

API void gpuwatch_rename_compute(void *device, void *kernel, void *context) {
    static _Atomic(void *) kept;
    void (*compute)(void *, void *, void *) = (void (*)(void *, void *, void *))found_once(&kept, COMPUTE);
    uint64_t (*begin)(void *, int *) = atomic_load(&time_begins);
    int ordinal = -1;
    uint64_t began_ns = begin && is_timed(device, kernel) ? begin(context, &ordinal) : 0;
    compute(device, kernel, context);
    if (ordinal >= 0) atomic_load(&time_ends)(ordinal, began_ns);
}
