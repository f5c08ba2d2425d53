/* Writes numbered blocks to a disk through several threads, each to stable storage before the next,
   until SIGTERM; then says how many were acknowledged. Block n has n + i in its 64-bit word i. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { THREADS = 4, BLOCK = 512, WORDS = BLOCK / 8 };
static atomic_long next, acknowledged, errors;
static atomic_int ended;
static int disk;
static long blocks;

static void end(int number) { (void)number; ended = 1; }

static void *writes(void *nothing)
{
    uint64_t *block = aligned_alloc(4096, 4096);
    while (!ended) {
        long number = atomic_fetch_add(&next, 1);
        if (number >= blocks)
            break;
        for (int i = 0; i < WORDS; i++)
            block[i] = (uint64_t)number + i;
        if (pwrite(disk, block, BLOCK, (off_t)number * BLOCK) == BLOCK)
            acknowledged++;
        else
            errors++;
    }
    return nothing;
}

int main(int count, char **words)
{
    pthread_t threads[THREADS];
    if (count < 2 || (disk = open(words[1], O_RDWR | O_DIRECT | O_DSYNC)) < 0)
        return 1;
    blocks = lseek(disk, 0, SEEK_END) / BLOCK;
    signal(SIGTERM, end);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, writes, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("{\"acknowledged\": %ld, \"errors\": %ld}\n", (long)acknowledged, (long)errors);
    return 0;
}
