/* Preloaded on the driver tier: PyTorch gets the simulated CUDA runtime and cuBLAS instead of its wheel's.
 *
 * PyTorch's libraries name these as dependencies and find the wheel's copies by an RPATH, which comes before
 * LD_LIBRARY_PATH. A library of the same soname that is loaded already is taken instead, so the simulated ones are
 * loaded as soon as a library of PyTorch is about to be. Not earlier, and not for all to see: TensorFlow looks for a
 * runtime itself, and says which libraries are missing where it finds none. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define API __attribute__((visibility("default")))

static const char *const runtimes[] = {"libcudart.so.12", "libcudart.so.13", "libcublas.so.12", "libcublas.so.13"};

typedef void *opener(const char *, int);

/* libtorch_global_deps.so, libtorch_cuda.so, libc10_cuda.so; torch/_C.cpython-311-x86_64-linux-gnu.so */
static bool is_pytorch(const char *path) {
    const char *slash = path ? strrchr(path, '/') : NULL;
    if (!slash) return false;
    if (strncmp(slash + 1, "libtorch", 8) == 0 || strncmp(slash + 1, "libc10", 6) == 0) return true;
    return slash - path >= 6 && strncmp(slash - 6, "/torch/_C.", 10) == 0;
}

static void load_runtimes(opener *open) {
    static bool done; /* harmless if repeated */
    Dl_info here;
    char path[4096];
    if (done || !dladdr((const void *)load_runtimes, &here) || !here.dli_fname) return;
    done = true;
    const char *slash = strrchr(here.dli_fname, '/');
    if (!slash) return;
    for (size_t i = 0; i < sizeof runtimes / sizeof *runtimes; i++) {
        int length = snprintf(path, sizeof path, "%.*s%s", (int)(slash + 1 - here.dli_fname), here.dli_fname, runtimes[i]);
        /* A library that is not in the folder is missing on purpose. */
        if (length > 0 && (size_t)length < sizeof path) open(path, RTLD_NOW | RTLD_LOCAL);
    }
    dlerror(); /* the program must not see this error */
}

/* The last call must be a tail call: the real function uses its return address to find the caller's RUNPATH. */
__attribute__((optimize("O2"))) API void *dlopen(const char *path, int mode) {
    static opener *real;
    if (!real) real = (opener *)dlsym(RTLD_NEXT, "dlopen");
    if (is_pytorch(path)) load_runtimes(real);
    return real(path, mode);
}
