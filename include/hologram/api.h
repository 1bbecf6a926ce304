// SPDX-License-Identifier: MIT
// Marks what libhologram exports.
#pragma once

#if defined(__GNUC__)
#define HOLOGRAM_API __attribute__((visibility("default")))
#else
#define HOLOGRAM_API
#endif
