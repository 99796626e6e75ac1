/* What joins the devices of the simulated libnvidia-ml.so.1: the place in the machine, NVLinks.
 *
 * Without anything set by hand all devices hang on one host bridge beside one NUMA node, without NVLinks:
 * "numa_node" and "pcie_switch" move them, "nvlink_links" gives them links. */
#define _GNU_SOURCE
#include "nvml_internal.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LEVEL_BOARD = 0, LEVEL_ONE_BRIDGE = 10, LEVEL_HOST_BRIDGE = 30, LEVEL_SYSTEM = 50 };
enum { REMOTE_GPU = 0, REMOTE_SWITCH = 2 };

static unsigned node_of(const gws_state *state, uint32_t index) {
    return (unsigned)gws_overridden(state, index, GWS_SET_NUMA_NODE, 0);
}

API nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device, nvmlDevice_t other, unsigned *level) {
    ENTER_DEVICE(device);
    int other_mig, second = nvml_find(other, state, &other_mig);
    REQUIRE(level && second >= 0 && other_mig < 0);
    int64_t mine = -1, theirs = -1;
    if ((uint32_t)second == index)
        *level = LEVEL_BOARD;
    else if (node_of(state, index) != node_of(state, (uint32_t)second))
        *level = LEVEL_SYSTEM;
    else if (gws_override(state, index, GWS_SET_PCIE_SWITCH, &mine) &&
             gws_override(state, (uint32_t)second, GWS_SET_PCIE_SWITCH, &theirs) && mine == theirs)
        *level = LEVEL_ONE_BRIDGE;
    else
        *level = LEVEL_HOST_BRIDGE;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t other, unsigned kind, unsigned *status) {
    ENTER_DEVICE(device);
    int other_mig;
    REQUIRE(status && kind < 6 && nvml_find(other, state, &other_mig) >= 0);
    *status = 2; /* the GPU does not support it, as cuDeviceCanAccessPeer says too */
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t device, nvmlDevice_t other, int *same) {
    ENTER_DEVICE(device);
    int other_mig, second = nvml_find(other, state, &other_mig);
    REQUIRE(same && second >= 0);
    *same = (uint32_t)second == index;
    return NVML_SUCCESS;
}

static nvmlReturn_t set_bits(unsigned long *words, unsigned count, unsigned from, unsigned to) {
    REQUIRE(words && count);
    memset(words, 0, count * sizeof *words);
    for (unsigned bit = from; bit < to && bit < count * 64; bit++) words[bit / 64] |= 1ul << (bit % 64);
    return NVML_SUCCESS;
}

/* The host's CPUs are dealt out evenly to the nodes that devices are on. */
static nvmlReturn_t cpus(const gws_state *state, uint32_t index, unsigned long *words, unsigned count) {
    unsigned nodes = 1, node = node_of(state, index), all = (unsigned)sysconf(_SC_NPROCESSORS_CONF);
    for (uint32_t i = 0; i < state->device_count; i++)
        if (node_of(state, i) >= nodes) nodes = node_of(state, i) + 1;
    return set_bits(words, count, all * node / nodes, all * (node + 1) / nodes);
}

API nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned count, unsigned long *words) {
    ENTER_DEVICE(device);
    return cpus(state, index, words, count);
}

API nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned count, unsigned long *words,
                                                     unsigned scope) {
    ENTER_DEVICE(device);
    REQUIRE(scope < 2);
    return cpus(state, index, words, count);
}

API nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned count, unsigned long *words,
                                             unsigned scope) {
    ENTER_DEVICE(device);
    REQUIRE(scope < 2);
    unsigned node = node_of(state, index);
    return set_bits(words, count, node, node + 1);
}

/* --- NVLink ----------------------------------------------------------------------------------------- */

static unsigned links(const gws_state *state, uint32_t index) {
    return (unsigned)gws_overridden(state, index, GWS_SET_NVLINK_LINKS, 0);
}

/* The last ones are down. */
static bool is_up(const gws_state *state, uint32_t index, unsigned link) {
    return (int64_t)link < (int64_t)links(state, index) - gws_overridden(state, index, GWS_SET_NVLINK_LINKS_DOWN, 0);
}

/* The device at the other end: the others that have links in turn; -1 without any. */
static int peer(const gws_state *state, uint32_t index, unsigned link) {
    int others[GWS_MAX_DEVICES];
    unsigned count = 0;
    for (uint32_t i = 0; i < state->device_count; i++)
        if (i != index && links(state, i)) others[count++] = (int)i;
    return count ? others[link % count] : -1;
}

#define ENTER_LINK(device, link)                                                                             \
    ENTER_DEVICE(device);                                                                                    \
    if (!links(state, index)) return NVML_ERROR_NOT_SUPPORTED;                                               \
    if ((link) >= links(state, index)) return NVML_ERROR_INVALID_ARGUMENT

API nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, unsigned *active) {
    ENTER_LINK(device, link);
    REQUIRE(active);
    *active = is_up(state, index, link);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned link, unsigned *type) {
    ENTER_LINK(device, link);
    REQUIRE(type);
    *type = gws_overridden(state, index, GWS_SET_NVLINK_SWITCH, 0) ? REMOTE_SWITCH : REMOTE_GPU;
    return NVML_SUCCESS;
}

#define SWITCH_BUS 0xc0u

API nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned link, nvmlPciInfo_t *out) {
    ENTER_LINK(device, link);
    REQUIRE(out);
    int other = peer(state, index, link);
    bool at_switch = gws_overridden(state, index, GWS_SET_NVLINK_SWITCH, 0) != 0;
    if (!is_up(state, index, link) || (!at_switch && other < 0)) return NVML_ERROR_NOT_SUPPORTED;
    memset(out, 0, sizeof *out);
    out->bus = at_switch ? SWITCH_BUS : state->device[other].pci_bus;
    snprintf(out->bus_id_legacy, sizeof out->bus_id_legacy, "0000:%02X:00.0", out->bus & 0xff);
    snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", out->bus & 0xff);
    return NVML_SUCCESS;
}

#define ALL_LINKS 0xffffffffu

/* A link's share of a total that is set for all of them. */
static unsigned long long share(const gws_state *state, uint32_t index, unsigned scope, unsigned long long total) {
    return scope == ALL_LINKS ? total : total / links(state, index);
}

bool nvml_link_field(gws_state *state, uint32_t index, nvmlFieldValue_t *value) {
    static const gws_override_key errors[] = {GWS_SET_NVLINK_CRC_ERRORS, GWS_SET_NVLINK_REPLAYS,
                                              GWS_SET_NVLINK_RECOVERIES};
    if (!links(state, index)) return false;
    switch (value->field) {
    case 38: case 52: case 59: /* errors of all links: checksums, replays, recoveries */
        put_long(value, (unsigned long long)gws_overridden(state, index, errors[value->field == 52 ? 1 : value->field == 59 ? 2 : 0], 0));
        return true;
    case 91: put_unsigned(value, links(state, index)); return true;
    case 138: case 139: /* KiB of data sent, received; the scope is a link or all */
        if (value->scope != ALL_LINKS && value->scope >= links(state, index)) {
            value->code = NVML_ERROR_INVALID_ARGUMENT;
            return true;
        }
        put_long(value, share(state, index, value->scope,
                              gws_grown(state, index,
                                        value->field == 138 ? GWS_SET_NVLINK_TX_BYTES_PER_SECOND
                                                            : GWS_SET_NVLINK_RX_BYTES_PER_SECOND) >> 10));
        return true;
    default: return false;
    }
}
