/* Functions that compilers turn into vectors: single precision without calls and branches, to within a few
 * units in the last place; the other types take the C library's. */
#ifndef GPUWATCH_SIM_PLUGIN_MATH_H
#define GPUWATCH_SIM_PLUGIN_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

namespace gpuwatch {

inline float bits_to_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

inline double exponential(double x) { return exp(x); }

/* 2^n e^r with r below ln 2 / 2; the polynomial is Cephes' expf. */
inline float exponential(float x) {
    x = x < -104.0f ? -104.0f : x; /* 0 there, and NaN stays NaN */
    x = x > 89.0f ? 89.0f : x;     /* infinity */
    float n = __builtin_rintf(x * 1.44269504f);
    float r = x - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    int32_t power = (int32_t)n, half = power >> 1; /* in two steps, for subnormal and infinite results */
    return p * bits_to_float((uint32_t)(half + 127) << 23) * bits_to_float((uint32_t)(power - half + 127) << 23);
}

inline double hyperbolic_tangent(double x) { return tanh(x); }

inline float hyperbolic_tangent(float x) {
    float square = x * x, size = x < 0 ? -x : x;
    float p = -5.70498872745e-3f;
    p = p * square + 2.06390887954e-2f;
    p = p * square - 5.37397155531e-2f;
    p = p * square + 1.33314422036e-1f;
    p = p * square - 3.33332819422e-1f;
    float near_zero = p * square * x + x;
    float far = 1.0f - 2.0f / (exponential(2.0f * size) + 1.0f);
    far = x < 0 ? -far : far;
    return size < 0.625f ? near_zero : far; /* NaN takes the second */
}

template <class T> inline T logistic(T x) { return T(1) / (T(1) + exponential(-x)); }

}  // namespace gpuwatch

#endif
