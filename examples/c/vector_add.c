/* SPDX-License-Identifier: MIT
 * Adds two vectors through handles: what every C program does with Hologram, and what it does when
 * a call fails. */
#include <stdio.h>
#include <stdlib.h>

#include "hologram/hologram.h"

#define N 100000

/* Every function returns a status; the message is the thread's. */
static void check(int status) {
  if (status == HOLOGRAM_OK) return;
  fprintf(stderr, "%s: %s\n", hologram_status_name(status), hologram_last_error());
  exit(1);
}

int main(void) {
  static float x[N], y[N], z[N];
  for (int i = 0; i < N; ++i) {
    x[i] = (float)i;
    y[i] = 0.5f;
  }

  uint64_t ex, a, b, c, loss;
  check(hologram_new_executor_auto(&ex));
  check(hologram_executor_allocate_buffer(ex, N, HOLOGRAM_FLOAT32, &a));
  check(hologram_executor_allocate_buffer(ex, N, HOLOGRAM_FLOAT32, &b));
  check(hologram_executor_allocate_buffer(ex, N, HOLOGRAM_FLOAT32, &c));
  check(hologram_executor_allocate_buffer(ex, 3, HOLOGRAM_FLOAT32, &loss));
  check(hologram_buffer_copy_from_bytes(ex, a, x, sizeof x));
  check(hologram_buffer_copy_from_bytes(ex, b, y, sizeof y));

  /* These calls record; nothing has run when they return, and all of it runs as one kernel. */
  check(hologram_vector_add_f32(ex, a, b, c, N));
  check(hologram_scalar_mul_f32(ex, c, c, N, 2.0f));
  check(hologram_vector_relu_f32(ex, c, c, N));

  /* Looking runs what was recorded. */
  check(hologram_buffer_to_bytes(ex, c, z, sizeof z));
  printf("2 (x + y)[3] = %g\n", (double)z[3]);

  float value;
  check(hologram_mse_loss_f32(ex, c, a, loss, N, &value));
  printf("mean squared distance from x = %g\n", (double)value);

  /* A handle is a number that is checked: nothing is harmed by one that was freed. */
  check(hologram_buffer_cleanup(b));
  if (hologram_vector_add_f32(ex, a, b, c, N) != HOLOGRAM_OK) {
    printf("refused: %s\n", hologram_last_error());
  }
  if (hologram_vector_add_f32(ex, a, a, c, N + 1) != HOLOGRAM_OK) {
    printf("refused: %s\n", hologram_last_error());
  }
  check(hologram_clear_all_registries());
  return 0;
}
