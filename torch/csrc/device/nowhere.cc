// SPDX-License-Identifier: MIT
// The addresses that storages show while their bytes are still to be computed: reserved, never
// readable. A program that reads there stops with a message.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string_view>

#include "device/tensor.h"

namespace hologram_torch {
namespace {

#if HOLOGRAM_CAN_DEFER

struct Reserved {
  char* begin = nullptr;
  size_t nbytes = 0;

  bool holds(const void* address) const {
    const char* const byte = static_cast<const char*>(address);
    return begin <= byte && byte < begin + nbytes;
  }
};

Reserved g_reserved;
struct sigaction g_previous;

constexpr std::string_view kMessage =
    "hologram: this program read or wrote a tensor of device 'hologram' at an address that it took "
    "without asking for the value, which may still have to be computed.\n"
    "C++ code that calls const_data_ptr() or storage().data() does that: PyTorch tells the device "
    "of neither.\n"
    "Call data_ptr() or mutable_data_ptr() instead, or make the function an operator "
    "(TORCH_LIBRARY), whose arguments are computed before it runs.\n"
    "With HOLOGRAM_EXECUTION=eager every value is computed at its call. See "
    "docs/from-pytorch.md, \"Writing an extension\".\n";

// Says what happened and leaves the rest to what handled the signal before: the instruction is
// executed again when this returns. Only async-signal-safe functions may be called here.
void explain_fault(int number, siginfo_t* info, void* context) {
  const bool is_ours = info->si_code > 0 && g_reserved.holds(info->si_addr);
  if (is_ours) {
    const ssize_t written = write(STDERR_FILENO, kMessage.data(), kMessage.size());
    static_cast<void>(written);
  }
  const bool has_function = (g_previous.sa_flags & SA_SIGINFO) != 0 ||
                            (g_previous.sa_handler != SIG_DFL && g_previous.sa_handler != SIG_IGN);
  if (is_ours || !has_function) {
    sigaction(number, &g_previous, nullptr);
    // A signal sent by kill() does not come again by itself.
    if (info->si_code <= 0) raise(number);
    return;
  }
  // A fault of other code: our handler stays in place, as the other handler may go on after it.
  if ((g_previous.sa_flags & SA_SIGINFO) != 0) {
    g_previous.sa_sigaction(number, info, context);
  } else {
    g_previous.sa_handler(number);
  }
}

// Addresses of a tensor's elements begin in the first quarter, so that the rest has to be longer
// than any tensor: the memory behind it may be mapped.
Reserved reserve() {
  for (size_t nbytes = size_t{1} << 40; nbytes >= size_t{1} << 20; nbytes /= 4) {
    void* const begin =
        mmap(nullptr, nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (begin != MAP_FAILED) {
      // Core files leave it out.
      madvise(begin, nbytes, MADV_DONTDUMP);
      return {static_cast<char*>(begin), nbytes};
    }
  }
  TORCH_CHECK(false, "hologram: cannot reserve a range of addresses");
}

#endif

}  // namespace

void* reserve_nowhere() {
#if HOLOGRAM_CAN_DEFER
  g_reserved = reserve();
  struct sigaction action;
  std::memset(&action, 0, sizeof action);
  action.sa_sigaction = &explain_fault;
  // Handlers of others expect their own stack, where there is one.
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, &g_previous);
  return g_reserved.begin;
#else
  return nullptr;  // nothing waits
#endif
}

void* const kNowhere = reserve_nowhere();

#if HOLOGRAM_CAN_DEFER
// The length is a power of two. Buffers are aligned, so their lowest bits do not tell them apart.
const uintptr_t kNowhereMask = (g_reserved.nbytes / 4 - 1) & ~(alignof(hologram::Buffer) - 1);
#else
const uintptr_t kNowhereMask = 0;
#endif

}  // namespace hologram_torch
