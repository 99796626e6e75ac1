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

/* The host's CPUs are distributed evenly over the nodes that have devices. */
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

/* Number of links (place 0) or of those that are up (1), as described. */
static int64_t described_links(const gws_state *state, uint32_t index, unsigned place) {
    const gws_answer *answer = gws_find_answer((gws_state *)state, index, "nvmlDeviceGetNvLinkState", 0);
    return answer && !answer->code ? answer->number[place] : 0;
}

static unsigned links(const gws_state *state, uint32_t index) {
    return (unsigned)gws_overridden(state, index, GWS_SET_NVLINK_LINKS, described_links(state, index, 0));
}

/* The last ones are down. */
static bool is_up(const gws_state *state, uint32_t index, unsigned link) {
    int64_t down = described_links(state, index, 0) - described_links(state, index, 1);
    return (int64_t)link < (int64_t)links(state, index) - gws_overridden(state, index, GWS_SET_NVLINK_LINKS_DOWN, down);
}

/* The device at the other end: round-robin over the other devices with links; -1 if there are none. */
static int peer(const gws_state *state, uint32_t index, unsigned link) {
    int others[GWS_MAX_DEVICES];
    unsigned count = 0;
    for (uint32_t i = 0; i < state->device_count; i++)
        if (i != index && links(state, i)) others[count++] = (int)i;
    return count ? others[link % count] : -1;
}

#define ENTER_LINK(device, link)                                                                             \
    ENTER_DEVICE(device);                                                                                    \
    const gws_answer *told_ = gws_find_answer(state, index, "nvmlDeviceGetNvLinkState", 0);                  \
    if (!links(state, index)) return told_ && told_->code ? told_->code : NVML_ERROR_NOT_SUPPORTED;          \
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

/* A link's share of the total that was set for all links. */
static unsigned long long share(const gws_state *state, uint32_t index, unsigned scope, unsigned long long total) {
    return scope == ALL_LINKS ? total : total / links(state, index);
}

/* The field that tells each error, by generation of the links: the total of all of them up to NVLink 3, one
 * link's with NVLink 4 and 5. */
static const struct {
    gws_override_key key;
    unsigned total, link4, link5;
} error_fields[] = {
    {GWS_SET_NVLINK_CRC_ERRORS, 38, 163, 0},      {GWS_SET_NVLINK_DATA_CRC_ERRORS, 45, 0, 0},
    {GWS_SET_NVLINK_REPLAYS, 52, 161, 0},         {GWS_SET_NVLINK_RECOVERIES, 59, 162, 215},
    {GWS_SET_NVLINK_ECC_ERRORS, 160, 0, 0},       {GWS_SET_NVLINK_RECEIVE_ERRORS, 0, 0, 208},
    {GWS_SET_NVLINK_EFFECTIVE_ERRORS, 0, 0, 219}, {GWS_SET_NVLINK_FAILED_RECOVERIES, 0, 0, 214},
};

/* The errors that were set for all links, distributed over them; the first ones get one more. */
static unsigned long long link_errors(const gws_state *state, uint32_t index, unsigned link, gws_override_key key) {
    unsigned long long total = (unsigned long long)gws_overridden(state, index, key, 0);
    return total / links(state, index) + (link < total % links(state, index));
}

static bool error_field(gws_state *state, uint32_t index, nvmlFieldValue_t *value) {
    int64_t version = gws_overridden(state, index, GWS_SET_NVLINK_VERSION, 3);
    for (unsigned i = 0; i < sizeof error_fields / sizeof error_fields[0]; i++) {
        if (version < 4 && value->field && value->field == error_fields[i].total) {
            put_long(value, (unsigned long long)gws_overridden(state, index, error_fields[i].key, 0));
            return true;
        }
        if (version < 4 || !value->field) continue;
        if (value->field != (version == 4 ? error_fields[i].link4 : error_fields[i].link5)) continue;
        if (value->scope >= links(state, index)) value->code = NVML_ERROR_INVALID_ARGUMENT;
        else if (is_up(state, index, value->scope)) /* a link that is down is "not supported" */
            put_long(value, link_errors(state, index, value->scope, error_fields[i].key));
        return true;
    }
    return false;
}

bool nvml_link_field(gws_state *state, uint32_t index, nvmlFieldValue_t *value) {
    if (!links(state, index)) return false;
    switch (value->field) {
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
    default: return error_field(state, index, value);
    }
}

/* --- the fabric of NVSwitches ----------------------------------------------------------------------- */

#define FABRIC_COMPLETED 3

typedef struct {
    unsigned char cluster[16];
    nvmlReturn_t status;
    unsigned clique, state;
} nvmlGpuFabricInfo_t;

typedef struct {
    unsigned version;
    nvmlGpuFabricInfo_t info;
    unsigned health_mask;
} nvmlGpuFabricInfo_v2_t;

typedef struct {
    nvmlGpuFabricInfo_v2_t second;
    unsigned char health_summary;
} nvmlGpuFabricInfo_v3_t;

/* False if no value of the fabric was set: then there is none. */
static bool fabric(const gws_state *state, uint32_t index, nvmlGpuFabricInfo_t *out) {
    int64_t value = 0;
    bool known = false;
    for (int key = GWS_SET_FABRIC_STATE; key <= GWS_SET_FABRIC_HEALTH_SUMMARY; key++)
        known |= gws_override(state, index, (gws_override_key)key, &value);
    memset(out, 0, sizeof *out);
    out->status = (nvmlReturn_t)gws_overridden(state, index, GWS_SET_FABRIC_STATUS, 0);
    out->state = (unsigned)gws_overridden(state, index, GWS_SET_FABRIC_STATE, FABRIC_COMPLETED);
    return known;
}

API nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *out) {
    ENTER_DEVICE(device);
    REQUIRE(out);
    return fabric(state, index, out) ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

static void put_fabric(const gws_answer *answer, bool third, nvmlGpuFabricInfo_v3_t *out) {
    memset(&out->second.info, 0, sizeof out->second.info);
    out->second.info.state = (unsigned)answer->number[0];
    out->second.info.status = (nvmlReturn_t)answer->number[1];
    out->second.health_mask = (unsigned)answer->number[2];
    if (third) out->health_summary = (unsigned char)answer->number[3];
}

API nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfo_v3_t *out) {
    ENTER_DEVICE(device);
    REQUIRE(out);
    bool third = out->second.version == STRUCT_VERSION(nvmlGpuFabricInfo_v3_t, 3);
    if (!third && out->second.version != STRUCT_VERSION(nvmlGpuFabricInfo_v2_t, 2))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    REPLAY(0, put_fabric(answer, third, out));
    if (!fabric(state, index, &out->second.info)) return NVML_ERROR_NOT_SUPPORTED;
    out->second.health_mask = (unsigned)gws_overridden(state, index, GWS_SET_FABRIC_HEALTH_MASK, 0);
    if (third)
        out->health_summary = (unsigned char)gws_overridden(state, index, GWS_SET_FABRIC_HEALTH_SUMMARY, 0);
    return NVML_SUCCESS;
}
