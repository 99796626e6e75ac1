/* Shared by the files of the state's library. */
#ifndef GPUWATCH_SIM_STATE_INTERNAL_H
#define GPUWATCH_SIM_STATE_INTERNAL_H

#include "state.h"

#include <errno.h>

/* Whose holder is stopped (SIGSTOP) must not stop everybody else: after a while they go on without the lock,
 * and for some time do not wait for it again. */
__attribute__((visibility("hidden"))) void gws_lock_busy(gws_state *state);

static inline void lock(gws_state *state) {
    int result = pthread_mutex_trylock(&state->lock);
    /* A holder that was killed leaves at most its own slot half filled, which is swept. */
    if (__builtin_expect(result == EOWNERDEAD, 0)) pthread_mutex_consistent(&state->lock);
    if (__builtin_expect(result == EBUSY, 0)) gws_lock_busy(state);
}

/* Fails harmlessly where lock went on without: the mutex knows its owner. */
static inline void unlock(gws_state *state) { pthread_mutex_unlock(&state->lock); }

__attribute__((visibility("hidden"))) void gws_free_slot(gws_state *state, gws_process *slot, uint64_t now_ns);

/* Every slot; and those of the processes on a device. Under the lock. */
#define EACH_SLOT(slot, state)                                                                               \
    for (__typeof__(&(state)->process[0]) slot = (state)->process, end_ = slot + (state)->process_high;      \
         slot < end_; slot++)
#define EACH_ON(slot, state, on)                                                                             \
    EACH_SLOT(slot, state)                                                                                   \
        if (slot->pid && slot->device == (int32_t)(on))

#endif
