/* The simulated driver's memory: device memory is host memory that costs nothing until it is touched. Allocations
 * are counted in the shared state, against the device's size and all other processes. */
#define _GNU_SOURCE
#include "cuda_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIB (1024ull * 1024ull)
#define PAGE 4096ull

enum { ON_DEVICE, PINNED, REGISTERED, MANAGED };

typedef struct CUmemPoolHandle_st *CUmemoryPool;

typedef struct {
    uintptr_t start;
    size_t bytes, mapped, charged; /* as asked for; of host address space; of the device */
    int kind;
    CUcontext context;
    CUmemoryPool pool; /* the pool that it came from, or NULL: the device itself */
} range;

static void return_to_pool(gws_state *state, const range *old);
static void empty_pools(gws_state *state, uint32_t device);

/* Sorted by start, so that any address inside is found by bisection. */
static struct {
    pthread_mutex_t lock;
    range *item;
    size_t count, room;
} ranges = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The first range that starts behind the address; the one before it may hold the address. */
static size_t upper_bound(uintptr_t address) {
    size_t low = 0, high = ranges.count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ranges.item[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool find_range(uintptr_t address, range *out) {
    pthread_mutex_lock(&ranges.lock);
    size_t next = upper_bound(address);
    bool found = next > 0 && address - ranges.item[next - 1].start < ranges.item[next - 1].bytes;
    if (found) *out = ranges.item[next - 1];
    pthread_mutex_unlock(&ranges.lock);
    return found;
}

static bool add_range(range new) {
    pthread_mutex_lock(&ranges.lock);
    if (ranges.count == ranges.room) {
        size_t room = ranges.room ? 2 * ranges.room : 64;
        range *item = realloc(ranges.item, room * sizeof *item);
        if (!item) {
            pthread_mutex_unlock(&ranges.lock);
            return false;
        }
        ranges.item = item;
        ranges.room = room;
    }
    size_t at = upper_bound(new.start);
    memmove(&ranges.item[at + 1], &ranges.item[at], (ranges.count - at) * sizeof new);
    ranges.item[at] = new;
    ranges.count++;
    pthread_mutex_unlock(&ranges.lock);
    return true;
}

/* Removes the range that starts at this address and is of this kind (or, for device memory, managed). */
static bool remove_range(uintptr_t start, int kind, range *out) {
    pthread_mutex_lock(&ranges.lock);
    size_t next = upper_bound(start);
    bool found = next > 0 && ranges.item[next - 1].start == start &&
                 (ranges.item[next - 1].kind == kind || (kind == ON_DEVICE && ranges.item[next - 1].kind == MANAGED));
    if (found) {
        *out = ranges.item[next - 1];
        memmove(&ranges.item[next - 1], &ranges.item[next], (ranges.count - next) * sizeof *out);
        ranges.count--;
    }
    pthread_mutex_unlock(&ranges.lock);
    return found;
}

/* The device allocates large memory in steps of 2 MiB, small memory in steps of a page. */
static size_t charge_of(size_t bytes) {
    size_t step = bytes >= MIB ? 2 * MIB : PAGE;
    return (bytes + step - 1) / step * step;
}

/* Address space for memory that the device has granted. */
static CUresult map_range(CUcontext context, CUdeviceptr *out, size_t bytes, int kind, CUmemoryPool pool) {
    size_t charged = charge_of(bytes), mapped = (bytes + PAGE - 1) / PAGE * PAGE;
    /* NORESERVE: a card may be larger than the host; only what is touched takes real memory. */
    void *memory =
        mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    range new = {(uintptr_t)memory, bytes, mapped, charged, kind, context, pool};
    if (memory == MAP_FAILED || !add_range(new)) {
        if (memory != MAP_FAILED) munmap(memory, mapped);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = (CUdeviceptr)new.start;
    return CUDA_SUCCESS;
}

static CUresult allocate(gws_state *state, CUcontext context, CUdeviceptr *out, size_t bytes, int kind) {
    REQUIRE(out && bytes && bytes < SIZE_MAX / 2);
    if (gws_take(state, context->device, charge_of(bytes))) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult code = map_range(context, out, bytes, kind, NULL);
    if (code) gws_give(state, context->device, charge_of(bytes));
    return code;
}

static CUresult release(gws_state *state, CUdeviceptr address) {
    range old;
    if (!address) return CUDA_SUCCESS;
    if (!remove_range((uintptr_t)address, ON_DEVICE, &old)) return CUDA_ERROR_INVALID_VALUE;
    munmap((void *)old.start, old.mapped);
    if (old.pool)
        return_to_pool(state, &old);
    else
        gws_give(state, old.context->device, old.charged);
    return CUDA_SUCCESS;
}

void gws_cuda_free_all(gws_state *state, const struct CUctx_st *context) {
    for (;;) {
        uintptr_t start = 0;
        pthread_mutex_lock(&ranges.lock);
        for (size_t i = 0; i < ranges.count && !start; i++) {
            const range *item = &ranges.item[i];
            if (item->context == context && (item->kind == ON_DEVICE || item->kind == MANAGED)) start = item->start;
        }
        pthread_mutex_unlock(&ranges.lock);
        if (!start || release(state, start)) break;
    }
    empty_pools(state, context->device);
}

/* --- device memory ---------------------------------------------------------------------------------- */

API CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes) {
    ENTER_CONTEXT();
    return allocate(state, context, out, bytes, ON_DEVICE);
}

API CUresult cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned flags) {
    ENTER_CONTEXT();
    return allocate(state, context, out, bytes, MANAGED);
}

API CUresult cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned element) {
    ENTER_CONTEXT();
    REQUIRE(pitch && width && height);
    *pitch = (width + 511) / 512 * 512;
    return allocate(state, context, out, *pitch * height, ON_DEVICE);
}

API CUresult cuMemFree_v2(CUdeviceptr address) {
    ENTER();
    return release(state, address);
}

API CUresult cuMemGetInfo_v2(size_t *free_out, size_t *total_out) {
    ENTER_CONTEXT();
    REQUIRE(free_out && total_out);
    uint64_t free_bytes, total_bytes;
    gws_memory_info(state, context->device, &free_bytes, &total_bytes);
    *free_out = free_bytes;
    *total_out = total_bytes;
    return CUDA_SUCCESS;
}

API CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address) {
    ENTER();
    range found;
    if (!find_range((uintptr_t)address, &found)) return CUDA_ERROR_NOT_FOUND;
    if (base) *base = (CUdeviceptr)found.start;
    if (bytes) *bytes = found.bytes;
    return CUDA_SUCCESS;
}

/* --- host memory ------------------------------------------------------------------------------------ */

static CUresult allocate_host(CUcontext context, void **out, size_t bytes) {
    REQUIRE(out && bytes && bytes < SIZE_MAX / 2);
    /* Page-aligned: TensorFlow's allocator insists on 256 bytes and aborts otherwise. */
    size_t mapped = (bytes + PAGE - 1) / PAGE * PAGE;
    void *memory = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    if (!add_range((range){(uintptr_t)memory, bytes, mapped, 0, PINNED, context, NULL})) {
        munmap(memory, mapped);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = memory;
    return CUDA_SUCCESS;
}

API CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned flags) {
    ENTER_CONTEXT();
    return allocate_host(context, out, bytes);
}

API CUresult cuMemAllocHost_v2(void **out, size_t bytes) {
    ENTER_CONTEXT();
    return allocate_host(context, out, bytes);
}

API CUresult cuMemFreeHost(void *memory) {
    ENTER();
    range old;
    if (!remove_range((uintptr_t)memory, PINNED, &old)) return CUDA_ERROR_INVALID_VALUE;
    munmap((void *)old.start, old.mapped);
    return CUDA_SUCCESS;
}

API CUresult cuMemHostRegister_v2(void *memory, size_t bytes, unsigned flags) {
    ENTER_CONTEXT();
    REQUIRE(memory && bytes);
    range old;
    if (find_range((uintptr_t)memory, &old)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    return add_range((range){(uintptr_t)memory, bytes, 0, 0, REGISTERED, context, NULL}) ? CUDA_SUCCESS
                                                                                   : CUDA_ERROR_OUT_OF_MEMORY;
}

API CUresult cuMemHostUnregister(void *memory) {
    ENTER();
    range old;
    return remove_range((uintptr_t)memory, REGISTERED, &old) ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *memory, unsigned flags) {
    ENTER();
    range found;
    REQUIRE(out);
    if (!find_range((uintptr_t)memory, &found) || found.kind == ON_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    *out = (CUdeviceptr)(uintptr_t)memory;
    return CUDA_SUCCESS;
}

API CUresult cuMemHostGetFlags(unsigned *flags, void *memory) {
    ENTER();
    range found;
    REQUIRE(flags);
    if (!find_range((uintptr_t)memory, &found) || found.kind != PINNED) return CUDA_ERROR_INVALID_VALUE;
    *flags = 0;
    return CUDA_SUCCESS;
}

static CUresult pointer_attribute(void *out, int number, CUdeviceptr address) {
    range found;
    if (!find_range((uintptr_t)address, &found)) return CUDA_ERROR_INVALID_VALUE;
    bool host = found.kind == PINNED || found.kind == REGISTERED;
    switch (number) {
    case 1: *(CUcontext *)out = found.context; return CUDA_SUCCESS;
    case 2: *(unsigned *)out = host ? 1 : 2; return CUDA_SUCCESS; /* memory type */
    case 3: *(CUdeviceptr *)out = address; return CUDA_SUCCESS;
    case 4:
        if (found.kind == ON_DEVICE) return CUDA_ERROR_INVALID_VALUE;
        *(void **)out = (void *)(uintptr_t)address;
        return CUDA_SUCCESS;
    case 7: *(unsigned long long *)out = (unsigned long long)found.start; return CUDA_SUCCESS; /* buffer id */
    case 8: *(unsigned *)out = found.kind == MANAGED; return CUDA_SUCCESS;
    case 9: *(int *)out = found.context->ordinal; return CUDA_SUCCESS;
    case 11: *(CUdeviceptr *)out = (CUdeviceptr)found.start; return CUDA_SUCCESS;
    case 12: *(size_t *)out = found.bytes; return CUDA_SUCCESS;
    case 13: *(unsigned *)out = 1; return CUDA_SUCCESS; /* mapped */
    default: return CUDA_ERROR_NOT_SUPPORTED;
    }
}

API CUresult cuPointerGetAttribute(void *out, int number, CUdeviceptr address) {
    ENTER();
    REQUIRE(out);
    return pointer_attribute(out, number, address);
}

API CUresult cuPointerGetAttributes(unsigned count, int *numbers, void **out, CUdeviceptr address) {
    ENTER();
    REQUIRE(numbers && out);
    range found;
    bool known = find_range((uintptr_t)address, &found);
    for (unsigned i = 0; i < count; i++) {
        /* For memory that CUDA does not know, the call succeeds with empty answers. */
        if (!known || pointer_attribute(out[i], numbers[i], address)) {
            size_t bytes = numbers[i] == 2 || numbers[i] == 8 || numbers[i] == 9 || numbers[i] == 13 ? 4 : 8;
            memset(out[i], numbers[i] == 9 ? 0xff : 0, bytes); /* no device: -2 in CUDA, negative here */
        }
    }
    return CUDA_SUCCESS;
}

/* --- copies and fills ------------------------------------------------------------------------------- */

static CUresult copy(gws_state *state, CUcontext context, void *to, const void *from, size_t bytes,
                     gws_copy_direction direction) {
    if (!bytes) return CUDA_SUCCESS;
    REQUIRE(to && from);
    uint64_t began_ns = gws_now_ns();
    memmove(to, from, bytes);
    gws_copied(state, context->device, began_ns, bytes, direction);
    return CUDA_SUCCESS;
}

/* A copy whose direction follows from the addresses. */
static gws_copy_direction direction_of(CUdeviceptr to, CUdeviceptr from) {
    range found;
    bool to_device = find_range((uintptr_t)to, &found) && found.kind != PINNED && found.kind != REGISTERED;
    bool from_device = find_range((uintptr_t)from, &found) && found.kind != PINNED && found.kind != REGISTERED;
    return !from_device ? GWS_COPY_TO_DEVICE : to_device ? GWS_COPY_ON_DEVICE : GWS_COPY_TO_HOST;
}

#define AT(address) ((void *)(uintptr_t)(address))

/* A copy and its asynchronous form, which is finished at once here; `to` and `from` are their addresses. */
#define COPIES(function, asynchronous, to_type, to, from_type, from, direction)                              \
    API CUresult function(to_type to_, from_type from_, size_t bytes) {                                      \
        ENTER_CONTEXT();                                                                                     \
        return copy(state, context, to, from, bytes, direction);                                             \
    }                                                                                                        \
    API CUresult asynchronous(to_type to_, from_type from_, size_t bytes, void *stream) {                    \
        ENTER_CONTEXT();                                                                                     \
        return copy(state, context, to, from, bytes, direction);                                             \
    }
COPIES(cuMemcpyHtoD_v2, cuMemcpyHtoDAsync_v2, CUdeviceptr, AT(to_), const void *, from_, GWS_COPY_TO_DEVICE)
COPIES(cuMemcpyDtoH_v2, cuMemcpyDtoHAsync_v2, void *, to_, CUdeviceptr, AT(from_), GWS_COPY_TO_HOST)
COPIES(cuMemcpyDtoD_v2, cuMemcpyDtoDAsync_v2, CUdeviceptr, AT(to_), CUdeviceptr, AT(from_), GWS_COPY_ON_DEVICE)
COPIES(cuMemcpy, cuMemcpyAsync, CUdeviceptr, AT(to_), CUdeviceptr, AT(from_), direction_of(to_, from_))

API CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                          size_t bytes) {
    ENTER_CONTEXT();
    return copy(state, context, AT(to), AT(from), bytes, GWS_COPY_ON_DEVICE);
}

API CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                               size_t bytes, void *stream) {
    return cuMemcpyPeer(to, to_context, from, from_context, bytes);
}

/* A fill is a kernel on the device. Whole pages are zeroed by returning them to the host. */
static CUresult fill(gws_state *state, CUcontext context, CUdeviceptr address, uint32_t pattern, size_t width,
                     size_t count) {
    size_t bytes = width * count;
    if (!bytes) return CUDA_SUCCESS;
    REQUIRE(address && address % width == 0);
    char *to = AT(address), *end = to + bytes;
    uint64_t began_ns = gws_kernel_begin(state, context->device);
    range found;
    if (pattern == 0) {
        char *first = (char *)(((uintptr_t)to + PAGE - 1) & ~(uintptr_t)(PAGE - 1));
        char *last = (char *)((uintptr_t)end & ~(uintptr_t)(PAGE - 1));
        bool ours = find_range((uintptr_t)address, &found) && found.mapped && (uintptr_t)end <= found.start + found.bytes;
        if (ours && first < last && bytes >= MIB && madvise(first, (size_t)(last - first), MADV_DONTNEED) == 0) {
            memset(to, 0, (size_t)(first - to));
            memset(last, 0, (size_t)(end - last));
        } else {
            memset(to, 0, bytes);
        }
    } else if (width == 1) {
        memset(to, (int)pattern, bytes);
    } else if (width == 2) {
        for (size_t i = 0; i < count; i++) ((uint16_t *)(void *)to)[i] = (uint16_t)pattern;
    } else {
        for (size_t i = 0; i < count; i++) ((uint32_t *)(void *)to)[i] = pattern;
    }
    gws_kernel_end(state, context->device, began_ns, bytes);
    return CUDA_SUCCESS;
}

#define FILLS(bits, type)                                                                                    \
    API CUresult cuMemsetD##bits##_v2(CUdeviceptr to, type value, size_t count) {                            \
        ENTER_CONTEXT();                                                                                     \
        return fill(state, context, to, value, sizeof value, count);                                         \
    }                                                                                                        \
    API CUresult cuMemsetD##bits##Async(CUdeviceptr to, type value, size_t count, void *stream) {            \
        ENTER_CONTEXT();                                                                                     \
        return fill(state, context, to, value, sizeof value, count);                                         \
    }
FILLS(8, unsigned char)
FILLS(16, unsigned short)
FILLS(32, unsigned)

/* --- memory pools, for cuda_malloc_async ------------------------------------------------------------ */

/* As with the real one, a pool keeps freed memory up to its threshold, so NVML still sees it. */
struct CUmemPoolHandle_st {
    int ordinal;
    bool is_default;
    uint32_t device;
    uint64_t threshold, used, used_high, reserved, reserved_high; /* bytes, under pool_lock */
};

static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static struct CUmemPoolHandle_st default_pools[GWS_MAX_DEVICES];
static CUmemoryPool current_pools[GWS_MAX_DEVICES]; /* NULL: the default one */

static CUmemoryPool default_pool(int ordinal) {
    default_pools[ordinal].ordinal = ordinal;
    default_pools[ordinal].is_default = true;
    return &default_pools[ordinal];
}

static CUmemoryPool current_pool(int ordinal) {
    pthread_mutex_lock(&pool_lock);
    CUmemoryPool pool = current_pools[ordinal] ? current_pools[ordinal] : default_pool(ordinal);
    pthread_mutex_unlock(&pool_lock);
    return pool;
}

/* Under pool_lock: returns unused memory beyond `keep` to the device. */
static void trim(gws_state *state, CUmemoryPool pool, uint64_t keep) {
    uint64_t target = pool->used > keep ? pool->used : keep;
    if (pool->reserved <= target) return;
    gws_give(state, pool->device, pool->reserved - target);
    pool->reserved = target;
}

static void return_to_pool(gws_state *state, const range *old) {
    pthread_mutex_lock(&pool_lock);
    old->pool->used -= old->charged;
    trim(state, old->pool, old->pool->threshold);
    pthread_mutex_unlock(&pool_lock);
}

static void empty_pools(gws_state *state, uint32_t device) {
    pthread_mutex_lock(&pool_lock);
    for (int i = 0; i < GWS_MAX_DEVICES; i++) {
        if (default_pools[i].device == device) trim(state, &default_pools[i], 0);
        if (current_pools[i] && current_pools[i]->device == device) trim(state, current_pools[i], 0);
    }
    pthread_mutex_unlock(&pool_lock);
}

static CUresult allocate_from(gws_state *state, CUcontext context, CUmemoryPool pool, CUdeviceptr *out,
                              size_t bytes) {
    REQUIRE(out && pool && bytes && bytes < SIZE_MAX / 2);
    size_t charged = charge_of(bytes);
    CUresult code = CUDA_SUCCESS;
    pthread_mutex_lock(&pool_lock);
    pool->device = context->device;
    uint64_t wanted = pool->used + charged;
    if (wanted > pool->reserved) {
        if (gws_take(state, pool->device, wanted - pool->reserved))
            code = CUDA_ERROR_OUT_OF_MEMORY;
        else
            pool->reserved = wanted;
    }
    if (!code) code = map_range(context, out, bytes, ON_DEVICE, pool);
    if (!code) pool->used = wanted;
    if (pool->used > pool->used_high) pool->used_high = pool->used;
    if (pool->reserved > pool->reserved_high) pool->reserved_high = pool->reserved;
    if (code) trim(state, pool, pool->threshold);
    pthread_mutex_unlock(&pool_lock);
    return code;
}

#define REQUIRE_DEVICE(device)                                                                               \
    if ((device) < 0 || (device) >= gws_cuda_visible_count()) return CUDA_ERROR_INVALID_DEVICE

API CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *out, CUdevice device) {
    ENTER();
    REQUIRE(out);
    REQUIRE_DEVICE(device);
    *out = default_pool(device);
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetMemPool(CUmemoryPool *out, CUdevice device) {
    ENTER();
    REQUIRE(out);
    REQUIRE_DEVICE(device);
    *out = current_pool(device);
    return CUDA_SUCCESS;
}

API CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
    ENTER();
    REQUIRE(pool);
    REQUIRE_DEVICE(device);
    pthread_mutex_lock(&pool_lock);
    current_pools[device] = pool;
    pthread_mutex_unlock(&pool_lock);
    return CUDA_SUCCESS;
}

/* CUmemPoolProps begins with allocation type, handle types and the location {type, id}. */
API CUresult cuMemPoolCreate(CUmemoryPool *out, const int *properties) {
    ENTER();
    REQUIRE(out && properties);
    int location = properties[2], ordinal = properties[3];
    REQUIRE(location == 1);
    REQUIRE_DEVICE(ordinal);
    CUmemoryPool pool = calloc(1, sizeof *pool);
    if (!pool) return CUDA_ERROR_OUT_OF_MEMORY;
    pool->ordinal = ordinal;
    *out = pool;
    return CUDA_SUCCESS;
}

API CUresult cuMemPoolDestroy(CUmemoryPool pool) {
    ENTER();
    REQUIRE(pool && !pool->is_default);
    pthread_mutex_lock(&pool_lock);
    for (int i = 0; i < GWS_MAX_DEVICES; i++)
        if (current_pools[i] == pool) current_pools[i] = NULL;
    pool->threshold = 0;
    trim(state, pool, 0);
    pthread_mutex_unlock(&pool_lock);
    return CUDA_SUCCESS; /* not freed: its allocations still point to it */
}

API CUresult cuMemPoolSetAttribute(CUmemoryPool pool, int number, const void *value) {
    ENTER();
    REQUIRE(pool && value);
    pthread_mutex_lock(&pool_lock);
    if (number == 4) pool->threshold = *(const uint64_t *)value;
    if (number == 6) pool->reserved_high = pool->reserved; /* high-water marks can only be reset */
    if (number == 8) pool->used_high = pool->used;
    pthread_mutex_unlock(&pool_lock);
    return number >= 1 && number <= 8 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int number, void *value) {
    ENTER();
    REQUIRE(pool && value && number >= 1 && number <= 8);
    pthread_mutex_lock(&pool_lock);
    const uint64_t sizes[] = {pool->threshold, pool->reserved, pool->reserved_high, pool->used, pool->used_high};
    pthread_mutex_unlock(&pool_lock);
    if (number <= 3)
        *(int *)value = 1; /* ways of re-using what was freed */
    else
        *(uint64_t *)value = sizes[number - 4];
    return CUDA_SUCCESS;
}

API CUresult cuMemPoolSetAccess(CUmemoryPool pool, const void *map, size_t count) {
    ENTER();
    REQUIRE(pool);
    return CUDA_SUCCESS;
}

API CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
    ENTER();
    REQUIRE(pool);
    pthread_mutex_lock(&pool_lock);
    trim(state, pool, keep);
    pthread_mutex_unlock(&pool_lock);
    return CUDA_SUCCESS;
}

API CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, void *stream) {
    ENTER_CONTEXT();
    return allocate_from(state, context, pool, out, bytes);
}

API CUresult cuMemAllocAsync(CUdeviceptr *out, size_t bytes, void *stream) {
    ENTER_CONTEXT();
    return allocate_from(state, context, current_pool(context->ordinal), out, bytes);
}

API CUresult cuMemFreeAsync(CUdeviceptr address, void *stream) {
    ENTER_CONTEXT();
    return release(state, address);
}
