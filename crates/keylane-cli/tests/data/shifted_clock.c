/* Shifts the wall clock of a process by the seconds in KEYLANE_CLOCK_SHIFT. To be preloaded with `LD_PRELOAD`. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    static long shift;
    if (!real) {
        const char *seconds = getenv("KEYLANE_CLOCK_SHIFT");
        shift = seconds ? atol(seconds) : 0;
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    }
    int failed = real(clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += shift;
    return failed;
}
