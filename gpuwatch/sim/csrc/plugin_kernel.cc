/* See plugin_kernel.h. */
#include "plugin_kernel.h"

#include <stdlib.h>

#include <memory>

namespace gpuwatch {

size_t type_bytes(int type) {
    switch (type) {
    case TF_DOUBLE:
    case TF_INT64:
    case TF_UINT64: return 8;
    case TF_FLOAT:
    case TF_INT32:
    case TF_UINT32: return 4;
    case TF_HALF:
    case TF_BFLOAT16:
    case TF_INT16:
    case TF_UINT16: return 2;
    case TF_BOOL:
    case TF_INT8:
    case TF_UINT8: return 1;
    default: throw Error{TF_INTERNAL, "a type that no kernel was registered for"};
    }
}

std::string join(std::initializer_list<const Shape *> shapes) {
    std::string text;
    for (const Shape *shape : shapes) {
        text += text.empty() ? "[" : " vs. [";
        for (int i = 0; i < shape->rank; i++) text += (i ? "," : "") + std::to_string((*shape)[i]);
        text += "]";
    }
    return text;
}

/* --- tensors ---------------------------------------------------------------------------------------- */

Tensor::Tensor(TF_Tensor *raw) : type(TF_TensorType(raw)), raw_(raw) {
    int rank = TF_NumDims(raw);
    if (rank > MAX_RANK) {
        TF_DeleteTensor(raw_);
        throw Error{TF_UNIMPLEMENTED, "gpuwatch's simulated GPUs handle tensors of up to 8 dimensions"};
    }
    for (int i = 0; i < rank; i++) shape.add(TF_Dim(raw, i));
}

std::vector<int64_t> Tensor::integers() const {
    std::vector<int64_t> values((size_t)count());
    for (size_t i = 0; i < values.size(); i++)
        values[i] = type == TF_INT64 ? data<int64_t>()[i] : type == TF_INT8 ? data<int8_t>()[i] : data<int32_t>()[i];
    return values;
}

int64_t Tensor::integer() const {
    if (count() != 1) invalid("expected a scalar, got %lld values", (long long)count());
    return integers()[0];
}

/* --- calls ------------------------------------------------------------------------------------------ */

Tensor Call::input(int index) const {
    Status status;
    TF_Tensor *raw = nullptr;
    TF_GetInput(context_, index, &raw, status);
    status.check();
    return Tensor(raw);
}

Tensor Call::output(int index, int type, const Shape &shape) const {
    Status status;
    size_t bytes = (size_t)shape.count() * type_bytes(type);
    TF_Tensor *raw = TF_AllocateOutput(context_, index, type, shape.dims, shape.rank, bytes, status);
    if (raw && !status.ok()) TF_DeleteTensor(raw);
    status.check();
    return Tensor(raw);
}

Tensor Call::output(int index, const Shape &shape) const {
    return output(index, TF_ExpectedOutputDataType(context_, index), shape);
}

/* --- attributes ------------------------------------------------------------------------------------- */

/* A single value, by one of TensorFlow's functions. */
template <class T, class Construction>
static T single(void (*get)(Construction *, const char *, T *, TF_Status *), Construction *from, const char *name) {
    Status status;
    T value = 0;
    get(from, name, &value, status);
    status.check();
    return value;
}

int64_t Attributes::integer(const char *name) const {
    return single(TF_OpKernelConstruction_GetAttrInt64, construction_, name);
}

float Attributes::real(const char *name) const {
    return single(TF_OpKernelConstruction_GetAttrFloat, construction_, name);
}

/* Length of a list, and of all of its text. */
static std::pair<size_t, size_t> sizes(TF_OpKernelConstruction *construction, const char *name) {
    Status status;
    int32_t list_size = 0, total_size = 0;
    TF_OpKernelConstruction_GetAttrSize(construction, name, &list_size, &total_size, status);
    status.check();
    return {(size_t)(list_size > 0 ? list_size : 0), (size_t)(total_size > 0 ? total_size : 0)};
}

std::string Attributes::text(const char *name) const {
    Status status;
    std::string value(sizes(construction_, name).second, '\0');
    TF_OpKernelConstruction_GetAttrString(construction_, name, &value[0], value.size(), status);
    status.check();
    return value;
}

std::vector<std::string> Attributes::texts(const char *name) const {
    Status status;
    auto [count, bytes] = sizes(construction_, name);
    std::vector<char *> values(count);
    std::vector<size_t> lengths(count);
    std::string storage(bytes, '\0');
    TF_OpKernelConstruction_GetAttrStringList(construction_, name, values.data(), lengths.data(), (int)count,
                                              &storage[0], bytes, status);
    status.check();
    std::vector<std::string> texts;
    for (size_t i = 0; i < count; i++) texts.emplace_back(values[i], lengths[i]);
    return texts;
}

std::vector<int64_t> Attributes::integers(const char *name) const {
    Status status;
    std::vector<int64_t> values(sizes(construction_, name).first);
    TF_OpKernelConstruction_GetAttrInt64List(construction_, name, values.data(), (int)values.size(), status);
    status.check();
    return values;
}

/* --- registration ----------------------------------------------------------------------------------- */

namespace {

const char *device_type; /* while kernels are registered */

void set(TF_Status *status, const Error &error) { TF_SetStatus(status, error.code, error.message.c_str()); }

/* Runs `work`; what it throws becomes a status that `report` gets. */
template <class Work, class Report> void guarded(Work work, Report report) {
    Error error;
    try {
        work();
        return;
    } catch (const Error &thrown) {
        error = thrown;
    } catch (const std::bad_alloc &) {
        error = {TF_RESOURCE_EXHAUSTED, "out of host memory"};
    }
    Status status;
    set(status, error);
    report(status);
}

void compute(void *kernel, TF_OpKernelContext *context) {
    guarded([=] { static_cast<Kernel *>(kernel)->compute(Call(context)); },
            [=](TF_Status *status) { TF_OpKernelContext_Failure(context, status); });
}

void destroy(void *kernel) { delete static_cast<Kernel *>(kernel); }

}  // namespace

void *create_guarded(TF_OpKernelConstruction *construction, Kernel *(*make)(const Attributes &)) {
    Kernel *kernel = nullptr;
    guarded([&] { kernel = make(Attributes(construction)); },
            [=](TF_Status *status) { TF_OpKernelConstruction_Failure(construction, status); });
    return kernel;
}

void add_kernel(const char *op, void *(*create)(TF_OpKernelConstruction *),
                std::initializer_list<TypeConstraint> types, std::initializer_list<const char *> host) {
    Status status;
    TF_KernelBuilder *builder = TF_NewKernelBuilder(op, device_type, create, compute, destroy);
    for (const TypeConstraint &constraint : types)
        if (constraint.type != TF_NO_TYPE)
            TF_KernelBuilder_TypeConstraint(builder, constraint.attribute, constraint.type, status);
    for (const char *argument : host) TF_KernelBuilder_HostMemory(builder, argument);
    TF_RegisterKernelBuilder(op, builder, status);
    if (!status.ok()) fprintf(stderr, "gpuwatch: no simulated kernel for %s: %s\n", op, TF_Message(status));
}

void register_kernels(const char *type) {
    device_type = type;
    register_move();
    register_network();
}

}  // namespace gpuwatch
