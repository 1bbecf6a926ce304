// SPDX-License-Identifier: MIT
// Copies, casts and fills of strided memory.
#include <algorithm>
#include <array>
#include <cstring>

#include "hologram/elementwise.h"
#include "hologram/error.h"
#include "src/base/dtype_check.h"
#include "src/cpu/device/call_table.h"
#include "src/cpu/device/grain_size.h"
#include "src/cpu/device/kernel_table.h"
#include "src/cpu/device/scratch.h"
#include "src/cpu/elementwise/iteration.h"
#include "src/cpu/movement/copy_bytes.h"

namespace hologram {
namespace {

using cpu::Block;
using cpu::is_dense;
using cpu::Iteration;
using cpu::kMaxOperands;

// Tiles of 16-byte elements must fit a class too.
int64_t tile_elements(Dtype a, Dtype b) {
  return std::max(itemsize(a), itemsize(b)) > 8 ? 512 : cpu::kTile;
}

void copy_run(const char* src, char* dst, int64_t bytes, bool streams) {
  const int64_t streamed = streams ? bytes / 64 * 64 : 0;
  if (streamed > 0) cpu::convert_table(current_isa()).stream(src, dst, streamed);
  cpu::copy_bytes(dst + streamed, src + streamed, bytes - streamed);
}

void copy_flat(const Iteration& iteration, Dtype from, Dtype to, int max_threads) {
  const int64_t from_size = static_cast<int64_t>(itemsize(from));
  const int64_t to_size = static_cast<int64_t>(itemsize(to));
  char* dst = iteration.data(0);
  const char* src = iteration.data(1);
  const bool streams = iteration.numel() * to_size >= cpu::kStreamBytes &&
                       reinterpret_cast<uintptr_t>(dst) % 64 == 0;
  cpu::for_chunks(
      iteration.numel(), cpu::grain(false), max_threads, [&](int64_t begin, int64_t end) {
        if (from == to) {
          copy_run(src + begin * from_size, dst + begin * to_size, (end - begin) * to_size,
                   streams);
        } else {
          convert(from, src + begin * from_size, to, dst + begin * to_size, end - begin);
        }
      });
}

void copy_one_block(const std::array<Block, kMaxOperands>& blocks, int64_t rows, int64_t cols,
                    Dtype from, Dtype to, cpu::Scratch& scratch) {
  const Block& target = blocks[0];
  Block source = blocks[1];
  const int64_t from_size = static_cast<int64_t>(itemsize(from));
  const int64_t to_size = static_cast<int64_t>(itemsize(to));
  if (from == to) {
    cpu::copy_block(source, target, rows, cols, to_size);
    return;
  }
  if (!is_dense(source, rows, cols)) {
    const Block gathered{scratch.slot(0), cols, 1};
    cpu::copy_block(source, gathered, rows, cols, from_size);
    source = gathered;
  }
  if (is_dense(target, rows, cols)) {
    convert(from, source.data, to, target.data, rows * cols);
    return;
  }
  const Block converted{scratch.slot(1), cols, 1};
  convert(from, source.data, to, converted.data, rows * cols);
  cpu::copy_block(converted, target, rows, cols, to_size);
}

void check_conversion(Dtype from, Dtype to) {
  if (from != to) {
    check_has_kernels("convert", from);
    check_has_kernels("convert", to);
  }
  if (is_complex(from) && !is_complex(to)) {
    fail(ErrorKind::kTypeMismatch, "a conversion from ", dtype_name(from), " to ", dtype_name(to),
         " would drop the imaginary part; take the real part first");
  }
}

}  // namespace

void convert(Dtype src_dtype, const void* src, Dtype dst_dtype, void* dst, int64_t n) {
  if (n <= 0) return;
  if (src_dtype == dst_dtype) {
    cpu::copy_bytes(dst, src, n * static_cast<int64_t>(itemsize(src_dtype)));
    return;
  }
  check_has_kernels("convert", src_dtype);
  check_has_kernels("convert", dst_dtype);
  const auto& kernels = cpu::convert_table(current_isa()).kernels;
  const auto kernel = [&](Dtype from, Dtype to) {
    return kernels[static_cast<int>(from)][static_cast<int>(to)];
  };
  if (const auto direct = kernel(src_dtype, dst_dtype)) {
    direct(src, dst, n);
    return;
  }
  check_conversion(src_dtype, dst_dtype);
  // The half types are reached and left through float32.
  const auto first = kernel(src_dtype, Dtype::kFloat32);
  const auto second = kernel(Dtype::kFloat32, dst_dtype);
  alignas(64) float middle[cpu::kTile];
  const char* in = static_cast<const char*>(src);
  char* out = static_cast<char*>(dst);
  for (int64_t done = 0; done < n; done += cpu::kTile) {
    const int64_t count = std::min(cpu::kTile, n - done);
    first(in + done * static_cast<int64_t>(itemsize(src_dtype)), middle, count);
    second(middle, out + done * static_cast<int64_t>(itemsize(dst_dtype)), count);
  }
}

void copy(const View& src, const View& dst, int max_threads) {
  check_conversion(src.dtype, dst.dtype);
  const View operands[2] = {dst, src};
  Iteration iteration("copy", operands, 2);
  if (iteration.numel() == 0) return;
  if (max_threads <= 0) max_threads = num_threads();
  if (iteration.is_flat() && !iteration.is_scalar(1)) {
    copy_flat(iteration, src.dtype, dst.dtype, max_threads);
    return;
  }
  iteration.cut(tile_elements(src.dtype, dst.dtype), true);
  const int64_t per_chunk = std::max<int64_t>(1, cpu::grain(false) / iteration.block_elements());
  cpu::for_chunks(iteration.block_count(), per_chunk, max_threads, [&](int64_t begin, int64_t end) {
    cpu::Scratch scratch;
    std::array<Block, kMaxOperands> blocks;
    for (int64_t b = begin; b < end; ++b) {
      const auto extent = iteration.block(b, blocks);
      copy_one_block(blocks, extent.rows, extent.cols, src.dtype, dst.dtype, scratch);
    }
  });
}

void fill(const Scalar& value, const View& dst, int max_threads) {
  alignas(16) char element[16];
  convert(value.dtype, &value.f64, dst.dtype, element, 1);
  const View source{element, dst.dtype, 0, nullptr, nullptr};
  const View operands[2] = {dst, source};
  Iteration iteration("fill", operands, 2);
  if (iteration.numel() == 0) return;
  if (max_threads <= 0) max_threads = num_threads();
  const int64_t size = static_cast<int64_t>(itemsize(dst.dtype));
  if (!iteration.is_flat()) {
    copy(source, dst, max_threads);
    return;
  }
  char* out = iteration.data(0);
  const bool zero = std::all_of(element, element + size, [](char c) { return c == 0; });
  cpu::for_chunks(iteration.numel(), cpu::grain(false), max_threads,
                  [&](int64_t begin, int64_t end) {
                    if (zero) {
                      std::memset(out + begin * size, 0, static_cast<size_t>((end - begin) * size));
                    } else {
                      cpu::copy_block({element, 0, 0}, {out + begin * size, end - begin, 1}, 1,
                                      end - begin, size);
                    }
                  });
}

void cpu::run(const calls::Copy<>& call, CallThreads threads) {
  copy(call.input, call.out, threads(call.out.numel()));
}

}  // namespace hologram
