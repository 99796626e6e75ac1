/* See visible.h. */
#include "visible.h"

#include "state_internal.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define ORDINAL_SHIFT 8 /* a slot's flags hold one bit for each ordinal above the GWS_SLOT_ bits */
_Static_assert(ORDINAL_SHIFT + GWS_MAX_DEVICES <= 32, "an ordinal has no bit in a slot's flags");

/* One entry: an index, or a UUID of which the beginning is enough. -1: invalid. */
static int find_visible(const gws_state *state, const char *entry, bool *is_index) {
    if (strncasecmp(entry, "GPU-", 4) == 0) {
        *is_index = false;
        int found = -1;
        for (uint32_t i = 0; i < state->device_count; i++) {
            if (gws_is_hidden(state, i)) continue;
            if (strncasecmp(state->device[i].uuid, entry, strlen(entry)) != 0) continue;
            if (found >= 0) return -1; /* it could be either */
            found = (int)i;
        }
        return found;
    }
    *is_index = true;
    if (!isdigit((unsigned char)entry[*entry == '+'])) return -1; /* -1, MIG-..., nonsense, nothing */
    long index = strtol(entry, NULL, 10);
    return index < GWS_MAX_DEVICES ? gws_shown_at(state, (uint32_t)index) : -1;
}

/* As CUDA reads it: in the order given, up to the first invalid entry; entries of the other kind (index,
 * UUID) than the first are invalid; a device named twice makes the whole list invalid. */
int gws_visible_devices(const gws_state *state, const char *list, uint32_t *out) {
    if (!list) {
        int shown = 0;
        for (uint32_t i = 0; i < state->device_count; i++)
            if (!gws_is_hidden(state, i)) out[shown++] = i;
        return shown;
    }
    int count = 0;
    bool first_is_index = true;
    for (;;) {
        char entry[64];
        size_t length = strcspn(list, ",");
        const char *from = list;
        size_t rest = length;
        while (rest && isspace((unsigned char)*from)) from++, rest--;
        while (rest && isspace((unsigned char)from[rest - 1])) rest--;
        if (rest >= sizeof entry) return count;
        memcpy(entry, from, rest);
        entry[rest] = 0;
        bool is_index;
        int found = find_visible(state, entry, &is_index);
        if (found < 0) return count;
        if (count == 0) first_is_index = is_index;
        if (is_index != first_is_index) return count;
        for (int i = 0; i < count; i++)
            if (out[i] == (uint32_t)found) return 0;
        out[count++] = (uint32_t)found;
        if (!list[length]) return count;
        list += length + 1;
    }
}

void gws_note_ordinal(gws_state *state, uint32_t device, int ordinal) {
    int32_t pid = getpid();
    lock(state);
    for (uint32_t i = 0; i < state->process_high; i++) {
        gws_process *slot = &state->process[i];
        if (slot->pid != pid || slot->device != (int32_t)device || slot->flags & GWS_SLOT_ATTACHED) continue;
        slot->flags |= 1u << (ORDINAL_SHIFT + ordinal);
    }
    unlock(state);
}

int gws_process_ordinals(gws_state *state, int32_t pid, int32_t *out) {
    int count = 0;
    for (int i = 0; i < GWS_MAX_DEVICES; i++) out[i] = -1;
    gws_sweep(state); /* an exited process uses none */
    lock(state);
    for (uint32_t i = 0; i < state->process_high; i++) {
        const gws_process *slot = &state->process[i];
        if (slot->pid != pid || pid == 0 || slot->flags & GWS_SLOT_ATTACHED) continue;
        for (int ordinal = 0; ordinal < GWS_MAX_DEVICES; ordinal++) {
            if (!(slot->flags >> (ORDINAL_SHIFT + ordinal) & 1)) continue;
            out[ordinal] = slot->device;
            if (ordinal >= count) count = ordinal + 1;
        }
    }
    unlock(state);
    return count;
}
