/* MIG of the simulated libnvidia-ml.so.1: handles of instances, and what they are. Memory and processes of
 * an instance answer in nvml.c, beside those of whole devices. */
#define _GNU_SOURCE
#include "nvml_internal.h"

#include <stdio.h>
#include <string.h>

UNSIGNED_GETTER(nvmlDeviceGetMaxMigDeviceCount, GWS_MAX_MIG)

API nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending) {
    ENTER_DEVICE(device);
    REQUIRE(current && pending);
    REPLAY_PAIR(current, pending);
    *current = *pending = (unsigned)gws_mig_is_on(state, index);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned place, nvmlDevice_t *out) {
    ENTER_DEVICE(device);
    REQUIRE(out && place < GWS_MAX_MIG);
    if (!gws_mig_is_on(state, index)) return NVML_ERROR_NOT_SUPPORTED;
    if (!card->mig[place].present) return NVML_ERROR_NOT_FOUND;
    *out = &nvml_mig_handles[index][place];
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *out) {
    ENTER_PART(device);
    REQUIRE(out);
    *out = mig >= 0;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t device, nvmlDevice_t *out) {
    ENTER_PART(device);
    REQUIRE(out && mig >= 0);
    *out = &nvml_handles[index];
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned *out) {
    ENTER_PART(device);
    REQUIRE(out && mig >= 0);
    *out = card->mig[mig].gpu_instance;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned *out) {
    ENTER_PART(device);
    REQUIRE(out && mig >= 0);
    *out = card->mig[mig].compute_instance;
    return NVML_SUCCESS;
}

typedef struct {
    unsigned multiprocessors, copy_engines, decoders, encoders, jpeg, ofa, gpu_slices, compute_slices;
    unsigned long long memory_mib;
} nvmlDeviceAttributes_t;

API nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *out) {
    ENTER_PART(device);
    REQUIRE(out);
    if (mig < 0) return NVML_ERROR_NOT_SUPPORTED;
    const gws_mig *part = &card->mig[mig];
    *out = (nvmlDeviceAttributes_t){
        .multiprocessors = part->multiprocessors,
        .copy_engines = part->gpu_slices,
        .gpu_slices = part->gpu_slices,
        .compute_slices = part->compute_slices,
        .memory_mib = part->memory_bytes >> 20,
    };
    REPLAY((uint64_t)(mig + 1), out->multiprocessors = (unsigned)answer->number[0]);
    return NVML_SUCCESS;
}

/* "1g.3gb", as nvidia-smi names a profile: slices of compute, and the share of the card's memory in GB. */
static void profile_name(const gws_device *card, const gws_mig *part, char *out, size_t room) {
    unsigned long long usable = card->total_bytes - card->reserved_bytes;
    unsigned eighths = (unsigned)((part->memory_bytes * 8 + usable / 2) / usable);
    unsigned whole = (unsigned)((card->total_bytes + (1ull << 30) - 1) >> 30);
    char compute[16] = "";
    if (part->compute_slices != part->gpu_slices) snprintf(compute, sizeof compute, "%uc.", part->compute_slices);
    snprintf(out, room, "%s%ug.%ugb", compute, part->gpu_slices, (eighths * whole + 4) / 8);
}

API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length) {
    ENTER_PART(device);
    if (mig < 0) return nvml_put_text(name, length, card->name);
    char profile[32], text[GWS_NAME_BYTES + 40];
    profile_name(card, &card->mig[mig], profile, sizeof profile);
    snprintf(text, sizeof text, "%s MIG %s", card->name, profile);
    return nvml_put_text(name, length, text);
}
