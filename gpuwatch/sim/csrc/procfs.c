/* Preloaded on the driver tier: what shows that NVIDIA's kernel module is loaded, for programs that ask whether a
 * driver is loaded. TensorFlow does when cuInit fails, and says nothing more where the file is missing: with it
 * the log of a simulated machine has the lines of a real one (versions, and which variable hides the GPUs).
 *
 * Only access() and fopen() are answered, and only for this path and, whether it is there, that of the first GPU's
 * device file, which TensorFlow looks for next. Everything else goes to the C library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "versions.h"

#define API __attribute__((visibility("default")))

static const char path_of_version[] = "/proc/driver/nvidia/version";
static const char version[] = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  " GWS_DRIVER_FILE_VERSION
                              "  (simulated by gpuwatch)\nGCC version:  none\n";

static const char path_of_device[] = "/dev/nvidia0";

static int is_version(const char *path) { return path && strcmp(path, path_of_version) == 0; }

API int access(const char *path, int mode) {
    static int (*real)(const char *, int);
    if (is_version(path)) {
        if (!(mode & (W_OK | X_OK))) return 0;
        errno = EACCES;
        return -1;
    }
    if (path && mode == F_OK && strcmp(path, path_of_device) == 0) return 0;
    if (!real) real = (int (*)(const char *, int))dlsym(RTLD_NEXT, "access");
    return real(path, mode);
}

typedef FILE *opener(const char *, const char *);

static FILE *opened(opener *real, const char *path, const char *mode) {
    if (is_version(path) && mode && mode[0] == 'r' && !strchr(mode, '+'))
        return fmemopen((void *)version, sizeof version - 1, "r");
    return real(path, mode);
}

API FILE *fopen(const char *path, const char *mode) {
    static opener *real;
    if (!real) real = (opener *)dlsym(RTLD_NEXT, "fopen");
    return opened(real, path, mode);
}

API FILE *fopen64(const char *path, const char *mode) {
    static opener *real;
    if (!real) real = (opener *)dlsym(RTLD_NEXT, "fopen64");
    return opened(real, path, mode);
}
