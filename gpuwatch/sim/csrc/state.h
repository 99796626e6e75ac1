/* The one state that every simulated library and every process of a simulated machine shares.
 *
 * It is a memory-mapped file. What is derived (used memory, utilisation, temperature) is computed from
 * the process slots when it is read and never stored as a total, so a process that is killed between two
 * stores can leave nothing behind that does not vanish with its slot.
 *
 * Units are in the names: _bytes, _ns (CLOCK_MONOTONIC), _mw, _mhz. Shares are 0..1.
 */
#ifndef GPUWATCH_SIM_STATE_H
#define GPUWATCH_SIM_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "versions.h"

#define GWS_MAGIC 0x31534d4957555047ull /* "GPUWIMS1" */
#define GWS_LAYOUT_VERSION 7u           /* increase it with every change of a struct below */

enum {
    GWS_MAX_DEVICES = 16,
    GWS_MAX_PROCESSES = 1024,
    GWS_MAX_FAULTS = 64,
    GWS_RING_CELLS = 16,
    GWS_NAME_BYTES = 64,
    GWS_UUID_TEXT_BYTES = 48,
    GWS_PCI_TEXT_BYTES = 24,
    GWS_FUNCTION_BYTES = 64,
    GWS_LABEL_BYTES = 24,
    GWS_MAX_MIG = 8, /* one more than any card has: seven slices and a gap */
    GWS_POLICIES = 3,
    GWS_ACCOUNTED = 128, /* ended processes of a device that accounting mode remembers */
    GWS_ANSWERS = 144,
    GWS_ANSWER_NUMBERS = 4,
    GWS_ANSWER_BYTES = 64,
};

#define GWS_CELL_NS 100000000ull    /* one cell of a ring */
#define GWS_WINDOW_NS 1000000000ull /* utilisation is the share of the last second */

/* Amounts by time: each cell packs the number of its 100 ms interval (24 bits) with the amount (40 bits),
 * so that one compare-and-swap both expires an old interval and adds to the present one. */
typedef struct {
    _Atomic uint64_t cell[GWS_RING_CELLS];
} gws_ring;

/* Values that a test or a demonstration sets by hand; the order is that of gws_override_names. */
typedef enum {
    GWS_SET_TEMPERATURE_CELSIUS,
    GWS_SET_MEMORY_TEMPERATURE_CELSIUS,
    GWS_SET_POWER_MW,
    GWS_SET_CLOCK_EVENT_REASONS,
    GWS_SET_ECC_CORRECTED,
    GWS_SET_ECC_UNCORRECTED,
    GWS_SET_ENCODER_PERCENT,
    GWS_SET_DECODER_PERCENT,
    GWS_SET_PCIE_GENERATION,
    GWS_SET_PCIE_WIDTH,
    GWS_SET_COMPUTE_MODE,
    GWS_SET_PERSISTENCE_MODE,
    GWS_SET_SM_CLOCK_MHZ,
    GWS_SET_FAN_PERCENT,
    GWS_SET_CUDA_VERSION,       /* of the driver, stored with device 0: 11040 */
    GWS_SET_COMPUTE_CAPABILITY, /* 52 is 5.2 */
    GWS_SET_MULTIPROCESSORS,
    GWS_SET_JPEG_PERCENT,
    GWS_SET_OFA_PERCENT,
    GWS_SET_POWER_LIMIT_MW,
    GWS_SET_SLOWDOWN_CELSIUS,
    GWS_SET_SHUTDOWN_CELSIUS,
    GWS_SET_OPERATING_MAX_CELSIUS,
    GWS_SET_MEMORY_MAX_CELSIUS,
    GWS_SET_REMAPPED_CORRECTABLE,
    GWS_SET_REMAPPED_UNCORRECTABLE,
    GWS_SET_REMAPPED_PENDING,
    GWS_SET_REMAPPED_FAILURE,
    GWS_SET_RETIRED_SINGLE_BIT,
    GWS_SET_RETIRED_DOUBLE_BIT,
    GWS_SET_RETIRED_PENDING,
    GWS_SET_RECOVERY_ACTION,
    GWS_SET_PCIE_REPLAYS,
    GWS_SET_PCIE_SWITCH,
    GWS_SET_NUMA_NODE,
    GWS_SET_BAR1_USED_BYTES,
    GWS_SET_NVLINK_LINKS,
    GWS_SET_NVLINK_LINKS_DOWN,
    GWS_SET_NVLINK_SWITCH,
    GWS_SET_NVLINK_TX_BYTES_PER_SECOND,
    GWS_SET_NVLINK_RX_BYTES_PER_SECOND,
    GWS_SET_NVLINK_CRC_ERRORS,
    GWS_SET_NVLINK_REPLAYS,
    GWS_SET_NVLINK_RECOVERIES,
    GWS_SET_GPM,
    GWS_SET_TENSOR_PERCENT,
    GWS_SET_XID, /* reported once, as an event, each time it is set */
    GWS_SET_NVLINK_VERSION, /* 3 and before: errors as totals; 4, 5: by link, in other fields */
    GWS_SET_NVLINK_DATA_CRC_ERRORS,
    GWS_SET_NVLINK_ECC_ERRORS,
    GWS_SET_NVLINK_RECEIVE_ERRORS,
    GWS_SET_NVLINK_EFFECTIVE_ERRORS,
    GWS_SET_NVLINK_FAILED_RECOVERIES,
    GWS_SET_SRAM_UNCORRECTED,
    GWS_SET_SRAM_THRESHOLD_EXCEEDED,
    GWS_SET_FABRIC_STATE,
    GWS_SET_FABRIC_STATUS,
    GWS_SET_FABRIC_HEALTH_MASK,
    GWS_SET_FABRIC_HEALTH_SUMMARY,
    GWS_SET_ACCOUNTING_MODE,
    GWS_SET_COUNT,
} gws_override_key;

/* One MIG instance. Compute instances of a GPU instance share its memory. */
typedef struct {
    uint32_t present, gpu_instance, compute_instance, gpu_slices, compute_slices, multiprocessors;
    uint64_t memory_bytes;
    char uuid[GWS_UUID_TEXT_BYTES]; /* MIG-... */
} gws_mig;

/* What accounting mode tells of a process on one device, from its start to its end. */
typedef struct {
    int32_t pid; /* 0: empty */
    uint32_t running;
    uint64_t entered_ns, time_ns, busy_ns, memory_ns, peak_bytes;
} gws_accounted;

/* What a described machine answers to one call. The argument tells calls of one function apart: the clock, the
 * sensor, the field. */
typedef struct {
    char function[GWS_FUNCTION_BYTES];
    uint64_t argument;
    int32_t code;
    uint32_t until_used; /* a number that work changes: once a program uses the device, it is simulated */
    int64_t number[GWS_ANSWER_NUMBERS];
    char text[GWS_ANSWER_BYTES];
} gws_answer;

typedef struct {
    char name[GWS_NAME_BYTES];
    char uuid[GWS_UUID_TEXT_BYTES];
    uint8_t uuid_bytes[16];
    char pci_bus_id[GWS_PCI_TEXT_BYTES]; /* 0000:01:00.0 */
    uint32_t pci_bus;
    int32_t cc_major, cc_minor, sm_count, cores;
    uint64_t total_bytes, reserved_bytes, context_bytes;
    uint32_t power_limit_mw, power_idle_mw, power_full_mw;
    uint32_t sm_clock_idle_mhz, sm_clock_full_mhz, sm_clock_max_mhz;
    uint32_t memory_clock_idle_mhz, memory_clock_full_mhz;
    uint32_t pcie_generation, pcie_width;
    gws_ring busy, memory_busy;         /* ns in which kernels ran, in which memory was moved */
    _Atomic uint64_t busy_total_ns;     /* since the machine was made: the dynamic part of the energy */
    _Atomic uint64_t host_to_device_bytes, device_to_host_bytes; /* counters, for PCIe throughput */
    double heat;                        /* share of busy time, averaged with HEAT_SECONDS; under the lock */
    uint64_t heat_at_ns;
    pthread_mutex_t kernel_lock;        /* robust: one kernel at a time, as when two programs share a real card */
    _Atomic uint32_t override_set[GWS_SET_COUNT];
    _Atomic int64_t override_value[GWS_SET_COUNT];
    _Atomic uint64_t override_at_ns[GWS_SET_COUNT]; /* when it was set, which is when counters begin to grow */
    uint64_t policy_ns[GWS_POLICIES]; /* how long the set event reasons slowed it down: power, heat, sync boost */
    _Atomic uint32_t hidden;          /* taken out of the machine: NVML and new CUDA programs do not list it */
    _Atomic uint32_t mig_on;
    gws_accounted accounted[GWS_ACCOUNTED]; /* the latest processes that ended; under the lock */
    uint32_t accounted_next;
    uint32_t mig_serial; /* instances created so far: each has a new UUID */
    gws_mig mig[GWS_MAX_MIG];
    uint32_t answers; /* of a described machine; set before anybody else opens it */
    gws_answer answer[GWS_ANSWERS];
} gws_device;

enum {
    GWS_KIND_COMPUTE = 1,
    GWS_KIND_GRAPHICS = 2,
    GWS_KIND_MPS = 4,
};
enum {
    GWS_SLOT_ATTACHED = 1, /* added by gws_attach: load and memory are given, not measured */
    GWS_SLOT_VARYING = 2,  /* its load swings slowly around the given one */
    GWS_SLOT_FOREIGN = 4,  /* a pid of another PID namespace: never checked or removed */
};

typedef struct {
    _Atomic int32_t pid; /* 0: the slot is free. Stored last when a slot is taken, first when it is freed */
    int32_t device;
    uint32_t kind, flags;
    uint64_t start_time; /* field 22 of /proc/PID/stat: tells a reused pid apart */
    uint64_t exec_id;    /* changes with execve, which keeps pid and start time but drops the contexts */
    uint64_t bytes, peak_bytes;
    uint64_t entered_ns, checked_ns;
    uint64_t checked_cpu_ns; /* its CPU clock at that time: if it has not run since, it still exists */
    _Atomic uint64_t last_busy_ns;
    _Atomic uint64_t running_since_ns; /* a kernel runs now, since then; 0: none */
    gws_ring busy, memory_busy;
    _Atomic uint64_t busy_ns, memory_ns; /* since it came */
    double sm_share, memory_share; /* attached processes only */
    uint32_t mig;                  /* index of its MIG instance plus one; 0: the first there is */
} gws_process;

typedef struct {
    char function[GWS_FUNCTION_BYTES]; /* "nvmlDeviceGetMemoryInfo", "cu*", "*" */
    int32_t device;                    /* -1: any */
    int32_t code;
    uint32_t delay_ms;
    int32_t remaining; /* -1: for ever */
    uint32_t active;
    uint32_t generation; /* ends the delay of a call when the fault is cleared */
    uint64_t until_ns;   /* then it is over; 0: never */
    char label[GWS_LABEL_BYTES]; /* its label, for lists and for clearing it alone */
} gws_fault;

/* A fault as a list of them shows it. */
typedef struct {
    char function[GWS_FUNCTION_BYTES], label[GWS_LABEL_BYTES];
    int32_t device, code;
    uint32_t delay_ms;
    int32_t remaining;
    int64_t left_ms; /* -1: for ever */
} gws_fault_view;

typedef struct {
    uint64_t magic;
    uint32_t layout_version, size;
    uint32_t device_count;
    char shape[32];
    char boot_id[40];
    uint64_t created_ns;
    int64_t created_wall_us;
    pthread_mutex_t lock; /* robust, shared between processes */
    _Atomic uint32_t fault_count;
    uint32_t fault_generation;
    uint32_t process_high; /* slots at and beyond this index were never taken */
    gws_device device[GWS_MAX_DEVICES];
    gws_fault fault[GWS_MAX_FAULTS];
    gws_process process[GWS_MAX_PROCESSES];
} gws_state;

/* One process on one device, as NVML wants it. */
typedef struct {
    int32_t pid;
    uint32_t kind;
    uint64_t bytes;
    double sm_share, memory_share; /* of the last second */
    uint64_t last_busy_ns;         /* 0: never */
    int32_t mig;                   /* index of its MIG instance; -1: MIG is off, or there is none */
} gws_process_view;

typedef struct {
    double sm_share, memory_share;
} gws_load;

/* --- the machine ------------------------------------------------------------------------------------ */
int gws_create(const char *path, uint32_t device_count, uint64_t memory_bytes, const char *shape,
               const char *memory_label); /* 0 or an errno */
int gws_check(const char *path, uint32_t device_count, uint64_t memory_bytes);
                                          /* 0: fits; ESTALE: another layout, boot or shape; else an errno */
const char *gws_layout(void); /* "3.419496": version and bytes, for the file's name: each layout has its own */
gws_state *gws_open(const char *path);    /* NULL with errno */
void gws_close(gws_state *state);
gws_state *gws_default(void);             /* the machine that GPUWATCH_SIM_STATE names, or NULL */
uint64_t gws_now_ns(void);
uint64_t gws_wall_us(const gws_state *state, uint64_t ns); /* monotonic to Unix time in microseconds */

/* --- devices ---------------------------------------------------------------------------------------- */
uint32_t gws_device_count(const gws_state *state);
const char *gws_device_name(const gws_state *state, uint32_t device);
const char *gws_device_uuid(const gws_state *state, uint32_t device);
const char *gws_device_pci_bus_id(const gws_state *state, uint32_t device);
uint64_t gws_device_total_bytes(const gws_state *state, uint32_t device);
uint64_t gws_device_reserved_bytes(const gws_state *state, uint32_t device);
uint64_t gws_used_bytes(gws_state *state, uint32_t device); /* by processes; the reserved part is apart */
gws_load gws_device_load(gws_state *state, uint32_t device);
gws_load gws_attached_load(gws_state *state, uint32_t device); /* the given part of it, not measured */
double gws_device_heat(gws_state *state, uint32_t device);
uint64_t gws_device_busy_ns(gws_state *state, uint32_t device);
bool gws_device_in_use(gws_state *state, uint32_t device);
bool gws_override(const gws_state *state, uint32_t device, gws_override_key key, int64_t *value);
int64_t gws_overridden(const gws_state *state, uint32_t device, gws_override_key key, int64_t otherwise);
int gws_set_override(gws_state *state, uint32_t device, const char *key, int64_t value, int is_set);
const char *gws_override_name(uint32_t key); /* NULL beyond the last */
int gws_get_override(const gws_state *state, uint32_t device, uint32_t key, int64_t *value);
uint64_t gws_grown(const gws_state *state, uint32_t device, gws_override_key rate); /* a set rate, since then */
uint64_t gws_policy_ns(gws_state *state, uint32_t device, uint32_t policy);
bool gws_policies_known(const gws_state *state, uint32_t device);
int gws_describe(gws_state *state, uint32_t device, const char *name, uint64_t total_bytes, uint64_t reserved_bytes);
int gws_set_card(gws_state *state, uint32_t device, int32_t capability, int32_t multiprocessors,
                 uint32_t power_limit_mw, uint32_t sm_clock_max_mhz, uint32_t memory_clock_mhz);
int gws_add_answer(gws_state *state, uint32_t device, const gws_answer *answer);
const gws_answer *gws_find_answer(gws_state *state, uint32_t device, const char *function,
                                  uint64_t argument); /* NULL: what is simulated counts */
int gws_set_hidden(gws_state *state, uint32_t device, int hidden);
int gws_is_hidden(const gws_state *state, uint32_t device);
uint32_t gws_shown_count(const gws_state *state);
int gws_shown_at(const gws_state *state, uint32_t position); /* the device there, or -1 */

/* --- MIG: five numbers an instance: index, GPU instance, compute instance, slices of both -------------- */
int gws_set_mig(gws_state *state, uint32_t device, int on, uint32_t count, const uint32_t *numbers);
int gws_mig_is_on(const gws_state *state, uint32_t device);
int gws_get_mig(const gws_state *state, uint32_t device, uint32_t index, gws_mig *out);
uint64_t gws_mig_used_bytes(gws_state *state, uint32_t device, uint32_t index);
gws_load gws_mig_load(gws_state *state, uint32_t device, uint32_t index); /* of all on its GPU instance */
int gws_cuda_version(const gws_state *state); /* the highest that the driver runs: 13000 */
int gws_capability(const gws_state *state, const gws_device *card); /* 86 is 8.6 */
int gws_multiprocessors(const gws_state *state, const gws_device *card);

/* --- processes -------------------------------------------------------------------------------------- */
uint32_t gws_list_processes(gws_state *state, uint32_t device, uint32_t kinds, gws_process_view *out,
                            uint32_t capacity); /* how many there are, which may be more than capacity */
uint32_t gws_list_accounted(gws_state *state, uint32_t device, gws_accounted *out,
                            uint32_t capacity); /* as above; running ones first, at most one entry a pid */
int gws_attach(gws_state *state, int32_t pid, uint32_t device, uint64_t bytes, double sm_share,
               double memory_share, uint32_t kind, uint32_t flags,
               int32_t mig); /* 0, ENOMEM, ESRCH, ENOSPC, EINVAL; mig: index of an instance, or -1 */
int gws_detach(gws_state *state, int32_t pid, int32_t device);      /* device -1: all; how many went */
int gws_sweep(gws_state *state);                                    /* how many dead slots were freed */

/* For the driver: this process's memory on a device. take fails with ENOMEM when it does not fit. */
int gws_take(gws_state *state, uint32_t device, uint64_t bytes);
void gws_give(gws_state *state, uint32_t device, uint64_t bytes);
void gws_leave(gws_state *state, uint32_t device); /* the context is gone: so is the entry */
void gws_memory_info(gws_state *state, uint32_t device, uint64_t *free_bytes, uint64_t *total_bytes);

#define GWS_MEMORY_BYTES_PER_NS 10.0 /* what a host moves; makes bytes into "memory was busy" time */

/* Called around everything that counts as a kernel; moved_bytes: bytes read and written. */
uint64_t gws_kernel_begin(gws_state *state, uint32_t device);
void gws_kernel_end(gws_state *state, uint32_t device, uint64_t began_ns, uint64_t moved_bytes);
typedef enum { GWS_COPY_TO_DEVICE, GWS_COPY_TO_HOST, GWS_COPY_ON_DEVICE } gws_copy_direction;
void gws_copied(gws_state *state, uint32_t device, uint64_t began_ns, uint64_t bytes,
                gws_copy_direction direction);

/* --- faults ----------------------------------------------------------------------------------------- */
int gws_inject(gws_state *state, const char *function, int32_t device, int32_t code, uint32_t delay_ms,
               int32_t count);
int gws_inject_labelled(gws_state *state, const char *function, int32_t device, int32_t code, uint32_t delay_ms,
                        int32_t count, uint32_t lasting_ms, const char *label); /* lasting 0: until cleared */
void gws_clear_faults(gws_state *state);
int gws_clear_labelled(gws_state *state, const char *label, int32_t device); /* device -1: any; how many */
int gws_fault_at(gws_state *state, uint32_t index, gws_fault_view *out);     /* 0, or ENOENT for a free one */
void gws_heal(gws_state *state); /* no faults, nothing set by hand, no MIG, no foreign processes, nothing hidden */
int gws_fault_slow(gws_state *state, const char *function, int32_t device);

/* The check that every simulated function passes first: 0, or the code that it must return. */
static inline int gws_fault_check(gws_state *state, const char *function, int32_t device) {
    if (__builtin_expect(atomic_load_explicit(&state->fault_count, memory_order_relaxed) == 0, 1))
        return 0;
    return gws_fault_slow(state, function, device);
}

#endif
