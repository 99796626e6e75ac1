/* The simulated GPUs as a TensorFlow PluggableDevice: devices, memory, streams, events, timers, copies.
 *
 * Device memory is host memory that costs nothing until it is touched; how much a process holds is kept in
 * the shared state, which decides whether an allocation fits. Everything happens in the calling thread and
 * is done when the call returns, so a stream is always idle, an event that was recorded is complete, and
 * nothing needs to wait.
 *
 * TensorFlow loads the plug-in while it is being imported, and processes are forked after that: nothing
 * about this process, its environment or the machine is looked at before TensorFlow asks for the devices. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <atomic>
#include <new>

#include "plugin_abi.h"
#include "plugin_host.h"
#include "plugin_kernel.h"

struct SP_Event_st {};

struct SP_Timer_st {
    uint64_t started_ns, stopped_ns;
};

namespace {

/* What TensorFlow prints as the name of every device; it takes capitals and underscores alone. */
const char PLATFORM_NAME[] = "SIMULATED_GPU";
const char DEVICE_TYPE[] = "GPU";
constexpr size_t HOST_ALIGNMENT = 256; /* alignment that TensorFlow expects of pinned host memory */

/* Without renaming, TensorFlow would call a CUDA build's GPU kernels for our devices, which crashes. */
bool collides_with_cuda_kernels() {
    auto is_cuda = (bool (*)())dlsym(RTLD_DEFAULT, "_ZN10tensorflow19IsGoogleCudaEnabledEv");
    void *framework = is_cuda ? nullptr : dlopen("libtensorflow_framework.so.2", RTLD_LAZY | RTLD_NOLOAD);
    if (framework) is_cuda = (bool (*)())dlsym(framework, "_ZN10tensorflow19IsGoogleCudaEnabledEv");
    if (!is_cuda || !is_cuda()) return false;
    auto renamed = (int (*)())dlsym(RTLD_DEFAULT, "gpuwatch_rename_count");
    return !renamed || renamed() == 0;
}

bool usable() {
    static const bool result = [] {
        bool collides = collides_with_cuda_kernels();
        if (collides)
            fprintf(stderr, "gpuwatch: no simulated GPUs: this TensorFlow has CUDA kernels of its own, and "
                            "libgpuwatchrename.so is not preloaded or does not work with its version\n");
        return !collides;
    }();
    return result;
}

/* --- memory ----------------------------------------------------------------------------------------- */

void allocate(const SP_Device *device, uint64_t size, int64_t, SP_DeviceMemoryBase *memory) {
    memory->struct_size = ABI_SIZE(SP_DeviceMemoryBase, payload);
    memory->opaque = nullptr;
    memory->size = 0;
    if (size == 0 || gwp_take(device->ordinal, size) != 0) return;
    void *pages = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) {
        gwp_give(device->ordinal, size);
        return;
    }
    madvise(pages, size, MADV_HUGEPAGE); /* fewer page faults while a pool is touched for the first time */
    memory->opaque = pages;
    memory->size = size;
}

void deallocate(const SP_Device *device, SP_DeviceMemoryBase *memory) {
    if (!memory->opaque) return;
    munmap(memory->opaque, memory->size);
    gwp_give(device->ordinal, memory->size);
    memory->opaque = nullptr;
    memory->size = 0;
}

void *host_memory_allocate(const SP_Device *, uint64_t size) {
    return aligned_alloc(HOST_ALIGNMENT, (size + HOST_ALIGNMENT - 1) / HOST_ALIGNMENT * HOST_ALIGNMENT);
}

void host_memory_deallocate(const SP_Device *, void *memory) { free(memory); }

TF_Bool device_memory_usage(const SP_Device *device, int64_t *free_out, int64_t *total_out) {
    uint64_t free_bytes, total_bytes;
    gwp_memory_info(device->ordinal, &free_bytes, &total_bytes);
    *free_out = (int64_t)free_bytes;
    *total_out = (int64_t)total_bytes;
    return 1;
}

TF_Bool get_allocator_stats(const SP_Device *device, SP_AllocatorStats *stats) {
    int64_t free_bytes, total_bytes;
    device_memory_usage(device, &free_bytes, &total_bytes);
    stats->struct_size = ABI_SIZE(SP_AllocatorStats, largest_free_block_bytes);
    stats->bytes_in_use = total_bytes - free_bytes;
    stats->has_bytes_limit = 1;
    stats->bytes_limit = total_bytes;
    return 1;
}

/* --- streams, events, timers ------------------------------------------------------------------------ */

void set_ok(TF_Status *status) { TF_SetStatus(status, TF_OK, ""); }

/* Once per process: the hook that translates settings runs in every Python that honours PYTHONPATH. */
void tell_of_missing_hook() {
    static std::atomic<bool> told;
    if (gwp_laid_out() || told.exchange(true)) return;
    fprintf(stderr, "gpuwatch: GPU memory and device settings of this program are ignored on simulated GPUs: "
                    "its Python ignores PYTHONPATH (-I, -E, -S), or it is not a Python program\n");
}

void create_stream(const SP_Device *device, SP_Stream *stream, TF_Status *status) {
    tell_of_missing_hook();
    gwp_enter(device->ordinal); /* TensorFlow initialises the device here; CUDA would create the context */
    *stream = new (std::nothrow) SP_Stream_st{device->ordinal};
    if (*stream)
        set_ok(status);
    else
        TF_SetStatus(status, TF_RESOURCE_EXHAUSTED, "no host memory for a stream");
}

void destroy_stream(const SP_Device *, SP_Stream stream) { delete stream; }
void create_stream_dependency(const SP_Device *, SP_Stream, SP_Stream, TF_Status *status) { set_ok(status); }
void get_stream_status(const SP_Device *, SP_Stream, TF_Status *status) { set_ok(status); }

void create_event(const SP_Device *, SP_Event *event, TF_Status *status) {
    *event = new (std::nothrow) SP_Event_st;
    if (*event)
        set_ok(status);
    else
        TF_SetStatus(status, TF_RESOURCE_EXHAUSTED, "no host memory for an event");
}

void destroy_event(const SP_Device *, SP_Event event) { delete event; }
SE_EventStatus get_event_status(const SP_Device *, SP_Event) { return SE_EVENT_COMPLETE; }
void record_event(const SP_Device *, SP_Stream, SP_Event, TF_Status *status) { set_ok(status); }
void wait_for_event(const SP_Device *const, SP_Stream, SP_Event, TF_Status *const status) { set_ok(status); }

void create_timer(const SP_Device *, SP_Timer *timer, TF_Status *status) {
    *timer = new (std::nothrow) SP_Timer_st{0, 0};
    if (*timer)
        set_ok(status);
    else
        TF_SetStatus(status, TF_RESOURCE_EXHAUSTED, "no host memory for a timer");
}

void destroy_timer(const SP_Device *, SP_Timer timer) { delete timer; }

void start_timer(const SP_Device *, SP_Stream, SP_Timer timer, TF_Status *status) {
    timer->started_ns = gwp_now_ns();
    set_ok(status);
}

void stop_timer(const SP_Device *, SP_Stream, SP_Timer timer, TF_Status *status) {
    timer->stopped_ns = gwp_now_ns();
    set_ok(status);
}

uint64_t timer_nanoseconds(SP_Timer timer) { return timer->stopped_ns - timer->started_ns; }

void block_host_for_event(const SP_Device *, SP_Event, TF_Status *status) { set_ok(status); }
void block_host_until_done(const SP_Device *, SP_Stream, TF_Status *status) { set_ok(status); }
void synchronize_all_activity(const SP_Device *, TF_Status *status) { set_ok(status); }

TF_Bool host_callback(const SP_Device *, SP_Stream, SE_StatusCallbackFn callback, void *argument) {
    TF_Status *status = TF_NewStatus();
    callback(argument, status);
    TF_DeleteStatus(status);
    return 1;
}

/* --- copies ----------------------------------------------------------------------------------------- */

void copy(const SP_Device *device, void *to, const void *from, uint64_t size, int direction, TF_Status *status) {
    uint64_t began_ns = gwp_now_ns();
    if (size) memmove(to, from, size);
    gwp_copied(device->ordinal, began_ns, size, direction);
    set_ok(status);
}

void sync_memcpy_dtoh(const SP_Device *device, void *to, const SP_DeviceMemoryBase *from, uint64_t size,
                      TF_Status *status) {
    copy(device, to, from->opaque, size, GWP_TO_HOST, status);
}

void sync_memcpy_htod(const SP_Device *device, SP_DeviceMemoryBase *to, const void *from, uint64_t size,
                      TF_Status *status) {
    copy(device, to->opaque, from, size, GWP_TO_DEVICE, status);
}

void sync_memcpy_dtod(const SP_Device *device, SP_DeviceMemoryBase *to, const SP_DeviceMemoryBase *from,
                      uint64_t size, TF_Status *status) {
    copy(device, to->opaque, from->opaque, size, GWP_ON_DEVICE, status);
}

void memcpy_dtoh(const SP_Device *device, SP_Stream, void *to, const SP_DeviceMemoryBase *from, uint64_t size,
                 TF_Status *status) {
    sync_memcpy_dtoh(device, to, from, size, status);
}

void memcpy_htod(const SP_Device *device, SP_Stream, SP_DeviceMemoryBase *to, const void *from, uint64_t size,
                 TF_Status *status) {
    sync_memcpy_htod(device, to, from, size, status);
}

void memcpy_dtod(const SP_Device *device, SP_Stream, SP_DeviceMemoryBase *to, const SP_DeviceMemoryBase *from,
                 uint64_t size, TF_Status *status) {
    sync_memcpy_dtod(device, to, from, size, status);
}

void mem_set(const SP_Device *device, SP_Stream, SP_DeviceMemoryBase *location, uint8_t pattern, uint64_t size,
             TF_Status *status) {
    uint64_t began_ns = gwp_now_ns();
    if (size) memset(location->opaque, pattern, size);
    gwp_copied(device->ordinal, began_ns, size, GWP_ON_DEVICE);
    set_ok(status);
}

void mem_zero(const SP_Device *device, SP_Stream stream, SP_DeviceMemoryBase *location, uint64_t size,
              TF_Status *status) {
    mem_set(device, stream, location, 0, size, status);
}

void mem_set32(const SP_Device *device, SP_Stream, SP_DeviceMemoryBase *location, uint32_t pattern, uint64_t size,
               TF_Status *status) {
    uint64_t began_ns = gwp_now_ns();
    uint32_t *words = (uint32_t *)location->opaque;
    for (uint64_t i = 0; i < size / sizeof pattern; i++) words[i] = pattern;
    gwp_copied(device->ordinal, began_ns, size, GWP_ON_DEVICE);
    set_ok(status);
}

/* --- the platform ----------------------------------------------------------------------------------- */

int32_t numa_node(const SP_Device *) { return 0; }
int64_t memory_bandwidth(const SP_Device *) { return 10000000; } /* KB/s: about what a host moves */
double gflops(const SP_Device *) { return 100; }

void get_device_count(const SP_Platform *, int *count, TF_Status *status) {
    *count = usable() ? gwp_device_count() : 0;
    set_ok(status);
}

void create_device(const SP_Platform *, SE_CreateDeviceParams *params, TF_Status *status) {
    if (params->ordinal < 0 || params->ordinal >= gwp_device_count()) {
        TF_SetStatus(status, TF_INVALID_ARGUMENT, "there is no such simulated GPU");
        return;
    }
    SP_Device *device = params->device;
    device->struct_size = ABI_SIZE(SP_Device, pci_bus_id);
    device->ordinal = params->ordinal;
    device->hardware_name = gwp_device_name(params->ordinal);
    device->device_vendor = "gpuwatch";
    device->pci_bus_id = gwp_device_pci_bus_id(params->ordinal);
    set_ok(status);
}

void destroy_device(const SP_Platform *, SP_Device *) {}

void create_device_fns(const SP_Platform *, SE_CreateDeviceFnsParams *params, TF_Status *status) {
    params->device_fns->struct_size = ABI_SIZE(SP_DeviceFns, get_gflops);
    params->device_fns->get_numa_node = numa_node;
    params->device_fns->get_memory_bandwidth = memory_bandwidth;
    params->device_fns->get_gflops = gflops;
    set_ok(status);
}

void destroy_device_fns(const SP_Platform *, SP_DeviceFns *) {}

void create_stream_executor(const SP_Platform *, SE_CreateStreamExecutorParams *params, TF_Status *status) {
    SP_StreamExecutor *executor = params->stream_executor;
    executor->struct_size = ABI_SIZE(SP_StreamExecutor, host_callback);
    executor->allocate = allocate;
    executor->deallocate = deallocate;
    executor->host_memory_allocate = host_memory_allocate;
    executor->host_memory_deallocate = host_memory_deallocate;
    executor->get_allocator_stats = get_allocator_stats;
    executor->device_memory_usage = device_memory_usage;
    executor->create_stream = create_stream;
    executor->destroy_stream = destroy_stream;
    executor->create_stream_dependency = create_stream_dependency;
    executor->get_stream_status = get_stream_status;
    executor->create_event = create_event;
    executor->destroy_event = destroy_event;
    executor->get_event_status = get_event_status;
    executor->record_event = record_event;
    executor->wait_for_event = wait_for_event;
    executor->create_timer = create_timer;
    executor->destroy_timer = destroy_timer;
    executor->start_timer = start_timer;
    executor->stop_timer = stop_timer;
    executor->memcpy_dtoh = memcpy_dtoh;
    executor->memcpy_htod = memcpy_htod;
    executor->memcpy_dtod = memcpy_dtod;
    executor->sync_memcpy_dtoh = sync_memcpy_dtoh;
    executor->sync_memcpy_htod = sync_memcpy_htod;
    executor->sync_memcpy_dtod = sync_memcpy_dtod;
    executor->block_host_for_event = block_host_for_event;
    executor->block_host_until_done = block_host_until_done;
    executor->synchronize_all_activity = synchronize_all_activity;
    executor->mem_zero = mem_zero;
    executor->memset = mem_set;
    executor->memset32 = mem_set32;
    executor->host_callback = host_callback;
    set_ok(status);
}

void destroy_stream_executor(const SP_Platform *, SP_StreamExecutor *) {}

void create_timer_fns(const SP_Platform *, SP_TimerFns *timer_fns, TF_Status *status) {
    timer_fns->struct_size = ABI_SIZE(SP_TimerFns, nanoseconds);
    timer_fns->nanoseconds = timer_nanoseconds;
    set_ok(status);
}

void destroy_timer_fns(const SP_Platform *, SP_TimerFns *) {}
void destroy_platform(SP_Platform *) {}
void destroy_platform_fns(SP_PlatformFns *) {}

}  // namespace

void SE_InitPlugin(SE_PlatformRegistrationParams *params, TF_Status *status) {
    if (params->struct_size < ABI_SIZE(SE_PlatformRegistrationParams, destroy_platform_fns)) {
        TF_SetStatus(status, TF_FAILED_PRECONDITION, "gpuwatch's simulated GPUs: this TensorFlow is too old");
        return;
    }
    SP_Platform *platform = params->platform;
    platform->struct_size = ABI_SIZE(SP_Platform, force_memory_growth);
    platform->name = PLATFORM_NAME;
    platform->type = DEVICE_TYPE;
    platform->supports_unified_memory = 0;
    platform->use_bfc_allocator = 1;
    platform->force_memory_growth = 0;
    SP_PlatformFns *functions = params->platform_fns;
    functions->struct_size = ABI_SIZE(SP_PlatformFns, destroy_timer_fns);
    functions->get_device_count = get_device_count;
    functions->create_device = create_device;
    functions->destroy_device = destroy_device;
    functions->create_device_fns = create_device_fns;
    functions->destroy_device_fns = destroy_device_fns;
    functions->create_stream_executor = create_stream_executor;
    functions->destroy_stream_executor = destroy_stream_executor;
    functions->create_timer_fns = create_timer_fns;
    functions->destroy_timer_fns = destroy_timer_fns;
    params->destroy_platform = destroy_platform;
    params->destroy_platform_fns = destroy_platform_fns;
    set_ok(status);
}

/* For the library that stands in front of TensorFlow (plugin_rename.c). -1 for what is no kernel of a device. */
static uint64_t kernel_begin(void *context, int *ordinal) {
    gpuwatch::Status status;
    SP_Stream stream = TF_GetStream((TF_OpKernelContext *)context, status);
    *ordinal = status.ok() ? stream->ordinal : -1;
    return status.ok() ? gwp_kernel_begin(*ordinal) : 0;
}

void TF_InitKernel(void) {
    if (!usable()) return;
    auto pause = (void (*)(int))dlsym(RTLD_DEFAULT, "gpuwatch_rename_pause");
    if (pause) pause(1);
    gpuwatch::register_kernels(DEVICE_TYPE);
    if (pause) pause(0);
    using Begin = uint64_t (*)(void *, int *);
    auto time = (void (*)(Begin, void (*)(int, uint64_t)))dlsym(RTLD_DEFAULT, "gpuwatch_rename_time");
    if (time) time(kernel_begin, gwp_kernel_end);
}
