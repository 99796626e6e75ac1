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

UNARY(Neg, T, -x)
UNARY(Abs, T, x < 0 ? -x : x == 0 ? T(0) : x)
UNARY(Sign, T, T((x > 0) - (x < 0)))
UNARY(Square, T, x *x)
UNARY(Sqrt, T, T(sqrt(x)))
UNARY(Rsqrt, T, T(1) / T(sqrt(x)))
UNARY(Reciprocal, T, T(1) / x)
UNARY(Exp, T, exponential(x))
UNARY(Expm1, T, T(expm1(x)))
UNARY(Log, T, T(log(x)))
UNARY(Log1p, T, T(log1p(x)))
UNARY(Tanh, T, hyperbolic_tangent(x))
UNARY(Sigmoid, T, logistic(x))
UNARY(Relu, T, x < 0 ? T(0) : x)
UNARY(Relu6, T, x < 0 ? T(0) : x > 6 ? T(6) : x)
UNARY(Elu, T, x < 0 ? T(expm1(x)) : x)
UNARY(Softplus, T, x > 20 ? x : x < -20 ? T(exp(x)) : T(log1p(exp(x))))
UNARY(Floor, T, T(floor(x)))
UNARY(Ceil, T, T(ceil(x)))
UNARY(Round, T, T(rint(x)))
UNARY(Sin, T, T(sin(x)))
UNARY(Cos, T, T(cos(x)))
UNARY(Erf, T, T(erf(x)))
UNARY(IsNan, bool, x != x)
UNARY(IsInf, bool, x - x != x - x && x == x)
UNARY(IsFinite, bool, x - x == 0)
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

template <class T, template <class> class F> void add_unary(const char *op) {
    add<unary<T, T, F<T>>>(op, {{"T", type_of<T>()}});
}

template <class T> void register_fills() {
    constexpr int type = type_of<T>();
    add<fill_value<T>>("Fill", {{"T", type}, {"index_type", TF_INT32}}, {"dims"});
    add<fill_value<T>>("Fill", {{"T", type}, {"index_type", TF_INT64}}, {"dims"});
    add<fill_like<T, 0>>("ZerosLike", {{"T", type}});
    add<fill_like<T, 1>>("OnesLike", {{"T", type}});
}

template <class T> void register_number() {
    add_unary<T, Neg>("Neg");
    add_unary<T, Abs>("Abs");
    add_unary<T, Sign>("Sign");
    add_unary<T, Square>("Square");
    register_fills<T>();
    add_casts<T>();
    add<range<T>>("Range", {{"Tidx", type_of<T>()}}, {"start", "limit", "delta"});
}

template <class T> void register_real() {
    register_number<T>();
    add_unary<T, Sqrt>("Sqrt");
    add_unary<T, Rsqrt>("Rsqrt");
    add_unary<T, Reciprocal>("Reciprocal");
    add_unary<T, Reciprocal>("Inv");
    add_unary<T, Exp>("Exp");
    add_unary<T, Expm1>("Expm1");
    add_unary<T, Log>("Log");
    add_unary<T, Log1p>("Log1p");
    add_unary<T, Tanh>("Tanh");
    add_unary<T, Sigmoid>("Sigmoid");
    add_unary<T, Relu>("Relu");
    add_unary<T, Relu6>("Relu6");
    add_unary<T, Elu>("Elu");
    add_unary<T, Softplus>("Softplus");
    add_unary<T, Floor>("Floor");
    add_unary<T, Ceil>("Ceil");
    add_unary<T, Round>("Round");
    add_unary<T, Sin>("Sin");
    add_unary<T, Cos>("Cos");
    add_unary<T, Erf>("Erf");
    add<unary<T, bool, IsNan<T>>>("IsNan", {{"T", type_of<T>()}});
    add<unary<T, bool, IsInf<T>>>("IsInf", {{"T", type_of<T>()}});
    add<unary<T, bool, IsFinite<T>>>("IsFinite", {{"T", type_of<T>()}});
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
