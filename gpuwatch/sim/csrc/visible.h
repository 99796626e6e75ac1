/* CUDA_VISIBLE_DEVICES, and which ordinal of a process is which device. */
#ifndef GPUWATCH_SIM_VISIBLE_H
#define GPUWATCH_SIM_VISIBLE_H

#include "state.h"

/* The devices that a list makes visible, in its order; out has room for GWS_MAX_DEVICES. NULL: all. */
int gws_visible_devices(const gws_state *state, const char *list, uint32_t *out);

/* This process, which holds the device already, calls it by this number, and by those that it noted before. */
void gws_note_ordinal(gws_state *state, uint32_t device, int ordinal);

/* What process pid noted: out[ordinal] is the device, -1 where it noted none. How many entries of out (which
 * has room for GWS_MAX_DEVICES) are set: the highest ordinal plus one. */
int gws_process_ordinals(gws_state *state, int32_t pid, int32_t *out);

#endif
