/* Makes a Rust program panic at a chosen moment, without a word about it in the program: preloaded, it lets one clock_gettime of
 * its main thread (not of a child's) fail once the file named by STUMBLE exists. The standard library unwraps that answer.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static pid_t home;

__attribute__((constructor)) static void settle(void) { home = getpid(); }

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int stumbled;
    static time_t looked_at;
    int failed = syscall(SYS_clock_gettime, clock, now);

    if (failed || stumbled || gettid() != home || now->tv_nsec / 100000000 == looked_at)
        return failed;
    looked_at = now->tv_nsec / 100000000; /* a look every tenth of a second is enough */
    const char *signal = getenv("STUMBLE");
    if (!signal || access(signal, F_OK))
        return 0;
    stumbled = 1;
    errno = EINVAL;
    return -1;
}
