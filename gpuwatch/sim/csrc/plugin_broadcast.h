/* Two operands of different shapes, element by element, as NumPy broadcasts them. */
#ifndef GPUWATCH_SIM_PLUGIN_BROADCAST_H
#define GPUWATCH_SIM_PLUGIN_BROADCAST_H

#include "plugin_kernel.h"

namespace gpuwatch {

/* The loops over a result, outermost first. Neighbouring dimensions that every operand walks through alike
 * are one, so that most operations have one loop or two. Steps are in elements; 0 repeats. */
template <int N> struct Loops {
    static constexpr int MAX_LOOPS = 2 * MAX_RANK;
    int rank = 0;
    int64_t size[MAX_LOOPS];
    int64_t step[N][MAX_LOOPS];

    /* Calls body(offsets) for each run of the innermost dimension, of inner() elements. */
    template <class Body> void each(Body body) const {
        int64_t at[MAX_LOOPS] = {}, offset[N] = {};
        for (;;) {
            body(offset);
            int i = rank - 2;
            for (; i >= 0; i--) {
                for (int n = 0; n < N; n++) offset[n] += step[n][i];
                if (++at[i] < size[i]) break;
                for (int n = 0; n < N; n++) offset[n] -= step[n][i] * size[i];
                at[i] = 0;
            }
            if (i < 0) return;
        }
    }
    int64_t inner() const { return rank ? size[rank - 1] : 1; }
    int64_t inner_step(int n) const { return rank ? step[n][rank - 1] : 0; }

    /* Adds a loop inside those that are there. */
    void add(int64_t count, const int64_t (&steps)[N]) {
        if (count == 1) return;
        if (rank) {
            bool same = true;
            for (int n = 0; n < N; n++) same = same && step[n][rank - 1] == steps[n] * count;
            if (same) {
                size[rank - 1] *= count;
                for (int n = 0; n < N; n++) step[n][rank - 1] = steps[n];
                return;
            }
        }
        size[rank] = count;
        for (int n = 0; n < N; n++) step[n][rank] = steps[n];
        rank++;
    }
};

/* The shape of the result. */
Shape broadcast_shape(std::initializer_list<const Shape *> shapes);

template <int N> Loops<N> broadcast_loops(const Shape &result, const Shape *const (&shapes)[N]) {
    int64_t steps[MAX_RANK][N];
    for (int n = 0; n < N; n++) {
        int64_t step = 1;
        for (int i = result.rank - 1; i >= 0; i--) {
            int at = i - (result.rank - shapes[n]->rank);
            int64_t size = at >= 0 ? (*shapes[n])[at] : 1;
            steps[i][n] = size == 1 ? 0 : step;
            step *= size;
        }
    }
    Loops<N> loops;
    for (int i = 0; i < result.rank; i++) loops.add(result[i], steps[i]);
    return loops;
}

}  // namespace gpuwatch

#endif
