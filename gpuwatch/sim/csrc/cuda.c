/* libcuda.so.1 of a simulated machine: devices, contexts, streams, events, modules (memory: cuda_memory.c).
 *
 * Streams are in order because everything is done before a call returns. Kernel launches succeed and do
 * nothing: only what the libraries compute (cuBLAS) and copies have an effect.
 */
#define _GNU_SOURCE
#include "cuda_internal.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "visible.h"


/* --- which devices this process sees ---------------------------------------------------------------- */

static struct {
    _Atomic(gws_state *) state; /* set when cuInit has succeeded */
    _Atomic bool forked;        /* a child of an initialised process, where CUDA does not work */
    pthread_mutex_t lock;
    int count;
    uint32_t device[GWS_MAX_DEVICES];
    struct CUctx_st primary[GWS_MAX_DEVICES]; /* by ordinal */
} driver = {.lock = PTHREAD_MUTEX_INITIALIZER};

static __thread CUcontext context_stack[64];
static __thread int context_depth; /* context_stack[context_depth - 1] is current */

gws_state *gws_cuda_state(void) { return atomic_load_explicit(&driver.state, memory_order_acquire); }
int gws_cuda_visible_count(void) { return driver.count; }
CUcontext gws_cuda_current(void) { return context_depth ? context_stack[context_depth - 1] : NULL; }

int gws_cuda_current_device(void) {
    CUcontext context = gws_cuda_current();
    return context && context->alive ? (int)context->device : -1;
}

static void in_forked_child(void) {
    if (!atomic_load(&driver.state)) return;
    atomic_store(&driver.forked, true);
    atomic_store(&driver.state, NULL);
    context_depth = 0;
}

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, in_forked_child); }

API CUresult cuInit(unsigned flags) {
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    if (atomic_load(&driver.forked)) return CUDA_ERROR_NOT_INITIALIZED;
    gws_state *state = gws_default();
    if (!state) return CUDA_ERROR_NO_DEVICE;
    int code = gws_fault_check(state, __func__, -1);
    if (code) return code;
    pthread_mutex_lock(&driver.lock);
    if (!atomic_load(&driver.state)) {
        driver.count = gws_visible_devices(state, getenv("CUDA_VISIBLE_DEVICES"), driver.device);
        for (int i = 0; i < driver.count; i++)
            driver.primary[i] = (struct CUctx_st){.ordinal = i, .device = driver.device[i], .primary = true};
        if (driver.count)
            atomic_store_explicit(&driver.state, state, memory_order_release);
        else
            code = CUDA_ERROR_NO_DEVICE;
    }
    pthread_mutex_unlock(&driver.lock);
    return code;
}

API CUresult cuDriverGetVersion(int *version) {
    REQUIRE(version);
    *version = gws_cuda_version(gws_default());
    return CUDA_SUCCESS;
}

/* --- errors ----------------------------------------------------------------------------------------- */

static const struct {
    int code;
    const char *name, *text;
} errors[] = {
#define WORDS(number, name, text) {number, #name, text},
    CUDA_ERRORS(WORDS)
};

API CUresult cuGetErrorName(CUresult code, const char **out) {
    REQUIRE(out);
    *out = NULL;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code) *out = errors[i].name;
    return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuGetErrorString(CUresult code, const char **out) {
    REQUIRE(out);
    *out = NULL;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code) *out = errors[i].text;
    return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Two versions of a function, alike but for their names, which faults tell apart. */
#define WITH_V2(function, parameters, ...)                                                                   \
    API CUresult function parameters __VA_ARGS__                                                             \
    API CUresult function##_v2 parameters __VA_ARGS__

/* Functions that give one value, of what `enter` has found. */
#define GETTER(enter, function, parameters, out, value)                                                      \
    API CUresult function parameters {                                                                       \
        enter;                                                                                               \
        REQUIRE(out);                                                                                        \
        *out = (value);                                                                                      \
        return CUDA_SUCCESS;                                                                                 \
    }

/* Calls that succeed and do nothing; the second kind needs a context. */
#define NOTHING_TO_DO(function, parameters)                                                                  \
    API CUresult function parameters {                                                                       \
        ENTER();                                                                                             \
        return CUDA_SUCCESS;                                                                                 \
    }
#define NOTHING_TO_DO_IN_CONTEXT(function, parameters)                                                       \
    API CUresult function parameters {                                                                       \
        ENTER_CONTEXT();                                                                                     \
        return CUDA_SUCCESS;                                                                                 \
    }

/* --- devices ---------------------------------------------------------------------------------------- */

#define ENTER_DEVICE(ordinal)                                                                                \
    gws_state *state = gws_cuda_state();                                                                     \
    if (!state) return CUDA_ERROR_NOT_INITIALIZED;                                                           \
    if ((ordinal) < 0 || (ordinal) >= driver.count) return CUDA_ERROR_INVALID_DEVICE;                        \
    gws_device *card = &state->device[driver.device[ordinal]];                                               \
    (void)card;                                                                                              \
    do {                                                                                                     \
        int code_ = gws_fault_check(state, __func__, (int)driver.device[ordinal]);                           \
        if (code_) return code_;                                                                             \
    } while (0)

GETTER(ENTER(), cuDeviceGetCount, (int *count), count, driver.count)

API CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    REQUIRE(device);
    ENTER_DEVICE(ordinal);
    *device = ordinal;
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    ENTER_DEVICE(device);
    REQUIRE(name && length > 0);
    snprintf(name, (size_t)length, "%s", card->name);
    return CUDA_SUCCESS;
}

GETTER(ENTER_DEVICE(device), cuDeviceTotalMem_v2, (size_t *bytes, CUdevice device), bytes, card->total_bytes)
WITH_V2(cuDeviceGetUuid, (unsigned char *uuid, CUdevice device), {
    ENTER_DEVICE(device);
    REQUIRE(uuid);
    memcpy(uuid, card->uuid_bytes, 16);
    return CUDA_SUCCESS;
})

API CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice device) {
    ENTER_DEVICE(device);
    REQUIRE(text && length > 0);
    if ((size_t)length <= strlen(card->pci_bus_id)) return CUDA_ERROR_INVALID_VALUE;
    strcpy(text, card->pci_bus_id);
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *text) {
    ENTER();
    REQUIRE(device && text);
    for (int i = 0; i < driver.count; i++) {
        const char *id = state->device[driver.device[i]].pci_bus_id;
        if (strcasecmp(id, text) == 0 || strcasecmp(id + 5, text) == 0) { /* with the domain or without */
            *device = i;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

API CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device) {
    ENTER_DEVICE(device);
    REQUIRE(major && minor);
    *major = gws_capability(state, card) / 10;
    *minor = gws_capability(state, card) % 10;
    return CUDA_SUCCESS;
}

typedef struct {
    int threads_per_block, threads_dim[3], grid_size[3], shared_per_block, constant_bytes, simd_width, pitch,
        registers_per_block, clock_khz, texture_align;
} CUdevprop;

API CUresult cuDeviceGetProperties(CUdevprop *out, CUdevice device) {
    ENTER_DEVICE(device);
    REQUIRE(out);
    *out = (CUdevprop){1024, {1024, 1024, 64}, {2147483647, 65535, 65535}, 49152, 65536, 32, 2147483647,
                       65536, (int)card->sm_clock_full_mhz * 1000, 512};
    return CUDA_SUCCESS;
}

/* Limits of compute capability 8.6; attributes that are not listed are unsupported features. */
static int attribute(const gws_state *state, const gws_device *card, int number) {
    switch (number) {
    case 1: return 1024;                                       /* threads in a block */
    case 2: case 3: return 1024;                               /* block x, y */
    case 4: return 64;                                         /* block z */
    case 5: return 2147483647;                                 /* grid x */
    case 6: case 7: return 65535;                              /* grid y, z */
    case 8: return 49152;                                      /* shared memory of a block */
    case 9: return 65536;                                      /* constant memory */
    case 10: return 32;                                        /* warp */
    case 11: return 2147483647;                                /* pitch */
    case 12: return 65536;                                     /* registers of a block */
    case 13: return (int)card->sm_clock_full_mhz * 1000;       /* kHz */
    case 14: return 512;                                       /* texture alignment */
    case 15: return 1;                                         /* copies overlap kernels */
    case 16: return gws_multiprocessors(state, card);
    case 19: return 1;                                         /* host memory can be mapped */
    case 20: {                                                 /* compute mode */
        int64_t mode;
        return gws_override(state, (uint32_t)(card - state->device), GWS_SET_COMPUTE_MODE, &mode) ? (int)mode : 0;
    }
    case 31: return 1;                                         /* concurrent kernels */
    case 33: return (int)card->pci_bus;
    case 34: return 0;                                         /* PCI device */
    case 36: return (int)card->memory_clock_full_mhz * 1000;
    case 37: return 384;                                       /* memory bus width */
    case 38: return 6291456;                                   /* L2 */
    case 39: return 1536;                                      /* threads of a multiprocessor */
    case 40: return 2;                                         /* copy engines */
    case 41: return 1;                                         /* unified addressing */
    case 50: return 0;                                         /* PCI domain */
    case 51: return 32;                                        /* texture pitch alignment */
    case 75: return gws_capability(state, card) / 10;
    case 76: return gws_capability(state, card) % 10;
    case 78: return 1;                                         /* stream priorities */
    case 79: case 80: return 1;                                /* L1 for globals, locals */
    case 81: return 102400;                                    /* shared memory of a multiprocessor */
    case 82: return 65536;                                     /* registers of a multiprocessor */
    case 83: return 1;                                         /* managed memory */
    case 87: return 32;                                        /* single to double speed */
    case 89: return 1;                                         /* managed memory from host and device at once */
    case 90: return 1;                                         /* compute pre-emption */
    case 95: return 1;                                         /* cooperative launch */
    case 97: return 101376;                                    /* shared memory of a block, opt-in */
    case 106: return 16;                                       /* blocks of a multiprocessor */
    case 111: return 1024;                                     /* shared memory reserved of a block */
    case 115: return 1;                                        /* memory pools */
    default: return 0;
    }
}

API CUresult cuDeviceGetAttribute(int *value, int number, CUdevice device) {
    ENTER_DEVICE(device);
    REQUIRE(value && number > 0 && number < 200);
    *value = attribute(state, card, number);
    return CUDA_SUCCESS;
}

API CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
    ENTER_DEVICE(device);
    REQUIRE(can);
    if (peer < 0 || peer >= driver.count) return CUDA_ERROR_INVALID_DEVICE;
    *can = 0;
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetP2PAttribute(int *value, int number, CUdevice device, CUdevice peer) {
    ENTER_DEVICE(device);
    REQUIRE(value && number > 0);
    if (peer < 0 || peer >= driver.count || peer == device) return CUDA_ERROR_INVALID_DEVICE;
    *value = 0;
    return CUDA_SUCCESS;
}

/* --- contexts --------------------------------------------------------------------------------------- */

/* Compute mode: 1 and 3 allow one process at a time, 2 none. */
static bool turned_away(gws_state *state, uint32_t device) {
    int64_t mode = gws_overridden(state, device, GWS_SET_COMPUTE_MODE, 0);
    if (mode == 0) return false;
    if (mode == 2) return true;
    gws_process_view others[64];
    uint32_t count = gws_list_processes(state, device, GWS_KIND_COMPUTE, others, 64);
    for (uint32_t i = 0; i < count && i < 64; i++)
        if (others[i].pid != getpid()) return true;
    return false;
}

/* Under driver.lock. A context takes device memory, as a real one does (kernels, stacks, printf buffer). */
static CUresult start_context(gws_state *state, CUcontext context) {
    if (turned_away(state, context->device)) return CUDA_ERROR_DEVICE_UNAVAILABLE;
    if (gws_take(state, context->device, state->device[context->device].context_bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    context->alive = true;
    return CUDA_SUCCESS;
}

static int contexts_on[GWS_MAX_DEVICES]; /* live contexts of this process by device; under driver.lock */

static void end_context(gws_state *state, CUcontext context) {
    context->alive = false;
    gws_cuda_free_all(state, context);
    gws_give(state, context->device, state->device[context->device].context_bytes);
    if (--contexts_on[context->device] == 0) gws_leave(state, context->device);
}

API CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    ENTER_DEVICE(device);
    REQUIRE(context);
    CUcontext primary = &driver.primary[device];
    CUresult code = CUDA_SUCCESS;
    pthread_mutex_lock(&driver.lock);
    if (!primary->alive) {
        code = start_context(state, primary);
        if (!code) contexts_on[primary->device]++;
    }
    if (!code) {
        primary->references++;
        *context = primary;
    }
    pthread_mutex_unlock(&driver.lock);
    return code;
}

static CUresult release_primary(gws_state *state, CUdevice device, bool at_once) {
    CUcontext primary = &driver.primary[device];
    CUresult code = CUDA_SUCCESS;
    pthread_mutex_lock(&driver.lock);
    if (!at_once && primary->references == 0)
        code = CUDA_ERROR_INVALID_CONTEXT;
    else if (at_once || --primary->references == 0) {
        primary->references = 0;
        if (primary->alive) end_context(state, primary);
    }
    pthread_mutex_unlock(&driver.lock);
    return code;
}

WITH_V2(cuDevicePrimaryCtxRelease, (CUdevice device), {
    ENTER_DEVICE(device);
    return release_primary(state, device, false);
})

WITH_V2(cuDevicePrimaryCtxReset, (CUdevice device), {
    ENTER_DEVICE(device);
    return release_primary(state, device, true);
})

API CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    ENTER_DEVICE(device);
    REQUIRE(flags && active);
    *flags = driver.primary[device].flags;
    *active = driver.primary[device].alive;
    return CUDA_SUCCESS;
}

WITH_V2(cuDevicePrimaryCtxSetFlags, (CUdevice device, unsigned flags), {
    ENTER_DEVICE(device);
    driver.primary[device].flags = flags;
    return CUDA_SUCCESS;
})

static CUresult push(CUcontext context) {
    if (context_depth >= (int)(sizeof context_stack / sizeof *context_stack)) return CUDA_ERROR_INVALID_VALUE;
    context_stack[context_depth++] = context;
    return CUDA_SUCCESS;
}

API CUresult cuCtxCreate_v2(CUcontext *out, unsigned flags, CUdevice device) {
    ENTER_DEVICE(device);
    REQUIRE(out);
    CUcontext context = calloc(1, sizeof *context);
    if (!context) return CUDA_ERROR_OUT_OF_MEMORY;
    *context = (struct CUctx_st){.ordinal = device, .device = driver.device[device], .flags = flags};
    pthread_mutex_lock(&driver.lock);
    CUresult code = start_context(state, context);
    if (!code) contexts_on[context->device]++;
    pthread_mutex_unlock(&driver.lock);
    if (!code) code = push(context);
    if (code)
        free(context);
    else
        *out = context;
    return code;
}

API CUresult cuCtxDestroy_v2(CUcontext context) {
    ENTER();
    if (!context || context->primary || !context->alive) return CUDA_ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&driver.lock);
    end_context(state, context);
    pthread_mutex_unlock(&driver.lock);
    if (gws_cuda_current() == context) context_depth--;
    return CUDA_SUCCESS; /* not freed: it may be current in another thread, which must get an error */
}

API CUresult cuCtxSetCurrent(CUcontext context) {
    ENTER();
    if (!context) {
        if (context_depth) context_depth--;
        return CUDA_SUCCESS;
    }
    if (!context->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (!context_depth) return push(context);
    context_stack[context_depth - 1] = context;
    return CUDA_SUCCESS;
}

GETTER(ENTER(), cuCtxGetCurrent, (CUcontext *context), context, gws_cuda_current())

API CUresult cuCtxPushCurrent_v2(CUcontext context) {
    ENTER();
    if (!context || !context->alive) return CUDA_ERROR_INVALID_CONTEXT;
    return push(context);
}

API CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    ENTER();
    if (!context_depth) return CUDA_ERROR_INVALID_CONTEXT;
    CUcontext top = context_stack[--context_depth];
    if (context) *context = top;
    return CUDA_SUCCESS;
}

GETTER(ENTER_CONTEXT(), cuCtxGetDevice, (CUdevice *device), device, context->ordinal)
GETTER(ENTER_CONTEXT(), cuCtxGetFlags, (unsigned *flags), flags, context->flags)
GETTER(ENTER_CONTEXT(), cuCtxGetId, (CUcontext asked, unsigned long long *id), id,
       (unsigned long long)(uintptr_t)(asked ? asked : context))
GETTER(ENTER(), cuCtxGetApiVersion, (CUcontext asked, unsigned *version), version, 3020)

NOTHING_TO_DO_IN_CONTEXT(cuCtxSynchronize, (void))

API CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    ENTER_CONTEXT();
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return CUDA_SUCCESS;
}

GETTER(ENTER_CONTEXT(), cuCtxGetSharedMemConfig, (int *config), config, 1)

NOTHING_TO_DO_IN_CONTEXT(cuCtxSetSharedMemConfig, (int config))
NOTHING_TO_DO_IN_CONTEXT(cuCtxSetCacheConfig, (int config))
NOTHING_TO_DO_IN_CONTEXT(cuCtxSetLimit, (int limit, size_t value))

/* Stack, printf, heap. */
GETTER(ENTER_CONTEXT(), cuCtxGetLimit, (size_t *value, int limit), value,
       limit == 0 ? 1024 : limit == 1 ? 1048576 : limit == 2 ? 8388608 : 0)

API CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
    ENTER_CONTEXT();
    return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
}

/* --- streams and events ----------------------------------------------------------------------------- */

typedef struct CUstream_st {
    CUcontext context;
    unsigned flags;
    int priority;
} *CUstream;

static bool is_default_stream(CUstream stream) { return (uintptr_t)stream <= 2; } /* none, legacy, per thread */

static CUresult make_stream(CUcontext context, CUstream *out, unsigned flags, int priority) {
    REQUIRE(out);
    CUstream stream = malloc(sizeof *stream);
    if (!stream) return CUDA_ERROR_OUT_OF_MEMORY;
    *stream = (struct CUstream_st){context, flags, priority > 0 ? 0 : priority < -5 ? -5 : priority};
    *out = stream;
    return CUDA_SUCCESS;
}

API CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    ENTER_CONTEXT();
    return make_stream(context, stream, flags, 0);
}

API CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
    ENTER_CONTEXT();
    return make_stream(context, stream, flags, priority);
}

API CUresult cuStreamDestroy_v2(CUstream stream) {
    ENTER();
    if (is_default_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
    free(stream);
    return CUDA_SUCCESS;
}

GETTER(ENTER(), cuStreamGetPriority, (CUstream stream, int *priority), priority,
       is_default_stream(stream) ? 0 : stream->priority)
GETTER(ENTER(), cuStreamGetFlags, (CUstream stream, unsigned *flags), flags,
       is_default_stream(stream) ? 0 : stream->flags)
GETTER(ENTER(), cuStreamGetId, (CUstream stream, unsigned long long *id), id, (unsigned long long)(uintptr_t)stream)
GETTER(ENTER_CONTEXT(), cuStreamGetCtx, (CUstream stream, CUcontext *out), out,
       is_default_stream(stream) ? context : stream->context)

/* All work is finished when its call returns, so there is nothing to wait for. */
NOTHING_TO_DO(cuStreamSynchronize, (CUstream stream))
NOTHING_TO_DO(cuStreamQuery, (CUstream stream))
NOTHING_TO_DO(cuStreamWaitEvent, (CUstream stream, void *event, unsigned flags))

API CUresult cuStreamAddCallback(CUstream stream, void (*callback)(CUstream, CUresult, void *), void *data,
                                 unsigned flags) {
    ENTER();
    REQUIRE(callback && !flags);
    callback(stream, CUDA_SUCCESS, data);
    return CUDA_SUCCESS;
}

API CUresult cuLaunchHostFunc(CUstream stream, void (*function)(void *), void *data) {
    ENTER();
    REQUIRE(function);
    function(data);
    return CUDA_SUCCESS;
}

/* Graphs are not modelled, so no stream is ever being captured. */
GETTER(ENTER(), cuStreamIsCapturing, (CUstream stream, int *status), status, 0)

API CUresult cuStreamBeginCapture_v2(CUstream stream, int mode) {
    ENTER();
    return CUDA_ERROR_NOT_SUPPORTED;
}

typedef struct CUevent_st {
    _Atomic uint64_t recorded_ns; /* 0: not yet */
    unsigned flags;
} *CUevent;

API CUresult cuEventCreate(CUevent *out, unsigned flags) {
    ENTER_CONTEXT();
    REQUIRE(out);
    CUevent event = calloc(1, sizeof *event);
    if (!event) return CUDA_ERROR_OUT_OF_MEMORY;
    event->flags = flags;
    *out = event;
    return CUDA_SUCCESS;
}

API CUresult cuEventDestroy_v2(CUevent event) {
    ENTER();
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    free(event);
    return CUDA_SUCCESS;
}

API CUresult cuEventRecord(CUevent event, CUstream stream) {
    ENTER();
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    atomic_store(&event->recorded_ns, gws_now_ns());
    return CUDA_SUCCESS;
}

API CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
    return cuEventRecord(event, stream);
}

API CUresult cuEventQuery(CUevent event) {
    ENTER();
    return event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

API CUresult cuEventSynchronize(CUevent event) {
    ENTER();
    return event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

API CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end) {
    ENTER();
    REQUIRE(ms);
    if (!start || !end || ((start->flags | end->flags) & 2)) return CUDA_ERROR_INVALID_HANDLE; /* no timing */
    uint64_t from = atomic_load(&start->recorded_ns), to = atomic_load(&end->recorded_ns);
    if (!from || !to) return CUDA_ERROR_INVALID_HANDLE;
    *ms = (float)((double)((int64_t)to - (int64_t)from) * 1e-6);
    return CUDA_SUCCESS;
}

API CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end) {
    return cuEventElapsedTime(ms, start, end);
}

/* --- modules and kernels: they load and launch, and nothing is computed ----------------------------- */

typedef struct CUmod_st {
    CUcontext context;
} *CUmodule;

typedef struct CUfunc_st {
    CUmodule module;
    char name[96]; /* mangled; the beginning, for a message */
    struct CUfunc_st *next; /* kept until the process exits: there are few handles */
} *CUfunction;

static CUresult load_module(CUcontext context, CUmodule *out) {
    REQUIRE(out);
    CUmodule module = malloc(sizeof *module);
    if (!module) return CUDA_ERROR_OUT_OF_MEMORY;
    module->context = context;
    *out = module;
    return CUDA_SUCCESS;
}

API CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    ENTER_CONTEXT();
    REQUIRE(image);
    return load_module(context, module);
}

API CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, int *options, void **values) {
    ENTER_CONTEXT();
    REQUIRE(image);
    return load_module(context, module);
}

API CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image) {
    ENTER_CONTEXT();
    REQUIRE(image);
    return load_module(context, module);
}

API CUresult cuModuleUnload(CUmodule module) {
    ENTER();
    if (!module) return CUDA_ERROR_INVALID_HANDLE;
    free(module);
    return CUDA_SUCCESS;
}

API CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name) {
    ENTER();
    static _Atomic(CUfunction) all;
    REQUIRE(out && name);
    if (!module) return CUDA_ERROR_INVALID_HANDLE;
    CUfunction function = calloc(1, sizeof *function);
    if (!function) return CUDA_ERROR_OUT_OF_MEMORY;
    function->module = module;
    snprintf(function->name, sizeof function->name, "%s", name);
    function->next = atomic_load(&all);
    while (!atomic_compare_exchange_weak(&all, &function->next, function)) {
    }
    *out = function;
    return CUDA_SUCCESS;
}

API CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name) {
    ENTER();
    return CUDA_ERROR_NOT_FOUND; /* a module's variables are not modelled */
}

GETTER(ENTER(), cuModuleGetLoadingMode, (int *mode), mode, 2) /* lazy */

API CUresult cuFuncGetAttribute(int *value, int number, CUfunction function) {
    ENTER();
    REQUIRE(value);
    if (!function) return CUDA_ERROR_INVALID_HANDLE;
    switch (number) {
    case 0: *value = 1024; break; /* threads of a block */
    case 4: *value = 32; break;   /* registers */
    case 5: case 6: *value = 86; break; /* PTX and binary version */
    default: *value = 0; break;
    }
    return CUDA_SUCCESS;
}

API CUresult cuFuncSetAttribute(CUfunction function, int number, int value) {
    ENTER();
    return function ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

API CUresult cuFuncSetCacheConfig(CUfunction function, int config) {
    ENTER();
    return function ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads,
                                                         size_t shared) {
    ENTER_CONTEXT();
    REQUIRE(blocks && function && threads > 0);
    *blocks = threads > 1024 ? 0 : 1536 / threads > 16 ? 16 : 1536 / threads;
    return CUDA_SUCCESS;
}

API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function, int threads,
                                                                  size_t shared, unsigned flags) {
    return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared);
}

API CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                            unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **arguments,
                            void **extra) {
    ENTER_CONTEXT();
    if (!function) return CUDA_ERROR_INVALID_HANDLE;
    REQUIRE(grid_x && grid_y && grid_z && block_x && block_y && block_z &&
            (unsigned long long)block_x * block_y * block_z <= 1024);
    return gws_cuda_refuse_kernel(__builtin_return_address(0), function->name);
}

API CUresult cuLaunchKernelEx(const void *config, CUfunction function, void **arguments, void **extra) {
    ENTER_CONTEXT();
    REQUIRE(config);
    if (!function) return CUDA_ERROR_INVALID_HANDLE;
    return gws_cuda_refuse_kernel(__builtin_return_address(0), function->name);
}

/* --- kernels of PyTorch: refused ---------------------------------------------------------------------- */

static _Atomic bool refusing;

void gws_cuda_refuse_kernels(void) { atomic_store(&refusing, true); }
bool gws_cuda_refuses_kernels(void) { return atomic_load_explicit(&refusing, memory_order_relaxed); }

static void tell_refusal(const char *kernel) {
    static atomic_flag told = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&told)) return;
    /* From the C++ library, which is loaded by every program with mangled names. */
    char *(*demangle)(const char *, char *, size_t *, int *) =
        (char *(*)(const char *, char *, size_t *, int *))dlsym(RTLD_DEFAULT, "__cxa_demangle");
    char *readable = kernel && demangle ? demangle(kernel, NULL, NULL, NULL) : NULL;
    const char *name = readable ? readable : kernel ? kernel : "a kernel";
    if (readable && strncmp(name, "void ", 5) == 0) name += 5;
    static const char anonymous[] = "(anonymous namespace)";
    size_t length = 0; /* up to the template arguments or parameters */
    while (name[length] && name[length] != '<' && (name[length] != '(' || !strncmp(name + length, anonymous, 21)))
        length += name[length] == '(' ? 21 : 1;
    fprintf(stderr,
            "gpuwatch: the simulated driver lacks kernels: %.*s was refused (CUDA error %d). Device maps, memory and"
            " copies work; what needs a kernel does not.\n",
            (int)length, name, CUDA_ERROR_NOT_SUPPORTED);
    free(readable);
}

/* Once in a process. gpuwatch's own probes know it. */
static void tell_skipped(void) {
    static atomic_flag told = ATOMIC_FLAG_INIT;
    if (getenv("GPUWATCH_PROBE_OPTIONS") || atomic_flag_test_and_set(&told)) return;
    fprintf(stderr, "gpuwatch: these simulated GPUs compute only matrix products, and this program runs other kernels, "
                    "which do nothing: its numbers are meaningless (--sim-tier plugin computes)\n");
}

CUresult gws_cuda_refuse_kernel(const void *caller, const char *kernel) {
    Dl_info info;
    if (!gws_cuda_refuses_kernels() ||
        (dladdr(caller, &info) && info.dli_fname && strstr(info.dli_fname, "tensorflow"))) {
        tell_skipped();
        return CUDA_SUCCESS;
    }
    tell_refusal(kernel);
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* Undocumented tables with which NVIDIA's libraries (cuDNN, cuFFT, cuBLASLt) start their copy of the runtime.
 * Without them they report "not initialized", as they do when out of memory. */
API CUresult cuGetExportTable(const void **table, const void *id) {
    static atomic_flag told = ATOMIC_FLAG_INIT;
    Dl_info info = {0};
    if (table) *table = NULL;
    if (gws_cuda_refuses_kernels() && !atomic_flag_test_and_set(&told)) {
        const char *path = dladdr(__builtin_return_address(0), &info) && info.dli_fname ? info.dli_fname : "a library";
        const char *slash = strrchr(path, '/');
        fprintf(stderr, "gpuwatch: the simulated driver lacks what %s asks of it (CUDA error %d)\n",
                slash ? slash + 1 : path, CUDA_ERROR_NOT_SUPPORTED);
    }
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* The simulated driver writes no log, so callbacks are never called. */
API CUresult cuLogsRegisterCallback(const void *callback, void *data, void **handle) {
    static char nothing;
    ENTER();
    REQUIRE(callback && handle);
    *handle = &nothing;
    return CUDA_SUCCESS;
}

NOTHING_TO_DO(cuLogsUnregisterCallback, (void *handle))

/* Reported only with PyTorch: TensorFlow tries some of these and has its own fallbacks. */
static CUresult not_modelled(const char *function, atomic_flag *told) {
    if (gws_cuda_refuses_kernels() && !atomic_flag_test_and_set(told))
        fprintf(stderr, "gpuwatch: the simulated driver lacks %s (CUDA error %d)\n", function, CUDA_ERROR_NOT_SUPPORTED);
    return CUDA_ERROR_NOT_SUPPORTED;
}

#define NOT_MODELLED(function)                                                                               \
    API CUresult function(void) {                                                                            \
        static atomic_flag told = ATOMIC_FLAG_INIT;                                                          \
        ENTER();                                                                                             \
        return not_modelled(__func__, &told);                                                                \
    }
#include "cuda_not_modelled.h"

/* --- functions by name ------------------------------------------------------------------------------ */

/* Callers request "cuMemAlloc" and a CUDA version, and get the newest variant. */
static void *by_name(const char *symbol) {
    char name[128];
    Dl_info info;
    if (!dladdr((const void *)&driver, &info)) return NULL;
    void *library = dlopen(info.dli_fname, RTLD_NOLOAD | RTLD_LAZY);
    if (!library) return NULL;
    void *found = NULL;
    for (int version = 3; version >= 1 && !found; version--) {
        snprintf(name, sizeof name, version > 1 ? "%s_v%d" : "%s", symbol, version);
        found = dlsym(library, name);
    }
    dlclose(library);
    return found;
}

API CUresult cuGetProcAddress(const char *symbol, void **out, int version, unsigned long long flags) {
    REQUIRE(symbol && out);
    *out = by_name(symbol);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

API CUresult cuGetProcAddress_v2(const char *symbol, void **out, int version, unsigned long long flags, int *status) {
    CUresult code = cuGetProcAddress(symbol, out, version, flags);
    if (status) *status = code == CUDA_SUCCESS ? 0 : 1;
    return code;
}

API CUresult cuProfilerStart(void) { return CUDA_SUCCESS; }
API CUresult cuProfilerStop(void) { return CUDA_SUCCESS; }
