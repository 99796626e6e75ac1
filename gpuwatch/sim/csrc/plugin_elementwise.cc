/* Element by element: arithmetic and comparisons of two operands. */
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

template <class In, class Out, class F> void binary(const Call &call) {
    Shape left, right;
    {
        Tensor a = call.input(0), b = call.input(1);
        left = a.shape;
        right = b.shape;
    }
    Shape shape = broadcast_shape({&left, &right});
    bool same_type = type_of<In>() == type_of<Out>();
    Tensor out = same_type ? call.forward_or_output({0, 1}, 0, shape) : call.output(0, type_of<Out>(), shape);
    Tensor a = call.input(0), b = call.input(1);
    if (out.count() == 0) return;
    const In *x = a.data<In>(), *y = b.data<In>();
    Out *z = out.data<Out>();
    Loops<2> loops = broadcast_loops<2>(shape, {&left, &right});
    int64_t count = loops.inner();
    bool walks_x = loops.inner_step(0) != 0, walks_y = loops.inner_step(1) != 0;
    call.run(a.bytes() + b.bytes() + out.bytes(), [&] {
        loops.each([&](const int64_t *offset) {
            const In *p = x + offset[0], *q = y + offset[1];
            if (walks_x && walks_y) {
#pragma GCC ivdep
                for (int64_t i = 0; i < count; i++) z[i] = F::of(p[i], q[i]);
            } else if (walks_x) {
                In fixed = *q;
#pragma GCC ivdep
                for (int64_t i = 0; i < count; i++) z[i] = F::of(p[i], fixed);
            } else if (walks_y) {
                In fixed = *p;
#pragma GCC ivdep
                for (int64_t i = 0; i < count; i++) z[i] = F::of(fixed, q[i]);
            } else {
                Out fixed = F::of(*p, *q);
                for (int64_t i = 0; i < count; i++) z[i] = fixed;
            }
            z += count;
        });
    });
}

#define BINARY(name, expression)                                                                               \
    template <class T> struct name {                                                                           \
        static auto of(T x, T y) { return (expression); }                                                      \
    };

BINARY(Add, T(x + y))
BINARY(Sub, T(x - y))
BINARY(Mul, T(x * y))

template <class T, template <class> class F> void add_binary(const char *op) {
    add<binary<T, T, F<T>>>(op, {{"T", type_of<T>()}});
}

template <class T> void register_type() {
    add_binary<T, Add>("Add");
    add_binary<T, Add>("AddV2");
    add_binary<T, Sub>("Sub");
    add_binary<T, Mul>("Mul");
}

}  // namespace

void register_elementwise() {
    register_type<float>();
    register_type<double>();
    register_type<int64_t>();
}

}  // namespace gpuwatch
