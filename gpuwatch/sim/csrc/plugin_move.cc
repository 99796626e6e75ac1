/* Ops that only move elements: one kernel for each element size. */
#include "plugin_broadcast.h"

namespace gpuwatch {

namespace {

int64_t dimension(int64_t axis, int rank) {
    if (axis < -rank || axis >= rank)
        invalid("Expected dimension in the range [%d, %d), but got %lld", -rank, rank, (long long)axis);
    return axis < 0 ? axis + rank : axis;
}

/* out, which is dense, gets elements of `from` along the loops. */
template <class T> void gather_loops(const Loops<1> &loops, const T *from, T *out) {
    int64_t count = loops.inner(), step = loops.inner_step(0);
    loops.each([&](const int64_t *offset) {
        const T *x = from + offset[0];
        if (step == 1)
            memcpy(out, x, (size_t)count * sizeof(T));
        else
            for (int64_t i = 0; i < count; i++) out[i] = x[i * step];
        out += count;
    });
}

/* Elements of `to` along the loops get those of `from`, which is dense. */
template <class T> void scatter_loops(const Loops<1> &loops, const T *from, T *to) {
    int64_t count = loops.inner(), step = loops.inner_step(0);
    loops.each([&](const int64_t *offset) {
        T *x = to + offset[0];
        if (step == 1)
            memcpy(x, from, (size_t)count * sizeof(T));
        else
            for (int64_t i = 0; i < count; i++) x[i * step] = from[i];
        from += count;
    });
}

/* --- transposition ---------------------------------------------------------------------------------- */

template <class T> void transpose_matrix(const T *from, int64_t rows, int64_t columns, T *out) {
    constexpr int64_t BLOCK = 16;
    for (int64_t i0 = 0; i0 < rows; i0 += BLOCK)
        for (int64_t j0 = 0; j0 < columns; j0 += BLOCK)
            for (int64_t j = j0; j < columns && j < j0 + BLOCK; j++)
                for (int64_t i = i0; i < rows && i < i0 + BLOCK; i++) out[j * rows + i] = from[i * columns + j];
}

template <class T> void transpose(const Call &call) {
    Tensor in = call.input(0);
    std::vector<int64_t> order = call.input(1).integers();
    int rank = in.shape.rank;
    if ((int)order.size() != rank)
        invalid("transpose expects a vector of size %d. But input(1) is a vector of size %zu", rank, order.size());
    Shape shape;
    Loops<1> loops;
    bool seen[MAX_RANK] = {};
    for (int64_t axis : order) {
        axis = dimension(axis, rank);
        if (seen[axis]) invalid("%lld is missing or repeated in the permutation", (long long)axis);
        seen[axis] = true;
        shape.add(in.shape[(int)axis]);
        loops.add(in.shape[(int)axis], {in.shape.step((int)axis)});
    }
    Tensor out = call.output(0, in.type, shape);
    if (out.count() == 0) return;
    call.run(2 * out.bytes(), [&] {
        if (loops.rank == 2 && loops.step[0][0] == 1 && loops.step[0][1] == loops.size[0])
            transpose_matrix(in.data<T>(), loops.size[1], loops.size[0], out.data<T>());
        else
            gather_loops(loops, in.data<T>(), out.data<T>());
    });
}

/* The same bytes as values of another type: a smaller one adds a dimension, a larger one takes the last. */
void bitcast(const Call &call) {
    Tensor in = call.input(0);
    Shape shape = in.shape;
    int64_t from = (int64_t)type_bytes(in.type), to = (int64_t)type_bytes(call.output_type(0));
    if (from > to) {
        shape.add(from / to);
    } else if (from < to) {
        if (shape.rank == 0 || shape[shape.rank - 1] != to / from)
            invalid("Cannot bitcast from type %d to %d: shape %s", in.type, call.output_type(0),
                    join({&in.shape}).c_str());
        shape.rank--;
    }
    Tensor out = call.output(0, shape);
    call.run(2 * out.bytes(), [&] { if (out.count()) memcpy(out.data<char>(), in.data<char>(), out.bytes()); });
}

/* --- joining and splitting -------------------------------------------------------------------------- */

/* values[first] to values[last - 1] side by side along the axis */
void join_values(const Call &call, int first, int last, int64_t axis) {
    Shape shape = call.input(first).shape;
    axis = dimension(axis, shape.rank);
    int64_t total = 0;
    for (int n = first; n < last; n++) {
        Shape other = call.input(n).shape;
        total += other.rank == shape.rank ? other[(int)axis] : 0;
        if (other.rank == shape.rank) other[(int)axis] = shape[(int)axis];
        if (!(other == shape))
            invalid("ConcatOp : Dimensions of inputs should match: %s", join({&shape, &other}).c_str());
    }
    shape[(int)axis] = total;
    Tensor out = call.output(0, shape);
    if (out.count() == 0) return;
    size_t element = type_bytes(out.type);
    size_t row = (size_t)shape.count((int)axis, shape.rank) * element;
    int64_t rows = shape.count(0, (int)axis);
    call.run(2 * out.bytes(), [&] {
        char *to = out.data<char>();
        for (int n = first; n < last; n++) {
            Tensor in = call.input(n);
            size_t part = (size_t)in.shape.count((int)axis, in.shape.rank) * element;
            if (in.count() == 0) continue;
            const char *from = in.data<char>();
            for (int64_t i = 0; i < rows; i++) memcpy(to + (size_t)i * row, from + (size_t)i * part, part);
            to += part;
        }
    });
}

void concat(const Call &call) { join_values(call, 1, call.input_count(), call.input(0).integer()); }

void concat_v2(const Call &call) {
    int values = call.input_count() - 1;
    join_values(call, 0, values, call.input(values).integer());
}

void split_value(const Call &call, const Tensor &in, int64_t axis, const std::vector<int64_t> &sizes) {
    size_t element = type_bytes(in.type);
    int64_t rows = in.shape.count(0, (int)axis), after = in.shape.count((int)axis + 1, in.shape.rank);
    size_t row = (size_t)(in.shape[(int)axis] * after) * element, at = 0;
    std::vector<Tensor> outs;
    for (size_t n = 0; n < sizes.size(); n++) {
        Shape shape = in.shape;
        shape[(int)axis] = sizes[n];
        outs.push_back(call.output((int)n, in.type, shape));
    }
    if (in.count() == 0) return;
    call.run(2 * in.bytes(), [&] {
        for (size_t n = 0; n < sizes.size(); n++) {
            size_t part = (size_t)(sizes[n] * after) * element;
            if (part == 0) continue;
            for (int64_t i = 0; i < rows; i++)
                memcpy(outs[n].data<char>() + (size_t)i * part, in.data<char>() + (size_t)i * row + at, part);
            at += part;
        }
    });
}

void split(const Call &call) {
    Tensor in = call.input(1);
    int64_t axis = dimension(call.input(0).integer(), in.shape.rank), count = call.output_count();
    if (in.shape[(int)axis] % count)
        invalid("Number of ways to split should evenly divide the split dimension, but got split_dim %lld (size = "
                "%lld) and num_split %lld", (long long)axis, (long long)in.shape[(int)axis], (long long)count);
    split_value(call, in, axis, std::vector<int64_t>((size_t)count, in.shape[(int)axis] / count));
}

void split_v(const Call &call) {
    Tensor in = call.input(0);
    std::vector<int64_t> sizes = call.input(1).integers();
    int64_t axis = dimension(call.input(2).integer(), in.shape.rank), rest = in.shape[(int)axis];
    for (int64_t size : sizes)
        if (size >= 0) rest -= size;
    for (int64_t &size : sizes)
        if (size < 0) {
            size = rest;
            rest = 0;
        }
    if (rest) invalid("Determined shape must either match input shape along split_dim exactly if fully specified");
    split_value(call, in, axis, sizes);
}

struct Pack : Kernel {
    int64_t axis;
    explicit Pack(const Attributes &attributes) : axis(attributes.integer("axis")) {}
    void compute(const Call &call) const override {
        int inputs = call.input_count();
        Shape part = call.input(0).shape, shape;
        int64_t at = dimension(axis, part.rank + 1);
        for (int i = 0; i <= part.rank; i++)
            shape.add(i < at ? part[i] : i == at ? inputs : part[i - 1]);
        for (int n = 1; n < inputs; n++) {
            Shape other = call.input(n).shape;
            if (!(other == part))
                invalid("Shapes of all inputs must match: values[0].shape = %s", join({&part, &other}).c_str());
        }
        Tensor out = call.output(0, shape);
        if (out.count() == 0) return;
        int64_t rows = part.count(0, (int)at);
        size_t row = (size_t)part.count((int)at, part.rank) * type_bytes(out.type);
        call.run(2 * out.bytes(), [&] {
            for (int n = 0; n < inputs; n++) {
                Tensor in = call.input(n);
                for (int64_t i = 0; i < rows; i++)
                    memcpy(out.data<char>() + (size_t)(i * inputs + n) * row, in.data<char>() + (size_t)i * row, row);
            }
        });
    }
};

struct Unpack : Kernel {
    int64_t axis;
    explicit Unpack(const Attributes &attributes) : axis(attributes.integer("axis")) {}
    void compute(const Call &call) const override {
        Tensor in = call.input(0);
        int64_t at = dimension(axis, in.shape.rank), count = call.output_count();
        if (in.shape[(int)at] != count)
            invalid("Input shape axis %lld must equal %lld, got shape %s", (long long)at, (long long)count,
                    join({&in.shape}).c_str());
        Shape shape = in.shape.without((int)at);
        int64_t rows = in.shape.count(0, (int)at);
        size_t row = (size_t)in.shape.count((int)at + 1, in.shape.rank) * type_bytes(in.type);
        std::vector<Tensor> outs;
        for (int n = 0; n < count; n++) outs.push_back(call.output(n, in.type, shape));
        if (in.count() == 0) return;
        call.run(2 * in.bytes(), [&] {
            for (int64_t n = 0; n < count; n++)
                for (int64_t i = 0; i < rows; i++)
                    memcpy(outs[(size_t)n].data<char>() + (size_t)i * row,
                           in.data<char>() + (size_t)(i * count + n) * row, row);
        });
    }
};

/* --- parts ------------------------------------------------------------------------------------------ */

/* A part of a tensor: where it begins, how far it steps, and how much of each dimension there is. */
struct Part {
    Shape shape;            /* of the tensor that is cut from */
    Shape sizes;            /* one for each of its dimensions */
    Shape result;           /* with dimensions gone and added */
    int64_t begin[MAX_RANK], stride[MAX_RANK];

    int64_t offset() const {
        int64_t at = 0;
        for (int i = 0; i < shape.rank; i++) at = at * shape[i] + (sizes[i] ? begin[i] : 0);
        return at;
    }
    Loops<1> loops() const {
        Loops<1> result_loops;
        for (int i = 0; i < shape.rank; i++) result_loops.add(sizes[i], {shape.step(i) * stride[i]});
        return result_loops;
    }
};

template <class T> void copy_part(const Call &call, const Tensor &in, const Part &part) {
    Tensor out = call.output(0, in.type, part.result);
    if (out.count() == 0) return;
    call.run(2 * out.bytes(), [&] { gather_loops(part.loops(), in.data<T>() + part.offset(), out.data<T>()); });
}

template <class T> void slice(const Call &call) {
    Tensor in = call.input(0);
    std::vector<int64_t> begin = call.input(1).integers(), size = call.input(2).integers();
    int rank = in.shape.rank;
    if ((int)begin.size() != rank || (int)size.size() != rank)
        invalid("Expected begin and size arguments to be 1-D tensors of size %d", rank);
    Part part;
    part.shape = in.shape;
    for (int i = 0; i < rank; i++) {
        int64_t length = size[(size_t)i] < 0 ? in.shape[i] - begin[(size_t)i] : size[(size_t)i];
        if (begin[(size_t)i] < 0 || length < 0 || begin[(size_t)i] + length > in.shape[i])
            invalid("Expected begin[%d] in [0, %lld], and size[%d] to fit, but got %lld and %lld", i,
                    (long long)in.shape[i], i, (long long)begin[(size_t)i], (long long)size[(size_t)i]);
        part.begin[i] = begin[(size_t)i];
        part.stride[i] = 1;
        part.sizes.add(length);
    }
    part.result = part.sizes;
    copy_part<T>(call, in, part);
}

struct Strided : Kernel {
    int64_t begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask;
    explicit Strided(const Attributes &attributes)
        : begin_mask(attributes.integer("begin_mask")), end_mask(attributes.integer("end_mask")),
          ellipsis_mask(attributes.integer("ellipsis_mask")), new_axis_mask(attributes.integer("new_axis_mask")),
          shrink_axis_mask(attributes.integer("shrink_axis_mask")) {}

    /* x[a:b:c, ..., newaxis, i] */
    Part part(const Shape &shape, const std::vector<int64_t> &begin, const std::vector<int64_t> &end,
              const std::vector<int64_t> &strides) const {
        int count = (int)begin.size(), named = 0;
        if (end.size() != begin.size() || strides.size() != begin.size())
            invalid("Expected begin, end, and strides to be 1D equal size tensors");
        bool ellipsis = false;
        for (int i = 0; i < count; i++) {
            if (ellipsis_mask >> i & 1)
                ellipsis = true;
            else if (!(new_axis_mask >> i & 1))
                named++;
        }
        if (named > shape.rank) invalid("Index out of range using input dim %d; input has only %d dims", named, shape.rank);
        Part result;
        result.shape = shape;
        int at = 0;
        auto whole = [&](int dims) {
            for (int i = 0; i < dims; i++, at++) {
                result.begin[at] = 0;
                result.stride[at] = 1;
                result.sizes.add(shape[at]);
                result.result.add(shape[at]);
            }
        };
        for (int i = 0; i < count; i++) {
            if (ellipsis_mask >> i & 1) {
                whole(shape.rank - named);
                continue;
            }
            if (new_axis_mask >> i & 1) {
                result.result.add(1);
                continue;
            }
            int64_t size = shape[at], stride = strides[(size_t)i], from = begin[(size_t)i], to = end[(size_t)i];
            if (stride == 0) invalid("strides[%d] must be non-zero", i);
            if (shrink_axis_mask >> i & 1) {
                int64_t index = from < 0 ? from + size : from;
                if (index < 0 || index >= size)
                    invalid("slice index %lld of dimension %d out of bounds.", (long long)from, at);
                result.begin[at] = index;
                result.stride[at] = 1;
                result.sizes.add(1);
            } else {
                int64_t least = stride > 0 ? 0 : -1, most = stride > 0 ? size : size - 1;
                auto bounded = [&](int64_t x) {
                    if (x < 0) x += size;
                    return x < least ? least : x > most ? most : x;
                };
                from = begin_mask >> i & 1 ? (stride > 0 ? least : most) : bounded(from);
                to = end_mask >> i & 1 ? (stride > 0 ? most : least) : bounded(to);
                int64_t length = stride > 0 ? (to - from + stride - 1) / stride : (from - to - stride - 1) / -stride;
                if (length < 0) length = 0;
                result.begin[at] = from;
                result.stride[at] = stride;
                result.sizes.add(length);
                result.result.add(length);
            }
            at++;
        }
        if (!ellipsis || at < shape.rank) whole(shape.rank - at);
        return result;
    }
};

template <class T> struct StridedSlice : Strided {
    using Strided::Strided;
    void compute(const Call &call) const override {
        Tensor in = call.input(0);
        copy_part<T>(call, in,
                     part(in.shape, call.input(1).integers(), call.input(2).integers(), call.input(3).integers()));
    }
};

template <class T> struct StridedSliceGrad : Strided {
    using Strided::Strided;
    void compute(const Call &call) const override {
        Shape shape;
        for (int64_t size : call.input(0).integers()) shape.add(size);
        Part cut = part(shape, call.input(1).integers(), call.input(2).integers(), call.input(3).integers());
        Tensor gradient = call.input(4), out = call.output(0, gradient.type, shape);
        if (gradient.count() != cut.result.count())
            invalid("shape of dy was %s instead of %s", join({&gradient.shape}).c_str(), join({&cut.result}).c_str());
        if (out.count() == 0) return;
        call.run(out.bytes() + 2 * gradient.bytes(), [&] {
            memset(out.data<char>(), 0, out.bytes());
            if (gradient.count()) scatter_loops(cut.loops(), gradient.data<T>(), out.data<T>() + cut.offset());
        });
    }
};

/* --- growing ---------------------------------------------------------------------------------------- */

template <class T> void pad_with(const Call &call, T value) {
    Tensor in = call.input(0);
    std::vector<int64_t> paddings = call.input(1).integers();
    int rank = in.shape.rank;
    if ((int)paddings.size() != 2 * rank)
        invalid("The first dimension of paddings must be the rank of inputs %d", rank);
    Part inside;
    for (int i = 0; i < rank; i++) {
        int64_t before = paddings[(size_t)i * 2], after = paddings[(size_t)i * 2 + 1];
        if (before < 0 || after < 0) invalid("Paddings must be non-negative: %lld %lld", (long long)before, (long long)after);
        inside.shape.add(before + in.shape[i] + after);
        inside.begin[i] = before;
        inside.stride[i] = 1;
        inside.sizes.add(in.shape[i]);
    }
    Tensor out = call.output(0, in.type, inside.shape);
    int64_t count = out.count();
    T *z = out.data<T>();
    call.run(2 * out.bytes(), [&] {
        for (int64_t i = 0; i < count; i++) z[i] = value;
        if (in.count()) scatter_loops(inside.loops(), in.data<T>(), z + inside.offset());
    });
}

template <class T> void pad(const Call &call) { pad_with<T>(call, T(0)); }
template <class T> void pad_v2(const Call &call) { pad_with<T>(call, *call.input(2).data<T>()); }

template <class T> void tile(const Call &call) {
    Tensor in = call.input(0);
    std::vector<int64_t> multiples = call.input(1).integers();
    if ((int)multiples.size() != in.shape.rank)
        invalid("Expected multiples argument to be a vector of length %d but got length %zu", in.shape.rank,
                multiples.size());
    Shape shape;
    Loops<1> loops;
    for (int i = 0; i < in.shape.rank; i++) {
        if (multiples[(size_t)i] < 0) invalid("Expected multiples[%d] >= 0", i);
        shape.add(in.shape[i] * multiples[(size_t)i]);
        loops.add(multiples[(size_t)i], {0});
        loops.add(in.shape[i], {in.shape.step(i)});
    }
    Tensor out = call.output(0, in.type, shape);
    if (out.count() == 0) return;
    call.run(in.bytes() + out.bytes(), [&] { gather_loops(loops, in.data<T>(), out.data<T>()); });
}

template <class T> void broadcast_to(const Call &call) {
    Tensor in = call.input(0);
    Shape shape;
    for (int64_t size : call.input(1).integers()) shape.add(size);
    if (!(broadcast_shape({&shape, &in.shape}) == shape))
        invalid("Incompatible shapes: %s", join({&in.shape, &shape}).c_str());
    Tensor out = call.output(0, in.type, shape);
    if (out.count() == 0) return;
    Loops<1> loops = broadcast_loops<1>(shape, {&in.shape});
    call.run(in.bytes() + out.bytes(), [&] { gather_loops(loops, in.data<T>(), out.data<T>()); });
}

template <class T> void reverse(const Call &call) {
    Tensor in = call.input(0);
    Part part;
    part.shape = part.sizes = part.result = in.shape;
    for (int i = 0; i < in.shape.rank; i++) {
        part.begin[i] = 0;
        part.stride[i] = 1;
    }
    for (int64_t axis : call.input(1).integers()) {
        int i = (int)dimension(axis, in.shape.rank);
        part.begin[i] = in.shape[i] - 1;
        part.stride[i] = -1;
    }
    copy_part<T>(call, in, part);
}

/* --- by index --------------------------------------------------------------------------------------- */

/* As on a GPU, an index out of range is not an error: it yields zeros. */
template <class Index> struct Gather : Kernel {
    int64_t batch_dims;
    explicit Gather(const Attributes &attributes) : batch_dims(attributes.integer("batch_dims")) {}
    void compute(const Call &call) const override {
        Tensor params = call.input(0), indices = call.input(1);
        int axis = (int)dimension(call.input(2).integer(), params.shape.rank);
        int batch = (int)(batch_dims < 0 ? batch_dims + indices.shape.rank : batch_dims);
        if (batch < 0 || batch > indices.shape.rank || batch > axis)
            invalid("batch_dims (%d) must be less than or equal to axis (%d)", batch, axis);
        for (int i = 0; i < batch; i++)
            if (params.shape[i] != indices.shape[i])
                invalid("params.shape[%d]: %lld should be equal to indices.shape[%d]: %lld", i,
                        (long long)params.shape[i], i, (long long)indices.shape[i]);
        Shape shape;
        for (int i = 0; i < axis; i++) shape.add(params.shape[i]);
        for (int i = batch; i < indices.shape.rank; i++) shape.add(indices.shape[i]);
        for (int i = axis + 1; i < params.shape.rank; i++) shape.add(params.shape[i]);
        Tensor out = call.output(0, params.type, shape);
        if (out.count() == 0) return;
        int64_t batches = params.shape.count(0, batch), between = params.shape.count(batch, axis);
        int64_t size = params.shape[axis], wanted = indices.shape.count(batch, indices.shape.rank);
        size_t row = (size_t)params.shape.count(axis + 1, params.shape.rank) * type_bytes(params.type);
        const Index *index = indices.data<Index>();
        call.run(2 * out.bytes() + indices.bytes(), [&] {
            char *to = out.data<char>();
            const char *from = params.data<char>();
            for (int64_t b = 0; b < batches; b++)
                for (int64_t o = 0; o < between; o++, from += (size_t)size * row)
                    for (int64_t i = 0; i < wanted; i++, to += row) {
                        int64_t at = (int64_t)index[b * wanted + i];
                        if (at >= 0 && at < size)
                            memcpy(to, from + (size_t)at * row, row);
                        else
                            memset(to, 0, row);
                    }
        });
    }
};

template <class T, class Index> struct OneHot : Kernel {
    int64_t axis;
    explicit OneHot(const Attributes &attributes) : axis(attributes.integer("axis")) {}
    void compute(const Call &call) const override {
        Tensor indices = call.input(0), on = call.input(2), off = call.input(3);
        int64_t depth = call.input(1).integer();
        int at = (int)(axis == -1 ? indices.shape.rank : axis);
        if (at < 0 || at > indices.shape.rank || depth < 0) invalid("Expected axis to be -1 or between [0, %d]", indices.shape.rank);
        Shape shape;
        for (int i = 0; i <= indices.shape.rank; i++)
            shape.add(i < at ? indices.shape[i] : i == at ? depth : indices.shape[i - 1]);
        Tensor out = call.output(0, on.type, shape);
        if (out.count() == 0) return;
        int64_t before = shape.count(0, at), after = shape.count(at + 1, shape.rank);
        T set = *on.data<T>(), clear = *off.data<T>(), *z = out.data<T>();
        const Index *index = indices.data<Index>();
        call.run(out.bytes() + indices.bytes(), [&] {
            for (int64_t b = 0; b < before; b++)
                for (int64_t d = 0; d < depth; d++)
                    for (int64_t a = 0; a < after; a++)
                        *z++ = (int64_t)index[b * after + a] == d ? set : clear;
        });
    }
};

/* --- registration ----------------------------------------------------------------------------------- */

/* The types that CUDA has a kernel for in every one of these ops, with an unsigned type of their size. */
template <class T> void register_type(int type) {
    add<transpose<T>>("Transpose", {{"T", type}}, {"perm"});
    add<concat_v2>("ConcatV2", {{"T", type}}, {"axis"});
    add<Pack>("Pack", {{"T", type}});
    add<StridedSlice<T>>("StridedSlice", {{"T", type}}, {"begin", "end", "strides"});
    add<StridedSliceGrad<T>>("StridedSliceGrad", {{"T", type}}, {"shape", "begin", "end", "strides"});
    add<slice<T>>("Slice", {{"T", type}}, {"begin", "size"});
    add<broadcast_to<T>>("BroadcastTo", {{"T", type}}, {"shape"});
    for (int index : {TF_INT32, TF_INT64}) add<tile<T>>("Tile", {{"T", type}, {"Tmultiples", index}}, {"multiples"});
    add<Gather<int32_t>>("GatherV2", {{"Tparams", type}, {"Tindices", TF_INT32}}, {"axis"});
    add<Gather<int64_t>>("GatherV2", {{"Tparams", type}, {"Tindices", TF_INT64}}, {"axis"});
}

template <class T> void register_real(int type) {
    register_type<T>(type);
    add<concat>("Concat", {{"T", type}}, {"concat_dim"});
    add<split>("Split", {{"T", type}}, {"split_dim"});
    for (int length : {TF_INT32, TF_INT64})
        add<split_v>("SplitV", {{"T", type}, {"Tlen", length}}, {"size_splits", "split_dim"});
    add<Unpack>("Unpack", {{"T", type}});
    for (int index : {TF_INT32, TF_INT64}) {
        add<pad<T>>("Pad", {{"T", type}, {"Tpaddings", index}}, {"paddings"});
        add<pad_v2<T>>("PadV2", {{"T", type}, {"Tpaddings", index}}, {"paddings", "constant_values"});
        add<reverse<T>>("ReverseV2", {{"T", type}, {"Tidx", index}}, {"axis"});
    }
}

template <class T> void register_one_hot() {
    add<OneHot<T, uint8_t>>("OneHot", {{"T", type_of<T>()}, {"TI", TF_UINT8}}, {"depth"});
    add<OneHot<T, int32_t>>("OneHot", {{"T", type_of<T>()}, {"TI", TF_INT32}}, {"depth"});
    add<OneHot<T, int64_t>>("OneHot", {{"T", type_of<T>()}, {"TI", TF_INT64}}, {"depth"});
}

}  // namespace

void register_move() {
    static const int numbers[] = {TF_FLOAT, TF_DOUBLE, TF_HALF,  TF_BFLOAT16, TF_INT8,   TF_INT16,
                                  TF_INT32, TF_INT64,  TF_UINT8, TF_UINT16,   TF_UINT32, TF_UINT64};
    for (int from : numbers)
        for (int to : numbers) add<bitcast>("Bitcast", {{"T", from}, {"type", to}});
    register_real<uint32_t>(TF_FLOAT);
    register_real<uint64_t>(TF_DOUBLE);
    register_type<uint64_t>(TF_INT64);
    register_type<uint8_t>(TF_BOOL);
    register_one_hot<float>();
    register_one_hot<double>();
    register_one_hot<int64_t>();
    /* Of int32, what CUDA computes on the device, and what it does in host memory: small sizes and indices. */
    add<transpose<uint32_t>>("Transpose", {{"T", TF_INT32}}, {"perm"});
    add<Pack>("Pack", {{"T", TF_INT32}}, {"values", "output"});
    add<StridedSlice<uint32_t>>("StridedSlice", {{"T", TF_INT32}}, {"input", "begin", "end", "strides", "output"});
    for (int length : {TF_INT32, TF_INT64})
        add<split_v>("SplitV", {{"T", TF_INT32}, {"Tlen", length}}, {"size_splits", "split_dim", "value", "output"});
    add<broadcast_to<uint32_t>>("BroadcastTo", {{"T", TF_INT32}}, {"input", "shape", "output"});
    add<Gather<int32_t>>("GatherV2", {{"Tparams", TF_INT32}, {"Tindices", TF_INT32}}, {"axis"});
    add<Gather<int64_t>>("GatherV2", {{"Tparams", TF_INT32}, {"Tindices", TF_INT64}}, {"axis"});
}

}  // namespace gpuwatch
