/* Preloaded before libfaketime 0.9.10, whose clock_nanosleep fails with EINVAL for the monotonic clock if it does not fake it. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *request, struct timespec *remain)
{
    return syscall(SYS_clock_nanosleep, clock, flags, request, remain) ? errno : 0;
}
