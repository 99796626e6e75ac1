/* What the parts of the state's library have in common. */
#ifndef GPUWATCH_SIM_STATE_INTERNAL_H
#define GPUWATCH_SIM_STATE_INTERNAL_H

#include "state.h"

#include <errno.h>

static inline void lock(gws_state *state) {
    /* A holder that was killed leaves at worst a slot of its own half filled, and that slot is swept. */
    if (pthread_mutex_lock(&state->lock) == EOWNERDEAD) pthread_mutex_consistent(&state->lock);
}

static inline void unlock(gws_state *state) { pthread_mutex_unlock(&state->lock); }

__attribute__((visibility("hidden"))) void gws_free_slot(gws_state *state, gws_process *slot, uint64_t now_ns);

#endif
