/* Building blocks of the plug-in's kernels. */
#ifndef GPUWATCH_SIM_PLUGIN_KERNEL_H
#define GPUWATCH_SIM_PLUGIN_KERNEL_H

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "plugin_abi.h"
#include "plugin_host.h"

struct SP_Stream_st {
    int ordinal;
};

namespace gpuwatch {

constexpr int MAX_RANK = 8;

/* Ends a kernel; TensorFlow raises it as the op's error. */
struct Error {
    int code;
    std::string message;
};

[[noreturn]] __attribute__((format(printf, 1, 2))) inline void invalid(const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    throw Error{TF_INVALID_ARGUMENT, text};
}

/* A status that is deleted with its scope and whose error is thrown by check. */
class Status {
  public:
    Status() : raw_(TF_NewStatus()) {}
    ~Status() { TF_DeleteStatus(raw_); }
    Status(const Status &) = delete;
    operator TF_Status *() { return raw_; }
    bool ok() const { return TF_GetCode(raw_) == TF_OK; }
    void check() const {
        if (!ok()) throw Error{TF_GetCode(raw_), TF_Message(raw_)};
    }

  private:
    TF_Status *raw_;
};

struct Shape {
    int rank = 0;
    int64_t dims[MAX_RANK] = {};

    Shape() = default;
    Shape(std::initializer_list<int64_t> sizes) {
        for (int64_t size : sizes) add(size);
    }
    void add(int64_t size) {
        if (rank == MAX_RANK)
            throw Error{TF_UNIMPLEMENTED, "gpuwatch's simulated GPUs handle tensors of up to 8 dimensions"};
        dims[rank++] = size;
    }
    int64_t operator[](int i) const { return dims[i]; }
    int64_t &operator[](int i) { return dims[i]; }
    int64_t count(int from, int to) const {
        int64_t product = 1;
        for (int i = from; i < to; i++) product *= dims[i];
        return product;
    }
    int64_t count() const { return count(0, rank); }
    int64_t step(int i) const { return count(i + 1, rank); } /* from one element of a dimension to the next */
    bool operator==(const Shape &other) const {
        return rank == other.rank && memcmp(dims, other.dims, (size_t)rank * sizeof dims[0]) == 0;
    }
};

std::string join(std::initializer_list<const Shape *> shapes); /* "[2,3] vs. [4]", as TensorFlow writes it */

size_t type_bytes(int type);

/* An input or output while its kernel runs. */
class Tensor {
  public:
    Tensor() = default;
    explicit Tensor(TF_Tensor *raw);
    ~Tensor() {
        if (raw_) TF_DeleteTensor(raw_);
    }
    Tensor(Tensor &&other) noexcept : shape(other.shape), type(other.type), raw_(other.raw_) {
        other.raw_ = nullptr;
    }
    Tensor &operator=(Tensor &&other) noexcept {
        std::swap(shape, other.shape);
        std::swap(type, other.type);
        std::swap(raw_, other.raw_);
        return *this;
    }

    Shape shape;
    int type = TF_NO_TYPE;

    int64_t count() const { return shape.count(); }
    size_t bytes() const { return (size_t)count() * type_bytes(type); }
    template <class T> T *data() const { return (T *)TF_TensorData(raw_); }
    TF_Tensor *raw() const { return raw_; }
    /* An int32 or int64 tensor in host memory: a shape, axes, begin and end. */
    std::vector<int64_t> integers() const;
    int64_t integer() const;

  private:
    TF_Tensor *raw_ = nullptr;
};

/* One call of a kernel. */
class Call {
  public:
    explicit Call(TF_OpKernelContext *context) : context_(context) {}

    Tensor input(int index) const;
    Tensor output(int index, int type, const Shape &shape) const;
    Tensor output(int index, const Shape &shape) const; /* of the type that the op expects */
    int output_type(int index) const { return TF_ExpectedOutputDataType(context_, index); }

  private:
    TF_OpKernelContext *context_;
};

/* The attributes of a node, for a kernel's constructor. */
class Attributes {
  public:
    explicit Attributes(TF_OpKernelConstruction *construction) : construction_(construction) {}
    int64_t integer(const char *name) const;
    float real(const char *name) const;
    std::string text(const char *name) const;
    std::vector<std::string> texts(const char *name) const;
    std::vector<int64_t> integers(const char *name) const;

  private:
    TF_OpKernelConstruction *construction_;
};

struct Kernel {
    virtual ~Kernel() = default;
    virtual void compute(const Call &call) const = 0;
};

/* A kernel without attributes. */
template <void compute_function(const Call &)> struct Function : Kernel {
    explicit Function(const Attributes &) {}
    void compute(const Call &call) const override { compute_function(call); }
};

struct TypeConstraint {
    const char *attribute;
    int type;
};

/* Registers one kernel: its op, its types, and the arguments that live in host memory. */
void add_kernel(const char *op, void *(*create)(TF_OpKernelConstruction *),
                std::initializer_list<TypeConstraint> types, std::initializer_list<const char *> host);
/* Calls `make`, and reports its exceptions to TensorFlow. */
void *create_guarded(TF_OpKernelConstruction *construction, Kernel *(*make)(const Attributes &));

template <class K> void *create(TF_OpKernelConstruction *construction) {
    return create_guarded(construction, [](const Attributes &attributes) -> Kernel * { return new K(attributes); });
}

template <class K>
void add(const char *op, std::initializer_list<TypeConstraint> types = {},
         std::initializer_list<const char *> host = {}) {
    add_kernel(op, create<K>, types, host);
}

template <void compute_function(const Call &)>
void add(const char *op, std::initializer_list<TypeConstraint> types = {},
         std::initializer_list<const char *> host = {}) {
    add_kernel(op, create<Function<compute_function>>, types, host);
}

template <class T> constexpr int type_of();
template <> constexpr int type_of<float>() { return TF_FLOAT; }
template <> constexpr int type_of<double>() { return TF_DOUBLE; }

void register_kernels(const char *device_type);
void register_move();
void register_network();

}  // namespace gpuwatch

#endif
