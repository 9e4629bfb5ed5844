// Waits for a random time around calls to the system, in whatever is started with this in LD_PRELOAD. What two threads
// or processes do one after the other on a quiet machine then comes in any order: .ci/shaken-tests.
//
// SHAKE_CHANCE: around how many of 10,000 calls it waits. SHAKE_MOST: for how many microseconds at the most.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static uint64_t setting(const char *name, uint64_t otherwise) {
  const char *value = getenv(name);
  return value ? strtoull(value, NULL, 10) : otherwise;
}

/// Xorshift, from a seed of its own in each thread.
static uint64_t any(void) {
  static __thread uint64_t state;
  if (!state) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    state = ((uint64_t)now.tv_nsec << 20 ^ (uint64_t)(uintptr_t)&state ^ (uint64_t)getpid() << 40) | 1;
  }
  state ^= state << 13;
  state ^= state >> 7;
  return state ^= state << 17;
}

static void wait_by_chance(void) {
  static uint64_t chance, most;
  if (!most) {
    chance = setting("SHAKE_CHANCE", 300);
    most = setting("SHAKE_MOST", 20000) + 1;
  }
  uint64_t drawn = any();
  if (drawn % 10000 >= chance) return;
  uint64_t micros = (drawn >> 20) % most;
  struct timespec wait = {.tv_sec = micros / 1000000, .tv_nsec = micros % 1000000 * 1000};
  int error = errno;
  clock_nanosleep(CLOCK_MONOTONIC, 0, &wait, NULL);
  errno = error;
}

// Before it, and after it: whoever is told by a call may go on before the caller does.
#define SHAKEN(result, name, parameters, arguments)              \
  result name parameters {                                       \
    static result(*real) parameters;                             \
    if (!real) real = (result(*) parameters)dlsym(RTLD_NEXT, #name); \
    wait_by_chance();                                            \
    result got = real arguments;                                 \
    wait_by_chance();                                            \
    return got;                                                  \
  }

SHAKEN(ssize_t, read, (int file, void *to, size_t size), (file, to, size))
SHAKEN(ssize_t, write, (int file, const void *from, size_t size), (file, from, size))
SHAKEN(ssize_t, writev, (int file, const struct iovec *from, int count), (file, from, count))
SHAKEN(ssize_t, pwrite64, (int file, const void *from, size_t size, off64_t at), (file, from, size, at))
SHAKEN(ssize_t, recv, (int file, void *to, size_t size, int flags), (file, to, size, flags))
SHAKEN(ssize_t, send, (int file, const void *from, size_t size, int flags), (file, from, size, flags))
SHAKEN(int, fsync, (int file), (file))
SHAKEN(int, fdatasync, (int file), (file))
SHAKEN(int, poll, (struct pollfd *files, nfds_t count, int time), (files, count, time))
SHAKEN(int, epoll_wait, (int file, struct epoll_event *events, int most, int time), (file, events, most, time))

// The locks and the parking of Rust's standard library.
long syscall(long number, ...) {
  static long (*real)(long, ...);
  if (!real) real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
  long a[6];
  va_list list;
  va_start(list, number);
  for (int at = 0; at < 6; at++) a[at] = va_arg(list, long);
  va_end(list);
  if (number == SYS_futex) wait_by_chance();
  long got = real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  if (number == SYS_futex) wait_by_chance();
  return got;
}
