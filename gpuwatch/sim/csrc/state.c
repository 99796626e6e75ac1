/* See state.h. Compiled into libgpuwatchsim.so, which all other simulated libraries need and which Python
 * drives through ctypes. */
#define _GNU_SOURCE
#include "state_internal.h"
#include "card_values.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define CELL_AMOUNT_BITS 40
#define CELL_AMOUNT_MASK ((1ull << CELL_AMOUNT_BITS) - 1)
#define CELL_EPOCH_MASK 0xffffffull

#define CHECK_EVERY_NS 250000000ull /* time before an existing process is checked again for being a zombie */
#define HEAT_SECONDS 20.0           /* thermal inertia of a card */
#define VARY_SECONDS 30.0           /* period of an attached process's varying load */
#define VARY_SHARE 0.35             /* ... and its swing, relative to the given load */
/* A kernel that is stopped (SIGSTOP), or that waits for memory which another is to free, may hold a device no longer. */
#define KERNEL_WAIT_NS 250000000l

#define GWS_MAPPED 64 /* machines that one process has open, each with a file */

/* --- time ------------------------------------------------------------------------------------------- */

uint64_t gws_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

uint64_t gws_wall_us(const gws_state *state, uint64_t ns) {
    return (uint64_t)(state->created_wall_us + ((int64_t)ns - (int64_t)state->created_ns) / 1000);
}

/* --- rings ------------------------------------------------------------------------------------------ */

static void ring_add_cell(gws_ring *ring, uint64_t epoch, uint64_t amount) {
    _Atomic uint64_t *cell = &ring->cell[epoch % GWS_RING_CELLS];
    uint64_t tag = (epoch & CELL_EPOCH_MASK) << CELL_AMOUNT_BITS;
    uint64_t old = atomic_load_explicit(cell, memory_order_relaxed), new;
    do {
        new = (old & ~CELL_AMOUNT_MASK) == tag ? old + amount : tag | amount;
    } while (!atomic_compare_exchange_weak_explicit(cell, &old, new, memory_order_relaxed,
                                                    memory_order_relaxed));
}

/* Adds the time from..to, scaled, to the intervals that it touches. */
static void ring_add_span(gws_ring *ring, uint64_t from_ns, uint64_t to_ns, double scale) {
    uint64_t span = (GWS_RING_CELLS - 1) * GWS_CELL_NS;
    if (to_ns > span && from_ns < to_ns - span) from_ns = to_ns - span;
    while (from_ns < to_ns) {
        uint64_t epoch = from_ns / GWS_CELL_NS, end = (epoch + 1) * GWS_CELL_NS;
        if (end > to_ns) end = to_ns;
        ring_add_cell(ring, epoch, (uint64_t)((double)(end - from_ns) * scale));
        from_ns = end;
    }
}

/* The amount of the last second; of the oldest interval, the part that is still inside. */
static double ring_sum(const gws_ring *ring, uint64_t now_ns) {
    uint64_t last = now_ns / GWS_CELL_NS, first = (now_ns - GWS_WINDOW_NS) / GWS_CELL_NS;
    double sum = 0;
    for (uint64_t epoch = first; epoch <= last; epoch++) {
        uint64_t cell = atomic_load_explicit(&ring->cell[epoch % GWS_RING_CELLS], memory_order_relaxed);
        if (cell >> CELL_AMOUNT_BITS != (epoch & CELL_EPOCH_MASK)) continue;
        double amount = (double)(cell & CELL_AMOUNT_MASK);
        if (epoch == first)
            amount *= 1.0 - (double)((now_ns - GWS_WINDOW_NS) % GWS_CELL_NS) / (double)GWS_CELL_NS;
        sum += amount;
    }
    return sum;
}

static double clamp_share(double share) { return share < 0 ? 0 : share > 1 ? 1 : share; }

/* --- locking ---------------------------------------------------------------------------------------- */

static void init_mutex(pthread_mutex_t *mutex) {
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(mutex, &attr);
    pthread_mutexattr_destroy(&attr);
}

#define LOCK_WAIT_MS 300     /* far longer than a running process holds it */
#define LOCK_IGNORE_MS 3000

void gws_lock_busy(gws_state *state) {
    static _Atomic uint64_t ignored_until_ns; /* in this process */
    if (gws_now_ns() < atomic_load(&ignored_until_ns)) return;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += LOCK_WAIT_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    int result = pthread_mutex_timedlock(&state->lock, &until);
    if (result == EOWNERDEAD) pthread_mutex_consistent(&state->lock);
    if (result == ETIMEDOUT) atomic_store(&ignored_until_ns, gws_now_ns() + LOCK_IGNORE_MS * 1000000ull);
}

/* --- who is alive ----------------------------------------------------------------------------------- */

/* Start time of a live process in clock ticks since boot; 0: gone, or a zombie, which holds no memory. */
static uint64_t start_time_of(int32_t pid) {
    char path[32], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    if (length <= 0) return 0;
    text[length] = 0;
    char *rest = strrchr(text, ')'); /* the command may hold any character, so count from the last one */
    if (!rest) return 0;
    char status = 0;
    long threads = 0;
    unsigned long long start = 0;
    if (sscanf(rest + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld %*d %llu",
               &status, &threads, &start) != 3)
        return 0;
    bool zombie = (status == 'Z' || status == 'X') && threads <= 1; /* otherwise only its main thread ended */
    return zombie ? 0 : start;
}

/* CPU time of all threads of a process; 0: unavailable. Much cheaper than reading /proc. */
static uint64_t cpu_time_of(int32_t pid) {
    struct timespec time;
    if (clock_gettime((clockid_t)(~(uint32_t)pid << 3 | 2), &time) != 0) return 0;
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static uint64_t exec_id(void) {
    uint64_t id = 1;
    const void *random = (const void *)getauxval(AT_RANDOM); /* 16 bytes that are new with every execve */
    if (random) memcpy(&id, random, sizeof id);
    return id;
}

static bool slot_alive(gws_process *slot, uint64_t now_ns, bool exact) {
    if (slot->flags & GWS_SLOT_FOREIGN) return true;
    int32_t pid = slot->pid;
    if (kill(pid, 0) != 0 && errno == ESRCH) return false;
    if (!exact && now_ns - slot->checked_ns < CHECK_EVERY_NS) return true;
    uint64_t cpu_ns = cpu_time_of(pid);
    slot->checked_ns = now_ns;
    if (!exact && cpu_ns && cpu_ns == slot->checked_cpu_ns) return true; /* to end is to run */
    if (start_time_of(pid) != slot->start_time) return false;
    slot->checked_cpu_ns = cpu_ns;
    return true;
}

/* --- the load of one slot --------------------------------------------------------------------------- */

/* An attached process's load swings as 1 + VARY_SHARE * sin(phase); the phase starts from its pid. */
static double vary_phase(const gws_process *slot, uint64_t now_ns) {
    double elapsed = (double)(now_ns - slot->entered_ns) * 1e-9;
    return 2 * M_PI * (elapsed / VARY_SECONDS + (double)(slot->pid % 97) / 97.0);
}

static double attached_factor(const gws_process *slot, uint64_t now_ns) {
    return slot->flags & GWS_SLOT_VARYING ? 1.0 + VARY_SHARE * sin(vary_phase(slot, now_ns)) : 1.0;
}

/* Busy time of an attached process since it came: the integral of its load. */
static double attached_busy_ns(const gws_process *slot, uint64_t now_ns) {
    double elapsed = (double)(now_ns - slot->entered_ns);
    if (slot->flags & GWS_SLOT_VARYING) {
        double swing = cos(vary_phase(slot, slot->entered_ns)) - cos(vary_phase(slot, now_ns));
        elapsed += VARY_SHARE * swing * VARY_SECONDS * 1e9 / (2 * M_PI);
    }
    return slot->sm_share * elapsed;
}

static double running_ns(const gws_process *slot, uint64_t now_ns) {
    uint64_t since = atomic_load_explicit(&slot->running_since_ns, memory_order_relaxed);
    if (!since || since >= now_ns) return 0;
    uint64_t elapsed = now_ns - since;
    return (double)(elapsed < GWS_WINDOW_NS ? elapsed : GWS_WINDOW_NS);
}

static gws_load slot_load(const gws_process *slot, uint64_t now_ns) {
    gws_load load;
    if (slot->flags & GWS_SLOT_ATTACHED) {
        double factor = attached_factor(slot, now_ns);
        load.sm_share = clamp_share(slot->sm_share * factor);
        load.memory_share = clamp_share(slot->memory_share * factor);
    } else {
        load.sm_share =
            clamp_share((ring_sum(&slot->busy, now_ns) + running_ns(slot, now_ns)) / (double)GWS_WINDOW_NS);
        load.memory_share = clamp_share(ring_sum(&slot->memory_busy, now_ns) / (double)GWS_WINDOW_NS);
    }
    return load;
}

static void add_load(gws_load *sum, gws_load load) {
    sum->sm_share += load.sm_share;
    sum->memory_share += load.memory_share;
}

/* Share of an attached process's load that has become heat: 1 - exp(-age / HEAT_SECONDS). */
static double attached_heat(const gws_process *slot, uint64_t now_ns) {
    double age = (double)(now_ns - slot->entered_ns) * 1e-9;
    return slot->sm_share * attached_factor(slot, now_ns) * (1.0 - exp(-age / HEAT_SECONDS));
}

/* --- slots; all of it under the lock ---------------------------------------------------------------- */

static double heat_decayed(gws_device *device, uint64_t now_ns) {
    if (now_ns > device->heat_at_ns) {
        device->heat *= exp(-(double)(now_ns - device->heat_at_ns) * 1e-9 / HEAT_SECONDS);
        device->heat_at_ns = now_ns;
    }
    return device->heat;
}

/* Whether accounting mode counts a process: those that began before it was switched on are left out. */
static bool is_accounted(const gws_state *state, const gws_process *slot) {
    const gws_device *device = &state->device[slot->device];
    return gws_overridden(state, (uint32_t)slot->device, GWS_SET_ACCOUNTING_MODE, 0) &&
           slot->entered_ns >= atomic_load(&device->override_at_ns[GWS_SET_ACCOUNTING_MODE]);
}

static gws_accounted accounted(const gws_process *slot, uint64_t now_ns, bool running) {
    gws_accounted one = {.pid = slot->pid, .running = running, .entered_ns = slot->entered_ns};
    one.time_ns = now_ns - slot->entered_ns;
    one.peak_bytes = slot->peak_bytes;
    if (slot->flags & GWS_SLOT_ATTACHED) {
        one.busy_ns = (uint64_t)attached_busy_ns(slot, now_ns);
        one.memory_ns = (uint64_t)(slot->memory_share * (double)one.time_ns);
    } else {
        one.busy_ns = atomic_load(&slot->busy_ns);
        one.memory_ns = atomic_load(&slot->memory_ns);
    }
    return one;
}

/* Notes a process that ends; of a pid that was used again the last one is kept. */
static void remember(gws_device *device, gws_accounted ended) {
    uint32_t place = device->accounted_next % GWS_ACCOUNTED;
    bool known = false;
    for (uint32_t i = 0; i < GWS_ACCOUNTED && !known; i++)
        if (device->accounted[i].pid == ended.pid) place = i, known = true;
    device->accounted[place] = ended;
    if (!known) device->accounted_next++;
}

void gws_free_slot(gws_state *state, gws_process *slot, uint64_t now_ns) {
    gws_device *device = &state->device[slot->device];
    if (is_accounted(state, slot)) remember(device, accounted(slot, now_ns, false));
    if (slot->flags & GWS_SLOT_ATTACHED) {
        /* Its heat and energy stay with the device. */
        device->heat = heat_decayed(device, now_ns) + attached_heat(slot, now_ns);
        atomic_fetch_add(&device->busy_total_ns, (uint64_t)attached_busy_ns(slot, now_ns));
    }
    atomic_store(&slot->pid, 0);
}

static int sweep(gws_state *state, int32_t device, uint64_t now_ns, bool exact) {
    int freed = 0;
    EACH_SLOT(slot, state) {
        if (!slot->pid || (device >= 0 && slot->device != device)) continue;
        if (!slot_alive(slot, now_ns, exact)) {
            gws_free_slot(state, slot, now_ns);
            freed++;
        }
    }
    return freed;
}

static uint64_t used_bytes(const gws_state *state, uint32_t device) {
    uint64_t used = 0;
    EACH_ON(slot, state, device) used += slot->bytes;
    return used;
}

static uint64_t free_bytes(const gws_state *state, uint32_t device) {
    uint64_t taken = used_bytes(state, device) + state->device[device].reserved_bytes;
    uint64_t total = state->device[device].total_bytes;
    return taken < total ? total - taken : 0;
}

static gws_process *find_slot(gws_state *state, int32_t pid, uint32_t device, bool attached) {
    EACH_SLOT(slot, state) {
        if (slot->pid == pid && slot->device == (int32_t)device &&
            !!(slot->flags & GWS_SLOT_ATTACHED) == attached)
            return slot;
    }
    return NULL;
}

/* A cleared slot that is not visible yet: the caller fills it and stores the pid last. */
static gws_process *new_slot(gws_state *state) {
    for (uint32_t i = 0; i < GWS_MAX_PROCESSES; i++) {
        gws_process *slot = &state->process[i];
        if (slot->pid) continue;
        memset(slot, 0, sizeof *slot);
        if (i >= state->process_high) state->process_high = i + 1;
        return slot;
    }
    return NULL;
}

/* --- this process's own slots ----------------------------------------------------------------------- */

static _Atomic(gws_process *) own_slot[GWS_MAX_DEVICES]; /* of own_state; a forked child starts anew */
static _Atomic(gws_state *) own_state;

static void forget_own_slots(void) {
    for (int i = 0; i < GWS_MAX_DEVICES; i++) atomic_store(&own_slot[i], NULL);
}

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, forget_own_slots); }

static gws_process *own(gws_state *state, uint32_t device) {
    if (atomic_load_explicit(&own_state, memory_order_relaxed) != state) return NULL;
    return atomic_load_explicit(&own_slot[device], memory_order_acquire);
}

/* Registers this process, under the lock. Slots of an earlier program with the same pid are removed first. */
static gws_process *enter(gws_state *state, uint32_t device, uint64_t now_ns) {
    int32_t pid = getpid();
    uint64_t id = exec_id();
    EACH_SLOT(slot, state) {
        if (slot->pid == pid && !(slot->flags & GWS_SLOT_ATTACHED) && slot->exec_id != id)
            gws_free_slot(state, slot, now_ns);
    }
    gws_process *slot = find_slot(state, pid, device, false);
    if (!slot) {
        slot = new_slot(state);
        if (!slot && sweep(state, -1, now_ns, true)) slot = new_slot(state);
        if (!slot) return NULL;
        slot->device = (int32_t)device;
        slot->kind = GWS_KIND_COMPUTE;
        slot->start_time = start_time_of(pid);
        slot->exec_id = id;
        slot->entered_ns = slot->checked_ns = now_ns;
        atomic_store(&slot->pid, pid);
    }
    if (atomic_exchange(&own_state, state) != state) forget_own_slots();
    atomic_store_explicit(&own_slot[device], slot, memory_order_release);
    return slot;
}

int gws_take(gws_state *state, uint32_t device, uint64_t bytes) {
    uint64_t now_ns = gws_now_ns();
    lock(state);
    int error = 0;
    if (bytes > free_bytes(state, device)) {
        sweep(state, (int32_t)device, now_ns, true);
        if (bytes > free_bytes(state, device)) error = ENOMEM;
    }
    if (!error) {
        gws_process *slot = own(state, device);
        if (!slot) slot = enter(state, device, now_ns);
        if (slot) {
            slot->bytes += bytes;
            if (slot->bytes > slot->peak_bytes) slot->peak_bytes = slot->bytes;
        } else {
            error = ENOMEM;
        }
    }
    unlock(state);
    return error;
}

void gws_give(gws_state *state, uint32_t device, uint64_t bytes) {
    lock(state);
    gws_process *slot = own(state, device);
    if (slot) slot->bytes = bytes < slot->bytes ? slot->bytes - bytes : 0;
    unlock(state);
}

void gws_leave(gws_state *state, uint32_t device) {
    lock(state);
    gws_process *slot = own(state, device);
    if (slot) {
        gws_free_slot(state, slot, gws_now_ns());
        atomic_store(&own_slot[device], NULL);
    }
    unlock(state);
}

void gws_memory_info(gws_state *state, uint32_t device, uint64_t *free_out, uint64_t *total_out) {
    lock(state);
    sweep(state, (int32_t)device, gws_now_ns(), true); /* exited processes must not count */
    *free_out = free_bytes(state, device);
    *total_out = state->device[device].total_bytes;
    unlock(state);
}

uint64_t gws_kernel_begin(gws_state *state, uint32_t device) {
    gws_device *card = &state->device[device];
    int result = pthread_mutex_trylock(&card->kernel_lock);
    if (result == EBUSY) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += KERNEL_WAIT_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        result = pthread_mutex_timedlock(&card->kernel_lock, &until);
    }
    if (result == EOWNERDEAD) pthread_mutex_consistent(&card->kernel_lock);
    uint64_t now_ns = gws_now_ns();
    gws_process *slot = own(state, device);
    if (slot) atomic_store_explicit(&slot->running_since_ns, now_ns, memory_order_relaxed);
    return now_ns;
}

void gws_kernel_end(gws_state *state, uint32_t device, uint64_t began_ns, uint64_t moved_bytes) {
    gws_device *card = &state->device[device];
    uint64_t now_ns = gws_now_ns();
    double took = (double)(now_ns - began_ns);
    double moving = (double)moved_bytes / GWS_MEMORY_BYTES_PER_NS;
    double scale = took > 0 ? clamp_share(moving / took) : 0;
    gws_process *slot = own(state, device);
    ring_add_span(&card->busy, began_ns, now_ns, 1.0);
    ring_add_span(&card->memory_busy, began_ns, now_ns, scale);
    atomic_fetch_add(&card->busy_total_ns, now_ns - began_ns);
    if (slot) {
        atomic_store_explicit(&slot->running_since_ns, 0, memory_order_relaxed);
        atomic_store_explicit(&slot->last_busy_ns, now_ns, memory_order_relaxed);
        ring_add_span(&slot->busy, began_ns, now_ns, 1.0);
        ring_add_span(&slot->memory_busy, began_ns, now_ns, scale);
        atomic_fetch_add(&slot->busy_ns, now_ns - began_ns);
        atomic_fetch_add(&slot->memory_ns, (uint64_t)(took * scale));
    }
    pthread_mutex_unlock(&card->kernel_lock); /* fails harmlessly if the wait above timed out */
    lock(state);
    card->heat = heat_decayed(card, now_ns) + took * 1e-9 / HEAT_SECONDS;
    unlock(state);
}

void gws_copied(gws_state *state, uint32_t device, uint64_t began_ns, uint64_t bytes,
                gws_copy_direction direction) {
    gws_device *card = &state->device[device];
    uint64_t now_ns = gws_now_ns();
    gws_process *slot = own(state, device);
    ring_add_span(&card->memory_busy, began_ns, now_ns, 1.0);
    if (slot) {
        ring_add_span(&slot->memory_busy, began_ns, now_ns, 1.0);
        atomic_fetch_add(&slot->memory_ns, now_ns - began_ns);
    }
    if (direction == GWS_COPY_TO_DEVICE) atomic_fetch_add(&card->host_to_device_bytes, bytes);
    if (direction == GWS_COPY_TO_HOST) atomic_fetch_add(&card->device_to_host_bytes, bytes);
}

/* --- what is read ----------------------------------------------------------------------------------- */

uint32_t gws_device_count(const gws_state *state) { return state->device_count; }
const char *gws_device_name(const gws_state *state, uint32_t device) { return state->device[device].name; }
const char *gws_device_uuid(const gws_state *state, uint32_t device) { return state->device[device].uuid; }
const char *gws_device_pci_bus_id(const gws_state *state, uint32_t device) {
    return state->device[device].pci_bus_id;
}
uint64_t gws_device_total_bytes(const gws_state *state, uint32_t device) {
    return state->device[device].total_bytes;
}
uint64_t gws_device_reserved_bytes(const gws_state *state, uint32_t device) {
    return state->device[device].reserved_bytes;
}

uint64_t gws_used_bytes(gws_state *state, uint32_t device) {
    lock(state);
    sweep(state, (int32_t)device, gws_now_ns(), false);
    uint64_t used = used_bytes(state, device);
    unlock(state);
    return used;
}

gws_load gws_device_load(gws_state *state, uint32_t device) {
    gws_device *card = &state->device[device];
    uint64_t now_ns = gws_now_ns();
    double busy = ring_sum(&card->busy, now_ns) / (double)GWS_WINDOW_NS;
    double moving = ring_sum(&card->memory_busy, now_ns) / (double)GWS_WINDOW_NS;
    lock(state);
    sweep(state, (int32_t)device, now_ns, false);
    EACH_ON(slot, state, device) {
        if (slot->flags & GWS_SLOT_ATTACHED) {
            gws_load load = slot_load(slot, now_ns);
            busy += load.sm_share;
            moving += load.memory_share;
        } else {
            busy += running_ns(slot, now_ns) / (double)GWS_WINDOW_NS;
        }
    }
    unlock(state);
    return (gws_load){.sm_share = clamp_share(busy), .memory_share = clamp_share(moving)};
}

gws_load gws_attached_load(gws_state *state, uint32_t device) {
    gws_load sum = {0, 0};
    uint64_t now_ns = gws_now_ns();
    lock(state);
    EACH_ON(slot, state, device) {
        if (!(slot->flags & GWS_SLOT_ATTACHED)) continue;
        add_load(&sum, slot_load(slot, now_ns));
    }
    unlock(state);
    return (gws_load){clamp_share(sum.sm_share), clamp_share(sum.memory_share)};
}

double gws_device_heat(gws_state *state, uint32_t device) {
    uint64_t now_ns = gws_now_ns();
    lock(state);
    double heat = heat_decayed(&state->device[device], now_ns);
    EACH_ON(slot, state, device)
        if (slot->flags & GWS_SLOT_ATTACHED) heat += attached_heat(slot, now_ns);
    unlock(state);
    return clamp_share(heat);
}

uint64_t gws_device_busy_ns(gws_state *state, uint32_t device) {
    uint64_t now_ns = gws_now_ns();
    lock(state);
    double busy = (double)atomic_load(&state->device[device].busy_total_ns);
    EACH_ON(slot, state, device)
        if (slot->flags & GWS_SLOT_ATTACHED) busy += attached_busy_ns(slot, now_ns);
    unlock(state);
    return (uint64_t)busy;
}

bool gws_device_in_use(gws_state *state, uint32_t device) {
    bool in_use = false;
    lock(state);
    sweep(state, (int32_t)device, gws_now_ns(), false);
    EACH_ON(slot, state, device) in_use = true;
    unlock(state);
    return in_use;
}

/* A process's instance: the one it was attached to, else the first, as CUDA chooses. */
static int32_t mig_of(const gws_device *device, const gws_process *slot) {
    if (!atomic_load(&device->mig_on)) return -1;
    if (slot->mig && device->mig[slot->mig - 1].present) return (int32_t)slot->mig - 1;
    for (int32_t i = 0; i < GWS_MAX_MIG; i++)
        if (device->mig[i].present) return i;
    return -1;
}

static bool on_instance(const gws_device *card, const gws_process *slot, uint32_t index) {
    int32_t on = mig_of(card, slot);
    return on >= 0 && card->mig[on].gpu_instance == card->mig[index].gpu_instance;
}

uint64_t gws_mig_used_bytes(gws_state *state, uint32_t device, uint32_t index) {
    uint64_t used = 0;
    lock(state);
    sweep(state, (int32_t)device, gws_now_ns(), false);
    EACH_ON(slot, state, device) {
        if (on_instance(&state->device[device], slot, index)) used += slot->bytes;
    }
    unlock(state);
    return used;
}

gws_load gws_mig_load(gws_state *state, uint32_t device, uint32_t index) {
    gws_load sum = {0, 0};
    uint64_t now_ns = gws_now_ns();
    lock(state);
    EACH_ON(slot, state, device) {
        if (!on_instance(&state->device[device], slot, index)) continue;
        add_load(&sum, slot_load(slot, now_ns));
    }
    unlock(state);
    return (gws_load){clamp_share(sum.sm_share), clamp_share(sum.memory_share)};
}

uint32_t gws_list_processes(gws_state *state, uint32_t device, uint32_t kinds, gws_process_view *out,
                            uint32_t capacity) {
    uint32_t count = 0;
    uint64_t now_ns = gws_now_ns();
    lock(state);
    sweep(state, (int32_t)device, now_ns, false);
    EACH_ON(slot, state, device) {
        if (!(slot->kind & kinds)) continue;
        if (count < capacity) {
            gws_load load = slot_load(slot, now_ns);
            bool runs = slot->flags & GWS_SLOT_ATTACHED ? slot->sm_share > 0 : slot->running_since_ns != 0;
            out[count] = (gws_process_view){
                .pid = slot->pid,
                .kind = slot->kind,
                .bytes = slot->bytes,
                .sm_share = load.sm_share,
                .memory_share = load.memory_share,
                .last_busy_ns = runs ? now_ns : slot->last_busy_ns,
                .mig = mig_of(&state->device[device], slot),
            };
        }
        count++;
    }
    unlock(state);
    return count;
}

/* --- attached processes ----------------------------------------------------------------------------- */

uint32_t gws_list_accounted(gws_state *state, uint32_t device, gws_accounted *out, uint32_t capacity) {
    uint64_t now_ns = gws_now_ns();
    uint32_t there = 0;
    lock(state);
    sweep(state, (int32_t)device, now_ns, true);
    EACH_ON(slot, state, device) {
        if (!is_accounted(state, slot)) continue;
        if (there < capacity) out[there] = accounted(slot, now_ns, true);
        there++;
    }
    uint32_t running = there < capacity ? there : capacity;
    for (uint32_t i = 0; i < GWS_ACCOUNTED; i++) {
        const gws_accounted *ended = &state->device[device].accounted[i];
        bool again = !ended->pid;
        for (uint32_t k = 0; k < running && !again; k++) again = out[k].pid == ended->pid;
        if (again) continue;
        if (there < capacity) out[there] = *ended;
        there++;
    }
    unlock(state);
    return there;
}

int gws_attach(gws_state *state, int32_t pid, uint32_t device, uint64_t bytes, double sm_share,
               double memory_share, uint32_t kind, uint32_t flags, int32_t mig) {
    if (pid <= 0 || device >= state->device_count || !kind || mig >= GWS_MAX_MIG) return EINVAL;
    if (mig >= 0 && !state->device[device].mig[mig].present) return EINVAL;
    uint64_t start = flags & GWS_SLOT_FOREIGN ? 0 : start_time_of(pid);
    if (!start && !(flags & GWS_SLOT_FOREIGN)) return ESRCH;
    uint64_t now_ns = gws_now_ns();
    lock(state);
    sweep(state, (int32_t)device, now_ns, true);
    int error = 0;
    gws_process *slot = find_slot(state, pid, device, true);
    uint64_t had = slot ? slot->bytes : 0;
    if (bytes > had && bytes - had > free_bytes(state, device)) {
        error = ENOMEM;
    } else {
        if (slot) gws_free_slot(state, slot, now_ns);
        slot = new_slot(state);
        if (!slot && sweep(state, -1, now_ns, true)) slot = new_slot(state);
        if (slot) {
            slot->device = (int32_t)device;
            slot->kind = kind;
            slot->flags = flags | GWS_SLOT_ATTACHED;
            slot->start_time = start;
            slot->bytes = slot->peak_bytes = bytes;
            slot->sm_share = clamp_share(sm_share);
            slot->memory_share = clamp_share(memory_share);
            slot->mig = mig < 0 ? 0 : (uint32_t)mig + 1;
            slot->entered_ns = slot->checked_ns = now_ns;
            atomic_store(&slot->pid, pid);
        } else {
            error = ENOSPC;
        }
    }
    unlock(state);
    return error;
}

int gws_detach(gws_state *state, int32_t pid, int32_t device) {
    int count = 0;
    uint64_t now_ns = gws_now_ns();
    lock(state);
    EACH_SLOT(slot, state) {
        if (slot->pid != pid || pid == 0 || !(slot->flags & GWS_SLOT_ATTACHED)) continue;
        if (device >= 0 && slot->device != device) continue;
        gws_free_slot(state, slot, now_ns);
        count++;
    }
    unlock(state);
    return count;
}

int gws_sweep(gws_state *state) {
    lock(state);
    int freed = sweep(state, -1, gws_now_ns(), true);
    unlock(state);
    return freed;
}

/* --- making and opening ----------------------------------------------------------------------------- */

static void read_boot_id(char out[40]) {
    memset(out, 0, 40);
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    ssize_t length = read(fd, out, 36);
    if (length < 0) out[0] = 0;
    close(fd);
}

static uint64_t mix(uint64_t x) { /* splitmix64's finisher: spreads a small number over 64 bits */
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

static uint64_t least(uint64_t one, uint64_t other) { return one < other ? one : other; }

static void init_device(gws_device *device, uint32_t index, uint32_t count, uint64_t memory_bytes,
                        const char *label) {
    snprintf(device->name, sizeof device->name, "Simulated GPU %s", label);
    uint64_t seed = mix(memory_bytes) ^ mix(count * 64u + index);
    uint64_t high = mix(seed), low = mix(high ^ seed);
    for (int i = 0; i < 8; i++) {
        device->uuid_bytes[i] = (uint8_t)(high >> (56 - 8 * i));
        device->uuid_bytes[8 + i] = (uint8_t)(low >> (56 - 8 * i));
    }
    const uint8_t *u = device->uuid_bytes;
    snprintf(device->uuid, sizeof device->uuid,
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1], u[2], u[3],
             u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
    device->pci_bus = index + 1;
    snprintf(device->pci_bus_id, sizeof device->pci_bus_id, "0000:%02x:00.0", device->pci_bus & 0xff);
    device->cc_major = CARD_CAPABILITY_MAJOR;
    device->cc_minor = CARD_CAPABILITY_MINOR;
    device->sm_count = CARD_MULTIPROCESSORS;
    device->cores = CARD_MULTIPROCESSORS * CARD_CORES_PER_MULTIPROCESSOR;
    device->total_bytes = memory_bytes;
    device->reserved_bytes = least(memory_bytes / 32, CARD_MOST_RESERVED_BYTES);
    device->context_bytes = least(memory_bytes / 16, CARD_MOST_CONTEXT_BYTES);
    device->power_limit_mw = CARD_POWER_LIMIT_MW;
    device->power_idle_mw = CARD_POWER_IDLE_MW;
    device->power_full_mw = CARD_POWER_FULL_MW;
    device->sm_clock_idle_mhz = CARD_SM_CLOCK_IDLE_MHZ;
    device->sm_clock_full_mhz = CARD_SM_CLOCK_FULL_MHZ;
    device->sm_clock_max_mhz = CARD_SM_CLOCK_MAX_MHZ;
    device->memory_clock_idle_mhz = CARD_MEMORY_CLOCK_IDLE_MHZ;
    device->memory_clock_full_mhz = CARD_MEMORY_CLOCK_FULL_MHZ;
    device->pcie_generation = CARD_PCIE_GENERATION;
    device->pcie_width = CARD_PCIE_WIDTH;
    device->heat_at_ns = gws_now_ns();
    init_mutex(&device->kernel_lock);
}

int gws_create(const char *path, uint32_t device_count, uint64_t memory_bytes, const char *shape,
               const char *memory_label) {
    if (device_count < 1 || device_count > GWS_MAX_DEVICES || strlen(shape) >= 32) return EINVAL;
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return errno;
    int error = fchmod(fd, 0600) == 0 ? 0 : errno; /* whatever the umask */
    gws_state *state = MAP_FAILED;
    if (!error && ftruncate(fd, sizeof *state) != 0) error = errno;
    if (!error) state = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (!error && state == MAP_FAILED) error = errno;
    close(fd);
    if (error) return error;
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    state->created_ns = gws_now_ns();
    state->created_wall_us = (int64_t)wall.tv_sec * 1000000 + wall.tv_nsec / 1000;
    state->layout_version = GWS_LAYOUT_VERSION;
    state->size = sizeof *state;
    state->device_count = device_count;
    strcpy(state->shape, shape);
    read_boot_id(state->boot_id);
    init_mutex(&state->lock);
    for (uint32_t i = 0; i < device_count; i++)
        init_device(&state->device[i], i, device_count, memory_bytes, memory_label);
    state->magic = GWS_MAGIC;
    munmap(state, sizeof *state);
    return 0;
}

/* The mapped files stay open with a shared lock, which shows other processes that the machine is in use. */
static struct {
    gws_state *state;
    int fd;
} mapped[GWS_MAPPED];
static pthread_mutex_t mapped_lock = PTHREAD_MUTEX_INITIALIZER;

static void keep_open(gws_state *state, int fd) {
    pthread_mutex_lock(&mapped_lock);
    for (int i = 0; i < GWS_MAPPED && fd >= 0; i++) {
        if (mapped[i].state) continue;
        flock(fd, LOCK_SH | LOCK_NB);
        mapped[i].state = state;
        mapped[i].fd = fd;
        fd = -1;
    }
    pthread_mutex_unlock(&mapped_lock);
    if (fd >= 0) close(fd); /* no room: other processes cannot see that it is in use */
}

static gws_state *map(const char *path) {
    int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return NULL;
    struct stat status;
    gws_state *state = MAP_FAILED;
    int error = 0;
    if (fstat(fd, &status) != 0)
        error = errno;
    else if (status.st_uid != geteuid() || (status.st_mode & 022)) /* its counts and indices are trusted */
        error = EACCES;
    else if (status.st_size != (off_t)sizeof *state) /* mapping less would end in SIGBUS */
        error = ESTALE;
    else if ((state = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED)
        error = errno;
    if (!error) {
        char boot_id[40];
        read_boot_id(boot_id);
        if (state->magic != GWS_MAGIC || state->layout_version != GWS_LAYOUT_VERSION ||
            state->size != sizeof *state || memcmp(boot_id, state->boot_id, sizeof boot_id) != 0) {
            munmap(state, sizeof *state);
            error = ESTALE;
        }
    }
    if (error)
        close(fd);
    else
        keep_open(state, fd);
    errno = error;
    return error ? NULL : state;
}

gws_state *gws_open(const char *path) { return map(path); }

void gws_close(gws_state *state) {
    pthread_mutex_lock(&mapped_lock);
    for (int i = 0; i < GWS_MAPPED; i++) {
        if (mapped[i].state != state) continue;
        close(mapped[i].fd);
        mapped[i].state = NULL;
    }
    pthread_mutex_unlock(&mapped_lock);
    munmap(state, sizeof *state);
}

int gws_check(const char *path, uint32_t device_count, uint64_t memory_bytes) {
    gws_state *state = map(path);
    if (!state) return errno;
    bool fits = state->device_count == device_count && state->device[0].total_bytes == memory_bytes;
    gws_close(state);
    return fits ? 0 : ESTALE;
}

const char *gws_layout(void) {
    static char text[32];
    snprintf(text, sizeof text, "%u.%zu", GWS_LAYOUT_VERSION, sizeof(gws_state));
    return text;
}

static _Atomic(gws_state *) default_state;
static pthread_mutex_t default_lock = PTHREAD_MUTEX_INITIALIZER;

gws_state *gws_default(void) {
    gws_state *state = atomic_load_explicit(&default_state, memory_order_acquire);
    if (state) return state;
    pthread_mutex_lock(&default_lock);
    state = atomic_load(&default_state);
    const char *path = getenv("GPUWATCH_SIM_STATE");
    if (!state && path && (state = map(path)))
        atomic_store_explicit(&default_state, state, memory_order_release);
    pthread_mutex_unlock(&default_lock);
    return state;
}
