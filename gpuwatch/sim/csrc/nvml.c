/* libnvidia-ml.so.1 of a simulated machine: NVML's own binary interface over the shared state.
 *
 * Every exported function passes ENTER (initialised? a fault for this call?) first. What the simulation
 * does not model answers NVML_ERROR_NOT_SUPPORTED, never a made-up number. Struct layouts and versions are
 * those that nvidia-ml-py declares; numbers of enumerations are NVML's.
 */
#define _GNU_SOURCE
#include "nvml_internal.h"
#include "card_values.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NVML_VERSION "13." GWS_DRIVER_VERSION

struct device_handle nvml_handles[GWS_MAX_DEVICES];
struct device_handle nvml_mig_handles[GWS_MAX_DEVICES][GWS_MAX_MIG];
_Atomic int nvml_init_count;
_Atomic(gws_state *) nvml_machine;

int nvml_find(const struct device_handle *handle, const gws_state *state, int *mig) {
    uintptr_t offset = (uintptr_t)handle - (uintptr_t)nvml_handles, place = offset / sizeof *handle;
    *mig = -1;
    if (offset % sizeof *handle == 0 && place < state->device_count) return (int)place;
    offset = (uintptr_t)handle - (uintptr_t)nvml_mig_handles;
    place = offset / sizeof *handle;
    if (offset % sizeof *handle || place >= (uintptr_t)state->device_count * GWS_MAX_MIG) return -1;
    *mig = (int)(place % GWS_MAX_MIG);
    return (int)(place / GWS_MAX_MIG);
}

nvmlReturn_t nvml_put_text(char *out, unsigned length, const char *text) {
    REQUIRE(out);
    if (strlen(text) + 1 > length) return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(out, text);
    return NVML_SUCCESS;
}

static unsigned percent(double share) { return (unsigned)lround(share * 100.0); }

/* Two versions of a function, alike but for their names, which faults tell apart. */
#define WITH_V2(function, parameters, ...)                                                                   \
    API nvmlReturn_t function parameters __VA_ARGS__                                                         \
    API nvmlReturn_t function##_v2 parameters __VA_ARGS__

/* --- the library ------------------------------------------------------------------------------------ */

/* Not part of NVML: by this symbol a client can tell that the GPUs are simulated. */
API const char *gpuwatch_sim_version(void) { return "1"; }

static nvmlReturn_t start(const char *function) {
    static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
    gws_state *state = gws_default();
    if (!state) return NVML_ERROR_DRIVER_NOT_LOADED;
    int code = gws_fault_check(state, function, -1);
    if (code) return code;
    pthread_mutex_lock(&starting);
    if (atomic_load(&nvml_init_count) == 0) { /* otherwise it keeps its machine */
        for (uint32_t i = 0; i < GWS_MAX_DEVICES; i++) nvml_handles[i].index = i;
        atomic_store_explicit(&nvml_machine, state, memory_order_release);
    }
    atomic_fetch_add(&nvml_init_count, 1);
    pthread_mutex_unlock(&starting);
    return NVML_SUCCESS;
}

WITH_V2(nvmlInit, (void), { return start(__func__); })
API nvmlReturn_t nvmlInitWithFlags(unsigned flags) { return start(__func__); }

API nvmlReturn_t nvmlShutdown(void) {
    ENTER(-1);
    int count = atomic_load(&nvml_init_count);
    do {
        if (count <= 0) return NVML_ERROR_UNINITIALIZED;
    } while (!atomic_compare_exchange_weak(&nvml_init_count, &count, count - 1));
    return NVML_SUCCESS;
}

API const char *nvmlErrorString(nvmlReturn_t code) {
    static const char *const texts[] = {
        "Success", "Uninitialized", "Invalid Argument", "Not Supported", "Insufficient Permissions",
        "Already Initialized", "Not Found", "Insufficient Size", "Insufficient External Power",
        "Driver Not Loaded", "Timeout", "Interrupt Request Issue", "NVML Shared Library Not Found",
        "Function Not Found", "Corrupted infoROM", "GPU is lost", "GPU requires reset",
        "The operating system has blocked the request", "Driver/library version mismatch", "In use by another client",
        "Insufficient Memory", "No data", "ECC is not supported on this vGPU", "Insufficient Resources",
        "The requested frequency is not supported", "Argument version mismatch", "Deprecated",
        "Not Ready", "GPU Not Found", "Invalid State", "Reset type not supported",
    };
    if (code >= 0 && (size_t)code < sizeof texts / sizeof *texts) return texts[code];
    return "Unknown Error";
}

API nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length) {
    ENTER(-1);
    const uint32_t index = 0; /* what is said of the driver is kept with the first device */
    REPLAY(0, return nvml_put_text(version, length, answer->text));
    return nvml_put_text(version, length, GWS_DRIVER_VERSION);
}

API nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length) {
    ENTER(-1);
    return nvml_put_text(version, length, NVML_VERSION);
}

WITH_V2(nvmlSystemGetCudaDriverVersion, (int *version), {
    ENTER(-1);
    REQUIRE(version);
    *version = gws_cuda_version(state);
    return NVML_SUCCESS;
})

API nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length) {
    ENTER(-1);
    REQUIRE(name && length);
    char path[32];
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return NVML_ERROR_NOT_FOUND;
    char text[1024];
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    if (got <= 0) return NVML_ERROR_NOT_FOUND;
    text[got] = 0;                     /* its first argument, as NVML gives it ... */
    snprintf(name, length, "%s", text); /* ... cut to the room that there is */
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlUnitGetCount(unsigned *count) {
    ENTER(-1);
    REQUIRE(count);
    *count = 0; /* S-class units: a simulated machine has none */
    return NVML_SUCCESS;
}

/* --- finding a device ------------------------------------------------------------------------------- */

static nvmlReturn_t hand_out(gws_state *state, const char *function, uint32_t index, nvmlDevice_t *device) {
    int code = gws_fault_check(state, function, (int32_t)index);
    if (code) return code;
    *device = &nvml_handles[index];
    return NVML_SUCCESS;
}

WITH_V2(nvmlDeviceGetCount, (unsigned *count), {
    ENTER(-1);
    REQUIRE(count);
    *count = gws_shown_count(state);
    return NVML_SUCCESS;
})

/* Faults are checked when the device is known. */
WITH_V2(nvmlDeviceGetHandleByIndex, (unsigned index, nvmlDevice_t *device), {
    ENTER_UNCHECKED();
    int place = gws_shown_at(state, index);
    if (!device || place < 0) return NVML_ERROR_INVALID_ARGUMENT;
    return hand_out(state, __func__, (uint32_t)place, device);
})

API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    ENTER_UNCHECKED();
    REQUIRE(uuid && device);
    for (uint32_t i = 0; i < state->device_count; i++) {
        if (gws_is_hidden(state, i)) continue;
        if (strcmp(state->device[i].uuid, uuid) == 0) return hand_out(state, __func__, i, device);
        gws_mig part;
        for (uint32_t slot = 0; slot < GWS_MAX_MIG; slot++) {
            if (gws_get_mig(state, i, slot, &part) != 0 || strcmp(part.uuid, uuid) != 0) continue;
            CHECK_FAULTS((int)i);
            *device = &nvml_mig_handles[i][slot];
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

typedef struct {
    unsigned version, type;
    union {
        char text[41];
        unsigned char bytes[16];
    } value;
} nvmlUUID_t;

API nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const nvmlUUID_t *uuid, nvmlDevice_t *device) {
    ENTER_UNCHECKED();
    REQUIRE(uuid && device);
    if (uuid->version != STRUCT_VERSION(nvmlUUID_t, 1)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (uuid->type != 1 && uuid->type != 2) return NVML_ERROR_INVALID_ARGUMENT;
    for (uint32_t i = 0; i < state->device_count; i++) {
        const gws_device *card = &state->device[i];
        if (gws_is_hidden(state, i)) continue;
        bool same = uuid->type == 1 ? strncmp(card->uuid, uuid->value.text, sizeof uuid->value.text) == 0
                                    : memcmp(card->uuid_bytes, uuid->value.bytes, 16) == 0;
        if (same) return hand_out(state, __func__, i, device);
    }
    return NVML_ERROR_NOT_FOUND;
}

static nvmlReturn_t by_pci(gws_state *state, const char *function, const char *text, nvmlDevice_t *device) {
    REQUIRE(text && device);
    unsigned domain = 0, bus = 0, slot = 0, unit = 0;
    if (sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &unit) < 3) {
        domain = 0;
        if (sscanf(text, "%x:%x.%x", &bus, &slot, &unit) < 2) return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (domain == 0 && slot == 0 && unit == 0)
        for (uint32_t i = 0; i < state->device_count; i++)
            if (state->device[i].pci_bus == bus && !gws_is_hidden(state, i)) return hand_out(state, function, i, device);
    return NVML_ERROR_NOT_FOUND;
}

WITH_V2(nvmlDeviceGetHandleByPciBusId, (const char *pci, nvmlDevice_t *device), {
    ENTER_UNCHECKED();
    return by_pci(state, __func__, pci, device);
})

/* --- identity --------------------------------------------------------------------------------------- */

API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length) {
    ENTER_PART(device);
    return nvml_put_text(uuid, length, mig < 0 ? card->uuid : card->mig[mig].uuid);
}

/* Its place among the devices that are shown. */
static unsigned place_of(const gws_state *state, uint32_t index) {
    unsigned place = 0;
    for (uint32_t i = 0; i < index; i++) place += !gws_is_hidden(state, i);
    return place;
}

UNSIGNED_GETTER(nvmlDeviceGetIndex, place_of(state, index))
UNSIGNED_GETTER(nvmlDeviceGetMinorNumber, index)
UNSIGNED_GETTER(nvmlDeviceGetNumGpuCores, card->cores)
UNSIGNED_GETTER(nvmlDeviceGetArchitecture, 7 /* Ampere */)
UNSIGNED_GETTER(nvmlDeviceGetBrand, 0 /* unknown: simulated cards have no brand */)
UNSIGNED_GETTER(nvmlDeviceGetMemoryBusWidth, CARD_MEMORY_BUS_BITS)
UNSIGNED_GETTER(nvmlDeviceGetBusType, 2 /* PCI Express */)
UNSIGNED_GETTER(nvmlDeviceGetPowerSource, 0 /* mains */)
UNSIGNED_GETTER(nvmlDeviceGetBoardId, card->pci_bus << 8)
UNSIGNED_GETTER(nvmlDeviceGetMultiGpuBoard, 0)
UNSIGNED_GETTER(nvmlDeviceGetComputeMode, gws_overridden(state, index, GWS_SET_COMPUTE_MODE, 0))
UNSIGNED_GETTER(nvmlDeviceGetPersistenceMode, gws_overridden(state, index, GWS_SET_PERSISTENCE_MODE, 0))
UNSIGNED_GETTER(nvmlDeviceGetDisplayMode, 0)
UNSIGNED_GETTER(nvmlDeviceGetDisplayActive, 0)

API nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    ENTER_DEVICE(device);
    REQUIRE(major && minor);
    *major = gws_capability(state, card) / 10;
    *minor = gws_capability(state, card) % 10;
    return NVML_SUCCESS;
}

#define PCI_DEVICE_ID 0x00000000u /* no vendor sells this device */

typedef struct {
    char bus_id[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id, reserved[4];
} nvmlPciInfo_v2_t;

WITH_V2(nvmlDeviceGetPciInfo, (nvmlDevice_t device, nvmlPciInfo_v2_t *out), {
    ENTER_DEVICE(device);
    REQUIRE(out);
    memset(out, 0, sizeof *out);
    snprintf(out->bus_id, sizeof out->bus_id, "%s", card->pci_bus_id);
    out->bus = card->pci_bus;
    out->pci_device_id = PCI_DEVICE_ID;
    return NVML_SUCCESS;
})

API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *out) {
    ENTER_DEVICE(device);
    REQUIRE(out);
    memset(out, 0, sizeof *out);
    snprintf(out->bus_id_legacy, sizeof out->bus_id_legacy, "%s", card->pci_bus_id);
    snprintf(out->bus_id, sizeof out->bus_id, "0000%s", card->pci_bus_id);
    out->bus = card->pci_bus;
    out->pci_device_id = PCI_DEVICE_ID;
    return NVML_SUCCESS;
}

typedef struct {
    unsigned version, domain, bus, device, pci_device_id, pci_subsystem_id, base_class, sub_class;
    char bus_id[32];
} nvmlPciInfoExt_t;

API nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_t *out) {
    ENTER_DEVICE(device);
    REQUIRE(out);
    if (out->version != STRUCT_VERSION(nvmlPciInfoExt_t, 1)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    unsigned version = out->version;
    memset(out, 0, sizeof *out);
    out->version = version;
    out->bus = card->pci_bus;
    out->pci_device_id = PCI_DEVICE_ID;
    out->base_class = 3; /* display controller ... */
    out->sub_class = 2;  /* ... for 3D */
    snprintf(out->bus_id, sizeof out->bus_id, "0000%s", card->pci_bus_id);
    return NVML_SUCCESS;
}

/* --- memory ----------------------------------------------------------------------------------------- */

typedef struct {
    unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;

typedef struct {
    unsigned version, mode;
} nvmlDeviceAddressingMode_t;

/* Neither HMM nor ATS: host and device have an address space each. */
API nvmlReturn_t nvmlDeviceGetAddressingMode(nvmlDevice_t device, nvmlDeviceAddressingMode_t *out) {
    ENTER_DEVICE(device);
    REQUIRE(out);
    if (out->version != STRUCT_VERSION(nvmlDeviceAddressingMode_t, 1)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    REPLAY(0, out->mode = (unsigned)answer->number[0]);
    out->mode = 0;
    return NVML_SUCCESS;
}

/* Of a described machine: total, reserved, free and used as described, and what programs hold besides. */
static void described_memory(const gws_answer *answer, uint64_t held, nvmlMemory_v2_t *out) {
    const uint64_t free_bytes = (uint64_t)answer->number[2];
    out->total = (unsigned long long)answer->number[0];
    out->reserved = (unsigned long long)answer->number[1];
    out->free = free_bytes > held ? free_bytes - held : 0;
    out->used = (unsigned long long)answer->number[3] + held;
}

static nvmlReturn_t memory(gws_state *state, uint32_t index, int mig, nvmlMemory_v2_t *out) {
    const gws_device *card = &state->device[index];
    const uint64_t held = mig < 0 ? gws_used_bytes(state, index) : gws_mig_used_bytes(state, index, (uint32_t)mig);
    const gws_answer *answer = gws_find_answer(state, index, "nvmlDeviceGetMemoryInfo", (uint64_t)(mig + 1));
    if (answer && !answer->code) described_memory(answer, held, out);
    if (answer) return answer->code;
    if (mig < 0) {
        out->total = card->total_bytes;
        out->reserved = card->reserved_bytes;
        out->used = held;
    } else {
        gws_mig part;
        if (gws_get_mig(state, index, (uint32_t)mig, &part)) return NVML_ERROR_NOT_FOUND;
        out->total = part.memory_bytes;
        out->reserved = 0; /* of the whole card */
        out->used = held;
        if (out->used > out->total) out->used = out->total;
    }
    out->free = out->total - out->reserved - out->used;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *out) {
    ENTER_PART(device);
    REQUIRE(out);
    nvmlMemory_v2_t whole = {0};
    nvmlReturn_t code = memory(state, index, mig, &whole);
    out->total = whole.total;
    out->used = whole.used + whole.reserved; /* version 1 counts the reserve as used */
    out->free = whole.free;
    return code;
}

API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *out) {
    ENTER_PART(device);
    REQUIRE(out);
    if (out->version != STRUCT_VERSION(nvmlMemory_v2_t, 2)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    const gws_answer *refused = gws_find_answer(state, index, __func__, 0); /* older drivers know version 1 only */
    if (refused) return refused->code;
    return memory(state, index, mig, out);
}

/* --- activity --------------------------------------------------------------------------------------- */

typedef struct {
    unsigned gpu, memory;
} nvmlUtilization_t;

API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *out) {
    ENTER_DEVICE(device);
    REQUIRE(out);
    REPLAY(0, (out->gpu = (unsigned)answer->number[0], out->memory = (unsigned)answer->number[1]));
    if (gws_mig_is_on(state, index)) return NVML_ERROR_NOT_SUPPORTED; /* as the real library */
    gws_load load = gws_device_load(state, index);
    out->gpu = percent(load.sm_share);
    out->memory = percent(load.memory_share);
    return NVML_SUCCESS;
}

/* Video engines are not simulated: they have a value only if it was set. */
static nvmlReturn_t engine(const gws_state *state, uint32_t index, gws_override_key key, unsigned *share,
                           unsigned *period_us) {
    int64_t value;
    REQUIRE(share && period_us);
    if (!gws_override(state, index, key, &value) || gws_mig_is_on(state, index)) return NVML_ERROR_NOT_SUPPORTED;
    *share = (unsigned)value;
    *period_us = (unsigned)(GWS_WINDOW_NS / 1000);
    return NVML_SUCCESS;
}

#define ENGINE(name, key)                                                                                    \
    API nvmlReturn_t nvmlDeviceGet##name##Utilization(nvmlDevice_t device, unsigned *share, unsigned *period_us) { \
        ENTER_DEVICE(device);                                                                                \
        REQUIRE(share && period_us);                                                                         \
        REPLAY_PAIR(share, period_us);                                                                       \
        return engine(state, index, key, share, period_us);                                                  \
    }
ENGINE(Encoder, GWS_SET_ENCODER_PERCENT)
ENGINE(Decoder, GWS_SET_DECODER_PERCENT)
ENGINE(Jpg, GWS_SET_JPEG_PERCENT)
ENGINE(Ofa, GWS_SET_OFA_PERCENT)

static unsigned celsius(gws_state *state, uint32_t index) {
    double heat = gws_device_heat(state, index);
    return (unsigned)gws_overridden(state, index, GWS_SET_TEMPERATURE_CELSIUS,
                                lround(CARD_IDLE_CELSIUS + (CARD_FULL_CELSIUS - CARD_IDLE_CELSIUS) * heat));
}

API nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned sensor, unsigned *out) {
    ENTER_DEVICE(device);
    REQUIRE(out && sensor == 0);
    REPLAY(sensor, *out = (unsigned)answer->number[0]);
    *out = celsius(state, index);
    return NVML_SUCCESS;
}

typedef struct {
    unsigned version, sensor;
    int celsius;
} nvmlTemperature_t;

API nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *out) {
    ENTER_DEVICE(device);
    REQUIRE(out);
    if (out->version != STRUCT_VERSION(nvmlTemperature_t, 1)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    REQUIRE(out->sensor == 0);
    out->celsius = (int)celsius(state, index);
    return NVML_SUCCESS;
}

static int slowdown_celsius(const gws_state *state, uint32_t index) {
    return (int)gws_overridden(state, index, GWS_SET_SLOWDOWN_CELSIUS, CARD_SLOWDOWN_CELSIUS);
}

typedef struct {
    unsigned version;
    int celsius;
} nvmlMarginTemperature_t;

API nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t device, nvmlMarginTemperature_t *out) {
    ENTER_DEVICE(device);
    REQUIRE(out);
    if (out->version != STRUCT_VERSION(nvmlMarginTemperature_t, 1)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    REPLAY(0, out->celsius = (int)answer->number[0]);
    out->celsius = slowdown_celsius(state, index) - (int)celsius(state, index);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, unsigned kind, unsigned *out) {
    ENTER_DEVICE(device);
    REQUIRE(out && kind < 8);
    REPLAY(kind, *out = (unsigned)answer->number[0]);
    int64_t value;
    switch (kind) {
    case 0:
        *out = (unsigned)gws_overridden(state, index, GWS_SET_SHUTDOWN_CELSIUS, CARD_SHUTDOWN_CELSIUS);
        return NVML_SUCCESS;
    case 1: *out = (unsigned)slowdown_celsius(state, index); return NVML_SUCCESS;
    case 2: /* the highest of the memory */
        if (!gws_override(state, index, GWS_SET_MEMORY_MAX_CELSIUS, &value)) return NVML_ERROR_NOT_SUPPORTED;
        *out = (unsigned)value;
        return NVML_SUCCESS;
    case 3:
        *out = (unsigned)gws_overridden(state, index, GWS_SET_OPERATING_MAX_CELSIUS, CARD_OPERATING_MAX_CELSIUS);
        return NVML_SUCCESS;
    default: return NVML_ERROR_NOT_SUPPORTED;
    }
}

static unsigned draw_mw(gws_state *state, uint32_t index) {
    const gws_device *card = &state->device[index];
    double dynamic = (double)(card->power_full_mw - card->power_idle_mw);
    double mw = card->power_idle_mw + dynamic * gws_device_load(state, index).sm_share;
    double limit = (double)gws_overridden(state, index, GWS_SET_POWER_LIMIT_MW, card->power_limit_mw);
    return (unsigned)gws_overridden(state, index, GWS_SET_POWER_MW, lround(mw < limit ? mw : limit));
}

static unsigned long long energy_mj(gws_state *state, uint32_t index) {
    const gws_device *card = &state->device[index];
    double idle = card->power_idle_mw * (double)(gws_now_ns() - state->created_ns) * 1e-9;
    double dynamic = (double)(card->power_full_mw - card->power_idle_mw);
    return (unsigned long long)(idle + dynamic * (double)gws_device_busy_ns(state, index) * 1e-9);
}

static unsigned power_limit_mw(const gws_state *state, uint32_t index) {
    return (unsigned)gws_overridden(state, index, GWS_SET_POWER_LIMIT_MW, state->device[index].power_limit_mw);
}

UNSIGNED_GETTER(nvmlDeviceGetPowerUsage, draw_mw(state, index))
UNSIGNED_GETTER(nvmlDeviceGetEnforcedPowerLimit, power_limit_mw(state, index))
UNSIGNED_GETTER(nvmlDeviceGetPowerManagementLimit, power_limit_mw(state, index))
UNSIGNED_GETTER(nvmlDeviceGetPowerManagementDefaultLimit, card->power_limit_mw)
UNSIGNED_GETTER(nvmlDeviceGetPowerManagementMode, 1)

API nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned *low, unsigned *high) {
    ENTER_DEVICE(device);
    REQUIRE(low && high);
    REPLAY_PAIR(low, high);
    *low = CARD_POWER_LEAST_LIMIT_MW;
    *high = card->power_limit_mw;
    return NVML_SUCCESS;
}

/* As on GeForce cards, clocks rise while a context exists and fall without one. */
static bool awake(gws_state *state, uint32_t index) {
    return gws_device_in_use(state, index) || gws_device_load(state, index).sm_share > 0.005;
}

static unsigned sm_clock(gws_state *state, uint32_t index) {
    const gws_device *card = &state->device[index];
    unsigned mhz = card->sm_clock_idle_mhz;
    if (awake(state, index)) /* a warm card boosts less, in steps of 15 MHz */
        mhz = card->sm_clock_full_mhz - 15 * (unsigned)(gws_device_heat(state, index) * 6.0);
    return (unsigned)gws_overridden(state, index, GWS_SET_SM_CLOCK_MHZ, mhz);
}

API nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned kind, unsigned *mhz) {
    ENTER_DEVICE(device);
    REQUIRE(mhz && kind < 4);
    REPLAY(kind, *mhz = (unsigned)answer->number[0]);
    if (kind == 3) return NVML_ERROR_NOT_SUPPORTED; /* video */
    if (kind == 2)
        *mhz = awake(state, index) ? card->memory_clock_full_mhz : card->memory_clock_idle_mhz;
    else
        *mhz = sm_clock(state, index);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, unsigned kind, unsigned *mhz) {
    ENTER_DEVICE(device);
    REQUIRE(mhz && kind < 4);
    REPLAY(kind, *mhz = (unsigned)answer->number[0]);
    if (kind == 3) return NVML_ERROR_NOT_SUPPORTED;
    *mhz = kind == 2 ? card->memory_clock_full_mhz : card->sm_clock_max_mhz;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, unsigned kind, unsigned id, unsigned *mhz) {
    ENTER_DEVICE(device);
    REQUIRE(mhz && kind < 4 && id < 4);
    if (id != 0 || kind == 3) return NVML_ERROR_NOT_SUPPORTED; /* the current one only */
    if (kind == 2)
        *mhz = awake(state, index) ? card->memory_clock_full_mhz : card->memory_clock_idle_mhz;
    else
        *mhz = sm_clock(state, index);
    return NVML_SUCCESS;
}

static unsigned pstate(gws_state *state, uint32_t index) { return awake(state, index) ? 2 : 8; }

UNSIGNED_GETTER(nvmlDeviceGetPerformanceState, pstate(state, index))
UNSIGNED_GETTER(nvmlDeviceGetPowerState, pstate(state, index))

#define REASON_IDLE 0x1ull
#define REASONS_SUPPORTED 0x1ffull

static unsigned long long clock_reasons(gws_state *state, uint32_t index) {
    return (unsigned long long)gws_overridden(state, index, GWS_SET_CLOCK_EVENT_REASONS,
                                          awake(state, index) ? 0 : (int64_t)REASON_IDLE);
}

#define LONG_GETTER(function, expression)                                                                    \
    API nvmlReturn_t function(nvmlDevice_t device, unsigned long long *out) {                                \
        ENTER_DEVICE(device);                                                                                \
        REQUIRE(out);                                                                                        \
        REPLAY(0, *out = (unsigned long long)answer->number[0]);                                             \
        *out = (expression);                                                                                 \
        return NVML_SUCCESS;                                                                                 \
    }

LONG_GETTER(nvmlDeviceGetTotalEnergyConsumption, energy_mj(state, index))
LONG_GETTER(nvmlDeviceGetCurrentClocksEventReasons, clock_reasons(state, index))
LONG_GETTER(nvmlDeviceGetCurrentClocksThrottleReasons, clock_reasons(state, index))
LONG_GETTER(nvmlDeviceGetSupportedClocksEventReasons, REASONS_SUPPORTED)
LONG_GETTER(nvmlDeviceGetSupportedClocksThrottleReasons, REASONS_SUPPORTED)

static unsigned fan(gws_state *state, uint32_t index) {
    double heat = gws_device_heat(state, index);
    return (unsigned)gws_overridden(
        state, index, GWS_SET_FAN_PERCENT,
        lround(CARD_FAN_COOL_PERCENT + (CARD_FAN_HOT_PERCENT - CARD_FAN_COOL_PERCENT) * heat));
}

UNSIGNED_GETTER(nvmlDeviceGetNumFans, 1)
UNSIGNED_GETTER(nvmlDeviceGetFanSpeed, fan(state, index))

API nvmlReturn_t nvmlDeviceGetFanSpeed_v2(nvmlDevice_t device, unsigned number, unsigned *out) {
    ENTER_DEVICE(device);
    REQUIRE(out && number == 0);
    *out = fan(state, index);
    return NVML_SUCCESS;
}

/* --- PCI Express ------------------------------------------------------------------------------------ */

static unsigned link_generation(gws_state *state, uint32_t index) {
    int64_t value; /* an idle card's link slows down too, so a low generation means nothing without load */
    if (gws_override(state, index, GWS_SET_PCIE_GENERATION, &value)) return (unsigned)value;
    return awake(state, index) ? state->device[index].pcie_generation : 1;
}

static unsigned link_mbps(unsigned generation) {
    static const unsigned mbps[] = {0, 2500, 5000, 8000, 16000, 32000, 64000};
    return mbps[generation < 7 ? generation : 0];
}

UNSIGNED_GETTER(nvmlDeviceGetCurrPcieLinkGeneration, link_generation(state, index))
UNSIGNED_GETTER(nvmlDeviceGetCurrPcieLinkWidth, gws_overridden(state, index, GWS_SET_PCIE_WIDTH, card->pcie_width))
UNSIGNED_GETTER(nvmlDeviceGetMaxPcieLinkGeneration, card->pcie_generation)
UNSIGNED_GETTER(nvmlDeviceGetGpuMaxPcieLinkGeneration, card->pcie_generation)
UNSIGNED_GETTER(nvmlDeviceGetMaxPcieLinkWidth, card->pcie_width)
UNSIGNED_GETTER(nvmlDeviceGetPcieLinkMaxSpeed, card->pcie_generation)
UNSIGNED_GETTER(nvmlDeviceGetPcieSpeed, link_mbps(link_generation(state, index)))

#define PCIE_SAMPLE_MS 20         /* the real call measures for 20 ms and blocks that long */
#define ATTACHED_KB_PER_S 3000000 /* assumed traffic of an attached process under full memory load */

API nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, unsigned counter, unsigned *kb_per_s) {
    ENTER_DEVICE(device);
    REQUIRE(kb_per_s && counter < 2);
    REPLAY(counter, *kb_per_s = (unsigned)answer->number[0]);
    _Atomic uint64_t *bytes = counter == 0 ? &card->device_to_host_bytes : &card->host_to_device_bytes;
    uint64_t before = atomic_load(bytes), began_ns = gws_now_ns();
    struct timespec rest = {.tv_nsec = PCIE_SAMPLE_MS * 1000000L};
    nanosleep(&rest, NULL);
    double seconds = (double)(gws_now_ns() - began_ns) * 1e-9;
    double rate = (double)(atomic_load(bytes) - before) / 1000.0 / seconds;
    rate += gws_attached_load(state, index).memory_share * ATTACHED_KB_PER_S * (counter == 0 ? 0.25 : 1.0);
    *kb_per_s = (unsigned)rate;
    return NVML_SUCCESS;
}

/* --- ECC: off, as on a card without it, unless errors were set -------------------------------------- */

static bool ecc_count(const gws_state *state, uint32_t index, bool corrected, unsigned long long *out) {
    int64_t value = 0;
    bool has_corrected = gws_override(state, index, GWS_SET_ECC_CORRECTED, &value);
    unsigned long long first = (unsigned long long)value;
    value = 0;
    bool has_uncorrected = gws_override(state, index, GWS_SET_ECC_UNCORRECTED, &value);
    *out = corrected ? first : (unsigned long long)value;
    return has_corrected || has_uncorrected;
}

API nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned *current, unsigned *pending) {
    ENTER_DEVICE(device);
    REQUIRE(current && pending);
    REPLAY_PAIR(current, pending);
    unsigned long long unused;
    if (!ecc_count(state, index, true, &unused)) return NVML_ERROR_NOT_SUPPORTED;
    *current = *pending = 1;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned kind, unsigned counter,
                                             unsigned long long *out) {
    ENTER_DEVICE(device);
    REQUIRE(out && kind < 2 && counter < 2);
    REPLAY(kind | (uint64_t)counter << 32, *out = (unsigned long long)answer->number[0]);
    return ecc_count(state, index, kind == 0, out) ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

API nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, unsigned kind, unsigned counter,
                                                 unsigned location, unsigned long long *out) {
    ENTER_DEVICE(device);
    REQUIRE(out && kind < 2 && counter < 2 && location < 8);
    if (location != 2) return NVML_ERROR_NOT_SUPPORTED; /* all of them are in the device memory */
    return ecc_count(state, index, kind == 0, out) ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

typedef struct {
    unsigned version;
    unsigned long long total_parity, total_secded, total_corrected, parity, secded, corrected;
    unsigned long long total_l2, total_sm, total_pcie, total_mcu, total_other;
    unsigned threshold_exceeded;
} nvmlEccSramErrorStatus_v1_t;

/* SRAM errors: a set value is reported both since boot and in total, all of it in the SMs. */
API nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device, nvmlEccSramErrorStatus_v1_t *out) {
    ENTER_DEVICE(device);
    REQUIRE(out);
    if (out->version != STRUCT_VERSION(nvmlEccSramErrorStatus_v1_t, 1)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    REPLAY(0, (out->secded = (unsigned long long)answer->number[0],
               out->total_secded = (unsigned long long)answer->number[1],
               out->threshold_exceeded = (unsigned)answer->number[2]));
    int64_t errors = 0, exceeded = 0;
    bool known = gws_override(state, index, GWS_SET_SRAM_UNCORRECTED, &errors);
    known |= gws_override(state, index, GWS_SET_SRAM_THRESHOLD_EXCEEDED, &exceeded);
    if (!known) return NVML_ERROR_NOT_SUPPORTED;
    unsigned long long count = (unsigned long long)errors;
    *out = (nvmlEccSramErrorStatus_v1_t){.version = out->version, .total_secded = count, .secded = count,
                                         .total_sm = count, .threshold_exceeded = exceeded != 0};
    return NVML_SUCCESS;
}

/* --- processes -------------------------------------------------------------------------------------- */

typedef struct {
    unsigned pid;
    unsigned long long used;
} nvmlProcessInfo_v1_t;

typedef struct {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
} nvmlProcessInfo_v2_t; /* version 3 is the same since driver 535.104 */

/* The processes of a device, or of one MIG instance of it. */
static uint32_t list(gws_state *state, uint32_t index, int mig, uint32_t kinds, gws_process_view *views) {
    uint32_t there = gws_list_processes(state, index, kinds, views, GWS_MAX_PROCESSES), kept = 0;
    if (mig < 0) return there;
    for (uint32_t i = 0; i < there; i++)
        if (views[i].mig == mig) views[kept++] = views[i];
    return kept;
}

static unsigned gpu_instance(const gws_state *state, uint32_t index, const gws_process_view *view) {
    return view->mig < 0 ? NO_INSTANCE : state->device[index].mig[view->mig].gpu_instance;
}

static unsigned compute_instance(const gws_state *state, uint32_t index, const gws_process_view *view) {
    return view->mig < 0 ? NO_INSTANCE : state->device[index].mig[view->mig].compute_instance;
}

/* Into `first` or into `later`, the form of the first version or that of the later ones. */
static nvmlReturn_t list_into(gws_state *state, uint32_t index, int mig, uint32_t kinds, unsigned *count,
                              nvmlProcessInfo_v1_t *first, nvmlProcessInfo_v2_t *later) {
    REQUIRE(count);
    gws_process_view views[GWS_MAX_PROCESSES];
    uint32_t there = list(state, index, mig, kinds, views);
    uint32_t room = *count;
    *count = there;
    if (there > room) return NVML_ERROR_INSUFFICIENT_SIZE;
    REQUIRE(first || later || there == 0);
    for (uint32_t i = 0; i < there; i++) {
        if (first)
            first[i] = (nvmlProcessInfo_v1_t){.pid = (unsigned)views[i].pid, .used = views[i].bytes};
        else
            later[i] = (nvmlProcessInfo_v2_t){.pid = (unsigned)views[i].pid,
                                              .used = views[i].bytes,
                                              .gpu_instance = gpu_instance(state, index, &views[i]),
                                              .compute_instance = compute_instance(state, index, &views[i])};
    }
    return NVML_SUCCESS;
}

#define PROCESS_LISTS(family, kinds)                                                                         \
    API nvmlReturn_t nvmlDeviceGet##family##RunningProcesses(nvmlDevice_t device, unsigned *count,           \
                                                             nvmlProcessInfo_v1_t *out) {                    \
        ENTER_PART(device);                                                                                  \
        return list_into(state, index, mig, kinds, count, out, NULL);                                        \
    }                                                                                                        \
    API nvmlReturn_t nvmlDeviceGet##family##RunningProcesses_v2(nvmlDevice_t device, unsigned *count,        \
                                                                nvmlProcessInfo_v2_t *out) {                 \
        ENTER_PART(device);                                                                                  \
        return list_into(state, index, mig, kinds, count, NULL, out);                                        \
    }                                                                                                        \
    API nvmlReturn_t nvmlDeviceGet##family##RunningProcesses_v3(nvmlDevice_t device, unsigned *count,        \
                                                                nvmlProcessInfo_v2_t *out) {                 \
        ENTER_PART(device);                                                                                  \
        return list_into(state, index, mig, kinds, count, NULL, out);                                        \
    }

PROCESS_LISTS(Compute, GWS_KIND_COMPUTE)
PROCESS_LISTS(Graphics, GWS_KIND_GRAPHICS)
PROCESS_LISTS(MPSCompute, GWS_KIND_MPS)

typedef struct {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
    unsigned long long protected_used;
} nvmlProcessDetail_t;

typedef struct {
    unsigned version, mode, count;
    nvmlProcessDetail_t *out;
} nvmlProcessDetailList_t;

API nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_t *list) {
    ENTER_DEVICE(device);
    REQUIRE(list);
    if (list->version != STRUCT_VERSION(nvmlProcessDetailList_t, 1)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    static const uint32_t kinds[] = {GWS_KIND_COMPUTE, GWS_KIND_GRAPHICS, GWS_KIND_MPS, 7};
    if (list->mode >= 4) return NVML_ERROR_INVALID_ARGUMENT;
    gws_process_view views[GWS_MAX_PROCESSES];
    uint32_t there = gws_list_processes(state, index, kinds[list->mode], views, GWS_MAX_PROCESSES);
    uint32_t room = list->out ? list->count : 0;
    list->count = there;
    if (there > room) return NVML_ERROR_INSUFFICIENT_SIZE;
    for (uint32_t i = 0; i < there; i++)
        list->out[i] = (nvmlProcessDetail_t){.pid = (unsigned)views[i].pid,
                                             .used = views[i].bytes,
                                             .gpu_instance = gpu_instance(state, index, &views[i]),
                                             .compute_instance = compute_instance(state, index, &views[i]),
                                             .protected_used = 0}; /* no confidential computing here */
    return NVML_SUCCESS;
}

typedef struct {
    unsigned pid;
    unsigned long long time_us;
    unsigned sm, memory, encoder, decoder;
} nvmlProcessUtilizationSample_t;

typedef struct {
    unsigned long long time_us;
    unsigned pid, sm, memory, encoder, decoder, jpg, ofa;
} nvmlProcessUtilizationInfo_t;

typedef struct {
    unsigned version, count;
    unsigned long long last_seen_us;
    nvmlProcessUtilizationInfo_t *out;
} nvmlProcessesUtilizationInfo_t;

/* Processes that ran a kernel in the last second and after last_seen; idle ones have no sample. */
static uint32_t active_processes(gws_state *state, uint32_t index, unsigned long long last_seen_us,
                                 gws_process_view *views) {
    uint32_t there = gws_list_processes(state, index, 7, views, GWS_MAX_PROCESSES), kept = 0;
    for (uint32_t i = 0; i < there; i++) {
        if (!views[i].last_busy_ns || views[i].sm_share <= 0) continue;
        if (gws_wall_us(state, views[i].last_busy_ns) <= last_seen_us) continue;
        views[kept++] = views[i];
    }
    return kept;
}

API nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *out,
                                                 unsigned *count, unsigned long long last_seen_us) {
    ENTER_DEVICE(device);
    REQUIRE(count);
    if (gws_mig_is_on(state, index)) return NVML_ERROR_NOT_SUPPORTED; /* as the real library */
    gws_process_view views[GWS_MAX_PROCESSES];
    uint32_t there = active_processes(state, index, last_seen_us, views), room = out ? *count : 0;
    *count = there;
    if (there == 0) return NVML_ERROR_NOT_FOUND;
    if (there > room) return NVML_ERROR_INSUFFICIENT_SIZE;
    for (uint32_t i = 0; i < there; i++)
        out[i] = (nvmlProcessUtilizationSample_t){.pid = (unsigned)views[i].pid,
                                                  .time_us = gws_wall_us(state, views[i].last_busy_ns),
                                                  .sm = percent(views[i].sm_share),
                                                  .memory = percent(views[i].memory_share)};
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, nvmlProcessesUtilizationInfo_t *info) {
    ENTER_DEVICE(device);
    REQUIRE(info);
    if (info->version != STRUCT_VERSION(nvmlProcessesUtilizationInfo_t, 1))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (gws_mig_is_on(state, index)) return NVML_ERROR_NOT_SUPPORTED; /* as the real library */
    gws_process_view views[GWS_MAX_PROCESSES];
    uint32_t there = active_processes(state, index, info->last_seen_us, views);
    uint32_t room = info->out ? info->count : 0;
    info->count = there;
    if (there == 0) return NVML_ERROR_NOT_FOUND;
    if (there > room) return NVML_ERROR_INSUFFICIENT_SIZE;
    for (uint32_t i = 0; i < there; i++)
        info->out[i] = (nvmlProcessUtilizationInfo_t){.pid = (unsigned)views[i].pid,
                                                      .time_us = gws_wall_us(state, views[i].last_busy_ns),
                                                      .sm = percent(views[i].sm_share),
                                                      .memory = percent(views[i].memory_share)};
    return NVML_SUCCESS;
}

/* --- fields ----------------------------------------------------------------------------------------- */

static void fill_field(gws_state *state, uint32_t index, nvmlFieldValue_t *value) {
    const gws_device *card = &state->device[index];
    unsigned long long errors;
    int64_t number;
    value->time_us = (long long)gws_wall_us(state, gws_now_ns());
    value->latency_us = 0;
    value->value.ull = 0;
    value->type = TYPE_UNSIGNED;
    value->code = NVML_ERROR_NOT_SUPPORTED;
    const gws_answer *answer =
        gws_find_answer(state, index, "nvmlDeviceGetFieldValues", value->field | (uint64_t)value->scope << 32);
    if (answer) {
        value->code = answer->code;
        value->type = TYPE_SIGNED_LONG_LONG;
        value->value.ull = (unsigned long long)answer->number[0];
        return;
    }
    switch (value->field) {
    case 1: case 2: /* ECC mode now, and after the next start */
        if (ecc_count(state, index, true, &errors)) put_unsigned(value, 1);
        break;
    case 3: case 5: /* corrected errors since the start, and ever */
        if (ecc_count(state, index, true, &errors)) put_long(value, errors);
        break;
    case 4: case 6: /* uncorrected */
        if (ecc_count(state, index, false, &errors)) put_long(value, errors);
        break;
    case 29: case 30: case 31: /* retired pages: by single-bit errors, by double-bit ones; some wait for a restart */
        if (gws_override(state, index, GWS_SET_RETIRED_SINGLE_BIT + (value->field - 29), &number))
            put_long(value, (unsigned long long)number);
        break;
    case 74: case 75: case 76: /* nanoseconds of slowdown by power, heat, sync boost */
        if (gws_policies_known(state, index)) put_long(value, gws_policy_ns(state, index, value->field - 74));
        break;
    case 77: case 79: /* board limits and reliability: these reasons cannot be set */
        if (gws_policies_known(state, index)) put_long(value, 0);
        break;
    case 82: /* memory temperature */
        if (gws_override(state, index, GWS_SET_MEMORY_TEMPERATURE_CELSIUS, &number))
            put_unsigned(value, (unsigned)number);
        break;
    case 83: put_long(value, energy_mj(state, index)); break;
    case 185: case 186: put_unsigned(value, draw_mw(state, index)); break; /* average, instant */
    case 187: put_unsigned(value, CARD_POWER_LEAST_LIMIT_MW); break;       /* lowest power limit */
    case 188: case 189: put_unsigned(value, card->power_limit_mw); break; /* highest, default */
    case 190: case 192: put_unsigned(value, power_limit_mw(state, index)); break;
    case 197: put_unsigned(value, (unsigned)atomic_load(&card->device_to_host_bytes)); break; /* sent over PCIe */
    case 198: put_unsigned(value, (unsigned)atomic_load(&card->host_to_device_bytes)); break; /* received; both wrap */
    case 94: /* PCIe replays */
        if (gws_override(state, index, GWS_SET_PCIE_REPLAYS, &number)) put_unsigned(value, (unsigned)number);
        break;
    case 142: case 143: case 144: case 145: /* remapped rows */
        if (gws_override(state, index, GWS_SET_REMAPPED_CORRECTABLE + (value->field - 142), &number))
            put_unsigned(value, (unsigned)number);
        break;
    case 230: /* what helps it */
        if (gws_override(state, index, GWS_SET_RECOVERY_ACTION, &number)) put_unsigned(value, (unsigned)number);
        break;
    default: nvml_link_field(state, index, value); break;
    }
}

API nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
    ENTER_DEVICE(device);
    REQUIRE(values && count > 0);
    for (int i = 0; i < count; i++) fill_field(state, index, &values[i]);
    return NVML_SUCCESS;
}

/* --- remapped rows, retired pages, BAR1 ------------------------------------------------------------- */

SET_GETTER(nvmlDeviceGetPcieReplayCounter, GWS_SET_PCIE_REPLAYS)

API nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned *corrected, unsigned *uncorrected,
                                           unsigned *pending, unsigned *failed) {
    ENTER_DEVICE(device);
    REQUIRE(corrected && uncorrected && pending && failed);
    unsigned *out[] = {corrected, uncorrected, pending, failed};
    REPLAY(0, for (int i = 0; i < 4; i++) *out[i] = (unsigned)answer->number[i]);
    bool known = false;
    for (int i = 0; i < 4; i++) {
        int64_t value = 0;
        known |= gws_override(state, index, GWS_SET_REMAPPED_CORRECTABLE + i, &value);
        *out[i] = (unsigned)value;
    }
    return known ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

typedef struct {
    unsigned long long total, free, used;
} nvmlBAR1Memory_t;


API nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *out) {
    ENTER_PART(device);
    REQUIRE(out);
    if (mig < 0)
        REPLAY(0, (out->total = (unsigned long long)answer->number[0],
                   out->used = (unsigned long long)answer->number[1], out->free = out->total - out->used));
    int64_t used = 0; /* each MIG instance has its own window, where nothing is mapped */
    if (mig < 0 && !gws_override(state, index, GWS_SET_BAR1_USED_BYTES, &used)) return NVML_ERROR_NOT_SUPPORTED;
    unsigned long long total = mig < 0 ? CARD_BAR1_BYTES : CARD_BAR1_BYTES / 8 * card->mig[mig].gpu_slices;
    *out = (nvmlBAR1Memory_t){total, total - (unsigned long long)used, (unsigned long long)used};
    return NVML_SUCCESS;
}

/* --- what only a described machine has ---------------------------------------------------------------- */

#define TEXT_OF_FILE(function)                                                                               \
    API nvmlReturn_t function(nvmlDevice_t device, char *out, unsigned length) {                             \
        ENTER_DEVICE(device);                                                                                \
        REPLAY(0, return nvml_put_text(out, length, answer->text));                                          \
        return NVML_ERROR_NOT_SUPPORTED;                                                                     \
    }
TEXT_OF_FILE(nvmlDeviceGetBoardPartNumber)
TEXT_OF_FILE(nvmlDeviceGetSerial)
TEXT_OF_FILE(nvmlDeviceGetVbiosVersion)

API nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t device, char *out) {
    ENTER_DEVICE(device);
    REPLAY(0, return nvml_put_text(out, GWS_ANSWER_BYTES, answer->text));
    return NVML_ERROR_NOT_SUPPORTED;
}

API nvmlReturn_t nvmlDeviceGetGspFirmwareMode(nvmlDevice_t device, unsigned *enabled, unsigned *is_default) {
    ENTER_DEVICE(device);
    REQUIRE(enabled && is_default);
    REPLAY_PAIR(enabled, is_default);
    return NVML_ERROR_NOT_SUPPORTED;
}

API nvmlReturn_t nvmlDeviceGetEncoderStats(nvmlDevice_t device, unsigned *sessions, unsigned *fps, unsigned *delay) {
    ENTER_DEVICE(device);
    REQUIRE(sessions && fps && delay);
    *delay = 0;
    REPLAY_PAIR(sessions, fps);
    return NVML_ERROR_NOT_SUPPORTED;
}

API nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned *node) {
    ENTER_DEVICE(device);
    REQUIRE(node);
    REPLAY(0, *node = (unsigned)answer->number[0]);
    return NVML_ERROR_NOT_SUPPORTED;
}

/* --- what is not modelled --------------------------------------------------------------------------- */

/* Other arguments are ignored, which the C calling conventions of Linux allow. */
#define NOT_MODELLED(function)                                                                               \
    API nvmlReturn_t function(nvmlDevice_t device) {                                                         \
        ENTER_DEVICE(device);                                                                                \
        return NVML_ERROR_NOT_SUPPORTED;                                                                     \
    }
#include "nvml_not_modelled.h"
