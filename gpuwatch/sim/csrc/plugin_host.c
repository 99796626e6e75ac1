/* See plugin_host.h. */
#include "plugin_host.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "state.h"
#include "visible.h"

static struct {
    pthread_mutex_t lock;
    _Atomic int count; /* -1: not read yet */
    int listed;          /* devices left by CUDA_VISIBLE_DEVICES; count includes the other logical devices */
    gws_state *state;
    uint32_t device[GWS_MAX_DEVICES]; /* by ordinal */
} visible = {.lock = PTHREAD_MUTEX_INITIALIZER, .count = -1};

/* What the program asked for, under visible.lock. An ordinal is a position in CUDA_VISIBLE_DEVICES, as CUDA has
 * it; a further logical device on the same GPU gets an ordinal behind the visible ones. */
static struct {
    int count;
    int ordinal[GWS_MAX_DEVICES]; /* by TensorFlow's number of the device */
    bool used[GWS_MAX_DEVICES];   /* by ordinal, as all below */
    bool context[GWS_MAX_DEVICES];
    uint64_t limit[GWS_MAX_DEVICES];
    double fraction;
} layout;

static _Atomic bool laid_out;

int gwp_device_count(void) {
    int count = atomic_load_explicit(&visible.count, memory_order_acquire);
    if (count >= 0) return count;
    pthread_mutex_lock(&visible.lock);
    count = atomic_load(&visible.count);
    if (count < 0) {
        count = 0;
        visible.state = gws_default();
        if (visible.state && !gws_fault_check(visible.state, "cuInit", -1))
            count = gws_visible_devices(visible.state, getenv("CUDA_VISIBLE_DEVICES"), visible.device);
        visible.listed = count;
        atomic_store_explicit(&visible.count, count, memory_order_release);
    }
    pthread_mutex_unlock(&visible.lock);
    return count;
}

int gpuwatch_plugin_recount(void) {
    int before = gwp_device_count();
    pthread_mutex_lock(&visible.lock);
    if (!layout.count && visible.state) {
        uint32_t device[GWS_MAX_DEVICES] = {0};
        int count = gws_visible_devices(visible.state, getenv("CUDA_VISIBLE_DEVICES"), device);
        bool same = count == before && !memcmp(device, visible.device, (size_t)count * sizeof *device);
        if (!same) {
            memcpy(visible.device, device, sizeof device);
            visible.listed = count;
            atomic_store_explicit(&visible.count, count, memory_order_release);
        }
        pthread_mutex_unlock(&visible.lock);
        return !same;
    }
    pthread_mutex_unlock(&visible.lock);
    return 0;
}

/* The ordinal for TensorFlow's device number, which is to be on the GPU that ordinal stands for; -1: no room. A
 * number that is on another GPU already gets an ordinal of the one asked for, and TensorFlow refuses the two. */
static int ordinal_for(int number, int ordinal) {
    uint32_t device = visible.device[ordinal];
    if (number < layout.count && visible.device[layout.ordinal[number]] == device) return layout.ordinal[number];
    if (number < layout.count || !layout.used[ordinal]) return ordinal;
    int count = atomic_load(&visible.count);
    if (count >= GWS_MAX_DEVICES) return -1;
    visible.device[count] = device;
    atomic_store_explicit(&visible.count, count + 1, memory_order_release);
    return count;
}

/* Under visible.lock: what CUDA takes of the device before TensorFlow asks how much is free. */
static int start_context(int ordinal) {
    uint32_t device = visible.device[ordinal];
    if (layout.context[device]) return 0;
    if (gws_take(visible.state, device, visible.state->device[device].context_bytes)) return ENOMEM;
    layout.context[device] = true;
    return 0;
}

int gpuwatch_plugin_visible(void) {
    gwp_device_count();
    return visible.listed;
}

int gpuwatch_plugin_lay_out(int count, const int *ordinals, const uint64_t *limits, double fraction, int *given) {
    int seen = gpuwatch_plugin_visible(), error = 0;
    if (count > GWS_MAX_DEVICES) return ENOSPC;
    for (int i = 0; i < count; i++)
        if (ordinals[i] < 0 || ordinals[i] >= seen) return EINVAL;
    pthread_mutex_lock(&visible.lock);
    for (int i = 0; i < count && !error; i++) {
        int ordinal = given[i] = ordinal_for(i, ordinals[i]);
        if (ordinal < 0) {
            error = ENOSPC;
            break;
        }
        error = start_context(ordinal);
        layout.used[ordinal] = true;
        layout.limit[ordinal] = limits[i];
        if (i >= layout.count) {
            layout.ordinal[i] = ordinal;
            layout.count = i + 1;
        }
    }
    layout.fraction = fraction;
    pthread_mutex_unlock(&visible.lock);
    if (!error) atomic_store(&laid_out, true);
    return error;
}

bool gwp_laid_out(void) { return atomic_load(&laid_out); }

const char *gwp_device_name(int ordinal) { return gws_device_name(visible.state, visible.device[ordinal]); }

const char *gwp_device_pci_bus_id(int ordinal) {
    return gws_device_pci_bus_id(visible.state, visible.device[ordinal]);
}

void gwp_enter(int ordinal) { gwp_take(ordinal, 0); }

int gwp_take(int ordinal, uint64_t bytes) {
    uint32_t device = visible.device[ordinal];
    if (gws_fault_check(visible.state, "cuMemAlloc", (int32_t)device)) return ENOMEM;
    int error = gws_take(visible.state, device, bytes);
    if (!error) gws_note_ordinal(visible.state, device, ordinal);
    return error;
}

void gwp_give(int ordinal, uint64_t bytes) { gws_give(visible.state, visible.device[ordinal], bytes); }

/* TF_DEVICE_MIN_SYS_MEMORY_IN_MB in bytes; -1: TensorFlow decides. */
static int64_t asked_reserve(void) {
    const char *asked = getenv("TF_DEVICE_MIN_SYS_MEMORY_IN_MB");
    char *end;
    long long mib = asked ? strtoll(asked, &end, 10) : -1;
    return mib >= 0 && end != asked && !*end ? (int64_t)mib << 20 : -1;
}

/* MinSystemMemory of TensorFlow's gpu_device.cc. */
static uint64_t cuda_reserve(uint32_t device, uint64_t free_bytes) {
    if (free_bytes < 2048ull << 20) return 225ull << 20;
    int64_t own = visible.state->device[device].cc_major * 10;
    int64_t major = gws_overridden(visible.state, device, GWS_SET_COMPUTE_CAPABILITY, own) / 10;
    return (major <= 6 ? 500ull : major == 7 ? 1050ull : major == 8 ? 1536ull : 1800ull) << 20;
}

void gwp_memory_info(int ordinal, uint64_t *free_bytes, uint64_t *total_bytes) {
    uint32_t device = visible.device[ordinal];
    gws_memory_info(visible.state, device, free_bytes, total_bytes);
    if (!atomic_load(&laid_out)) return;
    pthread_mutex_lock(&visible.lock);
    uint64_t limit = layout.limit[ordinal];
    double fraction = layout.fraction;
    pthread_mutex_unlock(&visible.lock);
    /* TensorFlow has been told to take the whole total. */
    int64_t asked = asked_reserve(); /* it overrides a fraction */
    uint64_t reserve = asked >= 0 ? (uint64_t)asked : cuda_reserve(device, *free_bytes);
    *total_bytes = limit                       ? limit
                   : fraction > 0 && asked < 0 ? (uint64_t)((double)*total_bytes * fraction)
                                               : *free_bytes - (reserve < *free_bytes ? reserve : 0);
}

uint64_t gwp_now_ns(void) { return gws_now_ns(); }

uint64_t gwp_kernel_begin(int ordinal) {
    gws_fault_check(visible.state, "cuLaunchKernel", (int32_t)visible.device[ordinal]); /* may take its time */
    return gws_kernel_begin(visible.state, visible.device[ordinal]);
}

/* Nothing tells how many bytes a kernel moved: its memory counts as busy for half of the time. */
void gwp_kernel_end(int ordinal, uint64_t began_ns) {
    uint64_t moved_bytes = (uint64_t)((double)(gws_now_ns() - began_ns) * GWS_MEMORY_BYTES_PER_NS / 2);
    gws_kernel_end(visible.state, visible.device[ordinal], began_ns, moved_bytes);
}

void gwp_copied(int ordinal, uint64_t began_ns, uint64_t bytes, int direction) {
    gws_copied(visible.state, visible.device[ordinal], began_ns, bytes,
               direction == GWP_TO_DEVICE ? GWS_COPY_TO_DEVICE
               : direction == GWP_TO_HOST ? GWS_COPY_TO_HOST
                                          : GWS_COPY_ON_DEVICE);
}
