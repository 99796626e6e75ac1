/* Ops that move elements, where the CPU's kernels would not do. */
#include "plugin_kernel.h"

namespace gpuwatch {

namespace {

int64_t dimension(int64_t axis, int rank) {
    if (axis < -rank || axis >= rank)
        invalid("Expected dimension in the range [%d, %d), but got %lld", -rank, rank, (long long)axis);
    return axis < 0 ? axis + rank : axis;
}

/* The same bytes as values of another type: a smaller one adds a dimension, a larger one takes the last.
 * TensorFlow's own kernel comes by the C API, past plugin_rename.c. */
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
    if (out.count()) memcpy(out.data<char>(), in.data<char>(), out.bytes());
}

/* Writes the elements of one place of the dimensions before `axis`; returns how many bytes. */
size_t tile_from(const Tensor &in, const std::vector<int64_t> &multiples, int axis, const char *from, char *to) {
    size_t element = type_bytes(in.type), once = 0;
    if (axis == in.shape.rank) return (size_t)(memcpy(to, from, element), element);
    size_t step = (size_t)in.shape.step(axis) * element;
    for (int64_t i = 0; i < in.shape[axis]; i++)
        once += tile_from(in, multiples, axis + 1, from + (size_t)i * step, to + once);
    for (int64_t i = 1; i < multiples[(size_t)axis]; i++) memcpy(to + (size_t)i * once, to, once);
    return once * (size_t)multiples[(size_t)axis];
}

/* The CPU's kernel takes any type, CUDA's a few. */
void tile(const Call &call) {
    Tensor in = call.input(0);
    std::vector<int64_t> multiples = call.input(1).integers();
    if ((int)multiples.size() != in.shape.rank)
        invalid("Expected multiples argument to be a vector of length %d but got length %zu", in.shape.rank,
                multiples.size());
    Shape shape;
    for (int i = 0; i < in.shape.rank; i++) {
        if (multiples[(size_t)i] < 0) invalid("Expected multiples[%d] >= 0", i);
        shape.add(in.shape[i] * multiples[(size_t)i]);
    }
    Tensor out = call.output(0, in.type, shape);
    if (out.count()) tile_from(in, multiples, 0, in.data<char>(), out.data<char>());
}

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
    }
};

}  // namespace

void register_move() {
    static const int numbers[] = {TF_FLOAT, TF_DOUBLE, TF_HALF,  TF_BFLOAT16, TF_INT8,   TF_INT16,
                                  TF_INT32, TF_INT64,  TF_UINT8, TF_UINT16,   TF_UINT32, TF_UINT64};
    for (int from : numbers)
        for (int to : numbers) add<bitcast>("Bitcast", {{"T", from}, {"type", to}});
    for (int type : {TF_FLOAT, TF_DOUBLE, TF_INT64, TF_BOOL})
        for (int index : {TF_INT32, TF_INT64}) add<tile>("Tile", {{"T", type}, {"Tmultiples", index}}, {"multiples"});
    for (int type : {TF_FLOAT, TF_DOUBLE, TF_INT32, TF_INT64, TF_BOOL}) {
        add<Gather<int32_t>>("GatherV2", {{"Tparams", type}, {"Tindices", TF_INT32}}, {"axis"});
        add<Gather<int64_t>>("GatherV2", {{"Tparams", type}, {"Tindices", TF_INT64}}, {"axis"});
    }
}

}  // namespace gpuwatch
