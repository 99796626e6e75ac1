/* Random numbers: Philox, drawn in the order in which TensorFlow's CPU kernels draw them, so that a stateless
 * op gives the same numbers everywhere. (Salmon et al.: "Parallel Random Numbers: As Easy as 1, 2, 3") */
#include <math.h>

#include <atomic>
#include <random>

#include "plugin_kernel.h"
#include "plugin_math.h"

namespace gpuwatch {

namespace {

struct Philox {
    uint32_t counter[4], key[2];

    void skip(uint64_t count) {
        uint64_t low = counter[0] | (uint64_t)counter[1] << 32, high = counter[2] | (uint64_t)counter[3] << 32;
        uint64_t sum = low + count;
        high += sum < low;
        counter[0] = (uint32_t)sum;
        counter[1] = (uint32_t)(sum >> 32);
        counter[2] = (uint32_t)high;
        counter[3] = (uint32_t)(high >> 32);
    }

    void next(uint32_t out[4]) {
        uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]}, k0 = key[0], k1 = key[1];
        for (int round = 0; round < 10; round++) {
            uint64_t a = 0xd2511f53ull * c[0], b = 0xcd9e8d57ull * c[2];
            uint32_t mixed[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k0, (uint32_t)b, (uint32_t)(a >> 32) ^ c[3] ^ k1,
                                 (uint32_t)a};
            memcpy(c, mixed, sizeof c);
            k0 += 0x9e3779b9;
            k1 += 0xbb67ae85;
        }
        memcpy(out, c, sizeof c);
        skip(1);
    }
};

/* [0, 1) */
float uniform(uint32_t x) { return bits_to_float(127u << 23 | (x & 0x7fffff)) - 1.0f; }

double uniform(uint32_t high, uint32_t low) {
    uint64_t bits = 1023ull << 52 | (uint64_t)(high & 0xfffff) << 32 | low;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value - 1.0;
}

void box_muller(uint32_t x0, uint32_t x1, float *f0, float *f1) {
    float u = uniform(x0), angle = 2.0f * (float)M_PI * uniform(x1);
    float radius = sqrtf(-2.0f * logf(u < 1.0e-7f ? 1.0e-7f : u));
    *f0 = sinf(angle) * radius;
    *f1 = cosf(angle) * radius;
}

struct Uniform {
    static void fill(Philox philox, float *out, int64_t count) {
        for (int64_t i = 0; i < count; i += 4) {
            uint32_t x[4];
            philox.next(x);
            for (int j = 0; j < 4 && i + j < count; j++) out[i + j] = uniform(x[j]);
        }
    }
    static void fill(Philox philox, double *out, int64_t count) {
        for (int64_t i = 0; i < count; i += 2) {
            uint32_t x[4];
            philox.next(x);
            for (int j = 0; j < 2 && i + j < count; j++) out[i + j] = uniform(x[2 * j], x[2 * j + 1]);
        }
    }
};

struct Normal {
    static void fill(Philox philox, float *out, int64_t count) {
        for (int64_t i = 0; i < count; i += 4) {
            uint32_t x[4];
            float f[4];
            philox.next(x);
            box_muller(x[0], x[1], &f[0], &f[1]);
            box_muller(x[2], x[3], &f[2], &f[3]);
            for (int j = 0; j < 4 && i + j < count; j++) out[i + j] = f[j];
        }
    }
};

/* Drawn again until it is within two standard deviations; each group of four has its own 256 draws. */
struct Truncated {
    static void fill(Philox start, float *out, int64_t count) {
        for (int64_t i = 0; i < count; i += 4) {
            Philox philox = start;
            philox.skip((uint64_t)(i / 4) * 256);
            uint32_t x[4];
            int used = 4;
            for (int j = 0; j < 4 && i + j < count;) {
                if (used == 4) {
                    philox.next(x);
                    used = 0;
                }
                float f[2];
                box_muller(x[used], x[used + 1], &f[0], &f[1]);
                used += 2;
                for (float value : f)
                    if (fabsf(value) < 2.0f && j < 4 && i + j < count) out[i + j++] = value;
            }
        }
    }
};

Shape shape_from(const Tensor &sizes) {
    Shape shape;
    for (int64_t size : sizes.integers()) {
        if (size < 0) invalid("shape must not have negative sizes");
        shape.add(size);
    }
    return shape;
}

/* shape, key, counter, algorithm */
template <class T, class F> void stateless(const Call &call) {
    Shape shape = shape_from(call.input(0));
    Tensor key = call.input(1), counter = call.input(2);
    int64_t algorithm = call.input(3).integer();
    if (algorithm != 1 && algorithm != 3)
        throw Error{TF_UNIMPLEMENTED, "gpuwatch's simulated GPUs draw random numbers with Philox alone"};
    if (key.count() != 1 || counter.count() < 2) invalid("key must have 1 element and counter 2");
    Philox philox;
    memcpy(philox.counter, counter.data<char>(), sizeof philox.counter);
    memcpy(philox.key, key.data<char>(), sizeof philox.key);
    Tensor out = call.output(0, type_of<T>(), shape);
    call.run(out.bytes(), [&] { F::fill(philox, out.data<T>(), out.count()); });
}

/* Each run draws other numbers; with seeds, each program draws the same. */
template <class T, class F> struct Stateful : Kernel {
    mutable std::atomic<uint64_t> drawn{0};
    uint64_t seed, seed2;

    explicit Stateful(const Attributes &attributes)
        : seed((uint64_t)attributes.integer("seed")), seed2((uint64_t)attributes.integer("seed2")) {
        if (seed || seed2) return;
        std::random_device random;
        seed = (uint64_t)random() << 32 | random();
        seed2 = (uint64_t)random() << 32 | random();
    }
    void compute(const Call &call) const override {
        Tensor out = call.output(0, type_of<T>(), shape_from(call.input(0)));
        Philox philox = {{0, 0, (uint32_t)seed2, (uint32_t)(seed2 >> 32)}, {(uint32_t)seed, (uint32_t)(seed >> 32)}};
        philox.skip(drawn.fetch_add((uint64_t)out.count() * 256));
        call.run(out.bytes(), [&] { F::fill(philox, out.data<T>(), out.count()); });
    }
};

/* From a seed to a key and a counter, both in host memory. */
void key_and_counter(const Call &call) {
    std::vector<int64_t> seed = call.input(0).integers();
    if (seed.size() != 2) invalid("seed must have shape [2], not %zu elements", seed.size());
    Philox philox = {{(uint32_t)seed[0], (uint32_t)((uint64_t)seed[0] >> 32), (uint32_t)seed[1],
                      (uint32_t)((uint64_t)seed[1] >> 32)},
                     {0x3ec8f720, 0x02461e29}};
    uint32_t mixed[4];
    philox.next(mixed);
    Tensor key = call.output(0, TF_UINT64, {1}), counter = call.output(1, TF_UINT64, {2});
    key.data<uint64_t>()[0] = mixed[0] | (uint64_t)mixed[1] << 32;
    counter.data<uint64_t>()[0] = 0;
    counter.data<uint64_t>()[1] = mixed[2] | (uint64_t)mixed[3] << 32;
}

template <class T, class F> void add_stateful(const char *op) {
    add<Stateful<T, F>>(op, {{"dtype", type_of<T>()}, {"T", TF_INT32}}, {"shape"});
}

template <class T, class F> void add_stateless(const char *op) {
    add<stateless<T, F>>(op, {{"dtype", type_of<T>()}}, {"shape", "alg"});
}

}  // namespace

void register_random() {
    add_stateful<float, Uniform>("RandomUniform");
    add_stateful<double, Uniform>("RandomUniform");
    add_stateful<float, Normal>("RandomStandardNormal");
    add_stateful<float, Truncated>("TruncatedNormal");
    add_stateless<float, Uniform>("StatelessRandomUniformV2");
    add_stateless<double, Uniform>("StatelessRandomUniformV2");
    add_stateless<float, Normal>("StatelessRandomNormalV2");
    add_stateless<float, Truncated>("StatelessTruncatedNormalV2");
    add<key_and_counter>("StatelessRandomGetKeyCounter", {}, {"seed", "key", "counter"});
}

}  // namespace gpuwatch
