/* Accounting mode of the simulated libnvidia-ml.so.1: what each process used from its start to its end.
 *
 * Off, as on a new machine, until "accounting_mode" is set to 1; NVIDIA's is switched by an administrator. Processes
 * count that began since then. With MIG there is none. */
#define _GNU_SOURCE
#include "nvml_internal.h"

#include <string.h>

#define MOST (GWS_MAX_PROCESSES + GWS_ACCOUNTED)

typedef struct {
    unsigned gpu_percent, memory_percent;
    unsigned long long peak_bytes, time_ms, start_us;
    unsigned running, reserved[5];
} nvmlAccountingStats_t;

static bool is_on(const gws_state *state, uint32_t index) {
    return gws_overridden(state, index, GWS_SET_ACCOUNTING_MODE, 0) && !gws_mig_is_on(state, index);
}

UNSIGNED_GETTER(nvmlDeviceGetAccountingMode, is_on(state, index))
UNSIGNED_GETTER(nvmlDeviceGetAccountingBufferSize, MOST)

API nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned *count, unsigned *pids) {
    ENTER_DEVICE(device);
    REQUIRE(count);
    if (!is_on(state, index)) return NVML_ERROR_NOT_SUPPORTED;
    gws_accounted all[MOST];
    unsigned there = gws_list_accounted(state, index, all, MOST), room = pids ? *count : 0;
    *count = there;
    if (there > room) return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < there; i++) pids[i] = (unsigned)all[i].pid;
    return NVML_SUCCESS;
}

static unsigned share(uint64_t part_ns, uint64_t whole_ns) {
    if (!whole_ns) return 0;
    return part_ns >= whole_ns ? 100 : (unsigned)(100 * part_ns / whole_ns);
}

API nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned pid, nvmlAccountingStats_t *stats) {
    ENTER_DEVICE(device);
    REQUIRE(stats);
    if (!is_on(state, index)) return NVML_ERROR_NOT_SUPPORTED;
    gws_accounted all[MOST];
    unsigned there = gws_list_accounted(state, index, all, MOST);
    for (unsigned i = 0; i < there; i++) {
        if ((unsigned)all[i].pid != pid) continue;
        memset(stats, 0, sizeof *stats);
        stats->gpu_percent = share(all[i].busy_ns, all[i].time_ns);
        stats->memory_percent = share(all[i].memory_ns, all[i].time_ns);
        stats->peak_bytes = all[i].peak_bytes;
        stats->time_ms = all[i].running ? 0 : all[i].time_ns / 1000000; /* as NVIDIA's: once it has ended */
        stats->start_us = gws_wall_us(state, all[i].entered_ns);
        stats->running = all[i].running;
        return NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_FOUND;
}
