// SPDX-License-Identifier: MIT
// How much memory the recurrent calls ask of who makes them, in elements.
#pragma once

#include <cstdint>

#include "hologram/api.h"

namespace hologram {

// Of sequences of these sizes, and of their gradients.
HOLOGRAM_API int64_t gru_workspace(int64_t steps, int64_t batch, int64_t hidden);
HOLOGRAM_API int64_t gru_backward_workspace(int64_t batch, int64_t hidden);

// The same; projection: 0 for none.
HOLOGRAM_API int64_t lstm_workspace(int64_t steps, int64_t batch, int64_t hidden,
                                    int64_t projection = 0);
HOLOGRAM_API int64_t lstm_backward_workspace(int64_t batch, int64_t hidden, int64_t projection = 0);

}  // namespace hologram
