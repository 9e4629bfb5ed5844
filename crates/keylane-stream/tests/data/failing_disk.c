/* Simulates a failing disk while the file that KEYLANE_FAILING_DISK names contains a letter: `s`,
 * syncs fail; `f`, the disk is full. To be preloaded with `LD_PRELOAD`.
 *
 * A kernel that cannot write pages drops them and reports it once; the next sync succeeds. So the
 * bytes that were appended to a file since its last sync are truncated. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of each file its number and its size when it was last synced. */
static struct { ino_t file; off_t size; } synced[256];

static char failure(void) {
    char letter = 0;
    const char *path = getenv("KEYLANE_FAILING_DISK");
    int fd = path ? open(path, O_RDONLY) : -1;
    if (fd >= 0) {
        if (read(fd, &letter, 1) != 1) letter = 0;
        close(fd);
    }
    return letter;
}

static int sync_by(int (*sync)(int), int fd) {
    struct stat now;
    int is_known = fstat(fd, &now) == 0 && S_ISREG(now.st_mode) && fd < 256;
    if (failure() == 's') {
        if (is_known && synced[fd].file == now.st_ino && synced[fd].size < now.st_size)
            (void) !ftruncate(fd, synced[fd].size);
        errno = EIO;
        return -1;
    }
    int result = sync(fd);
    if (result == 0 && is_known) {
        synced[fd].file = now.st_ino;
        synced[fd].size = now.st_size;
    }
    return result;
}

int fsync(int fd) {
    return sync_by((int (*)(int)) dlsym(RTLD_NEXT, "fsync"), fd);
}

int fdatasync(int fd) {
    return sync_by((int (*)(int)) dlsym(RTLD_NEXT, "fdatasync"), fd);
}

static int is_full(int fd) {
    struct stat now;
    if (fstat(fd, &now) != 0 || !S_ISREG(now.st_mode) || failure() != 'f') return 0;
    errno = ENOSPC;
    return 1;
}

ssize_t write(int fd, const void *bytes, size_t count) {
    ssize_t (*really)(int, const void *, size_t) =
        (ssize_t (*)(int, const void *, size_t)) dlsym(RTLD_NEXT, "write");
    return is_full(fd) ? -1 : really(fd, bytes, count);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
    ssize_t (*really)(int, const void *, size_t, off64_t) =
        (ssize_t (*)(int, const void *, size_t, off64_t)) dlsym(RTLD_NEXT, "pwrite64");
    return is_full(fd) ? -1 : really(fd, bytes, count, at);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) {
    return pwrite64(fd, bytes, count, at);
}
