/* Shared by the files of the simulated libnvidia-ml.so.1. */
#ifndef GPUWATCH_SIM_NVML_INTERNAL_H
#define GPUWATCH_SIM_NVML_INTERNAL_H

#include "state.h"

#define API __attribute__((visibility("default")))
#define INSIDE __attribute__((visibility("hidden")))

typedef int nvmlReturn_t;
enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_MEMORY = 20,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_UNKNOWN = 999,
};

#define NO_INSTANCE 0xffffffffu

/* A struct's version number as in NVML: size in the low bytes, version in the high byte. */
#define STRUCT_VERSION(type, number) ((unsigned)(sizeof(type) | ((unsigned)(number) << 24)))

typedef struct device_handle {
    uint32_t index;
} *nvmlDevice_t;

INSIDE extern struct device_handle nvml_handles[GWS_MAX_DEVICES];
INSIDE extern struct device_handle nvml_mig_handles[GWS_MAX_DEVICES][GWS_MAX_MIG];
INSIDE extern _Atomic int nvml_init_count;
INSIDE extern _Atomic(gws_state *) nvml_machine;

/* The device that a handle stands for, or -1: anything else that is passed is not dereferenced. Of the
 * handle of a MIG instance also its index; -1 there for a whole device. */
INSIDE int nvml_find(const struct device_handle *handle, const gws_state *state, int *mig);
INSIDE nvmlReturn_t nvml_put_text(char *out, unsigned length, const char *text);

#define ENTER_UNCHECKED()                                                                                    \
    gws_state *state = atomic_load_explicit(&nvml_machine, memory_order_acquire);                            \
    if (!state || atomic_load_explicit(&nvml_init_count, memory_order_relaxed) <= 0)                         \
    return NVML_ERROR_UNINITIALIZED

#define CHECK_FAULTS(device_index)                                                                           \
    do {                                                                                                     \
        int code_ = gws_fault_check(state, __func__, device_index);                                          \
        if (code_) return code_;                                                                             \
    } while (0)

#define ENTER(device_index)                                                                                  \
    ENTER_UNCHECKED();                                                                                       \
    CHECK_FAULTS(device_index)

/* For functions that also take the handle of a MIG instance; mig is its index, or -1. */
#define ENTER_PART(handle)                                                                                   \
    ENTER_UNCHECKED();                                                                                       \
    int mig;                                                                                                 \
    int found_ = nvml_find(handle, state, &mig);                                                             \
    if (found_ < 0) return NVML_ERROR_INVALID_ARGUMENT;                                                      \
    uint32_t index = (uint32_t)found_;                                                                       \
    gws_device *card = &state->device[index];                                                                \
    (void)card;                                                                                              \
    CHECK_FAULTS(found_);                                                                                    \
    if (gws_is_hidden(state, index)) return NVML_ERROR_GPU_IS_LOST;                                          \
    if (mig >= 0 && !(gws_mig_is_on(state, index) && card->mig[mig].present)) return NVML_ERROR_INVALID_ARGUMENT

#define ENTER_DEVICE(handle)                                                                                 \
    ENTER_PART(handle);                                                                                      \
    if (mig >= 0) return NVML_ERROR_NOT_SUPPORTED /* of the whole device only */

/* Ends the call with what the machine's description says of it, after `put` has stored that. */
#define REPLAY(argument, put)                                                                                \
    do {                                                                                                     \
        const gws_answer *answer = gws_find_answer(state, index, __func__, argument);                        \
        if (answer && answer->code) return answer->code;                                                     \
        if (answer) {                                                                                        \
            put;                                                                                             \
            return NVML_SUCCESS;                                                                             \
        }                                                                                                    \
    } while (0)

#define REPLAY_PAIR(first, second)                                                                           \
    REPLAY(0, (*(first) = (unsigned)answer->number[0], *(second) = (unsigned)answer->number[1]))

#define REQUIRE(pointer)                                                                                     \
    if (!(pointer)) return NVML_ERROR_INVALID_ARGUMENT

/* Functions that give one unsigned number of a device. The expression may use state, card and index. */
#define UNSIGNED_GETTER(function, expression)                                                                \
    API nvmlReturn_t function(nvmlDevice_t device, unsigned *out) {                                          \
        ENTER_DEVICE(device);                                                                                \
        REQUIRE(out);                                                                                        \
        REPLAY(0, *out = (unsigned)answer->number[0]);                                                       \
        *out = (unsigned)(expression);                                                                       \
        return NVML_SUCCESS;                                                                                 \
    }

/* The same for values that exist only if they were set. */
#define SET_GETTER(function, key)                                                                            \
    API nvmlReturn_t function(nvmlDevice_t device, unsigned *out) {                                          \
        ENTER_DEVICE(device);                                                                                \
        REQUIRE(out);                                                                                        \
        REPLAY(0, *out = (unsigned)answer->number[0]);                                                       \
        int64_t value;                                                                                       \
        if (!gws_override(state, index, key, &value)) return NVML_ERROR_NOT_SUPPORTED;                       \
        *out = (unsigned)value;                                                                              \
        return NVML_SUCCESS;                                                                                 \
    }

typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} nvmlPciInfo_t;

typedef struct {
    unsigned field, scope;
    long long time_us, latency_us;
    unsigned type;
    nvmlReturn_t code;
    union {
        double d;
        unsigned u;
        unsigned long ul;
        unsigned long long ull;
    } value;
} nvmlFieldValue_t;

enum { TYPE_UNSIGNED = 1, TYPE_UNSIGNED_LONG_LONG = 3, TYPE_SIGNED_LONG_LONG = 4 };

static inline void put_unsigned(nvmlFieldValue_t *value, unsigned number) {
    value->type = TYPE_UNSIGNED;
    value->value.u = number;
    value->code = NVML_SUCCESS;
}

static inline void put_long(nvmlFieldValue_t *value, unsigned long long number) {
    value->type = TYPE_UNSIGNED_LONG_LONG;
    value->value.ull = number;
    value->code = NVML_SUCCESS;
}

/* The fields of NVLink, into value; false for another field. In nvml_links.c. */
INSIDE bool nvml_link_field(gws_state *state, uint32_t index, nvmlFieldValue_t *value);

#endif
