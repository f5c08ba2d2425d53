/* Programs of the kind of benchmarks that are not free: kinds chase|stencil|streams small|large.
   Prints the seconds of the work, without what fills the arrays. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define LARGE (2UL << 20)

static int advice;

static void *room(size_t bytes) {
    char *all = mmap(0, bytes + LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) exit(2);
    char *start = (char *)(((size_t)all + LARGE - 1) / LARGE * LARGE);
    madvise(start, bytes, advice);
    return start;
}

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

/* mcf: one node after the other of a cycle through 192 MB in random order, adding to each. */
static double chase(void) {
    struct node { struct node *next; long cost[7]; };
    enum { NODES = 3 << 20, STEPS = 3000000 };
    struct node *nodes = room(NODES * sizeof *nodes);
    unsigned *order = room(NODES * sizeof *order);
    unsigned long seed = 1;
    for (unsigned i = 0; i < NODES; i++) order[i] = i;
    for (unsigned i = NODES - 1; i > 0; i--) {
        seed = seed * 6364136223846793005UL + 1442695040888963407UL;
        unsigned other = (seed >> 33) % (i + 1), kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
    for (unsigned i = 0; i < NODES; i++) nodes[order[i]].next = &nodes[order[(i + 1) % NODES]];
    double begin = now();
    struct node *at = nodes;
    for (long i = 0; i < STEPS; i++) {
        at->cost[0] += i;
        at = at->next;
    }
    return now() - begin;
}

/* cactusADM, zeusmp: each point of twelve three-dimensional arrays from its neighbours. */
static double stencil(void) {
    enum { N = 128, ARRAYS = 12, SWEEPS = 2 };
    double (*a[ARRAYS])[N][N];
    for (int k = 0; k < ARRAYS; k++) memset(a[k] = room(sizeof(double[N][N][N])), k,
                                            sizeof(double[N][N][N]));
    double begin = now();
    for (int sweep = 0; sweep < SWEEPS; sweep++)
        for (int z = 1; z < N - 1; z++)
            for (int y = 1; y < N - 1; y++)
                for (int x = 1; x < N - 1; x++) {
                    double sum = 0;
                    for (int k = 1; k < ARRAYS; k++) sum += a[k][z][y][x] * k;
                    a[0][z][y][x] = sum + a[1][z - 1][y][x] + a[1][z + 1][y][x] + a[1][z][y - 1][x]
                                    + a[1][z][y + 1][x] + a[1][z][y][x - 1] + a[1][z][y][x + 1];
                }
    return now() - begin;
}

/* swim: fourteen arrays of 1335 x 1335, of which three loops each stream several. */
static double streams(void) {
    enum { N = 1335, ARRAYS = 14, STEPS = 2 };
    double (*a[ARRAYS])[N];
    for (int k = 0; k < ARRAYS; k++) memset(a[k] = room(sizeof(double[N][N])), k,
                                            sizeof(double[N][N]));
    double begin = now();
    for (int step = 0; step < STEPS; step++) {
        for (int y = 1; y < N; y++)
            for (int x = 1; x < N; x++) {
                a[3][y][x] = (a[0][y][x] + a[0][y][x - 1]) * a[1][y][x];
                a[4][y][x] = (a[0][y][x] + a[0][y - 1][x]) * a[2][y][x];
                a[5][y][x] = (a[1][y][x] - a[2][y - 1][x]) / (1 + a[0][y][x]);
                a[6][y][x] = a[0][y][x] + a[1][y][x] * a[1][y][x] + a[2][y][x] * a[2][y][x];
            }
        for (int y = 1; y < N; y++)
            for (int x = 1; x < N; x++) {
                a[7][y][x] = a[10][y][x] + a[5][y][x] * a[4][y][x] - a[6][y][x - 1];
                a[8][y][x] = a[11][y][x] - a[5][y][x] * a[3][y][x] - a[6][y - 1][x];
                a[9][y][x] = a[12][y][x] - a[3][y][x] - a[4][y][x];
            }
        for (int y = 1; y < N; y++)
            for (int x = 1; x < N; x++)
                for (int k = 0; k < 3; k++) {
                    a[10 + k][y][x] = a[k][y][x] + 0.1 * (a[7 + k][y][x] - a[10 + k][y][x]);
                    a[k][y][x] = a[7 + k][y][x] * 1e-9;
                }
    }
    return now() - begin;
}

int main(int count, char **words) {
    if (count != 3) return 2;
    advice = strcmp(words[2], "large") ? MADV_NOHUGEPAGE : MADV_HUGEPAGE;
    double (*work)(void) = !strcmp(words[1], "chase") ? chase
                           : !strcmp(words[1], "stencil") ? stencil : streams;
    printf("%.6f\n", work());
    return 0;
}
