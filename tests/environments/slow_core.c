/* How fast loops run on a CPU at a speed, in percent of full speed.

   slow_core CPU FILE ROUNDS SPEED...: stay on CPU, and write the speeds to FILE. Each line has a
   loop's name, a speed and the rate at it in percent of the rate at full speed before and after.
   A rate is the best of some short pieces: a piece in which the emulator's thread lost its CPU
   counts for nothing. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PIECES = 8, WORDS = 2048, SETTLE_US = 4000 };
static const double PIECE_S = 0.002;

static uint64_t words[WORDS];
static volatile uint64_t kept = 1;

static void short_blocks(void)
{
    for (int i = 0; i < 4000; i++)
        __asm__ volatile("" ::: "memory");
}

#define STEP x = x * 6364136223846793005u + 1, x ^= x >> 7;
#define STEPS STEP STEP STEP STEP STEP STEP STEP STEP

static void long_blocks(void)
{
    uint64_t x = kept;
    for (int i = 0; i < 60; i++) {
        STEPS STEPS STEPS STEPS STEPS STEPS STEPS STEPS
    }
    kept = x;
}

static void references(void)
{
    uint64_t x = kept;
    for (int i = 0; i < 300; i++) {
        STEP
        words[x % WORDS] += x;
    }
    kept = x;
}

static double now_s(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + 1e-9 * time.tv_nsec;
}

static double rate(void (*loop)(void))
{
    double best = 0;
    for (int piece = 0; piece < PIECES; piece++) {
        double begin = now_s(), end;
        int rounds = 0;
        do {
            loop();
            rounds++;
            end = now_s();
        } while (end - begin < PIECE_S);
        if (rounds / (end - begin) > best)
            best = rounds / (end - begin);
    }
    return best;
}

static double rate_at(const char *file, const char *speed, void (*loop)(void))
{
    int descriptor = open(file, O_WRONLY | O_TRUNC);
    if (descriptor < 0 || write(descriptor, speed, strlen(speed)) < 0)
        exit(1);
    close(descriptor);
    usleep(SETTLE_US);
    return rate(loop);
}

int main(int count, char **given)
{
    static const struct { const char *name; void (*loop)(void); } loops[] = {
        {"short-blocks", short_blocks}, {"long-blocks", long_blocks}, {"references", references},
    };
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(atoi(given[1]), &own);
    if (sched_setaffinity(0, sizeof own, &own) != 0)
        return 1;
    for (int round = 0; round < atoi(given[3]); round++)
        for (int at = 0; at < 3; at++)
            for (int speed = 4; speed < count; speed++) {
                double before = rate_at(given[2], "100", loops[at].loop);
                double slow = rate_at(given[2], given[speed], loops[at].loop);
                double after = rate_at(given[2], "100", loops[at].loop);
                printf("%s %s %f\n", loops[at].name, given[speed], 200 * slow / (before + after));
            }
    return 0;
}
