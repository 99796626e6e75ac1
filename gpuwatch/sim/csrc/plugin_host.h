/* The shared state as the plug-in's C++ sees it: by TensorFlow's ordinals, which are positions in
 * CUDA_VISIBLE_DEVICES. (state.h speaks C11's atomics, which C++17 does not read.) */
#ifndef GPUWATCH_SIM_PLUGIN_HOST_H
#define GPUWATCH_SIM_PLUGIN_HOST_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { GWP_MAX_DEVICES = 16 };
enum { GWP_TO_DEVICE, GWP_TO_HOST, GWP_ON_DEVICE };

/* The visible devices. CUDA_VISIBLE_DEVICES is read at the first call in a process, as CUDA does at cuInit;
 * a process forked before that call reads its own. */
int gwp_device_count(void);
const char *gwp_device_name(int ordinal);
const char *gwp_device_pci_bus_id(int ordinal);

/* What the simulation's hook in Python calls before TensorFlow makes its devices: the logical devices that the
 * program asked for, in TensorFlow's order, each on a visible device, with its limit in bytes (0: none) and the
 * fraction of the device for those without. given has room for as many and takes the ordinals that stand for
 * them from then on. The memory of these is told as the exact amount that a CUDA build would grant.
 * 0; EINVAL: no such ordinal; ENOSPC: more than GWP_MAX_DEVICES; ENOMEM: no room for a CUDA context. */
__attribute__((visibility("default"))) int gpuwatch_plugin_lay_out(int count, const int *ordinals,
                                                                   const uint64_t *limits, double fraction,
                                                                   int *given);
/* Reads CUDA_VISIBLE_DEVICES again, which CUDA reads at the first use of a device, and TensorFlow has asked a
 * plug-in for its devices while it was imported. 1: it leaves others than before. 0: the same, or too late. */
__attribute__((visibility("default"))) int gpuwatch_plugin_recount(void);
/* How many devices CUDA_VISIBLE_DEVICES leaves. */
__attribute__((visibility("default"))) int gpuwatch_plugin_visible(void);
bool gwp_laid_out(void);

void gwp_enter(int ordinal);               /* marks the device as used by this process */
int gwp_take(int ordinal, uint64_t bytes); /* 0, or an errno */
void gwp_give(int ordinal, uint64_t bytes);
void gwp_memory_info(int ordinal, uint64_t *free_bytes, uint64_t *total_bytes);

uint64_t gwp_now_ns(void);
uint64_t gwp_kernel_begin(int ordinal);
void gwp_kernel_end(int ordinal, uint64_t began_ns);
void gwp_copied(int ordinal, uint64_t began_ns, uint64_t bytes, int direction);

#ifdef __cplusplus
}
#endif

#endif
