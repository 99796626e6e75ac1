/* What the plug-in uses of TensorFlow's C ABI, declared here so that it compiles without TensorFlow: the
 * StreamExecutor C API (SE 0.0.1: the same from 2.5 on) and the C kernel API. Layouts and names are
 * TensorFlow's; a struct is used up to the size that both sides know, as its struct_size says. */
#ifndef GPUWATCH_SIM_PLUGIN_ABI_H
#define GPUWATCH_SIM_PLUGIN_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef unsigned char TF_Bool;

enum TF_Code {
    TF_OK = 0,
    TF_INVALID_ARGUMENT = 3,
    TF_RESOURCE_EXHAUSTED = 8,
    TF_FAILED_PRECONDITION = 9,
    TF_UNIMPLEMENTED = 12,
    TF_INTERNAL = 13,
};

enum TF_DataType {
    TF_NO_TYPE = 0, /* ours: no constraint */
    TF_FLOAT = 1,
    TF_DOUBLE = 2,
    TF_INT32 = 3,
    TF_UINT8 = 4,
    TF_INT16 = 5,
    TF_INT8 = 6,
    TF_INT64 = 9,
    TF_BOOL = 10,
    TF_BFLOAT16 = 14,
    TF_UINT16 = 17,
    TF_HALF = 19,
    TF_UINT32 = 22,
    TF_UINT64 = 23,
};

struct TF_Status;
struct TF_Tensor;
struct TF_KernelBuilder;
struct TF_OpKernelConstruction;
struct TF_OpKernelContext;

/* Defined by us: TensorFlow only passes pointers to them. */
struct SP_Stream_st;
struct SP_Event_st;
struct SP_Timer_st;
typedef SP_Stream_st *SP_Stream;
typedef SP_Event_st *SP_Event;
typedef SP_Timer_st *SP_Timer;

typedef void (*SE_StatusCallbackFn)(void *const, TF_Status *const);

typedef enum SE_EventStatus {
    SE_EVENT_UNKNOWN,
    SE_EVENT_ERROR,
    SE_EVENT_PENDING,
    SE_EVENT_COMPLETE,
} SE_EventStatus;

struct SP_TimerFns {
    size_t struct_size;
    void *ext;
    uint64_t (*nanoseconds)(SP_Timer timer);
};

struct SP_AllocatorStats {
    size_t struct_size;
    int64_t num_allocs, bytes_in_use, peak_bytes_in_use, largest_alloc_size;
    int8_t has_bytes_limit;
    int64_t bytes_limit, bytes_reserved, peak_bytes_reserved;
    int8_t has_bytes_reservable_limit;
    int64_t bytes_reservable_limit, largest_free_block_bytes;
};

struct SP_DeviceMemoryBase {
    size_t struct_size;
    void *ext;
    void *opaque;
    uint64_t size, payload;
};

struct SP_Device {
    size_t struct_size;
    void *ext;
    int32_t ordinal;
    void *device_handle;
    const char *hardware_name, *device_vendor, *pci_bus_id;
};

struct SE_CreateDeviceParams {
    size_t struct_size;
    void *ext;
    int32_t ordinal;
    SP_Device *device;
};

struct SP_DeviceFns {
    size_t struct_size;
    void *ext;
    int32_t (*get_numa_node)(const SP_Device *);
    int64_t (*get_memory_bandwidth)(const SP_Device *); /* KB/s */
    double (*get_gflops)(const SP_Device *);
};

struct SE_CreateDeviceFnsParams {
    size_t struct_size;
    void *ext;
    SP_DeviceFns *device_fns;
};

struct SP_StreamExecutor {
    size_t struct_size;
    void *ext;
    void (*allocate)(const SP_Device *, uint64_t size, int64_t memory_space, SP_DeviceMemoryBase *);
    void (*deallocate)(const SP_Device *, SP_DeviceMemoryBase *);
    void *(*host_memory_allocate)(const SP_Device *, uint64_t size);
    void (*host_memory_deallocate)(const SP_Device *, void *);
    void *(*unified_memory_allocate)(const SP_Device *, uint64_t bytes);
    void (*unified_memory_deallocate)(const SP_Device *, void *);
    TF_Bool (*get_allocator_stats)(const SP_Device *, SP_AllocatorStats *);
    TF_Bool (*device_memory_usage)(const SP_Device *, int64_t *free, int64_t *total);
    void (*create_stream)(const SP_Device *, SP_Stream *, TF_Status *);
    void (*destroy_stream)(const SP_Device *, SP_Stream);
    void (*create_stream_dependency)(const SP_Device *, SP_Stream dependent, SP_Stream other, TF_Status *);
    void (*get_stream_status)(const SP_Device *, SP_Stream, TF_Status *);
    void (*create_event)(const SP_Device *, SP_Event *, TF_Status *);
    void (*destroy_event)(const SP_Device *, SP_Event);
    SE_EventStatus (*get_event_status)(const SP_Device *, SP_Event);
    void (*record_event)(const SP_Device *, SP_Stream, SP_Event, TF_Status *);
    void (*wait_for_event)(const SP_Device *const, SP_Stream, SP_Event, TF_Status *const);
    void (*create_timer)(const SP_Device *, SP_Timer *, TF_Status *);
    void (*destroy_timer)(const SP_Device *, SP_Timer);
    void (*start_timer)(const SP_Device *, SP_Stream, SP_Timer, TF_Status *);
    void (*stop_timer)(const SP_Device *, SP_Stream, SP_Timer, TF_Status *);
    void (*memcpy_dtoh)(const SP_Device *, SP_Stream, void *to, const SP_DeviceMemoryBase *from, uint64_t size,
                        TF_Status *);
    void (*memcpy_htod)(const SP_Device *, SP_Stream, SP_DeviceMemoryBase *to, const void *from, uint64_t size,
                        TF_Status *);
    void (*memcpy_dtod)(const SP_Device *, SP_Stream, SP_DeviceMemoryBase *to, const SP_DeviceMemoryBase *from,
                        uint64_t size, TF_Status *);
    void (*sync_memcpy_dtoh)(const SP_Device *, void *to, const SP_DeviceMemoryBase *from, uint64_t size,
                             TF_Status *);
    void (*sync_memcpy_htod)(const SP_Device *, SP_DeviceMemoryBase *to, const void *from, uint64_t size,
                             TF_Status *);
    void (*sync_memcpy_dtod)(const SP_Device *, SP_DeviceMemoryBase *to, const SP_DeviceMemoryBase *from,
                             uint64_t size, TF_Status *);
    void (*block_host_for_event)(const SP_Device *, SP_Event, TF_Status *);
    void (*block_host_until_done)(const SP_Device *, SP_Stream, TF_Status *);
    void (*synchronize_all_activity)(const SP_Device *, TF_Status *);
    void (*mem_zero)(const SP_Device *, SP_Stream, SP_DeviceMemoryBase *, uint64_t size, TF_Status *);
    void (*memset)(const SP_Device *, SP_Stream, SP_DeviceMemoryBase *, uint8_t pattern, uint64_t size,
                   TF_Status *);
    void (*memset32)(const SP_Device *, SP_Stream, SP_DeviceMemoryBase *, uint32_t pattern, uint64_t size,
                     TF_Status *);
    TF_Bool (*host_callback)(const SP_Device *, SP_Stream, SE_StatusCallbackFn, void *argument);
};

struct SE_CreateStreamExecutorParams {
    size_t struct_size;
    void *ext;
    SP_StreamExecutor *stream_executor;
};

struct SP_Platform {
    size_t struct_size;
    void *ext;
    const char *name, *type;
    TF_Bool supports_unified_memory, use_bfc_allocator, force_memory_growth;
};

struct SP_PlatformFns {
    size_t struct_size;
    void *ext;
    void (*get_device_count)(const SP_Platform *, int *count, TF_Status *);
    void (*create_device)(const SP_Platform *, SE_CreateDeviceParams *, TF_Status *);
    void (*destroy_device)(const SP_Platform *, SP_Device *);
    void (*create_device_fns)(const SP_Platform *, SE_CreateDeviceFnsParams *, TF_Status *);
    void (*destroy_device_fns)(const SP_Platform *, SP_DeviceFns *);
    void (*create_stream_executor)(const SP_Platform *, SE_CreateStreamExecutorParams *, TF_Status *);
    void (*destroy_stream_executor)(const SP_Platform *, SP_StreamExecutor *);
    void (*create_timer_fns)(const SP_Platform *, SP_TimerFns *, TF_Status *);
    void (*destroy_timer_fns)(const SP_Platform *, SP_TimerFns *);
};

struct SE_PlatformRegistrationParams {
    size_t struct_size;
    void *ext;
    int32_t major_version, minor_version, patch_version;
    SP_Platform *platform;
    SP_PlatformFns *platform_fns;
    void (*destroy_platform)(SP_Platform *);
    void (*destroy_platform_fns)(SP_PlatformFns *);
};

/* TF_OFFSET_OF_END: a struct's size without the padding behind its last member. */
#define ABI_SIZE(type, last) (offsetof(type, last) + sizeof(((type *)0)->last))

extern "C" {

/* Called by TensorFlow when it loads the plug-in. */
__attribute__((visibility("default"))) void SE_InitPlugin(SE_PlatformRegistrationParams *, TF_Status *);
__attribute__((visibility("default"))) void TF_InitKernel(void);

TF_Status *TF_NewStatus(void);
void TF_DeleteStatus(TF_Status *);
void TF_SetStatus(TF_Status *, int code, const char *message);
int TF_GetCode(const TF_Status *);
const char *TF_Message(const TF_Status *);

void TF_DeleteTensor(TF_Tensor *);
int TF_TensorType(const TF_Tensor *);
int TF_NumDims(const TF_Tensor *);
int64_t TF_Dim(const TF_Tensor *, int index);
size_t TF_TensorByteSize(const TF_Tensor *);
void *TF_TensorData(const TF_Tensor *);

TF_KernelBuilder *TF_NewKernelBuilder(const char *op, const char *device,
                                      void *(*create)(TF_OpKernelConstruction *),
                                      void (*compute)(void *, TF_OpKernelContext *), void (*destroy)(void *));
void TF_KernelBuilder_TypeConstraint(TF_KernelBuilder *, const char *attribute, int type, TF_Status *);
void TF_KernelBuilder_HostMemory(TF_KernelBuilder *, const char *argument);
void TF_RegisterKernelBuilder(const char *kernel_name, TF_KernelBuilder *, TF_Status *);

SP_Stream TF_GetStream(TF_OpKernelContext *, TF_Status *);
int TF_NumInputs(TF_OpKernelContext *);
int TF_NumOutputs(TF_OpKernelContext *);
void TF_GetInput(TF_OpKernelContext *, int index, TF_Tensor **, TF_Status *);
int TF_ExpectedOutputDataType(TF_OpKernelContext *, int index);
void TF_SetOutput(TF_OpKernelContext *, int index, const TF_Tensor *, TF_Status *);
TF_Tensor *TF_AllocateOutput(TF_OpKernelContext *, int index, int type, const int64_t *dims, int rank,
                             size_t bytes, TF_Status *);
TF_Tensor *TF_ForwardInputOrAllocateOutput(TF_OpKernelContext *, const int *candidates, int candidate_count,
                                           int output, const int64_t *dims, int rank, int *forwarded,
                                           TF_Status *);
void TF_OpKernelContext_Failure(TF_OpKernelContext *, TF_Status *);
void TF_OpKernelConstruction_Failure(TF_OpKernelConstruction *, TF_Status *);
void TF_OpKernelConstruction_GetAttrSize(TF_OpKernelConstruction *, const char *name, int32_t *list_size,
                                         int32_t *total_size, TF_Status *);
void TF_OpKernelConstruction_GetAttrInt64(TF_OpKernelConstruction *, const char *name, int64_t *, TF_Status *);
void TF_OpKernelConstruction_GetAttrFloat(TF_OpKernelConstruction *, const char *name, float *, TF_Status *);
void TF_OpKernelConstruction_GetAttrBool(TF_OpKernelConstruction *, const char *name, TF_Bool *, TF_Status *);
void TF_OpKernelConstruction_GetAttrString(TF_OpKernelConstruction *, const char *name, char *, size_t,
                                           TF_Status *);
void TF_OpKernelConstruction_GetAttrStringList(TF_OpKernelConstruction *, const char *name, char **values,
                                               size_t *lengths, int count, void *storage, size_t storage_size,
                                               TF_Status *);
void TF_OpKernelConstruction_GetAttrInt64List(TF_OpKernelConstruction *, const char *name, int64_t *, int count,
                                              TF_Status *);
}

#endif
