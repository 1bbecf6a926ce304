// SPDX-License-Identifier: MIT
// Random DLPack descriptors on import, beside a judgement of them in 128-bit numbers. What is
// accepted and lies in memory that is there has the elements that the descriptor says; who keeps a
// descriptor is never in doubt.
#include <algorithm>
#include <string_view>
#include <vector>

#include "hologram/dlpack.h"
#include "hologram/hologram.h"
#include "tests/fuzz/reader.h"

namespace hologram::fuzz {
namespace {

using Wide = __int128;

constexpr size_t kBytes = 4096;
constexpr int kMostDims = 64;

struct Descriptor {
  DLTensor tensor = {};
  int64_t shape[kMostDims] = {};
  int64_t strides[kMostDims] = {};
  uint32_t major = 1;
  uint64_t flags = 0;
  bool versioned = true;
  int given_back = 0;
};

alignas(64) char g_memory[kBytes];

int64_t any_size(Reader& in) {
  constexpr int64_t kOdd[] = {-1, INT64_MIN,     INT64_MAX,        INT64_C(1) << 40,
                              0,  INT64_MAX / 4, INT64_C(1) << 61, -8};
  return in.one_in(12) ? kOdd[in.pick(8)] : in.pick(6);
}

void make(Reader& in, Descriptor& d) {
  constexpr DLDataType kTypes[] = {{6, 8, 1},  {1, 8, 1},  {0, 8, 1},  {0, 16, 1},
                                   {0, 32, 1}, {0, 64, 1}, {2, 16, 1}, {4, 16, 1},
                                   {2, 32, 1}, {2, 64, 1}, {5, 64, 1}, {5, 128, 1}};
  DLTensor& t = d.tensor;
  d.versioned = !in.one_in(3);
  d.major = in.one_in(16) ? in.take<uint8_t>() : 1;
  d.flags = in.one_in(4) ? in.take<uint64_t>() : 0;
  t.data = in.one_in(16)   ? nullptr
           : in.one_in(16) ? reinterpret_cast<void*>(in.take<uintptr_t>())
                           : g_memory + 1024;
  t.device = {in.one_in(12) ? static_cast<DLDeviceType>(in.take<int32_t>()) : kDLCPU,
              in.one_in(12) ? in.take<int32_t>() : 0};
  t.ndim = in.one_in(12) ? in.take<int32_t>() : static_cast<int32_t>(in.pick(5));
  t.dtype = in.one_in(12) ? in.take<DLDataType>() : kTypes[in.pick(12)];
  t.byte_offset = in.one_in(12) ? in.take<uint64_t>() : uint64_t{16} * in.pick(4);
  for (int i = 0; i < kMostDims; ++i) d.shape[i] = i < 6 ? any_size(in) : 1;
  for (int i = 0; i < kMostDims; ++i)
    d.strides[i] =
        i < 6 ? static_cast<int64_t>(static_cast<uint64_t>(any_size(in)) - in.pick(4)) : 0;
  t.shape = in.one_in(16) ? nullptr : d.shape;
  t.strides = in.one_in(3) ? nullptr : d.strides;
}

int itemsize_of(DLDataType type) {
  if (type.lanes != 1) return 0;
  const auto is = [&](int code, int bits) { return type.code == code && type.bits == bits; };
  if (is(6, 8) || is(1, 8) || is(0, 8)) return 1;
  if (is(0, 16) || is(1, 16) || is(2, 16) || is(4, 16)) return 2;
  if (is(0, 32) || is(1, 32) || is(2, 32)) return 4;
  if (is(0, 64) || is(1, 64) || is(2, 64) || is(5, 64)) return 8;
  return is(5, 128) ? 16 : 0;
}

// What an importer has to think of a descriptor, said in another way than the library does.
struct Judgement {
  bool good = false;
  std::vector<Wide> strides;
  Wide numel = 1;
  Wide low = 0;   // bytes from the first element to the lowest
  Wide high = 0;  // to the end of the highest
};

Judgement judge(const Descriptor& d) {
  Judgement j;
  const DLTensor& t = d.tensor;
  const bool host = t.device.device_type == kDLCPU || t.device.device_type == kDLCUDAHost ||
                    t.device.device_type == kDLROCMHost || t.device.device_type == kDLCUDAManaged;
  const Wide item = itemsize_of(t.dtype);
  if ((d.versioned && d.major != 1) || !host || item == 0) return j;
  if (t.ndim < 0 || t.ndim > kMostDims || (t.ndim > 0 && t.shape == nullptr)) return j;
  const auto n = static_cast<size_t>(t.ndim);
  bool none = false;
  for (size_t i = 0; i < n; ++i) {
    if (t.shape[i] < 0) return j;
    none = none || t.shape[i] == 0;
  }
  for (size_t i = 0; i < n && !none; ++i) {
    j.numel *= t.shape[i];
    if (j.numel > INT64_MAX) return j;
  }
  if (none) {
    j.numel = 0;
    j.good = true;
    return j;
  }
  j.strides.assign(n, 1);
  for (size_t i = n; t.strides == nullptr && i-- > 1;) {
    j.strides[i - 1] = j.strides[i] * t.shape[i];
  }
  Wide low = 0;
  Wide high = 0;
  for (size_t i = 0; i < n; ++i) {
    if (t.strides != nullptr) j.strides[i] = t.strides[i];
    const Wide step = j.strides[i] * item;
    if (t.shape[i] == 1) continue;
    if (step > INT64_MAX || step < INT64_MIN) return j;
    const Wide reach = (Wide{t.shape[i]} - 1) * step;
    (reach < 0 ? low : high) += reach;
  }
  j.low = low;
  j.high = high + item;
  const Wide first = Wide{reinterpret_cast<uintptr_t>(t.data)} + Wide{t.byte_offset};
  const Wide top = Wide{UINTPTR_MAX};
  if (t.data == nullptr || first > top || first + low <= 0 || first + j.high > top) return j;
  if (j.high - j.low > INT64_MAX) return j;
  if (first % std::min<Wide>(item, 8) != 0) return j;
  j.good = true;
  return j;
}

void check_elements(uint64_t tensor, const Descriptor& d, const Judgement& j) {
  const auto item = static_cast<size_t>(itemsize_of(d.tensor.dtype));
  uint64_t copy = 0;
  uint64_t buffer = 0;
  uint64_t ex = 0;
  FUZZ_CHECK(hologram_tensor_copy(tensor, &copy) == HOLOGRAM_OK, "%s", hologram_last_error());
  FUZZ_CHECK(hologram_tensor_as_buffer(copy, &buffer) == HOLOGRAM_OK, "%s", hologram_last_error());
  FUZZ_CHECK(hologram_new_executor(&ex) == HOLOGRAM_OK, "%s", hologram_last_error());
  std::vector<char> got(static_cast<size_t>(j.numel) * item);
  FUZZ_CHECK(hologram_buffer_to_bytes(ex, buffer, got.data(), got.size()) == HOLOGRAM_OK, "%s",
             hologram_last_error());
  const char* first = static_cast<const char*>(d.tensor.data) + d.tensor.byte_offset;
  for (size_t i = 0; i < static_cast<size_t>(j.numel); ++i) {
    size_t rest = i;
    Wide place = 0;
    for (size_t k = static_cast<size_t>(d.tensor.ndim); k-- > 0;) {
      const auto size = static_cast<size_t>(d.tensor.shape[k]);
      place += static_cast<Wide>(rest % size) * j.strides[k];
      rest /= size;
    }
    const char* want = first + static_cast<int64_t>(place) * static_cast<int64_t>(item);
    FUZZ_CHECK(std::memcmp(want, got.data() + i * item, item) == 0, "element %zu differs", i);
  }
  hologram_buffer_cleanup(buffer);
  hologram_tensor_cleanup(copy);
  hologram_executor_cleanup(ex);
}

template <class Managed>
void check_import(Reader& in, Descriptor& d, const Judgement& j, Managed& managed,
                  int (*import)(Managed*, uint64_t*)) {
  managed.dl_tensor = d.tensor;
  managed.manager_ctx = &d;
  managed.deleter = [](Managed* self) {
    ++static_cast<Descriptor*>(self->manager_ctx)->given_back;
  };
  const bool no_deleter = in.one_in(16);
  if (no_deleter) managed.deleter = nullptr;
  uint64_t tensor = 0;
  const int status = import(&managed, &tensor);
  FUZZ_CHECK((status == HOLOGRAM_OK) == j.good, "status %d: %s", status, hologram_last_error());
  FUZZ_CHECK(d.given_back == 0, "given back %d times while it is used", d.given_back);
  if (status != HOLOGRAM_OK) {
    const std::string_view message(hologram_last_error());
    constexpr std::string_view kFields[] = {"ndim",  "shape",  "strides", "data",
                                            "dtype", "device", "version", "byte_offset"};
    FUZZ_CHECK(std::any_of(std::begin(kFields), std::end(kFields),
                           [&](std::string_view f) { return message.find(f) != message.npos; }),
               "names no field: %s", hologram_last_error());
    return;
  }
  const Wide start =
      static_cast<const char*>(d.tensor.data) - g_memory + static_cast<Wide>(d.tensor.byte_offset);
  if (j.numel > 0 && j.numel <= 4096 && start + j.low >= 0 && start + j.high <= Wide{kBytes}) {
    check_elements(tensor, d, j);
  }
  int ndim = 0;
  FUZZ_CHECK(hologram_tensor_ndim(tensor, &ndim) == HOLOGRAM_OK && ndim == d.tensor.ndim, "ndim");
  uint64_t window = 0;
  const bool flat = hologram_tensor_as_buffer(tensor, &window) == HOLOGRAM_OK;
  FUZZ_CHECK(hologram_tensor_cleanup(tensor) == HOLOGRAM_OK, "%s", hologram_last_error());
  if (flat) {
    FUZZ_CHECK(d.given_back == 0, "given back while a window is open");
    hologram_buffer_cleanup(window);
  }
  FUZZ_CHECK(d.given_back == (no_deleter ? 0 : 1), "given back %d times", d.given_back);
}

}  // namespace

void run_descriptor(Reader& in) {
  Descriptor d;
  make(in, d);
  const Judgement j = judge(d);
  if (d.versioned) {
    DLManagedTensorVersioned managed = {};
    managed.version = {d.major, 0};
    managed.flags = d.flags;
    check_import(in, d, j, managed, hologram_tensor_from_dlpack);
  } else {
    DLManagedTensor managed = {};
    check_import(in, d, j, managed, hologram_tensor_from_dlpack_unversioned);
  }
}

}  // namespace hologram::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using hologram::fuzz::g_memory;
  static const bool kFilled = [] {
    for (size_t i = 0; i < sizeof g_memory; ++i) g_memory[i] = static_cast<char>(i % 2);
    return true;
  }();
  static_cast<void>(kFilled);
  hologram::fuzz::Reader in(data, size);
  hologram::fuzz::run_descriptor(in);
  return 0;
}
