/* Preloaded: a process for which time passes several times as fast, in what it reads and in how long it waits.
 *
 * SOAK_CLOCK="SPEED MONOTONIC REALTIME": from these times on, in nanoseconds of the real clocks, the same for all
 * processes of a soak. CPU clocks stay, so that what something costs is what it really costs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))find(&real_##name, #name))
#define SECOND 1000000000ll

static long long speed = 1, monotonic_base, realtime_base;
static void *real_clock_gettime, *real_clock_nanosleep, *real_epoll_wait, *real_poll, *real_select, *real_sem_clockwait,
    *real_pthread_cond_timedwait;

static void *find(void **kept, const char *name) {
    if (!*kept) *kept = dlsym(RTLD_NEXT, name);
    return *kept;
}

__attribute__((constructor)) static void begin(void) {
    const char *given = getenv("SOAK_CLOCK");
    if (!given || sscanf(given, "%lld %lld %lld", &speed, &monotonic_base, &realtime_base) != 3) speed = 1;
}

static long long base_of(clockid_t clock) {
    switch (clock) {
    case CLOCK_MONOTONIC: case CLOCK_MONOTONIC_COARSE: case CLOCK_MONOTONIC_RAW: return monotonic_base;
    case CLOCK_REALTIME: case CLOCK_REALTIME_COARSE: return realtime_base;
    default: return -1;
    }
}

static long long in_ns(const struct timespec *time) { return time->tv_sec * SECOND + time->tv_nsec; }

static struct timespec in_timespec(long long ns) {
    return (struct timespec){.tv_sec = ns / SECOND, .tv_nsec = ns % SECOND};
}

/* The real time of a fast one. */
static struct timespec real_time(clockid_t clock, const struct timespec *fast) {
    long long base = base_of(clock), at = in_ns(fast);
    return speed == 1 || base < 0 || at < base ? *fast : in_timespec(base + (at - base) / speed);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = REAL(clock_gettime)(clock, time);
    long long base = base_of(clock);
    if (!result && speed > 1 && base >= 0) *time = in_timespec(base + (in_ns(time) - base) * speed);
    return result;
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *wait, struct timespec *left) {
    struct timespec real = flags & TIMER_ABSTIME ? real_time(clock, wait) : in_timespec(in_ns(wait) / speed);
    return REAL(clock_nanosleep)(clock, flags, &real, left);
}

int nanosleep(const struct timespec *wait, struct timespec *left) {
    return clock_nanosleep(CLOCK_REALTIME, 0, wait, left) ? -1 : 0;
}

int usleep(useconds_t wait) {
    struct timespec time = in_timespec(wait * 1000ll);
    return nanosleep(&time, NULL);
}

static int milliseconds(int wait) { return wait <= 0 ? wait : (int)((wait + speed - 1) / speed); }

int epoll_wait(int set, struct epoll_event *events, int most, int wait) {
    return REAL(epoll_wait)(set, events, most, milliseconds(wait));
}

int poll(struct pollfd *files, nfds_t count, int wait) { return REAL(poll)(files, count, milliseconds(wait)); }

int select(int count, fd_set *reading, fd_set *writing, fd_set *failing, struct timeval *wait) {
    struct timeval real;
    if (wait) {
        long long us = (wait->tv_sec * 1000000ll + wait->tv_usec) / speed;
        real = (struct timeval){.tv_sec = us / 1000000, .tv_usec = us % 1000000};
    }
    return REAL(select)(count, reading, writing, failing, wait ? &real : NULL);
}

int sem_clockwait(sem_t *semaphore, clockid_t clock, const struct timespec *until) {
    struct timespec real = real_time(clock, until);
    return REAL(sem_clockwait)(semaphore, clock, &real);
}

/* Its clock is an attribute that cannot be asked for: a time since boot is less than one since 1970. */
int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until) {
    struct timespec real = real_time(in_ns(until) < realtime_base ? CLOCK_MONOTONIC : CLOCK_REALTIME, until);
    return REAL(pthread_cond_timedwait)(condition, mutex, &real);
}
