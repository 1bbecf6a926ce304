// SPDX-License-Identifier: MIT
// To be preloaded: answers sysconf() with the caches and processors of another machine, which
// FAKE_L1, FAKE_L2, FAKE_L3 (bytes) and FAKE_PROCESSORS state.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

long sysconf(int name) {
  static long (*real)(int);
  const char *variable = NULL, *value;
  if (real == NULL) real = (long (*)(int))dlsym(RTLD_NEXT, "sysconf");
  if (name == _SC_LEVEL1_DCACHE_SIZE) variable = "FAKE_L1";
  if (name == _SC_LEVEL2_CACHE_SIZE) variable = "FAKE_L2";
  if (name == _SC_LEVEL3_CACHE_SIZE) variable = "FAKE_L3";
  if (name == _SC_NPROCESSORS_ONLN || name == _SC_NPROCESSORS_CONF) variable = "FAKE_PROCESSORS";
  value = variable != NULL ? getenv(variable) : NULL;
  return value != NULL ? atol(value) : real(name);
}
