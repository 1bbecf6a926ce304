// SPDX-License-Identifier: MIT
// Random sequences of calls of the C interface: handles that are live, stale, foreign, zero or of
// another kind, lengths past the end, null pointers. Every refusal names function and argument.
#include <algorithm>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "hologram/dlpack.h"
#include "hologram/hologram.h"
#include "tests/fuzz/reader.h"

namespace hologram::fuzz {
namespace {

constexpr int kMostCalls = 24;
constexpr size_t kScratchBytes = 4096;  // more than any buffer of a case has

// What the calls of one case have made.
struct World {
  Reader& in;
  std::vector<uint64_t> handles;  // ever given out, freed ones among them
  std::vector<DLManagedTensorVersioned*> lent;
  std::vector<DLManagedTensor*> lent_unversioned;
  char scratch[kScratchBytes] = {};
};

uint64_t any_handle(World& w) {
  switch (w.in.pick(16)) {
    case 0:
      return 0;
    case 1:
      return w.in.take<uint64_t>();
    case 2:  // like one of ours, of another generation, kind or slot
      return w.handles[w.in.pick(static_cast<uint32_t>(w.handles.size()))] ^
             (uint64_t{w.in.take<uint8_t>()} << (8 * w.in.pick(8)));
    default:
      return w.handles[w.in.pick(static_cast<uint32_t>(w.handles.size()))];
  }
}

int64_t any_length(World& w) {
  constexpr int64_t kOdd[] = {-1,      INT64_MIN,        INT64_MAX,  INT64_C(1) << 62,
                              1 << 20, INT64_C(1) << 32, 0x7fffffff, -4096};
  return w.in.one_in(8) ? kOdd[w.in.pick(8)] : w.in.pick(48);
}

int any_number(World& w, int count) {
  return w.in.one_in(8) ? w.in.take<int>()
                        : static_cast<int>(w.in.pick(static_cast<uint32_t>(count)));
}

// A status is one that there is; a failure says which function and which of its arguments.
void check(int status, const char* name, std::string_view arguments) {
  FUZZ_CHECK(status >= HOLOGRAM_OK && status <= HOLOGRAM_STATE, "%s gave %d: %s", name, status,
             hologram_last_error());
  if (status == HOLOGRAM_OK) return;
  const std::string_view message(hologram_last_error());
  FUZZ_CHECK(message.starts_with(name) && message.substr(std::string_view(name).size(), 2) == ": ",
             "%s: %s", name, hologram_last_error());
  if (status == HOLOGRAM_OUT_OF_MEMORY) {
    FUZZ_CHECK(message.find("memory") != message.npos, "%s", hologram_last_error());
    return;
  }
  const std::string_view text = message.substr(std::string_view(name).size());
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; };
  bool named = false;
  for (size_t from = 0; from < arguments.size() && !named;) {
    const size_t to = std::min(arguments.find(' ', from), arguments.size());
    const std::string_view argument = arguments.substr(from, to - from);
    for (size_t at = text.find(argument); at != text.npos && !named;
         at = text.find(argument, at + 1)) {
      const size_t end = at + argument.size();
      named = !is_letter(text[at - 1]) && (end == text.size() || !is_letter(text[end]));
    }
    from = to + 1;
  }
  FUZZ_CHECK(named, "names none of (%.*s): %s", static_cast<int>(arguments.size()),
             arguments.data(), hologram_last_error());
}

void convert(World& w, uint64_t& value) { value = any_handle(w); }
void convert(World& w, int64_t& value) { value = any_length(w); }
void convert(World& w, float& value) { value = w.in.take<float>(); }
void convert(World& w, double& value) { value = w.in.take<double>(); }
void convert(World& w, int& value) { value = any_number(w, 16); }

// A result through a pointer: sometimes none.
template <class T>
struct Out {
  T value{};
  T* address = nullptr;
};
template <class T>
void convert(World& w, Out<T>& out) {
  out.address = w.in.one_in(16) ? nullptr : &out.value;
}
template <class T>
T* pass(Out<T>& out) {
  return out.address;
}
template <class T>
T pass(T& value) {
  return value;
}
template <class T>
void keep(World&, T&) {}
void keep(World& w, Out<uint64_t>& out) {
  if (out.address != nullptr) w.handles.push_back(out.value);
}
void keep(World& w, Out<DLManagedTensorVersioned*>& out) {
  if (out.address != nullptr) w.lent.push_back(out.value);
}
void keep(World& w, Out<DLManagedTensor*>& out) {
  if (out.address != nullptr) w.lent_unversioned.push_back(out.value);
}

template <class T>
struct Argument {
  using type = T;
};
template <class T>
struct Argument<T*> {
  using type = Out<T>;
};

using Call = void (*)(World&);
struct Entry {
  const char* name;
  const char* arguments;
  int (*run)(World&);
};

template <auto F>
struct Generic;
template <class... A, int (*F)(A...)>
struct Generic<F> {
  static int run(World& w) {
    std::tuple<typename Argument<A>::type...> arguments;
    return std::apply(
        [&](auto&... a) {
          (convert(w, a), ...);
          const int status = F(pass(a)...);
          if (status == HOLOGRAM_OK) (keep(w, a), ...);
          return status;
        },
        arguments);
  }
};

// --- What is more than handles, lengths and numbers ----------------------------------------------

int allocate(World& w) {
  Out<uint64_t> buffer;
  convert(w, buffer);
  const uint64_t ex = any_handle(w);
  const int64_t n = any_length(w);
  const int status = hologram_executor_allocate_buffer(
      ex, n > 1000 && n < INT64_C(1) << 40 ? 40 : n, any_number(w, 15), buffer.address);
  if (status == HOLOGRAM_OK) keep(w, buffer);
  return status;
}

int with_backend(World& w) {
  constexpr const char* kNames[] = {"cpu", "auto", "cuda", "", "CPU", nullptr, "tpu", "cpu "};
  Out<uint64_t> ex;
  convert(w, ex);
  const int status = hologram_new_executor_with_backend(kNames[w.in.pick(8)], ex.address);
  if (status == HOLOGRAM_OK) keep(w, ex);
  return status;
}

size_t any_size(World& w) {
  constexpr size_t kOdd[] = {SIZE_MAX, SIZE_MAX / 2, size_t{1} << 40, kScratchBytes + 1};
  return w.in.one_in(8) ? kOdd[w.in.pick(4)] : w.in.take<uint8_t>();
}

int copy_from_bytes(World& w) {
  const uint64_t ex = any_handle(w);
  const uint64_t buffer = any_handle(w);
  return hologram_buffer_copy_from_bytes(ex, buffer, w.in.one_in(16) ? nullptr : w.scratch,
                                         any_size(w));
}

int to_bytes(World& w) {
  const uint64_t ex = any_handle(w);
  const uint64_t buffer = any_handle(w);
  return hologram_buffer_to_bytes(ex, buffer, w.in.one_in(16) ? nullptr : w.scratch, any_size(w));
}

int from_json(World& w) {
  constexpr std::string_view kLetters = "[]0123456789.eE+-,,  NaInfity\"truels\n";
  constexpr const char* kTexts[] = {"[1, 2, 3]",
                                    "[NaN, -Infinity, 1e999]",
                                    "[]",
                                    "[0.1,1e-400]",
                                    "[true, false]",
                                    "[-128, 127]",
                                    "[1, 2",
                                    "[[1]]"};
  std::string text = kTexts[w.in.pick(8)];
  for (uint32_t edits = w.in.pick(4); edits > 0; --edits) {
    const size_t at = w.in.pick(static_cast<uint32_t>(text.size() + 1));
    text.insert(at, 1, w.in.one_in(8) ? w.in.take<char>() : kLetters[w.in.pick(kLetters.size())]);
  }
  // Of its own size on the heap, so that reading past the end is seen.
  const std::vector<char> exact(text.begin(), text.end());
  const uint64_t ex = any_handle(w);
  const uint64_t buffer = any_handle(w);
  const bool none = w.in.one_in(16);
  return hologram_buffer_copy_from_slice(ex, buffer, none ? nullptr : exact.data(), exact.size());
}

int to_json(World& w) {
  Out<char*> json;
  Out<size_t> size;
  convert(w, json);
  convert(w, size);
  const uint64_t ex = any_handle(w);
  const int status = hologram_buffer_to_vec(ex, any_handle(w), json.address, size.address);
  if (status == HOLOGRAM_OK) hologram_free(json.value);
  return status;
}

int write_in_place(World& w) {
  Out<void*> address;
  convert(w, address);
  const uint64_t ex = any_handle(w);
  const uint64_t buffer = any_handle(w);
  const int status = hologram_buffer_as_mut_ptr(ex, buffer, address.address);
  int64_t n = 0;
  int dtype = 0;
  if (status == HOLOGRAM_OK && address.value != nullptr &&
      hologram_buffer_length(buffer, &n) == HOLOGRAM_OK && n > 0 &&
      hologram_buffer_dtype(buffer, &dtype) == HOLOGRAM_OK) {
    // Of the narrowest dtype at least that many bytes are there.
    std::memset(address.value, dtype == HOLOGRAM_BOOL ? 1 : w.in.take<uint8_t>(),
                static_cast<size_t>(n));
  }
  return status;
}

int elementwise(World& w) {
  uint64_t inputs[8];
  double numbers[8];
  for (int k = 0; k < 8; ++k) {
    inputs[k] = any_handle(w);
    numbers[k] = w.in.take<float>();
  }
  const uint64_t ex = any_handle(w);
  const int op = any_number(w, 110);
  const int arity = any_number(w, 6);
  const bool no_inputs = w.in.one_in(16);
  const bool no_numbers = w.in.one_in(2);
  const uint64_t out = any_handle(w);
  return hologram_elementwise(ex, op, no_inputs ? nullptr : inputs, no_numbers ? nullptr : numbers,
                              arity, out, any_length(w));
}

int from_buffer(World& w) {
  int64_t shape[64];
  int64_t strides[64];
  for (int d = 0; d < 64; ++d) {
    shape[d] = d < 4 ? (w.in.one_in(2) ? 2 : any_length(w)) : 1;
    strides[d] = d < 4 ? (w.in.one_in(2) ? 1 : any_length(w)) : 0;
  }
  Out<uint64_t> tensor;
  convert(w, tensor);
  const uint64_t buffer = any_handle(w);
  const int64_t offset = any_length(w) % 8;
  const int ndim = any_number(w, 5);
  const bool no_shape = w.in.one_in(16);
  const int status =
      hologram_tensor_from_buffer(buffer, offset, ndim, no_shape ? nullptr : shape,
                                  w.in.one_in(2) ? nullptr : strides, tensor.address);
  if (status == HOLOGRAM_OK) keep(w, tensor);
  return status;
}

template <int (*F)(uint64_t, int64_t*, int)>
int sizes(World& w) {
  int64_t to[64];
  const bool none = w.in.one_in(16);
  const uint64_t tensor = any_handle(w);
  return F(tensor, none ? nullptr : to, w.in.one_in(4) ? any_number(w, 64) % 65 : 64);
}

template <class Managed, int (*F)(Managed*, uint64_t*)>
int import(World& w, std::vector<Managed*>& lent) {
  Managed* managed = nullptr;
  if (!lent.empty() && !w.in.one_in(8)) managed = lent.back();
  Out<uint64_t> tensor;
  convert(w, tensor);
  const int status = F(managed, tensor.address);
  if (status == HOLOGRAM_OK) {
    lent.pop_back();
    keep(w, tensor);
  }
  return status;
}
int import_versioned(World& w) {
  return import <DLManagedTensorVersioned, hologram_tensor_from_dlpack>(w, w.lent);
}
int import_unversioned(World& w) {
  return import <DLManagedTensor, hologram_tensor_from_dlpack_unversioned>(w, w.lent_unversioned);
}

// A number that is none of the argument is refused as such, a buffer for the output of a dtype too.
#define GENERIC(name, arguments) \
  { #name, arguments, Generic < hologram_##name> ::run }
constexpr Entry kEntries[] = {
    {"executor_allocate_buffer", "ex n dtype buf", allocate},
    {"executor_allocate_buffer", "ex n dtype buf", allocate},
    {"executor_allocate_buffer", "ex n dtype buf", allocate},
    {"new_executor_with_backend", "ex name backend", with_backend},
    {"buffer_copy_from_bytes", "ex buf bytes nbytes", copy_from_bytes},
    {"buffer_to_bytes", "ex buf bytes nbytes", to_bytes},
    {"buffer_copy_from_slice", "ex buf json JSON", from_json},
    {"buffer_to_vec", "ex buf json JSON", to_json},
    {"buffer_as_mut_ptr", "ex buf address", write_in_place},
    {"elementwise", "ex op inputs arity out n", elementwise},
    {"tensor_from_buffer", "buf offset ndim shape strides tensor", from_buffer},
    {"tensor_shape", "tensor shape capacity", sizes<hologram_tensor_shape>},
    {"tensor_strides", "tensor strides capacity", sizes<hologram_tensor_strides>},
    {"tensor_from_dlpack", "managed tensor", import_versioned},
    {"tensor_from_dlpack_unversioned", "managed tensor", import_unversioned},
    GENERIC(get_version, "version"),
    GENERIC(new_executor, "ex"),
    GENERIC(new_executor_auto, "ex"),
    GENERIC(executor_cleanup, "ex"),
    GENERIC(executor_synchronize, "ex"),
    GENERIC(executor_backend, "ex name"),
    GENERIC(buffer_cleanup, "buf"),
    GENERIC(buffer_length, "buf n"),
    GENERIC(buffer_dtype, "buf dtype"),
    GENERIC(buffer_as_ptr, "ex buf address"),
    GENERIC(buffer_fill, "ex buf value n"),
    GENERIC(buffer_copy, "ex source target n"),
    GENERIC(tensor_as_buffer, "tensor buf"),
    GENERIC(tensor_copy, "tensor copy"),
    GENERIC(tensor_cleanup, "tensor"),
    GENERIC(tensor_ndim, "tensor ndim"),
    GENERIC(tensor_dtype, "tensor dtype"),
    GENERIC(tensor_to_dlpack, "tensor managed"),
    GENERIC(tensor_to_dlpack_unversioned, "tensor managed"),
    GENERIC(vector_add_f32, "ex a b c n"),
    GENERIC(vector_sub_f32, "ex a b c n"),
    GENERIC(vector_mul_f32, "ex a b c n"),
    GENERIC(vector_div_f32, "ex a b c n"),
    GENERIC(vector_min_f32, "ex a b c n"),
    GENERIC(vector_max_f32, "ex a b c n"),
    GENERIC(vector_abs_f32, "ex x y n"),
    GENERIC(vector_neg_f32, "ex x y n"),
    GENERIC(vector_relu_f32, "ex x y n"),
    GENERIC(sigmoid_f32, "ex x y n"),
    GENERIC(tanh_f32, "ex x y n"),
    GENERIC(gelu_f32, "ex x y n"),
    GENERIC(vector_clip_f32, "ex x y n"),
    GENERIC(scalar_add_f32, "ex x y n"),
    GENERIC(scalar_mul_f32, "ex x y n"),
    GENERIC(softmax_f32, "ex x y n"),
    GENERIC(reduce_sum_f32, "ex x y n"),
    GENERIC(reduce_min_f32, "ex x y n"),
    GENERIC(reduce_max_f32, "ex x y n"),
    GENERIC(mse_loss_f32, "ex pred target loss n"),
    GENERIC(cross_entropy_loss_f32, "ex pred target loss n"),
    GENERIC(binary_cross_entropy_loss_f32, "ex pred target loss n"),
    GENERIC(gemm_f32, "ex a b c m n k"),
    GENERIC(matvec_f32, "ex a x y m n"),
    GENERIC(reduce, "ex reduction x out n"),
    GENERIC(softmax, "ex x y rows cols"),
    GENERIC(log_softmax, "ex x y rows cols"),
    GENERIC(gemm, "ex a b c m n k"),
#define HOLOGRAM_OP(name, ...) GENERIC(name, "ex x y z w out n inputs"),
#include "hologram/elementwise.def"
};
#undef GENERIC

}  // namespace

void run_calls(Reader& in) {
  World w{in, {}, {}, {}};
  w.handles.resize(4);
  FUZZ_CHECK(hologram_new_executor(&w.handles[0]) == HOLOGRAM_OK, "%s", hologram_last_error());
  for (int i = 1; i < 4; ++i) {
    const int dtype = i < 3 ? static_cast<int>(HOLOGRAM_FLOAT32) : static_cast<int>(in.pick(12));
    const int status = hologram_executor_allocate_buffer(w.handles[0], 32, dtype,
                                                         &w.handles[static_cast<size_t>(i)]);
    FUZZ_CHECK(status == HOLOGRAM_OK, "%s", hologram_last_error());
    hologram_buffer_fill(w.handles[0], w.handles[static_cast<size_t>(i)], 1.0, 32);
  }
  for (int call = 0; call < kMostCalls && !in.empty(); ++call) {
    const Entry& entry = kEntries[in.take<uint16_t>() % std::size(kEntries)];
    check(entry.run(w), entry.name, entry.arguments);
  }
  for (DLManagedTensorVersioned* managed : w.lent) managed->deleter(managed);
  for (DLManagedTensor* managed : w.lent_unversioned) managed->deleter(managed);
  FUZZ_CHECK(hologram_clear_all_registries() == HOLOGRAM_OK, "%s", hologram_last_error());
  for (const uint64_t handle : w.handles) {
    FUZZ_CHECK(hologram_buffer_cleanup(handle) != HOLOGRAM_OK, "a handle was left");
  }
}

}  // namespace hologram::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hologram::fuzz::Reader in(data, size);
  hologram::fuzz::run_calls(in);
  return 0;
}
