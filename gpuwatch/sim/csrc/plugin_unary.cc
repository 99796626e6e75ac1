/* One operand, element by element: functions, conversions, and tensors full of one value. */
#include "plugin_kernel.h"
#include "plugin_math.h"

namespace gpuwatch {

namespace {

template <class In, class Out> void each_element(const Call &call, void (*compute)(const In *, Out *, int64_t)) {
    Shape shape = call.input(0).shape;
    bool same_type = type_of<In>() == type_of<Out>();
    Tensor out = same_type ? call.forward_or_output({0}, 0, shape) : call.output(0, type_of<Out>(), shape);
    Tensor in = call.input(0);
    call.run(in.bytes() + out.bytes(), [&] { compute(in.data<In>(), out.data<Out>(), out.count()); });
}

/* The result may lie in the operand's memory. */
template <class In, class Out, class F> void unary(const Call &call) {
    each_element<In, Out>(call, [](const In *x, Out *y, int64_t count) {
#pragma GCC ivdep
        for (int64_t i = 0; i < count; i++) y[i] = F::of(x[i]);
    });
}

#define UNARY(name, result, expression)                                                                        \
    template <class T> struct name {                                                                           \
        static result of(T x) { return (expression); }                                                         \
    };

/* Of every number, of real ones, and questions about real ones; the names are the ops'. */
#define OF_NUMBERS(op)                                                                                         \
    op(Neg, T, -x)                                                                                             \
    op(Abs, T, x < 0 ? -x : x == 0 ? T(0) : x)                                                                 \
    op(Sign, T, T((x > 0) - (x < 0)))                                                                          \
    op(Square, T, x *x)
#define OF_REALS(op)                                                                                           \
    op(Sqrt, T, T(sqrt(x)))                                                                                    \
    op(Rsqrt, T, T(1) / T(sqrt(x)))                                                                            \
    op(Reciprocal, T, T(1) / x)                                                                                \
    op(Exp, T, exponential(x))                                                                                 \
    op(Expm1, T, T(expm1(x)))                                                                                  \
    op(Log, T, T(log(x)))                                                                                      \
    op(Log1p, T, T(log1p(x)))                                                                                  \
    op(Tanh, T, hyperbolic_tangent(x))                                                                         \
    op(Sigmoid, T, logistic(x))                                                                                \
    op(Relu, T, x < 0 ? T(0) : x)                                                                              \
    op(Relu6, T, x < 0 ? T(0) : x > 6 ? T(6) : x)                                                              \
    op(Elu, T, x < 0 ? T(expm1(x)) : x)                                                                        \
    op(Softplus, T, x > 20 ? x : x < -20 ? T(exp(x)) : T(log1p(exp(x))))                                       \
    op(Floor, T, T(floor(x)))                                                                                  \
    op(Ceil, T, T(ceil(x)))                                                                                    \
    op(Round, T, T(rint(x)))                                                                                   \
    op(Sin, T, T(sin(x)))                                                                                      \
    op(Cos, T, T(cos(x)))                                                                                      \
    op(Erf, T, T(erf(x)))
#define QUESTIONS(op)                                                                                          \
    op(IsNan, bool, x != x)                                                                                    \
    op(IsInf, bool, x - x != x - x && x == x)                                                                  \
    op(IsFinite, bool, x - x == 0)
OF_NUMBERS(UNARY)
OF_REALS(UNARY)
QUESTIONS(UNARY)
UNARY(LogicalNot, bool, !x)

template <class T> struct LeakyRelu : Kernel {
    T alpha;
    explicit LeakyRelu(const Attributes &attributes) : alpha(T(attributes.real("alpha"))) {}
    void compute(const Call &call) const override {
        Tensor in = call.input(0), out = call.output(0, in.type, in.shape);
        const T *x = in.data<T>();
        T *y = out.data<T>();
        int64_t count = out.count();
        call.run(2 * out.bytes(), [&] {
            for (int64_t i = 0; i < count; i++) y[i] = x[i] > 0 ? x[i] : alpha * x[i];
        });
    }
};

/* --- conversions ------------------------------------------------------------------------------------ */

template <class From, class To> void cast(const Call &call) {
    if (type_of<From>() == type_of<To>()) return call.pass(0, 0);
    each_element<From, To>(call, [](const From *x, To *y, int64_t count) {
        for (int64_t i = 0; i < count; i++) y[i] = (To)x[i];
    });
}

template <class From, class To> void add_cast() {
    add<cast<From, To>>("Cast", {{"SrcT", type_of<From>()}, {"DstT", type_of<To>()}});
}

template <class From> void add_casts() {
    add_cast<From, float>();
    add_cast<From, double>();
    add_cast<From, int32_t>();
    add_cast<From, int64_t>();
    add_cast<From, uint8_t>();
    add_cast<From, bool>();
}

/* --- one value -------------------------------------------------------------------------------------- */

template <class T> void fill(const Call &call, const Tensor &out, T value) {
    T *y = out.data<T>();
    int64_t count = out.count();
    call.run(out.bytes(), [&] {
        for (int64_t i = 0; i < count; i++) y[i] = value;
    });
}

template <class T> void fill_value(const Call &call) {
    Shape shape;
    for (int64_t size : call.input(0).integers()) {
        if (size < 0) invalid("Fill dimensions must be >= 0");
        shape.add(size);
    }
    Tensor value = call.input(1);
    if (value.count() != 1) invalid("value must represent a scalar, got shape %s", join({&value.shape}).c_str());
    fill<T>(call, call.output(0, value.type, shape), *value.data<T>());
}

template <class T, int value> void fill_like(const Call &call) {
    Shape shape = call.input(0).shape;
    fill<T>(call, call.forward_or_output({0}, 0, shape), (T)value);
}

template <class T> void range(const Call &call) {
    T start = *call.input(0).data<T>(), limit = *call.input(1).data<T>(), delta = *call.input(2).data<T>();
    if (delta == 0) invalid("Requires delta != 0: %g", (double)delta);
    if (delta > 0 ? start > limit : start < limit) invalid("Requires start <= limit when delta > 0");
    double steps = ceil(fabs(((double)limit - (double)start) / (double)delta));
    Tensor out = call.output(0, type_of<T>(), {(int64_t)steps});
    T *y = out.data<T>();
    int64_t count = out.count();
    call.run(out.bytes(), [&] {
        for (int64_t i = 0; i < count; i++) y[i] = start + (T)i * delta;
    });
}

/* --- registration ----------------------------------------------------------------------------------- */

#define ADD_UNARY(name, result, expression) add<unary<T, result, name<T>>>(#name, {{"T", type_of<T>()}});

template <class T> void register_fills() {
    constexpr int type = type_of<T>();
    add<fill_value<T>>("Fill", {{"T", type}, {"index_type", TF_INT32}}, {"dims"});
    add<fill_value<T>>("Fill", {{"T", type}, {"index_type", TF_INT64}}, {"dims"});
    add<fill_like<T, 0>>("ZerosLike", {{"T", type}});
    add<fill_like<T, 1>>("OnesLike", {{"T", type}});
}

template <class T> void register_number() {
    OF_NUMBERS(ADD_UNARY)
    register_fills<T>();
    add_casts<T>();
    add<range<T>>("Range", {{"Tidx", type_of<T>()}}, {"start", "limit", "delta"});
}

template <class T> void register_real() {
    register_number<T>();
    OF_REALS(ADD_UNARY)
    QUESTIONS(ADD_UNARY)
    add<unary<T, T, Reciprocal<T>>>("Inv", {{"T", type_of<T>()}});
    add<LeakyRelu<T>>("LeakyRelu", {{"T", type_of<T>()}});
}

}  // namespace

void register_unary() {
    register_real<float>();
    register_real<double>();
    register_number<int64_t>();
    register_fills<bool>();
    register_fills<uint8_t>();
    add<unary<bool, bool, LogicalNot<bool>>>("LogicalNot");
    add_casts<int32_t>();
    add_casts<uint8_t>();
    add_casts<bool>();
}

}  // namespace gpuwatch
