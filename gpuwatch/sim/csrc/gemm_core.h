/* The multiplication for one element type, included by gemm.c with these macros set:
 *   REAL  the type          NAME(x)  x with a suffix for the type          LANES  REALs in a vector
 *
 * The usual scheme (Goto, van de Geijn: "Anatomy of High-Performance Matrix Multiplication"): blocks of A
 * and B are packed into panels that fit the caches, and a kernel that keeps TILE_M x TILE_N results in
 * registers runs over them. */

#define TILE_M (2 * LANES) /* two vectors of a column of C ... */
#define BLOCK_M (TILE_M * 6)
#define BLOCK_K 320
#define BLOCK_N (TILE_N * 128)

typedef REAL NAME(vector) __attribute__((vector_size(LANES * sizeof(REAL)), aligned(LANES * sizeof(REAL))));

typedef struct {
    gws_type type;
    const void *data;
    size_t row, column; /* strides, in elements, of op(X) */
} NAME(matrix);

static REAL NAME(at)(const NAME(matrix) *x, size_t i, size_t j) {
    size_t offset = i * x->row + j * x->column;
    switch (x->type) {
    case GWS_F16: return (REAL)half_to_float(((const uint16_t *)x->data)[offset]);
    case GWS_BF16: return (REAL)bfloat_to_float(((const uint16_t *)x->data)[offset]);
    default: return ((const REAL *)x->data)[offset];
    }
}

/* Packs rows i0.. of op(A), columns k0.., as panels of TILE_M rows; rows that are not there become 0. */
static void NAME(pack_a)(const NAME(matrix) *a, size_t i0, size_t rows, size_t k0, size_t depth, REAL *out) {
    bool plain = a->type == GWS_F32 || a->type == GWS_F64;
    for (size_t panel = 0; panel < rows; panel += TILE_M, out += TILE_M * depth) {
        size_t height = rows - panel < TILE_M ? rows - panel : TILE_M;
        const REAL *from = plain ? (const REAL *)a->data + (i0 + panel) * a->row + k0 * a->column : NULL;
        if (plain && height == TILE_M && a->row == 1) {
            for (size_t l = 0; l < depth; l++) memcpy(out + l * TILE_M, from + l * a->column, TILE_M * sizeof(REAL));
        } else if (plain && height == TILE_M && a->column == 1) {
            for (size_t l = 0; l < depth; l++)
                for (size_t i = 0; i < TILE_M; i++) out[l * TILE_M + i] = from[i * a->row + l];
        } else {
            for (size_t l = 0; l < depth; l++)
                for (size_t i = 0; i < TILE_M; i++)
                    out[l * TILE_M + i] = i < height ? NAME(at)(a, i0 + panel + i, k0 + l) : 0;
        }
    }
}

/* Packs columns j0.. of op(B), rows k0.., as panels of TILE_N columns. */
static void NAME(pack_b)(const NAME(matrix) *b, size_t k0, size_t depth, size_t j0, size_t columns, REAL *out) {
    bool plain = b->type == GWS_F32 || b->type == GWS_F64;
    for (size_t panel = 0; panel < columns; panel += TILE_N, out += TILE_N * depth) {
        size_t width = columns - panel < TILE_N ? columns - panel : TILE_N;
        const REAL *from = plain ? (const REAL *)b->data + k0 * b->row + (j0 + panel) * b->column : NULL;
        if (plain && width == TILE_N) {
            for (size_t l = 0; l < depth; l++)
                for (size_t j = 0; j < TILE_N; j++) out[l * TILE_N + j] = from[l * b->row + j * b->column];
        } else {
            for (size_t l = 0; l < depth; l++)
                for (size_t j = 0; j < TILE_N; j++)
                    out[l * TILE_N + j] = j < width ? NAME(at)(b, k0 + l, j0 + panel + j) : 0;
        }
    }
}

/* tile (TILE_M x TILE_N, columns of TILE_M) = panel of A times panel of B. */
static void NAME(kernel)(size_t depth, const REAL *a, const REAL *b, REAL *tile) {
    NAME(vector) low[TILE_N], high[TILE_N];
#pragma GCC unroll 16
    for (int j = 0; j < TILE_N; j++) low[j] = high[j] = (NAME(vector)){0};
    for (size_t l = 0; l < depth; l++) {
        const NAME(vector) *column = (const NAME(vector) *)(a + l * TILE_M);
        NAME(vector) first = column[0], second = column[1];
#pragma GCC unroll 16
        for (int j = 0; j < TILE_N; j++) {
            REAL factor = b[l * TILE_N + (size_t)j];
            low[j] += first * factor;
            high[j] += second * factor;
        }
    }
#pragma GCC unroll 16
    for (int j = 0; j < TILE_N; j++) {
        NAME(vector) *column = (NAME(vector) *)(tile + j * TILE_M);
        column[0] = low[j];
        column[1] = high[j];
    }
}

static void NAME(store)(gws_type type, void *c, size_t offset, double value) {
    switch (type) {
    case GWS_F32: ((float *)c)[offset] = (float)value; break;
    case GWS_F64: ((double *)c)[offset] = value; break;
    case GWS_F16: ((uint16_t *)c)[offset] = float_to_half((float)value); break;
    case GWS_BF16: ((uint16_t *)c)[offset] = float_to_bfloat((float)value); break;
    }
}

/* Adds alpha * tile to a corner of C, of which `rows` x `columns` exist; beta is applied by the first block
 * of k. A C that beta = 0 overwrites is not read: it may hold NaN. */
static void NAME(add_tile)(const REAL *tile, size_t rows, size_t columns, double alpha, double beta,
                           gws_type type, void *c, size_t at, size_t ldc) {
    for (size_t j = 0; j < columns; j++) {
        const REAL *from = tile + j * TILE_M;
        size_t offset = at + j * ldc;
        if (type == (sizeof(REAL) == 4 ? GWS_F32 : GWS_F64)) {
            REAL *to = (REAL *)c + offset, factor = (REAL)alpha, keep = (REAL)beta;
            if (beta == 0)
                for (size_t i = 0; i < rows; i++) to[i] = factor * from[i];
            else if (beta == 1)
                for (size_t i = 0; i < rows; i++) to[i] += factor * from[i];
            else
                for (size_t i = 0; i < rows; i++) to[i] = factor * from[i] + keep * to[i];
        } else {
            size_t bytes = gws_type_bytes(type);
            for (size_t i = 0; i < rows; i++) {
                double old = beta == 0 ? 0 : gws_load_scalar(type, (const char *)c + (offset + i) * bytes);
                NAME(store)(type, c, offset + i, alpha * (double)from[i] + beta * old);
            }
        }
    }
}

static size_t NAME(work_bytes)(size_t m, size_t n, size_t k) {
    size_t rows = m < BLOCK_M ? (m + TILE_M - 1) / TILE_M * TILE_M : BLOCK_M;
    size_t columns = n < BLOCK_N ? (n + TILE_N - 1) / TILE_N * TILE_N : BLOCK_N;
    size_t depth = k < BLOCK_K ? k : BLOCK_K;
    return (rows + columns) * depth * sizeof(REAL) + 128;
}

static void NAME(multiply)(size_t m, size_t n, size_t k, double alpha, const NAME(matrix) *a,
                           const NAME(matrix) *b, double beta, gws_type type, void *c, size_t ldc, void *work) {
    size_t depth_max = k < BLOCK_K ? k : BLOCK_K;
    size_t rows_max = m < BLOCK_M ? (m + TILE_M - 1) / TILE_M * TILE_M : BLOCK_M;
    REAL *packed_a = work, *packed_b = packed_a + rows_max * depth_max; /* both stay aligned to a vector */
    packed_b = (REAL *)(((uintptr_t)packed_b + 63) & ~(uintptr_t)63);
    REAL tile[TILE_M * TILE_N] __attribute__((aligned(64)));
    for (size_t j0 = 0; j0 < n; j0 += BLOCK_N) {
        size_t columns = n - j0 < BLOCK_N ? n - j0 : BLOCK_N;
        for (size_t k0 = 0; k0 < k; k0 += BLOCK_K) {
            size_t depth = k - k0 < BLOCK_K ? k - k0 : BLOCK_K;
            NAME(pack_b)(b, k0, depth, j0, columns, packed_b);
            for (size_t i0 = 0; i0 < m; i0 += BLOCK_M) {
                size_t rows = m - i0 < BLOCK_M ? m - i0 : BLOCK_M;
                NAME(pack_a)(a, i0, rows, k0, depth, packed_a);
                for (size_t j = 0; j < columns; j += TILE_N)
                    for (size_t i = 0; i < rows; i += TILE_M) {
                        NAME(kernel)(depth, packed_a + i * depth, packed_b + j * depth, tile);
                        NAME(add_tile)(tile, rows - i < TILE_M ? rows - i : TILE_M,
                                       columns - j < TILE_N ? columns - j : TILE_N, alpha, k0 ? 1.0 : beta, type,
                                       c, i0 + i + (j0 + j) * ldc, ldc);
                    }
            }
        }
    }
}

#undef TILE_M
#undef BLOCK_M
#undef BLOCK_K
#undef BLOCK_N
