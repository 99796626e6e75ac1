/* Control over a machine for tests and demonstrations: set values, MIG layouts, removed devices, faults. Part of
 * libgpuwatchsim.so; see state.h. */
#define _GNU_SOURCE
#include "state_internal.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

const char *const gws_override_names[GWS_SET_COUNT] = {
    "temperature_celsius", "memory_temperature_celsius", "power_milliwatts", "clock_event_reasons",
    "ecc_corrected", "ecc_uncorrected", "encoder_percent", "decoder_percent", "pcie_generation",
    "pcie_width", "compute_mode", "persistence_mode", "sm_clock_mhz", "fan_percent", "cuda_version", "compute_capability", "multiprocessors",
    "jpeg_percent",
    "ofa_percent", "power_limit_milliwatts", "slowdown_celsius", "shutdown_celsius",
    "operating_max_celsius", "memory_max_celsius", "remapped_correctable", "remapped_uncorrectable",
    "remapped_pending", "remapped_failure", "retired_single_bit", "retired_double_bit",
    "retired_pending", "recovery_action", "pcie_replays", "pcie_switch", "numa_node", "bar1_used_bytes",
    "nvlink_links", "nvlink_links_down", "nvlink_switch", "nvlink_tx_bytes_per_second",
    "nvlink_rx_bytes_per_second", "nvlink_crc_errors", "nvlink_replays", "nvlink_recoveries", "gpm",
    "tensor_percent", "xid", "nvlink_version", "nvlink_data_crc_errors", "nvlink_ecc_errors",
    "nvlink_receive_errors", "nvlink_effective_errors", "nvlink_failed_recoveries", "sram_uncorrected",
    "sram_threshold_exceeded", "fabric_state", "fabric_status", "fabric_health_mask", "fabric_health_summary",
    "accounting_mode",
};

/* --- values set by hand ----------------------------------------------------------------------------- */

bool gws_override(const gws_state *state, uint32_t device, gws_override_key key, int64_t *value) {
    if (!atomic_load_explicit(&state->device[device].override_set[key], memory_order_acquire)) return false;
    *value = atomic_load_explicit(&state->device[device].override_value[key], memory_order_relaxed);
    return true;
}

int64_t gws_overridden(const gws_state *state, uint32_t device, gws_override_key key, int64_t otherwise) {
    int64_t value;
    return gws_override(state, device, key, &value) ? value : otherwise;
}

int gws_cuda_version(const gws_state *state) {
    if (!state) return GWS_CUDA_VERSION;
    int64_t set = gws_overridden(state, 0, GWS_SET_CUDA_VERSION, 0);
    const gws_device *first = &state->device[0];
    for (uint32_t i = 0; i < first->answers && !set; i++)
        if (strcmp(first->answer[i].function, "nvmlSystemGetCudaDriverVersion") == 0) set = first->answer[i].number[0];
    return set ? (int)set : GWS_CUDA_VERSION;
}

int gws_capability(const gws_state *state, const gws_device *card) {
    return (int)gws_overridden(state, (uint32_t)(card - state->device), GWS_SET_COMPUTE_CAPABILITY,
                               card->cc_major * 10 + card->cc_minor);
}

int gws_multiprocessors(const gws_state *state, const gws_device *card) {
    return (int)gws_overridden(state, (uint32_t)(card - state->device), GWS_SET_MULTIPROCESSORS, card->sm_count);
}

const char *gws_override_name(uint32_t key) { return key < GWS_SET_COUNT ? gws_override_names[key] : NULL; }

int gws_get_override(const gws_state *state, uint32_t device, uint32_t key, int64_t *value) {
    if (device >= state->device_count || key >= GWS_SET_COUNT) return EINVAL;
    return gws_override(state, device, (gws_override_key)key, value) ? 0 : ENOENT;
}

uint64_t gws_grown(const gws_state *state, uint32_t device, gws_override_key rate) {
    int64_t per_second;
    if (!gws_override(state, device, rate, &per_second)) return 0;
    uint64_t since = atomic_load(&state->device[device].override_at_ns[rate]);
    return (uint64_t)((double)per_second * (double)(gws_now_ns() - since) * 1e-9);
}

/* The set event reasons that make each policy's time grow: power caps and brakes, heat, sync boost. */
static const int64_t policy_reasons[GWS_POLICIES] = {0x4 | 0x80, 0x8 | 0x20 | 0x40, 0x10};

/* Time since the reasons were last set, which is not yet in policy_ns; under the lock. */
static uint64_t policy_running_ns(const gws_device *device, uint32_t policy, uint64_t now_ns) {
    const gws_override_key key = GWS_SET_CLOCK_EVENT_REASONS;
    if (!atomic_load(&device->override_set[key])) return 0;
    if (!(atomic_load(&device->override_value[key]) & policy_reasons[policy])) return 0;
    return now_ns - atomic_load(&device->override_at_ns[key]);
}

uint64_t gws_policy_ns(gws_state *state, uint32_t device, uint32_t policy) {
    const gws_device *card = &state->device[device];
    lock(state);
    uint64_t sum = card->policy_ns[policy] + policy_running_ns(card, policy, gws_now_ns());
    unlock(state);
    return sum;
}

bool gws_policies_known(const gws_state *state, uint32_t device) {
    return atomic_load(&state->device[device].override_at_ns[GWS_SET_CLOCK_EVENT_REASONS]) != 0;
}

int gws_set_override(gws_state *state, uint32_t device, const char *key, int64_t value, int is_set) {
    if (device >= state->device_count) return EINVAL;
    if (is_set && state->device[device].answers && strcmp(key, "xid") != 0) return EPERM;
    for (int i = 0; i < GWS_SET_COUNT; i++) {
        if (strcmp(gws_override_names[i], key) != 0) continue;
        gws_device *card = &state->device[device];
        uint64_t now_ns = gws_now_ns();
        lock(state);
        if (i == GWS_SET_CLOCK_EVENT_REASONS)
            for (uint32_t policy = 0; policy < GWS_POLICIES; policy++)
                card->policy_ns[policy] += policy_running_ns(card, policy, now_ns);
        atomic_store(&card->override_at_ns[i], now_ns);
        unlock(state);
        atomic_store(&state->device[device].override_value[i], value);
        atomic_store_explicit(&state->device[device].override_set[i], is_set != 0, memory_order_release);
        return 0;
    }
    return ENOENT;
}

/* --- described machines ----------------------------------------------------------------------------- */

int gws_describe(gws_state *state, uint32_t device, const char *name, uint64_t total_bytes, uint64_t reserved_bytes) {
    if (device >= state->device_count || reserved_bytes > total_bytes) return EINVAL;
    gws_device *card = &state->device[device];
    snprintf(card->name, sizeof card->name, "%s", name);
    card->total_bytes = total_bytes;
    card->reserved_bytes = reserved_bytes;
    return 0;
}

int gws_set_card(gws_state *state, uint32_t device, int32_t capability, int32_t multiprocessors,
                 uint32_t power_limit_mw, uint32_t sm_clock_max_mhz, uint32_t memory_clock_mhz) {
    if (device >= state->device_count) return EINVAL;
    gws_device *card = &state->device[device];
    card->cc_major = capability / 10;
    card->cc_minor = capability % 10;
    card->cores = card->cores / card->sm_count * multiprocessors;
    card->sm_count = multiprocessors;
    card->power_full_mw = card->power_limit_mw = power_limit_mw;
    card->sm_clock_full_mhz = card->sm_clock_max_mhz = sm_clock_max_mhz;
    card->memory_clock_full_mhz = memory_clock_mhz;
    return 0;
}

int gws_add_answer(gws_state *state, uint32_t device, const gws_answer *answer) {
    if (device >= state->device_count) return EINVAL;
    gws_device *card = &state->device[device];
    if (card->answers == GWS_ANSWERS) return ENOSPC;
    card->answer[card->answers++] = *answer;
    return 0;
}

const gws_answer *gws_find_answer(gws_state *state, uint32_t device, const char *function, uint64_t argument) {
    const gws_device *card = &state->device[device];
    for (uint32_t i = 0; i < card->answers; i++) {
        const gws_answer *answer = &card->answer[i];
        if (answer->argument != argument || strcmp(answer->function, function) != 0) continue;
        return answer->until_used && gws_device_in_use(state, device) ? NULL : answer;
    }
    return NULL;
}

/* --- devices that come and go ----------------------------------------------------------------------- */

int gws_set_hidden(gws_state *state, uint32_t device, int hidden) {
    if (device >= state->device_count) return EINVAL;
    atomic_store(&state->device[device].hidden, hidden != 0);
    return 0;
}

int gws_is_hidden(const gws_state *state, uint32_t device) {
    return device < state->device_count && atomic_load_explicit(&state->device[device].hidden, memory_order_relaxed);
}

uint32_t gws_shown_count(const gws_state *state) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < state->device_count; i++) count += !gws_is_hidden(state, i);
    return count;
}

int gws_shown_at(const gws_state *state, uint32_t position) {
    for (uint32_t i = 0; i < state->device_count; i++)
        if (!gws_is_hidden(state, i) && position-- == 0) return (int)i;
    return -1;
}

/* --- MIG -------------------------------------------------------------------------------------------- */

#define MEMORY_EIGHTHS 8
#define COMPUTE_SLICES 7

/* Three slices of compute have four of memory, as four have; seven have all. */
static uint32_t memory_eighths(uint32_t slices) { return slices == 3 ? 4 : slices == COMPUTE_SLICES ? 8 : slices; }

static void name_instance(gws_device *device, gws_mig *instance) {
    const uint8_t *u = device->uuid_bytes;
    uint32_t serial = ++device->mig_serial;
    snprintf(instance->uuid, sizeof instance->uuid, "MIG-%02x%02x%02x%02x-%02x%02x-5%02x%01x-8%03x-%02x%02x%02x%02x%04x",
             u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7] & 15, serial & 0xfff, u[8], u[9], u[10], u[11],
             serial & 0xffff);
}

int gws_set_mig(gws_state *state, uint32_t device, int on, uint32_t count, const uint32_t *numbers) {
    if (device >= state->device_count || count > GWS_MAX_MIG || (count && !on)) return EINVAL;
    for (uint32_t i = 0; i < count; i++)
        if (numbers[5 * i] >= GWS_MAX_MIG) return EINVAL;
    gws_device *card = &state->device[device];
    lock(state);
    memset(card->mig, 0, sizeof card->mig);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t *n = &numbers[5 * i];
        gws_mig *instance = &card->mig[n[0]];
        *instance = (gws_mig){
            .present = 1,
            .gpu_instance = n[1],
            .compute_instance = n[2],
            .gpu_slices = n[3],
            .compute_slices = n[4],
            .multiprocessors = (uint32_t)gws_multiprocessors(state, card) / COMPUTE_SLICES * n[4],
            .memory_bytes =
                (card->total_bytes - card->reserved_bytes) / MEMORY_EIGHTHS * memory_eighths(n[3]),
        };
        name_instance(card, instance);
    }
    EACH_ON(slot, state, device) slot->mig = 0;
    atomic_store(&card->mig_on, on != 0);
    unlock(state);
    return 0;
}

int gws_mig_is_on(const gws_state *state, uint32_t device) {
    return atomic_load_explicit(&state->device[device].mig_on, memory_order_acquire) != 0;
}

int gws_get_mig(const gws_state *state, uint32_t device, uint32_t index, gws_mig *out) {
    if (device >= state->device_count || index >= GWS_MAX_MIG || !gws_mig_is_on(state, device)) return ENOENT;
    *out = state->device[device].mig[index];
    return out->present ? 0 : ENOENT;
}

/* --- faults ----------------------------------------------------------------------------------------- */

/* "nvmlDeviceGetMemoryInfo" stands for itself and its _v2; "cu*" for a family; "*" for all of NVML (the
 * CUDA driver's codes mean other things, so it must be named). */
static bool fault_matches(const char *pattern, const char *function) {
    if (strcmp(pattern, "*") == 0) return strncmp(function, "nvml", 4) == 0;
    size_t length = strlen(pattern);
    if (length && pattern[length - 1] == '*') return strncmp(pattern, function, length - 1) == 0;
    if (strncmp(pattern, function, length) != 0) return false;
    const char *rest = function + length;
    if (*rest == 0 || strcmp(rest, "WithFlags") == 0) return true;
    return rest[0] == '_' && rest[1] == 'v' && rest[2] >= '0' && rest[2] <= '9';
}

static void sleep_ms(uint32_t ms) {
    struct timespec rest = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000L};
    while (nanosleep(&rest, &rest) == -1 && errno == EINTR) {
    }
}

static void end_fault(gws_state *state, gws_fault *fault) {
    fault->active = 0;
    fault->generation = ++state->fault_generation;
    atomic_fetch_sub(&state->fault_count, 1);
}

/* The fault is active: not cleared and not expired. Under the lock. */
static bool fault_lasts(gws_state *state, gws_fault *fault, uint64_t now_ns) {
    if (fault->active && fault->until_ns && now_ns >= fault->until_ns) end_fault(state, fault);
    return fault->active;
}

int gws_fault_slow(gws_state *state, const char *function, int32_t device) {
    int code = 0;
    uint32_t delay_ms = 0, generation = 0;
    uint64_t until_ns = 0;
    gws_fault *found = NULL;
    uint64_t now_ns = gws_now_ns();
    lock(state);
    for (int i = 0; i < GWS_MAX_FAULTS && !found; i++) {
        gws_fault *fault = &state->fault[i];
        if (!fault_lasts(state, fault, now_ns) || (fault->device >= 0 && fault->device != device)) continue;
        if (!fault_matches(fault->function, function)) continue;
        found = fault;
        code = fault->code;
        delay_ms = fault->delay_ms;
        generation = fault->generation;
        until_ns = fault->until_ns;
        if (fault->remaining > 0 && --fault->remaining == 0) {
            fault->active = 0;
            atomic_fetch_sub(&state->fault_count, 1);
        }
    }
    unlock(state);
    while (delay_ms > 0) {
        uint32_t slice = delay_ms < 20 ? delay_ms : 20;
        sleep_ms(slice);
        delay_ms -= slice;
        if (found->generation != generation) break; /* cleared meanwhile: the call returns */
        if (until_ns && gws_now_ns() >= until_ns) break;
    }
    return code;
}

int gws_inject_labelled(gws_state *state, const char *function, int32_t device, int32_t code, uint32_t delay_ms,
                        int32_t count, uint32_t lasting_ms, const char *label) {
    if (!*function || strlen(function) >= GWS_FUNCTION_BYTES || strlen(label) >= GWS_LABEL_BYTES || count == 0 ||
        device >= (int32_t)state->device_count)
        return EINVAL;
    int error = ENOSPC;
    uint64_t now_ns = gws_now_ns();
    lock(state);
    for (int i = 0; i < GWS_MAX_FAULTS; i++) {
        gws_fault *fault = &state->fault[i];
        if (fault_lasts(state, fault, now_ns)) continue;
        strcpy(fault->function, function);
        strcpy(fault->label, label);
        fault->device = device;
        fault->code = code;
        fault->delay_ms = delay_ms;
        fault->remaining = count;
        fault->until_ns = lasting_ms ? now_ns + (uint64_t)lasting_ms * 1000000ull : 0;
        fault->generation = ++state->fault_generation;
        fault->active = 1;
        atomic_fetch_add(&state->fault_count, 1);
        error = 0;
        break;
    }
    unlock(state);
    return error;
}

int gws_inject(gws_state *state, const char *function, int32_t device, int32_t code, uint32_t delay_ms,
               int32_t count) {
    return gws_inject_labelled(state, function, device, code, delay_ms, count, 0, "");
}

int gws_clear_labelled(gws_state *state, const char *label, int32_t device) {
    int count = 0;
    lock(state);
    for (int i = 0; i < GWS_MAX_FAULTS; i++) {
        gws_fault *fault = &state->fault[i];
        if (!fault->active || strcmp(fault->label, label) != 0 || (device >= 0 && fault->device != device)) continue;
        end_fault(state, fault);
        count++;
    }
    unlock(state);
    return count;
}

int gws_fault_at(gws_state *state, uint32_t index, gws_fault_view *out) {
    if (index >= GWS_MAX_FAULTS) return EINVAL;
    uint64_t now_ns = gws_now_ns();
    lock(state);
    gws_fault *fault = &state->fault[index];
    bool there = fault_lasts(state, fault, now_ns);
    if (there) {
        *out = (gws_fault_view){
            .device = fault->device,
            .code = fault->code,
            .delay_ms = fault->delay_ms,
            .remaining = fault->remaining,
            .left_ms = fault->until_ns ? (int64_t)((fault->until_ns - now_ns) / 1000000ull) : -1,
        };
        strcpy(out->function, fault->function);
        strcpy(out->label, fault->label);
    }
    unlock(state);
    return there ? 0 : ENOENT;
}

void gws_clear_faults(gws_state *state) {
    lock(state);
    for (int i = 0; i < GWS_MAX_FAULTS; i++) {
        state->fault[i].active = 0;
        state->fault[i].generation = ++state->fault_generation;
    }
    atomic_store(&state->fault_count, 0);
    unlock(state);
}

void gws_heal(gws_state *state) {
    gws_clear_faults(state);
    uint64_t now_ns = gws_now_ns();
    lock(state);
    EACH_SLOT(slot, state)
        if (slot->pid && slot->flags & GWS_SLOT_FOREIGN) gws_free_slot(state, slot, now_ns);
    unlock(state);
    for (uint32_t i = 0; i < state->device_count; i++) {
        for (int key = 0; key < GWS_SET_COUNT; key++)
            if (atomic_load(&state->device[i].override_set[key]))
                gws_set_override(state, i, gws_override_names[key], 0, 0);
        if (gws_mig_is_on(state, i)) gws_set_mig(state, i, 0, 0, NULL);
        gws_set_hidden(state, i, 0);
    }
}
