/* The shared state as the plug-in's C++ sees it: by TensorFlow's ordinals, which are positions in
 * CUDA_VISIBLE_DEVICES. (state.h speaks C11's atomics, which C++17 does not read.) */
#ifndef GPUWATCH_SIM_PLUGIN_HOST_H
#define GPUWATCH_SIM_PLUGIN_HOST_H

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

void gwp_enter(int ordinal);               /* this process now uses the device */
int gwp_take(int ordinal, uint64_t bytes); /* 0, or an errno */
void gwp_give(int ordinal, uint64_t bytes);
void gwp_memory_info(int ordinal, uint64_t *free_bytes, uint64_t *total_bytes);

uint64_t gwp_now_ns(void);
uint64_t gwp_kernel_begin(int ordinal);
void gwp_kernel_end(int ordinal, uint64_t began_ns, uint64_t moved_bytes);
void gwp_copied(int ordinal, uint64_t began_ns, uint64_t bytes, int direction);

#ifdef __cplusplus
}
#endif

#endif
