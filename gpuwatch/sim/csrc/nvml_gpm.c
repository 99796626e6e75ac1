/* GPM (activity of the parts of a GPU) of the simulated libnvidia-ml.so.1.
 *
 * Supported by cards from Hopper (9.0) on, and once "gpm" is set to 1. Between two samples it tells what
 * the state knows: the share of time in which kernels ran and memory was moved, and PCIe traffic. Of the pipes
 * it tells the tensor cores alone, as part of the busy time, where "tensor_percent" is set. */
#define _GNU_SOURCE
#include "nvml_internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    unsigned version, supported;
} nvmlGpmSupport_t;

typedef struct gpm_sample {
    int32_t device; /* -1: empty */
    int32_t mig;    /* index of an instance; -1: the whole device */
    double sm_share; /* of an instance, whose busy time is not accumulated */
    uint64_t at_ns, busy_ns, to_device, to_host, nvlink_sent, nvlink_received;
    double memory_share;
} *nvmlGpmSample_t;

typedef struct {
    char *short_name, *long_name, *unit;
} metric_info;

typedef struct {
    unsigned id;
    nvmlReturn_t code;
    double value;
    metric_info info;
} gpm_metric;

typedef struct {
    unsigned version, count;
    nvmlGpmSample_t first, second;
    gpm_metric metric[]; /* the caller has room for at least `count` */
} nvmlGpmMetricsGet_t;

static bool supported(const gws_state *state, uint32_t index) {
    return gws_overridden(state, index, GWS_SET_GPM, gws_capability(state, &state->device[index]) >= 90) != 0;
}

API nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *out) {
    ENTER_DEVICE(device);
    REQUIRE(out);
    if (out->version != 1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    out->supported = supported(state, index);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *out) {
    ENTER(-1);
    REQUIRE(out);
    *out = calloc(1, sizeof **out);
    if (!*out) return NVML_ERROR_MEMORY;
    (*out)->device = -1;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample) {
    ENTER(-1);
    REQUIRE(sample);
    free(sample);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample) {
    ENTER_DEVICE(device);
    REQUIRE(sample);
    if (!supported(state, index) || gws_mig_is_on(state, index)) return NVML_ERROR_NOT_SUPPORTED;
    *sample = (struct gpm_sample){
        .device = (int32_t)index,
        .mig = -1,
        .at_ns = gws_now_ns(),
        .busy_ns = gws_device_busy_ns(state, index),
        .to_device = atomic_load(&card->host_to_device_bytes),
        .to_host = atomic_load(&card->device_to_host_bytes),
        .nvlink_sent = gws_grown(state, index, GWS_SET_NVLINK_TX_BYTES_PER_SECOND),
        .nvlink_received = gws_grown(state, index, GWS_SET_NVLINK_RX_BYTES_PER_SECOND),
        .memory_share = gws_device_load(state, index).memory_share,
    };
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned gpu_instance, nvmlGpmSample_t sample) {
    ENTER_DEVICE(device);
    REQUIRE(sample);
    if (!supported(state, index)) return NVML_ERROR_NOT_SUPPORTED;
    gws_mig part;
    for (uint32_t place = 0; place < GWS_MAX_MIG; place++) {
        if (gws_get_mig(state, index, place, &part) || part.gpu_instance != gpu_instance) continue;
        gws_load load = gws_mig_load(state, index, place);
        *sample = (struct gpm_sample){
            .device = (int32_t)index,
            .mig = (int32_t)place,
            .at_ns = gws_now_ns(),
            .sm_share = load.sm_share,
            .memory_share = load.memory_share,
        };
        return NVML_SUCCESS;
    }
    return NVML_ERROR_INVALID_ARGUMENT;
}

#define MIB 1048576.0

static nvmlReturn_t measure(const gws_state *state, const struct gpm_sample *a, const struct gpm_sample *b,
                            unsigned id, double *out) {
    double seconds = (double)(b->at_ns - a->at_ns) * 1e-9;
    double busy = (double)(b->busy_ns - a->busy_ns) * 1e-9 / seconds * 100;
    int64_t value;
    if (busy > 100) busy = 100;
    if (a->mig >= 0) {
        busy = (a->sm_share + b->sm_share) / 2 * 100;
        if (id >= 20) return NVML_ERROR_NOT_SUPPORTED; /* links belong to the whole device */
    }
    switch (id) {
    case 1: case 2: *out = busy; return NVML_SUCCESS; /* graphics engine, SMs */
    case 5:                                           /* tensor cores of any kind */
        if (!gws_override(state, (uint32_t)a->device, GWS_SET_TENSOR_PERCENT, &value)) return NVML_ERROR_NOT_SUPPORTED;
        *out = busy * (double)value / 100;
        return NVML_SUCCESS;
    case 10: *out = (a->memory_share + b->memory_share) / 2 * 100; return NVML_SUCCESS; /* DRAM bandwidth */
    case 20: *out = (double)(b->to_host - a->to_host) / MIB / seconds; return NVML_SUCCESS; /* PCIe, MiB/s */
    case 21: *out = (double)(b->to_device - a->to_device) / MIB / seconds; return NVML_SUCCESS;
    case 60: case 61: /* NVLink received, sent */
        if (!gws_override(state, (uint32_t)a->device, GWS_SET_NVLINK_LINKS, &value)) return NVML_ERROR_NOT_SUPPORTED;
        *out = (double)(id == 60 ? b->nvlink_received - a->nvlink_received : b->nvlink_sent - a->nvlink_sent) / MIB /
               seconds;
        return NVML_SUCCESS;
    default: return NVML_ERROR_NOT_SUPPORTED;
    }
}

API nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *get) {
    ENTER(get && get->first ? get->first->device : -1);
    REQUIRE(get);
    if (get->version != 1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    const struct gpm_sample *a = get->first, *b = get->second;
    REQUIRE(a && b && a->device >= 0 && a->device == b->device && a->mig == b->mig && b->at_ns > a->at_ns);
    for (unsigned i = 0; i < get->count; i++) {
        gpm_metric *metric = &get->metric[i];
        metric->info = (metric_info){0};
        metric->value = 0;
        metric->code = measure(state, a, b, metric->id, &metric->value);
    }
    return NVML_SUCCESS;
}
