/* See plugin_host.h. */
#include "plugin_host.h"

#include <errno.h>
#include <stdlib.h>

#include "state.h"
#include "visible.h"

static struct {
    pthread_mutex_t lock;
    _Atomic int count; /* -1: not read yet */
    gws_state *state;
    uint32_t device[GWS_MAX_DEVICES]; /* by ordinal */
} visible = {.lock = PTHREAD_MUTEX_INITIALIZER, .count = -1};

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
        atomic_store_explicit(&visible.count, count, memory_order_release);
    }
    pthread_mutex_unlock(&visible.lock);
    return count;
}

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

void gwp_memory_info(int ordinal, uint64_t *free_bytes, uint64_t *total_bytes) {
    gws_memory_info(visible.state, visible.device[ordinal], free_bytes, total_bytes);
}

uint64_t gwp_now_ns(void) { return gws_now_ns(); }

uint64_t gwp_kernel_begin(int ordinal) {
    gws_fault_check(visible.state, "cuLaunchKernel", (int32_t)visible.device[ordinal]); /* may take its time */
    return gws_kernel_begin(visible.state, visible.device[ordinal]);
}

void gwp_kernel_end(int ordinal, uint64_t began_ns, uint64_t moved_bytes) {
    gws_kernel_end(visible.state, visible.device[ordinal], began_ns, moved_bytes);
}

void gwp_copied(int ordinal, uint64_t began_ns, uint64_t bytes, int direction) {
    gws_copied(visible.state, visible.device[ordinal], began_ns, bytes,
               direction == GWP_TO_DEVICE ? GWS_COPY_TO_DEVICE
               : direction == GWP_TO_HOST ? GWS_COPY_TO_HOST
                                          : GWS_COPY_ON_DEVICE);
}
