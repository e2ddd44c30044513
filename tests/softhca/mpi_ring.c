/* Messages around a ring and one-sided accesses, every byte checked. Compiled
   and started by ucx_programs.py. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, ranks;

static void check(int good, const char *what) {
  if (good) return;
  fprintf(stderr, "rank %d: %s\n", rank, what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static unsigned char pattern(int from, size_t i, int round) {
  return (unsigned char)(from * 31 + (int)(i * 7 + i / 251) + round * 3);
}

static void ring(size_t bytes, int rounds) {
  unsigned char *out = malloc(bytes), *in = malloc(bytes);
  const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
  for (int round = 0; round < rounds; ++round) {
    MPI_Status status;
    int count;
    for (size_t i = 0; i < bytes; ++i) out[i] = pattern(rank, i, round), in[i] = 0;
    MPI_Sendrecv(out, (int)bytes, MPI_BYTE, next, round, in, (int)bytes, MPI_BYTE, previous, round,
                 MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_BYTE, &count);
    check(count == (int)bytes, "message length");
    for (size_t i = 0; i < bytes; ++i)
      check(in[i] == pattern(previous, i, round), "message contents");
  }
  free(out);
  free(in);
}

/* Each rank puts into its neighbour's window, gets it back from there, and
   counts at rank 0. */
static void one_sided(int n) {
  int *window_memory, *back = calloc((size_t)n, sizeof(int));
  int *out = calloc((size_t)n, sizeof(int));
  const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks, one = 1;
  int sum;
  MPI_Win window;
  MPI_Win_allocate((MPI_Aint)((n + 1) * sizeof(int)), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD,
                   &window_memory, &window);
  for (int i = 0; i <= n; ++i) window_memory[i] = 0;
  for (int i = 0; i < n; ++i) out[i] = rank * n + i;
  MPI_Win_fence(0, window);
  MPI_Put(out, n, MPI_INT, next, 1, n, MPI_INT, window);
  MPI_Accumulate(&one, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_SUM, window);
  MPI_Win_fence(0, window);
  for (int i = 0; i < n; ++i) check(window_memory[i + 1] == previous * n + i, "put");
  MPI_Get(back, n, MPI_INT, next, 1, n, MPI_INT, window);
  MPI_Win_fence(0, window);
  for (int i = 0; i < n; ++i) check(back[i] == rank * n + i, "get");
  sum = window_memory[0];
  check(sum == (rank == 0 ? ranks : 0), "accumulate");
  /* No rank counts on before rank 0 has looked. */
  MPI_Barrier(MPI_COMM_WORLD);

  MPI_Win_lock_all(0, window);
  for (int i = 0; i < 10; ++i) {
    int before = -1;
    MPI_Fetch_and_op(&one, &before, MPI_INT, 0, 0, MPI_SUM, window);
    MPI_Win_flush(0, window);
    check(before >= ranks && before < 11 * ranks, "fetch and add");
  }
  MPI_Win_unlock_all(window);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_fence(0, window);
  check(window_memory[0] == (rank == 0 ? 11 * ranks : 0), "sum of fetch and add");
  MPI_Win_free(&window);
  free(back);
  free(out);
}

int main(int argc, char **argv) {
  static const size_t sizes[] = {0, 1, 100, 4096, 70000, 1000000};
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) ring(sizes[i], 3);
  one_sided(1000);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) printf("%d ranks: all verified\n", ranks);
  MPI_Finalize();
  return 0;
}
