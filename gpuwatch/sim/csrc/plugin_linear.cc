/* Matrix products and biases. */
#include "plugin_linear.h"

#include "plugin_kernel.h"

extern "C" {
#include "gemm.h"
}

namespace gpuwatch {

namespace {

template <class T> constexpr gws_type gemm_type() { return sizeof(T) == 8 ? GWS_F64 : GWS_F32; }

}  // namespace

template <class T>
void multiply(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const T *a, int64_t stride_a,
              const T *b, int64_t stride_b, T *c, int64_t stride_c, bool accumulate) {
    /* Row-major matrices are the transposes of column-major ones: C' = op(B)' op(A)'. */
    bool done = gws_gemm(transpose_b, transpose_a, (size_t)n, (size_t)m, (size_t)k, 1.0, gemm_type<T>(), b,
                         (size_t)stride_b, a, (size_t)stride_a, accumulate ? 1.0 : 0.0, gemm_type<T>(), c,
                         (size_t)stride_c);
    if (!done) throw Error{TF_RESOURCE_EXHAUSTED, "out of host memory in a matrix product"};
}

template void multiply(bool, bool, int64_t, int64_t, int64_t, const float *, int64_t, const float *, int64_t,
                       float *, int64_t, bool);
template void multiply(bool, bool, int64_t, int64_t, int64_t, const double *, int64_t, const double *, int64_t,
                       double *, int64_t, bool);

namespace {

template <class T> struct MatMul : Kernel {
    bool transpose_a, transpose_b;

    explicit MatMul(const Attributes &attributes)
        : transpose_a(attributes.boolean("transpose_a")), transpose_b(attributes.boolean("transpose_b")) {}

    void compute(const Call &call) const override {
        Tensor a = call.input(0), b = call.input(1);
        if (a.shape.rank != 2) invalid("In[0] ndims must be >= 2: %d", a.shape.rank);
        if (b.shape.rank != 2) invalid("In[1] ndims must be >= 2: %d", b.shape.rank);
        int64_t m = a.shape[transpose_a], k = a.shape[!transpose_a], n = b.shape[!transpose_b];
        if (b.shape[transpose_b] != k)
            invalid("Matrix size-incompatible: In[0]: [%lld,%lld], In[1]: [%lld,%lld]", (long long)a.shape[0],
                    (long long)a.shape[1], (long long)b.shape[0], (long long)b.shape[1]);
        Tensor c = call.output(0, a.type, {m, n});
        call.run(a.bytes() + b.bytes() + c.bytes(), [&] {
            multiply(transpose_a, transpose_b, m, n, k, a.data<T>(), a.shape[1], b.data<T>(), b.shape[1], c.data<T>(), n,
                     false);
        });
    }
};

/* The products of the last two dimensions; the others are broadcast. */
template <class T> struct BatchMatMul : Kernel {
    bool adj_x, adj_y;

    explicit BatchMatMul(const Attributes &attributes)
        : adj_x(attributes.boolean("adj_x")), adj_y(attributes.boolean("adj_y")) {}

    void compute(const Call &call) const override {
        Tensor x = call.input(0), y = call.input(1);
        int rank_x = x.shape.rank, rank_y = y.shape.rank, rank = rank_x > rank_y ? rank_x : rank_y;
        if (rank_x < 2) invalid("In[0] ndims must be >= 2: %d", rank_x);
        if (rank_y < 2) invalid("In[1] ndims must be >= 2: %d", rank_y);
        int64_t m = x.shape[rank_x - 1 - !adj_x], k = x.shape[rank_x - 1 - adj_x];
        int64_t n = y.shape[rank_y - 1 - adj_y];
        if (y.shape[rank_y - 1 - !adj_y] != k)
            invalid("Matrix size-incompatible: In[0] has an inner dimension of %lld, In[1] of %lld", (long long)k,
                    (long long)y.shape[rank_y - 1 - !adj_y]);
        Shape shape;
        int64_t step_x[MAX_RANK], step_y[MAX_RANK], last_x = 1, last_y = 1;
        for (int i = 0; i < rank - 2; i++) {
            int64_t size_x = i - (rank - rank_x) >= 0 ? x.shape[i - (rank - rank_x)] : 1;
            int64_t size_y = i - (rank - rank_y) >= 0 ? y.shape[i - (rank - rank_y)] : 1;
            if (size_x != size_y && size_x != 1 && size_y != 1)
                invalid("In[0] and In[1] must have compatible batch dimensions: %lld vs. %lld", (long long)size_x,
                        (long long)size_y);
            shape.add(size_x == 1 ? size_y : size_x);
            step_x[i] = size_x == 1 ? 0 : 1;
            step_y[i] = size_y == 1 ? 0 : 1;
        }
        for (int i = rank - 3; i >= 0; i--) { /* from which batch of x and y each batch of the output comes */
            int64_t size_x = step_x[i] ? shape[i] : 1, size_y = step_y[i] ? shape[i] : 1;
            step_x[i] *= last_x;
            step_y[i] *= last_y;
            last_x *= size_x;
            last_y *= size_y;
        }
        int64_t batches = shape.count();
        int batch_rank = shape.rank;
        shape.add(m);
        shape.add(n);
        Tensor out = call.output(0, x.type, shape);
        if (out.count() == 0) return;
        call.run(x.bytes() + y.bytes() + out.bytes(), [&] {
            for (int64_t batch = 0; batch < batches; batch++) {
                int64_t from_x = 0, from_y = 0, rest = batch;
                for (int i = batch_rank - 1; i >= 0; i--) {
                    from_x += rest % shape[i] * step_x[i];
                    from_y += rest % shape[i] * step_y[i];
                    rest /= shape[i];
                }
                multiply(adj_x, adj_y, m, n, k, x.data<T>() + from_x * m * k, x.shape[rank_x - 1],
                         y.data<T>() + from_y * k * n, y.shape[rank_y - 1], out.data<T>() + batch * m * n, n, false);
            }
        });
    }
};

template <class T> void register_type() {
    constexpr int type = type_of<T>();
    add<MatMul<T>>("MatMul", {{"T", type}});
    add<BatchMatMul<T>>("BatchMatMul", {{"T", type}});
    add<BatchMatMul<T>>("BatchMatMulV2", {{"T", type}});
}

}  // namespace

void register_linear() {
    register_type<float>();
    register_type<double>();
}

}  // namespace gpuwatch
