/* stencil STEPS: a 7-point stencil over a cube of doubles, with a reduction after every tenth step.
 * It stands for the grid programs of SPEC CPU2006, such as 433.milc. */
#include <stdio.h>
#include <stdlib.h>

#define N 96
#define AT(x, y, z) (((x) * N + (y)) * N + (z))

static double step(const double *from, double *to)
{
	for (int x = 1; x < N - 1; x++)
		for (int y = 1; y < N - 1; y++)
			for (int z = 1; z < N - 1; z++) {
				const double *at = from + AT(x, y, z);
				to[AT(x, y, z)] = 0.4 * at[0] +
					0.1 * (at[1] + at[-1] + at[N] + at[-N] + at[N * N] + at[-N * N]);
			}
	return to[AT(N / 2, N / 2, N / 2)];
}

int main(int argc, char **argv)
{
	long steps = argc > 1 ? atol(argv[1]) : 1;
	double *grid = calloc(2L * N * N * N, sizeof(double)), sum = 0, middle = 0;
	if (!grid)
		return 1;
	for (long i = 0; i < (long)N * N * N; i++)
		grid[i] = (double)(i % 1009) / 1009;
	for (long i = 0; i < steps; i++) {
		double *to = grid + (i % 2 ? 0 : (long)N * N * N), *from = grid + (i % 2 ? (long)N * N * N : 0);
		middle = step(from, to);
		if (i % 10 == 9)
			for (long j = 0; j < (long)N * N * N; j++)
				sum += to[j] * to[j];
	}
	printf("%ld steps, %.9g, %.9g\n", steps, middle, sum);
	return 0;
}
