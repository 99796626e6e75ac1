/* Two and three operands, element by element: arithmetic, comparisons, gradients, selection, sums. */
#include <math.h>

#include "plugin_broadcast.h"

namespace gpuwatch {

Shape broadcast_shape(std::initializer_list<const Shape *> shapes) {
    Shape result;
    for (const Shape *shape : shapes)
        if (shape->rank > result.rank) result.rank = shape->rank;
    for (int i = 0; i < result.rank; i++) {
        result[i] = 1;
        for (const Shape *shape : shapes) {
            int at = i - (result.rank - shape->rank);
            if (at < 0 || (*shape)[at] == 1) continue;
            if (result[i] != 1 && result[i] != (*shape)[at])
                invalid("Incompatible shapes: %s", join(shapes).c_str());
            result[i] = (*shape)[at];
        }
    }
    return result;
}

namespace {

/* Works on stretches of this many elements, so that an operand that repeats can be laid out. */
constexpr int64_t STRETCH = 512;

template <class In, class Out>
void each_pair(const Call &call, void (*compute)(const In *, const In *, Out *, int64_t)) {
    Shape left = call.input(0).shape, right = call.input(1).shape;
    Shape shape = broadcast_shape({&left, &right});
    bool same_type = type_of<In>() == type_of<Out>();
    Tensor out = same_type ? call.forward_or_output({0, 1}, 0, shape) : call.output(0, type_of<Out>(), shape);
    Tensor a = call.input(0), b = call.input(1);
    if (out.count() == 0) return;
    const In *x = a.data<In>(), *y = b.data<In>();
    Out *z = out.data<Out>();
    Loops<2> loops = broadcast_loops<2>(shape, {&left, &right});
    int64_t count = loops.inner(), stretch = count < STRETCH ? count : STRETCH;
    bool walks_x = loops.inner_step(0) != 0, walks_y = loops.inner_step(1) != 0;
    call.run(a.bytes() + b.bytes() + out.bytes(), [&] {
        In repeated_x[STRETCH], repeated_y[STRETCH];
        loops.each([&](const int64_t *offset) {
            const In *p = x + offset[0], *q = y + offset[1];
            if (!walks_x)
                for (int64_t i = 0; i < stretch; i++) repeated_x[i] = *p;
            if (!walks_y)
                for (int64_t i = 0; i < stretch; i++) repeated_y[i] = *q;
            if (walks_x && walks_y) {
                compute(p, q, z, count);
            } else {
                for (int64_t from = 0; from < count; from += stretch)
                    compute(walks_x ? p + from : repeated_x, walks_y ? q + from : repeated_y, z + from,
                            count - from < stretch ? count - from : stretch);
            }
            z += count;
        });
    });
}

/* The result may lie in an operand's memory: each element is read before it is written (ivdep says so). */
template <class In, class Out, class F> void binary(const Call &call) {
    each_pair<In, Out>(call, [](const In *x, const In *y, Out *z, int64_t count) {
#pragma GCC ivdep
        for (int64_t i = 0; i < count; i++) z[i] = F::of(x[i], y[i]);
    });
}

#define BINARY(name, result, expression)                                                                       \
    template <class T> struct name {                                                                           \
        static result of(T x, T y) { return (expression); }                                                    \
    };

/* Of every number, of real ones, and gradients; the names are the ops'. */
#define OF_NUMBERS(op)                                                                                         \
    op(Add, T, x + y)                                                                                          \
    op(Sub, T, x - y)                                                                                          \
    op(Mul, T, x * y)                                                                                          \
    op(Maximum, T, x != x ? x : x > y ? x : y)                                                                 \
    op(Minimum, T, x != x ? x : x < y ? x : y)                                                                 \
    op(SquaredDifference, T, (x - y) * (x - y))                                                                \
    op(Equal, bool, x == y)                                                                                    \
    op(NotEqual, bool, x != y)                                                                                 \
    op(Less, bool, x < y)                                                                                      \
    op(LessEqual, bool, x <= y)                                                                                \
    op(Greater, bool, x > y)                                                                                   \
    op(GreaterEqual, bool, x >= y)
#define OF_REALS(op)                                                                                           \
    op(Div, T, x / y)                                                                                          \
    op(DivNoNan, T, y == 0 ? T(0) : x / y)                                                                     \
    op(MulNoNan, T, y == 0 ? T(0) : x * y)                                                                     \
    op(FloorDiv, T, T(floor(x / y)))                                                                           \
    op(FloorMod, T, x - T(floor(x / y)) * y)
/* Of the result y and the gradient g, or of the gradient g and the input x. */
#define GRADIENTS(op)                                                                                          \
    op(TanhGrad, T, y *(T(1) - x * x))                                                                         \
    op(SigmoidGrad, T, y *x *(T(1) - x))                                                                       \
    op(SqrtGrad, T, T(0.5) * y / x)                                                                            \
    op(RsqrtGrad, T, T(-0.5) * y * x * x * x)                                                                  \
    op(ReciprocalGrad, T, -y * x * x)                                                                          \
    op(ReluGrad, T, y > 0 ? x : T(0))                                                                          \
    op(Relu6Grad, T, y > 0 && y < 6 ? x : T(0))                                                                \
    op(EluGrad, T, y < 0 ? x * (y + T(1)) : x)                                                                 \
    op(SoftplusGrad, T, x / (T(1) + T(exp(-y))))
OF_NUMBERS(BINARY)
OF_REALS(BINARY)
GRADIENTS(BINARY)
BINARY(Power, T, y == 2 ? x * x : T(pow(x, y)))
BINARY(LogicalAnd, bool, x && y)
BINARY(LogicalOr, bool, x || y)

template <class T> struct LeakyReluGrad : Kernel {
    T alpha;
    explicit LeakyReluGrad(const Attributes &attributes) : alpha(T(attributes.real("alpha"))) {}
    void compute(const Call &call) const override {
        Tensor gradients = call.input(0), features = call.input(1);
        if (!(gradients.shape == features.shape))
            invalid("Incompatible shapes: %s", join({&gradients.shape, &features.shape}).c_str());
        Tensor out = call.output(0, features.type, features.shape);
        const T *g = gradients.data<T>(), *x = features.data<T>();
        T *z = out.data<T>();
        int64_t count = out.count();
        call.run(3 * out.bytes(), [&] {
            for (int64_t i = 0; i < count; i++) z[i] = x[i] > 0 ? g[i] : alpha * g[i];
        });
    }
};

/* --- selection -------------------------------------------------------------------------------------- */

template <class T>
void select(const Call &call, const Shape &shape, const Shape &condition, const Shape &then, const Shape &other) {
    Tensor out = call.output(0, shape);
    Tensor c = call.input(0), a = call.input(1), b = call.input(2);
    if (out.count() == 0) return;
    Loops<3> loops = broadcast_loops<3>(shape, {&condition, &then, &other});
    const bool *chooses = c.data<bool>();
    const T *x = a.data<T>(), *y = b.data<T>();
    T *z = out.data<T>();
    int64_t count = loops.inner(), s0 = loops.inner_step(0), s1 = loops.inner_step(1), s2 = loops.inner_step(2);
    call.run(a.bytes() + b.bytes() + c.bytes() + out.bytes(), [&] {
        loops.each([&](const int64_t *offset) {
            const bool *o = chooses + offset[0];
            const T *p = x + offset[1], *q = y + offset[2];
            if (s0 == 1 && s1 == 1 && s2 == 1)
                for (int64_t i = 0; i < count; i++) z[i] = o[i] ? p[i] : q[i];
            else
                for (int64_t i = 0; i < count; i++) z[i] = o[i * s0] ? p[i * s1] : q[i * s2];
            z += count;
        });
    });
}

template <class T> void select_v2(const Call &call) {
    Shape condition = call.input(0).shape, then = call.input(1).shape, other = call.input(2).shape;
    select<T>(call, broadcast_shape({&condition, &then, &other}), condition, then, other);
}

/* The condition is of the same shape, a scalar, or a vector that chooses whole rows. */
template <class T> void select_v1(const Call &call) {
    Shape condition = call.input(0).shape, then = call.input(1).shape, other = call.input(2).shape;
    if (!(then == other)) invalid("'then' and 'else' must have the same size. Got %s", join({&then, &other}).c_str());
    if (condition.rank == 1 && then.rank > 1) {
        if (condition[0] != then[0]) invalid("Number of batches of 'then' must match size of 'cond'");
        while (condition.rank < then.rank) condition.add(1);
    }
    if (!(broadcast_shape({&condition, &then}) == then))
        invalid("'then' and 'cond' must have the same size. Got %s", join({&then, &condition}).c_str());
    select<T>(call, then, condition, then, other);
}

/* --- sums ------------------------------------------------------------------------------------------- */

template <class T> void add_n(const Call &call) {
    int inputs = call.input_count();
    Shape shape = call.input(0).shape;
    for (int i = 1; i < inputs; i++) {
        Shape other = call.input(i).shape;
        if (!(other == shape))
            invalid("Inputs to operation of type AddN must have the same size and shape. Input 0: %s",
                    join({&shape, &other}).c_str());
    }
    if (inputs == 1) return call.pass(0, 0);
    Tensor out = call.forward_or_output({0}, 0, shape);
    T *z = out.data<T>();
    int64_t count = out.count();
    call.run(out.bytes() * (size_t)(inputs + 1), [&] {
        for (int n = 1; n < inputs; n++) {
            Tensor first = call.input(0), next = call.input(n);
            const T *x = n == 1 ? first.data<T>() : z, *y = next.data<T>();
#pragma GCC ivdep
            for (int64_t i = 0; i < count; i++) z[i] = x[i] + y[i];
        }
    });
}

/* --- registration ----------------------------------------------------------------------------------- */

#define ADD_BINARY(name, result, expression) add<binary<T, result, name<T>>>(#name, {{"T", type_of<T>()}});

template <class T> void register_number() {
    OF_NUMBERS(ADD_BINARY)
    add<binary<T, T, Add<T>>>("AddV2", {{"T", type_of<T>()}});
    add<add_n<T>>("AddN", {{"T", type_of<T>()}});
    add<select_v1<T>>("Select", {{"T", type_of<T>()}});
    add<select_v2<T>>("SelectV2", {{"T", type_of<T>()}});
}

template <class T> void register_real() {
    register_number<T>();
    OF_REALS(ADD_BINARY)
    GRADIENTS(ADD_BINARY)
    add<binary<T, T, Div<T>>>("RealDiv", {{"T", type_of<T>()}});
    add<binary<T, T, Power<T>>>("Pow", {{"T", type_of<T>()}});
    add<binary<T, T, ReciprocalGrad<T>>>("InvGrad", {{"T", type_of<T>()}});
    add<LeakyReluGrad<T>>("LeakyReluGrad", {{"T", type_of<T>()}});
}

}  // namespace

void register_elementwise() {
    register_real<float>();
    register_real<double>();
    register_number<int64_t>();
    add<binary<bool, bool, Equal<bool>>>("Equal", {{"T", TF_BOOL}});
    add<binary<bool, bool, NotEqual<bool>>>("NotEqual", {{"T", TF_BOOL}});
    add<binary<bool, bool, LogicalAnd<bool>>>("LogicalAnd");
    add<binary<bool, bool, LogicalOr<bool>>>("LogicalOr");
    add<select_v2<int32_t>>("SelectV2", {{"T", TF_INT32}});
    add<select_v2<bool>>("SelectV2", {{"T", TF_BOOL}});
}

}  // namespace gpuwatch
