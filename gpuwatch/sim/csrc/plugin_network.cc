/* Layers of networks that differ from the CPU's: convolution and pooling also with the channels first, and a loss
 * that takes a label out of range. */
#include <math.h>

#include <limits>
#include <memory>
#include <mutex>
#include <new>

#include "plugin_kernel.h"

extern "C" {
#include "gemm.h"
}

namespace gpuwatch {

namespace {

/* c = op(a) op(b), or added to c; row-major, the strides are from row to row. */
template <class T>
void multiply(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const T *a, int64_t stride_a,
              const T *b, int64_t stride_b, T *c, int64_t stride_c, bool accumulate) {
    constexpr gws_type type = sizeof(T) == 8 ? GWS_F64 : GWS_F32;
    /* Row-major matrices are the transposes of column-major ones: C' = op(B)' op(A)'. */
    bool done = gws_gemm(transpose_b, transpose_a, (size_t)n, (size_t)m, (size_t)k, 1.0, type, b, (size_t)stride_b, a,
                         (size_t)stride_a, accumulate ? 1.0 : 0.0, type, c, (size_t)stride_c);
    if (!done) throw Error{TF_RESOURCE_EXHAUSTED, "out of host memory in a matrix product"};
}

/* Work space of kernels in host memory, kept between calls: faulting in fresh pages would cost more than many
 * layers. */
class KeptMemory {
  public:
    struct Block {
        void *memory;
        size_t bytes;
    };
    static Block take(size_t bytes) {
        Block block = {nullptr, 0};
        {
            std::lock_guard<std::mutex> lock(mutex_);
            for (Block &kept : kept_)
                if (kept.bytes >= bytes && (!block.memory || kept.bytes < block.bytes)) std::swap(block, kept);
        }
        if (!block.memory) {
            block.bytes = (bytes + 127) / 64 * 64;
            block.memory = aligned_alloc(64, block.bytes);
            if (!block.memory) throw std::bad_alloc();
        }
        return block;
    }
    static void give(Block block) {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            Block *least = &kept_[0];
            for (Block &kept : kept_)
                if (kept.bytes < least->bytes) least = &kept;
            if (block.bytes <= KEPT_BYTES && block.bytes > least->bytes) std::swap(block, *least);
        }
        free(block.memory);
    }

  private:
    static constexpr size_t KEPT_BYTES = 16 << 20;
    static std::mutex mutex_;
    static Block kept_[8];
};

std::mutex KeptMemory::mutex_;
KeptMemory::Block KeptMemory::kept_[8];

template <class T> class Scratch {
  public:
    explicit Scratch(int64_t count) : block_(KeptMemory::take((size_t)count * sizeof(T))) {}
    ~Scratch() { KeptMemory::give(block_); }
    Scratch(const Scratch &) = delete;
    T *get() const { return (T *)block_.memory; }

  private:
    KeptMemory::Block block_;
};

/* --- what TensorFlow's graph optimizer fuses behind a product or a convolution --------------------------- */

/* BiasAdd or FusedBatchNorm (as in inference), and an activation. */
template <class T> struct Epilogue {
    std::vector<std::string> steps;
    T epsilon = 0, alpha = 0;

    Epilogue() = default;
    explicit Epilogue(const Attributes &attributes)
        : steps(attributes.texts("fused_ops")), epsilon(T(attributes.real("epsilon"))),
          alpha(T(attributes.real("leakyrelu_alpha"))) {
        static const char *const known[] = {"BiasAdd", "FusedBatchNorm", "Relu",    "Relu6",
                                            "Elu",     "LeakyRelu",      "Sigmoid", "Tanh"};
        for (const std::string &step : steps) {
            bool found = false;
            for (const char *name : known) found = found || step == name;
            if (!found) throw Error{TF_UNIMPLEMENTED, "gpuwatch's simulated GPUs do not fuse " + step};
        }
    }

    /* Number of additional inputs. */
    int inputs() const {
        int count = 0;
        for (const std::string &step : steps) count += step == "BiasAdd" ? 1 : step == "FusedBatchNorm" ? 4 : 0;
        return count;
    }

    template <class F> static void each(T *y, int64_t count, F function) {
        for (int64_t i = 0; i < count; i++) y[i] = function(y[i]);
    }

    /* y has the channels last; args are the further inputs. */
    void apply(T *y, int64_t count, int64_t channels, const std::vector<Tensor> &args) const {
        size_t arg = 0;
        for (const std::string &step : steps) {
            if (step == "BiasAdd" || step == "FusedBatchNorm") {
                bool norm = step == "FusedBatchNorm";
                Scratch<T> factor(channels), term(channels);
                const T *first = args[arg].data<T>();
                for (int64_t c = 0; c < channels; c++) {
                    factor.get()[c] = norm ? first[c] / T(sqrt(args[arg + 3].data<T>()[c] + epsilon)) : T(1);
                    term.get()[c] = norm ? args[arg + 1].data<T>()[c] - args[arg + 2].data<T>()[c] * factor.get()[c]
                                         : first[c];
                }
                arg += norm ? 4 : 1;
                for (int64_t i = 0; i < count; i += channels)
                    for (int64_t c = 0; c < channels; c++) y[i + c] = y[i + c] * factor.get()[c] + term.get()[c];
            } else if (step == "Relu") {
                each(y, count, [](T x) { return x < 0 ? T(0) : x; });
            } else if (step == "Relu6") {
                each(y, count, [](T x) { return x < 0 ? T(0) : x > 6 ? T(6) : x; });
            } else if (step == "Elu") {
                each(y, count, [](T x) { return x < 0 ? T(expm1(x)) : x; });
            } else if (step == "LeakyRelu") {
                each(y, count, [this](T x) { return x > 0 ? x : alpha * x; });
            } else if (step == "Sigmoid") {
                each(y, count, [](T x) { return 1 / (1 + exp(-x)); });
            } else {
                each(y, count, [](T x) { return tanh(x); });
            }
        }
    }
};

std::vector<Tensor> inputs_from(const Call &call, int first, int count) {
    std::vector<Tensor> tensors;
    for (int i = 0; i < count; i++) tensors.push_back(call.input(first + i));
    return tensors;
}

void check_channels(const std::vector<Tensor> &args, int64_t channels) {
    for (const Tensor &arg : args)
        if (arg.count() != channels) invalid("bias depth must be equal to out depth %lld", (long long)channels);
}

/* --- loss ------------------------------------------------------------------------------------------- */

template <class T> T greatest(const T *x, int64_t count) {
    T most = -std::numeric_limits<T>::infinity();
#pragma omp simd reduction(max : most)
    for (int64_t i = 0; i < count; i++) most = x[i] > most ? x[i] : most;
    return most;
}

template <class T> T sum(const T *x, int64_t count) {
    T total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < count; i++) total += x[i];
    return total;
}

/* The labels are indices; one that is out of range makes NaN, as on a GPU. */
template <class T, class Index> void sparse_cross_entropy(const Call &call) {
    Tensor logits = call.input(0), labels = call.input(1);
    if (logits.shape.rank != 2) invalid("logits must be 2-D, but got shape %s", join({&logits.shape}).c_str());
    if (labels.shape.rank != 1 || labels.shape[0] != logits.shape[0])
        invalid("logits and labels must have the same first dimension, got logits shape %s and labels shape %s",
                join({&logits.shape}).c_str(), join({&labels.shape}).c_str());
    int64_t rows = logits.shape[0], classes = logits.shape[1];
    Tensor loss = call.output(0, logits.type, {rows}), gradient = call.output(1, logits.type, logits.shape);
    for (int64_t row = 0; row < rows; row++) {
        const T *x = logits.data<T>() + row * classes;
        T *g = gradient.data<T>() + row * classes;
        int64_t label = (int64_t)labels.data<Index>()[row];
        if (label < 0 || label >= classes) {
            loss.data<T>()[row] = std::numeric_limits<T>::quiet_NaN();
            for (int64_t i = 0; i < classes; i++) g[i] = std::numeric_limits<T>::quiet_NaN();
            continue;
        }
        T most = greatest(x, classes);
        for (int64_t i = 0; i < classes; i++) g[i] = exp(x[i] - most);
        T total = sum(g, classes), scale = T(1) / total;
        for (int64_t i = 0; i < classes; i++) g[i] *= scale;
        loss.data<T>()[row] = T(log(total)) - (x[label] - most);
        g[label] -= T(1);
    }
}

/* --- images ----------------------------------------------------------------------------------------- */

/* Kernels compute with the channels last; images with the channels first are turned around for them. */
template <class T> class Images {
  public:
    Images(const Tensor &tensor, bool channels_first, bool is_output)
        : shape(tensor.shape), data_(tensor.data<T>()) {
        if (!channels_first) return;
        shape = Shape{tensor.shape[0], tensor.shape[2], tensor.shape[3], tensor.shape[1]};
        turned_ = std::make_unique<Scratch<T>>(tensor.count());
        if (!is_output)
            turn(tensor.data<T>(), turned_->get(), shape[3], shape[1] * shape[2]);
    }
    T *data() const { return turned_ ? turned_->get() : data_; }
    void finish() const { /* of an output */
        if (turned_) turn(turned_->get(), data_, shape[1] * shape[2], shape[3]);
    }

    Shape shape; /* batch, height, width, channels */

  private:
    void turn(const T *from, T *to, int64_t rows, int64_t columns) const {
        for (int64_t n = 0; n < shape[0]; n++, from += rows * columns, to += rows * columns)
            for (int64_t j = 0; j < columns; j++)
                for (int64_t i = 0; i < rows; i++) to[j * rows + i] = from[i * columns + j];
    }
    T *data_;
    std::unique_ptr<Scratch<T>> turned_;
};

/* How a window moves over the height (0) and the width (1). */
struct Window {
    int64_t in[2], size[2], stride[2], dilation[2], before[2], out[2];
};

struct Windowed : Kernel {
    bool channels_first;
    std::string padding;
    std::vector<int64_t> strides, paddings;

    explicit Windowed(const Attributes &attributes, bool has_explicit)
        : channels_first(attributes.text("data_format") == "NCHW"), padding(attributes.text("padding")),
          strides(attributes.integers("strides")) {
        if (strides.size() != 4) invalid("Sliding window strides field must specify 4 dimensions");
        if (strides[0] != 1 || strides[channels_first ? 1 : 3] != 1)
            invalid("strides in the batch and depth dimensions must be 1");
        if (padding == "EXPLICIT" && has_explicit) paddings = attributes.integers("explicit_paddings");
    }

    int64_t of_height(const std::vector<int64_t> &values, int i) const {
        return values[(size_t)(i + (channels_first ? 2 : 1))];
    }

    Window window(const Shape &image, int64_t height, int64_t width, const std::vector<int64_t> &dilations) const {
        Window w;
        for (int i = 0; i < 2; i++) {
            w.in[i] = image[1 + i];
            w.size[i] = i ? width : height;
            w.stride[i] = of_height(strides, i);
            w.dilation[i] = dilations.empty() ? 1 : of_height(dilations, i);
            int64_t reach = (w.size[i] - 1) * w.dilation[i] + 1;
            if (padding == "SAME") {
                w.out[i] = (w.in[i] + w.stride[i] - 1) / w.stride[i];
                int64_t needed = (w.out[i] - 1) * w.stride[i] + reach - w.in[i];
                w.before[i] = needed > 0 ? needed / 2 : 0;
            } else {
                int64_t after = 0;
                w.before[i] = 0;
                if (!paddings.empty()) {
                    size_t at = (size_t)(2 * (i + (channels_first ? 2 : 1)));
                    w.before[i] = paddings[at];
                    after = paddings[at + 1];
                }
                w.out[i] = (w.in[i] + w.before[i] + after - reach) / w.stride[i] + 1;
                if (w.in[i] + w.before[i] + after < reach) w.out[i] = 0;
            }
        }
        return w;
    }

    Shape image_shape(int64_t batch, int64_t height, int64_t width, int64_t channels) const {
        return channels_first ? Shape{batch, channels, height, width} : Shape{batch, height, width, channels};
    }
    Shape channels_last(const Shape &shape) const {
        if (shape.rank != 4) invalid("input must be 4-dimensional: %s", join({&shape}).c_str());
        return channels_first ? Shape{shape[0], shape[2], shape[3], shape[1]} : shape;
    }
};

/* --- convolution ------------------------------------------------------------------------------------ */

/* As a matrix product: each row of a matrix holds what one position of the window sees. */
template <class T> struct Convolution : Windowed {
    std::vector<int64_t> dilations;

    explicit Convolution(const Attributes &attributes)
        : Windowed(attributes, true), dilations(attributes.integers("dilations")) {}

    struct Plan {
        Window w;
        int64_t batch, channels, results, groups; /* channels and results of one group */
        int64_t row() const { return w.size[0] * w.size[1] * channels; }
        int64_t rows() const { return w.out[0] * w.out[1]; }
        bool is_product() const { /* each row is a pixel as it lies there */
            return groups == 1 && w.size[0] == 1 && w.size[1] == 1 && w.stride[0] == 1 && w.stride[1] == 1 &&
                   !w.before[0] && !w.before[1] && w.out[0] == w.in[0] && w.out[1] == w.in[1];
        }
    };

    Plan plan(const Shape &image, const Shape &filter) const { /* channels last; height, width, in, out */
        if (filter.rank != 4) invalid("filter must be 4-dimensional: %s", join({&filter}).c_str());
        if (filter[2] == 0 || image[3] % filter[2] || filter[3] % (image[3] / filter[2]))
            invalid("input depth must be evenly divisible by filter depth: %lld vs %lld", (long long)image[3],
                    (long long)filter[2]);
        Plan p;
        p.w = window(image, filter[0], filter[1], dilations);
        p.batch = image[0];
        p.groups = image[3] / filter[2];
        p.channels = filter[2];
        p.results = filter[3] / p.groups;
        return p;
    }

    /* The rows of the matrix for one image, or the way back: what they hold is added to the image. */
    template <bool back> static void unfold(const Plan &p, T *image, int64_t group, T *rows) {
        int64_t all = p.channels * p.groups, line = p.w.size[1] * p.channels;
        bool together = p.groups == 1 && p.w.dilation[1] == 1; /* a line of the window is one piece */
        for (int64_t y = 0; y < p.w.out[0]; y++)
            for (int64_t x = 0; x < p.w.out[1]; x++)
                for (int64_t i = 0; i < p.w.size[0]; i++) {
                    int64_t from_y = y * p.w.stride[0] - p.w.before[0] + i * p.w.dilation[0];
                    bool there = from_y >= 0 && from_y < p.w.in[0];
                    int64_t left = x * p.w.stride[1] - p.w.before[1];
                    if (there && together && left >= 0 && left + p.w.size[1] <= p.w.in[1]) {
                        T *pixels = image + (from_y * p.w.in[1] + left) * all;
                        for (int64_t c = 0; c < line; c++)
                            if (back)
                                pixels[c] += rows[c];
                            else
                                rows[c] = pixels[c];
                        rows += line;
                        continue;
                    }
                    for (int64_t j = 0; j < p.w.size[1]; j++, rows += p.channels) {
                        int64_t from_x = x * p.w.stride[1] - p.w.before[1] + j * p.w.dilation[1];
                        if (!there || from_x < 0 || from_x >= p.w.in[1]) {
                            if (!back) memset(rows, 0, (size_t)p.channels * sizeof(T));
                            continue;
                        }
                        T *pixel = image + (from_y * p.w.in[1] + from_x) * all + group * p.channels;
                        if (back)
                            for (int64_t c = 0; c < p.channels; c++) pixel[c] += rows[c];
                        else
                            for (int64_t c = 0; c < p.channels; c++) rows[c] = pixel[c];
                    }
                }
    }

    /* How many images are unfolded at once: enough to make the product worth while, within the caches. */
    static int64_t images_at_once(const Plan &p) {
        int64_t one = p.rows() * p.row(), fits = one ? (1 << 19) / one : 1;
        return fits < 1 ? 1 : fits > p.batch ? p.batch : fits;
    }

    enum Direction { FORWARD, TO_IMAGE, TO_FILTER };

    template <Direction direction> static void run(const Plan &p, T *image, T *filter, T *result) {
        int64_t pixels = p.w.in[0] * p.w.in[1] * p.channels * p.groups, all = p.results * p.groups;
        if (direction == TO_IMAGE && !p.is_product()) memset(image, 0, (size_t)(p.batch * pixels) * sizeof(T));
        if (direction == TO_FILTER) memset(filter, 0, (size_t)(p.row() * all) * sizeof(T));
        int64_t step = images_at_once(p);
        Scratch<T> scratch(p.is_product() ? 1 : step * p.rows() * p.row());
        for (int64_t n = 0; n < p.batch; n += step) {
            int64_t images = p.batch - n < step ? p.batch - n : step, count = images * p.rows();
            for (int64_t group = 0; group < p.groups; group++) {
                T *rows = p.is_product() ? image + n * pixels : scratch.get();
                T *weights = filter + group * p.results, *out = result + n * p.rows() * all + group * p.results;
                if (direction != TO_IMAGE && !p.is_product())
                    for (int64_t i = 0; i < images; i++)
                        unfold<false>(p, image + (n + i) * pixels, group, rows + i * p.rows() * p.row());
                if (direction == FORWARD)
                    multiply(false, false, count, p.results, p.row(), rows, p.row(), weights, all, out, all, false);
                if (direction == TO_FILTER)
                    multiply(true, false, p.row(), p.results, count, rows, p.row(), out, all, weights, all, true);
                if (direction == TO_IMAGE) {
                    multiply(false, true, count, p.row(), p.results, out, all, weights, all, rows, p.row(), false);
                    for (int64_t i = 0; i < images && !p.is_product(); i++)
                        unfold<true>(p, image + (n + i) * pixels, group, rows + i * p.rows() * p.row());
                }
            }
        }
    }
};

template <class T> struct Conv2D : Convolution<T> {
    using Base = Convolution<T>;
    Epilogue<T> epilogue; /* without steps but in _FusedConv2D */
    explicit Conv2D(const Attributes &attributes) : Base(attributes) {}
    Conv2D(const Attributes &attributes, const Epilogue<T> &fused) : Base(attributes), epilogue(fused) {}
    void compute(const Call &call) const override {
        Tensor in = call.input(0), filter = call.input(1);
        auto plan = this->plan(this->channels_last(in.shape), filter.shape);
        std::vector<Tensor> args = inputs_from(call, 2, epilogue.inputs());
        check_channels(args, filter.shape[3]);
        if (plan.w.out[0] <= 0 || plan.w.out[1] <= 0)
            invalid("Computed output size would be negative: input %s", join({&in.shape, &filter.shape}).c_str());
        Tensor out = call.output(0, in.type,
                                 this->image_shape(plan.batch, plan.w.out[0], plan.w.out[1], filter.shape[3]));
        if (out.count() == 0) return;
        Images<T> images(in, this->channels_first, false), results(out, this->channels_first, true);
        Base::template run<Base::FORWARD>(plan, images.data(), filter.data<T>(), results.data());
        epilogue.apply(results.data(), out.count(), filter.shape[3], args);
        results.finish();
    }
};

template <class T> struct FusedConv2D : Conv2D<T> {
    explicit FusedConv2D(const Attributes &attributes) : Conv2D<T>(attributes, Epilogue<T>(attributes)) {
        if (attributes.text("filter_format") != "HWIO")
            throw Error{TF_UNIMPLEMENTED, "gpuwatch's simulated GPUs take convolution filters in HWIO"};
    }
};

Shape shape_from(const Tensor &sizes) {
    Shape shape;
    for (int64_t size : sizes.integers()) shape.add(size);
    return shape;
}

template <class T> struct Conv2DBackpropInput : Convolution<T> {
    using Base = Convolution<T>;
    using Base::Base;
    void compute(const Call &call) const override {
        Tensor filter = call.input(1), gradient = call.input(2);
        Shape shape = shape_from(call.input(0));
        if (shape.rank == 2) { /* height and width alone */
            Shape whole = this->channels_last(gradient.shape);
            shape = this->image_shape(whole[0], shape[0], shape[1], filter.shape[2]);
        }
        auto plan = this->plan(this->channels_last(shape), filter.shape);
        check(plan, this->channels_last(gradient.shape));
        Tensor out = call.output(0, gradient.type, shape);
        if (out.count() == 0) return;
        Images<T> images(out, this->channels_first, true), results(gradient, this->channels_first, false);
        Base::template run<Base::TO_IMAGE>(plan, images.data(), filter.data<T>(), results.data());
        images.finish();
    }
    static void check(const typename Base::Plan &plan, const Shape &gradient) {
        Shape expected{plan.batch, plan.w.out[0], plan.w.out[1], plan.results * plan.groups};
        if (!(gradient == expected))
            invalid("Size of out_backprop doesn't match computed: actual = %s",
                    join({&gradient, &expected}).c_str());
    }
};

template <class T> struct Conv2DBackpropFilter : Convolution<T> {
    using Base = Convolution<T>;
    using Base::Base;
    void compute(const Call &call) const override {
        Tensor in = call.input(0), gradient = call.input(2);
        Shape shape = shape_from(call.input(1));
        auto plan = this->plan(this->channels_last(in.shape), shape);
        Conv2DBackpropInput<T>::check(plan, this->channels_last(gradient.shape));
        Tensor out = call.output(0, in.type, shape);
        if (out.count() == 0) return;
        Images<T> images(in, this->channels_first, false), results(gradient, this->channels_first, false);
        Base::template run<Base::TO_FILTER>(plan, images.data(), out.data<T>(), results.data());
    }
};

/* --- pooling ---------------------------------------------------------------------------------------- */

struct Pooling : Windowed {
    std::vector<int64_t> sizes;

    explicit Pooling(const Attributes &attributes) : Windowed(attributes, false), sizes(attributes.integers("ksize")) {
        if (sizes.size() != 4 || sizes[0] != 1 || sizes[channels_first ? 1 : 3] != 1)
            throw Error{TF_UNIMPLEMENTED, "gpuwatch's simulated GPUs pool over height and width"};
        if (padding == "EXPLICIT")
            throw Error{TF_UNIMPLEMENTED, "gpuwatch's simulated GPUs pool without explicit paddings"};
    }
    Window over(const Shape &image) const { return window(image, of_height(sizes, 0), of_height(sizes, 1), {}); }

    /* Calls body(out, in) for each position of the window and each pixel that it sees there. */
    template <class Begin, class Body>
    static void each(const Window &w, int64_t batch, Begin begin, Body body) {
        int64_t out = 0;
        for (int64_t n = 0; n < batch; n++)
            for (int64_t y = 0; y < w.out[0]; y++)
                for (int64_t x = 0; x < w.out[1]; x++, out++) {
                    int64_t top = y * w.stride[0] - w.before[0], left = x * w.stride[1] - w.before[1];
                    int64_t bottom = top + w.size[0], right = left + w.size[1];
                    if (top < 0) top = 0;
                    if (left < 0) left = 0;
                    if (bottom > w.in[0]) bottom = w.in[0];
                    if (right > w.in[1]) right = w.in[1];
                    begin(out, (bottom - top) * (right - left));
                    for (int64_t i = top; i < bottom; i++)
                        for (int64_t j = left; j < right; j++) body(out, (n * w.in[0] + i) * w.in[1] + j);
                }
    }
};

template <class T, bool average> struct Pool : Pooling {
    using Pooling::Pooling;
    void compute(const Call &call) const override {
        Tensor in = call.input(0);
        Shape image = channels_last(in.shape);
        Window w = over(image);
        if (w.out[0] <= 0 || w.out[1] <= 0) invalid("Computed output size would be negative: input %s", join({&in.shape}).c_str());
        Tensor out = call.output(0, in.type, image_shape(image[0], w.out[0], w.out[1], image[3]));
        if (out.count() == 0) return;
        int64_t channels = image[3];
        Images<T> images(in, channels_first, false), results(out, channels_first, true);
        T scale = 1;
        int64_t left = 0;
        each(w, image[0],
             [&](int64_t to, int64_t pixels) {
                 T *y = results.data() + to * channels, first = average ? T(0) : std::numeric_limits<T>::lowest();
                 for (int64_t c = 0; c < channels; c++) y[c] = first;
                 scale = T(1) / T(pixels);
                 left = pixels;
             },
             [&](int64_t to, int64_t from) {
                 T *y = results.data() + to * channels;
                 const T *x = images.data() + from * channels;
                 if (average)
                     for (int64_t c = 0; c < channels; c++) y[c] += x[c];
                 else
                     for (int64_t c = 0; c < channels; c++) y[c] = x[c] > y[c] ? x[c] : y[c];
                 if (--left == 0 && average)
                     for (int64_t c = 0; c < channels; c++) y[c] *= scale;
             });
        results.finish();
    }
};

/* The gradient goes to the first pixel that is the greatest one. */
template <class T> struct MaxPoolGrad : Pooling {
    using Pooling::Pooling;
    void compute(const Call &call) const override {
        Tensor in = call.input(0), gradient = call.input(2), out = call.output(0, in.type, in.shape);
        Shape image = channels_last(in.shape);
        Window w = over(image);
        if (!(channels_last(gradient.shape) == Shape{image[0], w.out[0], w.out[1], image[3]}))
            invalid("Expected grad shape to fit orig_input %s", join({&in.shape, &gradient.shape}).c_str());
        if (out.count() == 0) return;
        int64_t channels = image[3];
        Images<T> images(in, channels_first, false), gradients(gradient, channels_first, false);
        Images<T> results(out, channels_first, true);
        std::vector<T> most((size_t)channels);
        std::vector<int64_t> best((size_t)channels);
        memset(results.data(), 0, out.bytes());
        int64_t left = 0;
        each(w, image[0],
             [&](int64_t, int64_t pixels) {
                 for (int64_t c = 0; c < channels; c++) {
                     most[(size_t)c] = -std::numeric_limits<T>::infinity();
                     best[(size_t)c] = -1;
                 }
                 left = pixels;
             },
             [&](int64_t to, int64_t from) {
                 const T *x = images.data() + from * channels;
                 for (int64_t c = 0; c < channels; c++)
                     if (x[c] > most[(size_t)c] || best[(size_t)c] < 0) {
                         most[(size_t)c] = x[c];
                         best[(size_t)c] = from;
                     }
                 if (--left == 0)
                     for (int64_t c = 0; c < channels; c++)
                         results.data()[best[(size_t)c] * channels + c] += gradients.data()[to * channels + c];
             });
        results.finish();
    }
};

template <class T> struct AvgPoolGrad : Pooling {
    using Pooling::Pooling;
    void compute(const Call &call) const override {
        Tensor gradient = call.input(1);
        Shape shape = shape_from(call.input(0)), image = channels_last(shape);
        Window w = over(image);
        if (!(channels_last(gradient.shape) == Shape{image[0], w.out[0], w.out[1], image[3]}))
            invalid("Expected grad shape to fit orig_input_shape %s", join({&shape, &gradient.shape}).c_str());
        Tensor out = call.output(0, gradient.type, shape);
        if (out.count() == 0) return;
        int64_t channels = image[3];
        Images<T> gradients(gradient, channels_first, false), results(out, channels_first, true);
        memset(results.data(), 0, out.bytes());
        T scale = 1;
        each(w, image[0], [&](int64_t, int64_t pixels) { scale = T(1) / T(pixels); },
             [&](int64_t from, int64_t to) {
                 T *y = results.data() + to * channels;
                 const T *g = gradients.data() + from * channels;
                 for (int64_t c = 0; c < channels; c++) y[c] += scale * g[c];
             });
        results.finish();
    }
};

/* --- registration ----------------------------------------------------------------------------------- */

template <class T> void register_real() {
    constexpr int type = type_of<T>();
    add<Conv2D<T>>("Conv2D", {{"T", type}});
    add<FusedConv2D<T>>("_FusedConv2D", {{"T", type}}, {"host_args"});
    add<Conv2DBackpropInput<T>>("Conv2DBackpropInput", {{"T", type}}, {"input_sizes"});
    add<Conv2DBackpropFilter<T>>("Conv2DBackpropFilter", {{"T", type}}, {"filter_sizes"});
    add<Pool<T, false>>("MaxPool", {{"T", type}});
    add<Pool<T, true>>("AvgPool", {{"T", type}});
    add<MaxPoolGrad<T>>("MaxPoolGrad", {{"T", type}});
    add<AvgPoolGrad<T>>("AvgPoolGrad", {{"T", type}}, {"orig_input_shape"});
}

}  // namespace

void register_network() {
    register_real<float>();
    register_real<double>();
    add<sparse_cross_entropy<float, int32_t>>("SparseSoftmaxCrossEntropyWithLogits",
                                              {{"T", TF_FLOAT}, {"Tlabels", TF_INT32}});
    add<sparse_cross_entropy<float, int64_t>>("SparseSoftmaxCrossEntropyWithLogits",
                                              {{"T", TF_FLOAT}, {"Tlabels", TF_INT64}});
}

}  // namespace gpuwatch
