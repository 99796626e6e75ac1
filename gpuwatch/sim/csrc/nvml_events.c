/* Events of the simulated libnvidia-ml.so.1: the Xid that "xid" was set to, once for each time that it is set.
 *
 * A set of events hears what comes after a device was registered with it, as NVIDIA's does. */
#define _GNU_SOURCE
#include "nvml_internal.h"

#include <stdlib.h>
#include <time.h>

#define EVENT_XID 8ull
#define LOOK_AGAIN_MS 10u

typedef struct event_set {
    uint64_t types[GWS_MAX_DEVICES];    /* events for which a device was registered */
    uint64_t heard_ns[GWS_MAX_DEVICES]; /* time of the last reported event */
} *nvmlEventSet_t;

typedef struct {
    nvmlDevice_t device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
} nvmlEventData_t;

API nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
    ENTER(-1);
    REQUIRE(set);
    *set = calloc(1, sizeof **set);
    return *set ? NVML_SUCCESS : NVML_ERROR_MEMORY;
}

API nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
    ENTER(-1);
    REQUIRE(set);
    free(set);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types) {
    ENTER_DEVICE(device);
    REQUIRE(types);
    *types = EVENT_XID;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set) {
    ENTER_DEVICE(device);
    REQUIRE(set);
    if (types & ~EVENT_XID) return NVML_ERROR_NOT_SUPPORTED;
    set->types[index] |= types;
    set->heard_ns[index] = gws_now_ns();
    return NVML_SUCCESS;
}

static bool next_event(const gws_state *state, struct event_set *set, nvmlEventData_t *event) {
    for (uint32_t index = 0; index < state->device_count; index++) {
        int64_t xid;
        uint64_t at_ns = atomic_load(&state->device[index].override_at_ns[GWS_SET_XID]);
        if (!set->types[index] || at_ns <= set->heard_ns[index]) continue;
        if (!gws_override(state, index, GWS_SET_XID, &xid)) continue;
        set->heard_ns[index] = at_ns;
        *event = (nvmlEventData_t){&nvml_handles[index], EVENT_XID, (unsigned long long)xid, NO_INSTANCE, NO_INSTANCE};
        return true;
    }
    return false;
}

static nvmlReturn_t wait_for_event(const gws_state *state, nvmlEventSet_t set, nvmlEventData_t *event, unsigned ms) {
    REQUIRE(set && event);
    for (;;) {
        if (next_event(state, set, event)) return NVML_SUCCESS;
        if (!ms) return NVML_ERROR_TIMEOUT;
        unsigned pause = ms < LOOK_AGAIN_MS ? ms : LOOK_AGAIN_MS;
        nanosleep(&(struct timespec){0, pause * 1000000L}, NULL);
        ms -= pause;
    }
}

API nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *event, unsigned ms) {
    ENTER(-1);
    return wait_for_event(state, set, event, ms);
}

API nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *event, unsigned ms) {
    ENTER(-1);
    return wait_for_event(state, set, event, ms);
}
