/* Reductions over some dimensions. */
#include <limits>

#include "plugin_broadcast.h"

namespace gpuwatch {

namespace {

struct Reduction {
    Shape shape;     /* of the result */
    Loops<1> loops;  /* over the input, with the steps of the result */
    int64_t reduced; /* how many elements become one */
};

Reduction reduction_of(const Shape &shape, const std::vector<int64_t> &axes, bool keep) {
    bool goes[MAX_RANK] = {};
    for (int64_t axis : axes) {
        if (axis < -shape.rank || axis >= shape.rank)
            invalid("Invalid reduction dimension (%lld for input with %d dimension(s)", (long long)axis, shape.rank);
        goes[axis < 0 ? axis + shape.rank : axis] = true;
    }
    Reduction result;
    int64_t steps[MAX_RANK], step = 1;
    result.reduced = 1;
    for (int i = shape.rank - 1; i >= 0; i--) {
        steps[i] = goes[i] ? 0 : step;
        (goes[i] ? result.reduced : step) *= shape[i];
    }
    for (int i = 0; i < shape.rank; i++) {
        if (!goes[i])
            result.shape.add(shape[i]);
        else if (keep)
            result.shape.add(1);
        result.loops.add(shape[i], {steps[i]});
    }
    return result;
}

/* Each operation has what it starts from, how it takes one more, and how it makes one of a row. */
template <class T, class Operation> struct OneByOne {
    static T row(const T *x, int64_t count) {
        T all = Operation::first;
        for (int64_t i = 0; i < count; i++) all = Operation::with(all, x[i]);
        return all;
    }
};

template <class T> struct SumOf {
    static constexpr T first = 0;
    static T with(T sum, T x) { return sum + x; }
    static T row(const T *x, int64_t count) {
        double sum = 0; /* of short stretches, so that rounding errors do not pile up */
        for (int64_t from = 0; from < count; from += 4096) {
            int64_t stretch = count - from < 4096 ? count - from : 4096;
            T part = 0;
#pragma omp simd reduction(+ : part)
            for (int64_t i = 0; i < stretch; i++) part += x[from + i];
            sum += (double)part;
        }
        return (T)sum;
    }
};

template <> int64_t SumOf<int64_t>::row(const int64_t *x, int64_t count) {
    return OneByOne<int64_t, SumOf<int64_t>>::row(x, count);
}

template <class T> struct ProductOf : OneByOne<T, ProductOf<T>> {
    static constexpr T first = 1;
    static T with(T product, T x) { return product * x; }
};

template <class T> struct MaximumOf : OneByOne<T, MaximumOf<T>> {
    static constexpr T first =
        std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::lowest();
    static T with(T most, T x) { return x > most || x != x ? x : most; }
};

template <class T> struct MinimumOf : OneByOne<T, MinimumOf<T>> {
    static constexpr T first =
        std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity() : std::numeric_limits<T>::max();
    static T with(T least, T x) { return x < least || x != x ? x : least; }
};

struct AllOf : OneByOne<bool, AllOf> {
    static constexpr bool first = true;
    static bool with(bool all, bool x) { return all & x; }
};

struct AnyOf : OneByOne<bool, AnyOf> {
    static constexpr bool first = false;
    static bool with(bool any, bool x) { return any | x; }
};

template <class T, class F> void reduce_into(const Reduction &reduction, const T *x, int64_t count, T *z, int64_t results) {
    for (int64_t i = 0; i < results; i++) z[i] = F::first;
    if (count == 0) return;
    int64_t inner = reduction.loops.inner();
    bool walks = reduction.loops.inner_step(0) != 0;
    reduction.loops.each([&](const int64_t *offset) {
        T *to = z + offset[0];
        if (walks) {
#pragma GCC ivdep
            for (int64_t i = 0; i < inner; i++) to[i] = F::with(to[i], x[i]);
        } else {
            *to = F::with(*to, F::row(x, inner));
        }
        x += inner;
    });
}

template <class T, class F, bool mean = false> struct Reduce : Kernel {
    bool keep;
    explicit Reduce(const Attributes &attributes) : keep(attributes.boolean("keep_dims")) {}
    void compute(const Call &call) const override {
        Tensor in = call.input(0);
        Reduction reduction = reduction_of(in.shape, call.input(1).integers(), keep);
        Tensor out = call.output(0, in.type, reduction.shape);
        T *z = out.data<T>();
        int64_t results = out.count();
        call.run(in.bytes() + out.bytes(), [&] {
            reduce_into<T, F>(reduction, in.data<T>(), in.count(), z, results);
            if (mean)
                for (int64_t i = 0; i < results; i++) z[i] = T((double)z[i] / (double)reduction.reduced);
        });
    }
};

/* The index of the greatest or least along one dimension; of equal ones the first. */
template <class T, class Index, bool greatest> void arg(const Call &call) {
    Tensor in = call.input(0);
    int64_t axis = call.input(1).integer();
    if (axis < -in.shape.rank || axis >= in.shape.rank)
        invalid("Expected dimension in the range [%d, %d), but got %lld", -in.shape.rank, in.shape.rank,
                (long long)axis);
    if (axis < 0) axis += in.shape.rank;
    int64_t size = in.shape[(int)axis];
    if (size == 0) invalid("Reduction axis %lld is empty in shape %s", (long long)axis, join({&in.shape}).c_str());
    int64_t before = in.shape.count(0, (int)axis), after = in.shape.count((int)axis + 1, in.shape.rank);
    Shape shape = in.shape.without((int)axis);
    Tensor out = call.output(0, type_of<Index>(), shape);
    const T *x = in.data<T>();
    Index *z = out.data<Index>();
    call.run(in.bytes() + out.bytes(), [&] {
        for (int64_t b = 0; b < before; b++)
            for (int64_t a = 0; a < after; a++) {
                const T *from = x + b * size * after + a;
                int64_t best = 0;
                for (int64_t i = 1; i < size; i++)
                    if (greatest ? from[i * after] > from[best * after] : from[i * after] < from[best * after])
                        best = i;
                z[b * after + a] = (Index)best;
            }
    });
}

template <class T> void l2_loss(const Call &call) {
    Tensor in = call.input(0), out = call.output(0, in.type, {});
    const T *x = in.data<T>();
    int64_t count = in.count();
    call.run(in.bytes(), [&] {
        double sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < count; i++) sum += (double)x[i] * (double)x[i];
        *out.data<T>() = T(sum / 2);
    });
}

/* The sum over all dimensions but the channels. */
template <class T> struct BiasAddGrad : Kernel {
    bool channels_first;
    explicit BiasAddGrad(const Attributes &attributes) : channels_first(attributes.text("data_format") == "NCHW") {}
    void compute(const Call &call) const override {
        Tensor in = call.input(0);
        if (in.shape.rank < 2) invalid("Input tensor must be at least 2D: %s", join({&in.shape}).c_str());
        int channel = channels_first ? 1 : in.shape.rank - 1;
        std::vector<int64_t> axes;
        for (int i = 0; i < in.shape.rank; i++)
            if (i != channel) axes.push_back(i);
        Reduction reduction = reduction_of(in.shape, axes, false);
        Tensor out = call.output(0, in.type, reduction.shape);
        call.run(in.bytes() + out.bytes(),
                 [&] { reduce_into<T, SumOf<T>>(reduction, in.data<T>(), in.count(), out.data<T>(), out.count()); });
    }
};

/* --- registration ----------------------------------------------------------------------------------- */

template <class K> void add_reduction(const char *op, int type) {
    for (int index : {TF_INT32, TF_INT64})
        add<K>(op, {{type == TF_BOOL ? "Tidx" : "T", type == TF_BOOL ? index : type},
                    {"Tidx", type == TF_BOOL ? TF_NO_TYPE : index}},
               {"reduction_indices"});
}

template <class T> void register_number() {
    constexpr int type = type_of<T>();
    add_reduction<Reduce<T, SumOf<T>>>("Sum", type);
    add_reduction<Reduce<T, ProductOf<T>>>("Prod", type);
    add_reduction<Reduce<T, MaximumOf<T>>>("Max", type);
}

template <class T> void register_real() {
    constexpr int type = type_of<T>();
    register_number<T>();
    add_reduction<Reduce<T, MinimumOf<T>>>("Min", type);
    add_reduction<Reduce<T, SumOf<T>, true>>("Mean", type);
    add<arg<T, int64_t, true>>("ArgMax", {{"T", type}, {"output_type", TF_INT64}, {"Tidx", TF_INT32}}, {"dimension"});
    add<arg<T, int32_t, true>>("ArgMax", {{"T", type}, {"output_type", TF_INT32}, {"Tidx", TF_INT32}}, {"dimension"});
    add<arg<T, int64_t, false>>("ArgMin", {{"T", type}, {"output_type", TF_INT64}, {"Tidx", TF_INT32}}, {"dimension"});
    add<arg<T, int32_t, false>>("ArgMin", {{"T", type}, {"output_type", TF_INT32}, {"Tidx", TF_INT32}}, {"dimension"});
    add<l2_loss<T>>("L2Loss", {{"T", type}});
    add<BiasAddGrad<T>>("BiasAddGrad", {{"T", type}});
}

}  // namespace

void register_reduce() {
    register_real<float>();
    register_real<double>();
    register_number<int64_t>();
    add_reduction<Reduce<bool, AllOf>>("All", TF_BOOL);
    add_reduction<Reduce<bool, AnyOf>>("Any", TF_BOOL);
}

}  // namespace gpuwatch
