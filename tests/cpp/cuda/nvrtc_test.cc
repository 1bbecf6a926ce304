// SPDX-License-Identifier: MIT
// Generated kernels under CUDA's compiler, which needs no GPU.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <regex>
#include <string>
#include <vector>

#include "hologram/error.h"
#include "src/cuda/nvrtc.h"
#include "src/cuda/prologue.h"
#include "src/gpu/kernel_text.h"
#include "tests/cpp/cpu/random_kernel.h"
#include "tests/cpp/cuda/strict.h"

namespace hologram::cuda {
namespace {

using namespace plans;

constexpr gpu::Traits kTraits = {
    .has_double = true, .divides_exactly = true, .parameter_bytes = 4096, .group_items = 1024};

// Many kernels in one program, which takes the compiler a tenth of the time.
class Batch {
 public:
  void add(const std::string& what, const std::string& source) {
    names_.push_back(what);
    const std::string number = std::to_string(names_.size());
    text_ += "#undef W\n#undef ALL_WORDS\n#undef OWN_GROUP\n#undef OWN_ITEM\nnamespace n" + number +
             " {\n";
    std::string renamed = source;
    const size_t at = renamed.find(gpu::kKernelName);
    renamed.replace(at, std::string(gpu::kKernelName).size(), "k" + number);
    text_ += renamed + "}\n";
  }
  size_t size() const { return names_.size(); }

  Image compiled(int architecture) const {
    Image image = compile(text_, architecture, strict_options());
    EXPECT_FALSE(image.bytes.empty());
    return image;
  }
  // Of each kernel, what the assembler says of bytes that did not fit into registers.
  void expect_spills_of(int most, int architecture) const {
    const Image image = compiled(architecture);
    static const std::regex kKernel("Function properties for k(\\d+)");
    static const std::regex kSpills("(\\d+) bytes spill stores, (\\d+) bytes spill loads");
    size_t found = 0;
    for (auto at = std::sregex_iterator(image.log.begin(), image.log.end(), kKernel);
         at != std::sregex_iterator(); ++at) {
      std::smatch spills;
      const std::string rest = at->suffix().str().substr(0, 200);
      ASSERT_TRUE(std::regex_search(rest, spills, kSpills)) << rest;
      EXPECT_LE(std::stoi(spills[1]), most)
          << names_[std::stoul((*at)[1]) - 1] << " for sm_" << architecture;
      EXPECT_LE(std::stoi(spills[2]), most)
          << names_[std::stoul((*at)[1]) - 1] << " for sm_" << architecture;
      ++found;
    }
    EXPECT_EQ(found, size()) << image.log.substr(0, 2000);
  }

 private:
  std::vector<std::string> names_;
  std::string text_;
};

class NvrtcTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_nvrtc()) GTEST_SKIP() << why_no_nvrtc() << " (set HOLOGRAM_NVRTC_LIBRARY)";
  }

  static std::string source(const Kernel& kernel) {
    static const circuit::NativeOps native = gpu::native_ops(kTraits);
    const auto texts = gpu::kernel_texts(kernel, kTraits, native);
    return texts.empty() ? std::string() : gpu::source_of(texts.front());
  }
};

// Over operands that are dense, strided, repeated along rows and in all, and numbers.
TEST_F(NvrtcTest, EveryRowInEveryDtypeCompilesWithoutSpills) {
  const circuit::NativeOps native = gpu::native_ops(kTraits);
  Random random(7);
  std::vector<Batch> batches(1);
  size_t rows = 0;
  for (const OpInfo& info : ops()) {
    for (int d = 0; d <= static_cast<int>(Dtype::kFloat64); ++d) {
      const auto stored = static_cast<Dtype>(d);
      const Dtype compute = compute_dtype(stored);
      if (!info.supports(compute)) continue;
      ASSERT_TRUE(native.has(info.id, compute)) << info.name << " of " << dtype_name(compute);
      const std::vector<int64_t> shape = {5, 3, 11};
      Case test;
      Builder builder(shape);
      std::vector<Ref> in;
      for (int k = 0; k < info.arity; ++k) {
        int64_t extent = 165;
        const bool is_row = k == 1;
        const Strides strides =
            k == 0 ? builder.contiguous()
                   : random_strides(random, shape, {k == 3, false, is_row}, extent);
        const Ref read = builder.access(test.slot(random, stored, extent), stored, strides,
                                        is_row ? Rank::kRow : Rank::kFull);
        if (k == 2 && stored == compute) {
          in.push_back(Builder::immediate(test.immediate(compute, 1)));
        } else {
          in.push_back(stored == compute ? read : builder.convert_temp(read, compute));
        }
      }
      const Dtype result = info.result_is_bool ? Dtype::kBool : stored;
      const Ref out = builder.dense(test.slot(random, result, 165), result);
      builder.op(info.id, compute, in, out);
      test.add(builder);
      const std::string text = source(test.plan.kernels[0]);
      ASSERT_FALSE(text.empty()) << info.name << " of " << dtype_name(stored);
      if (batches.back().size() == 128) batches.emplace_back();
      batches.back().add(std::string(info.name).append(" of ").append(dtype_name(stored)), text);
      ++rows;
    }
  }
  EXPECT_GT(rows, 400u);
  for (const int architecture : architectures()) {
    ASSERT_TRUE(supports(architecture)) << architecture;
    for (const Batch& batch : batches) batch.expect_spills_of(0, architecture);
  }
}

// Over rows that one item has, and that 8, 64 and 256 share, or some as rows beside each other, of
// which an item has several parts; where it keeps a row's elements, and where it does not. Every
// fifth is compiled, or all.
TEST_F(NvrtcTest, ReductionsAndRowFunctionsCompile) {
  Random random(7);
  Batch batch;
  size_t made = 0;
  const auto add_rows = [&](int64_t rows, int64_t cols, std::initializer_list<Dtype> dtypes) {
    // Elements of a column lie side by side where there are more rows than one group's.
    const Strides strides = rows == 3 ? Strides{cols, 1} : Strides{1, rows};
    for (const Dtype dtype : dtypes) {
      const auto elements = [&](Case& test, Builder& builder, Dtype of) {
        return builder.access(test.slot(random, of, rows * cols), of, strides);
      };
      const auto add = [&](const std::string& what, auto&& fill) {
        Case test;
        Builder builder({rows, cols}, true);
        fill(test, builder, elements(test, builder, dtype));
        test.add(builder);
        const std::string text = source(test.plan.kernels[0]);
        ASSERT_FALSE(text.empty()) << what;
        if (made++ % 5 != 0 && !compiles_all()) return;
        batch.add(what + " of " + std::to_string(rows) + " rows of " + std::to_string(cols) + " " +
                      std::string(dtype_name(dtype)),
                  text);
      };
      for (int r = 0; r < kReductionCount; ++r) {
        const auto op = static_cast<Reduction>(r);
        if (is_positional(op)) continue;
        if (!is_floating(dtype) && reduction_info(op).result == ReductionInfo::kFloat) continue;
        const Dtype out = reduction_info(op).result == ReductionInfo::kBool ? Dtype::kBool : dtype;
        add(std::string(reduction_name(op)), [&](Case& test, Builder& builder, Ref x) {
          builder.fold(
              op, x, builder.access(test.slot(random, out, rows), out, builder.rows(), Rank::kRow),
              3);
        });
      }
      if (!is_floating(dtype)) continue;
      for (int f = 0; f < 4; ++f) {
        add("row function " + std::to_string(f), [&](Case& test, Builder& builder, Ref x) {
          std::vector<Ref> in = {x};
          if (f >= 2) in.push_back(elements(test, builder, dtype));
          const Dtype compute = compute_dtype(dtype);
          builder.rows(static_cast<circuit::RowOp>(f), compute, in,
                       elements(test, builder, compute));
        });
      }
    }
  };
  for (const int64_t cols : {5, 100, 500, 5000}) {
    add_rows(3, cols,
             {Dtype::kUInt8, Dtype::kInt64, Dtype::kBFloat16, Dtype::kFloat32, Dtype::kFloat64});
  }
  add_rows(3, 8192, {Dtype::kFloat32});
  for (const int64_t cols : {1000, 8192}) {
    add_rows(4096, cols, {Dtype::kBFloat16, Dtype::kFloat32});
  }
  EXPECT_GT(made, 230u);
  EXPECT_GT(batch.size(), made / 6);
  // Softmax of float64 has 8 bytes too many for sm_120.
  for (const int architecture : architectures()) batch.expect_spills_of(8, architecture);
}

// `op` of dense operands.
std::string dense_source(OpId op, Dtype stored) {
  const Dtype compute = compute_dtype(stored);
  Random random(3);
  Case test;
  Builder builder({7, 100});
  std::vector<Ref> in;
  for (int k = 0; k < op_info(op).arity; ++k) {
    const Ref read = builder.dense(test.slot(random, stored, 700), stored);
    in.push_back(stored == compute ? read : builder.convert_temp(read, compute));
  }
  const Ref out = builder.temp(compute);
  builder.op(op, compute, in, out);
  builder.convert(out, compute, builder.dense(test.slot(random, stored, 700), stored));
  test.add(builder);
  const auto texts = gpu::kernel_texts(test.plan.kernels[0], kTraits, gpu::native_ops(kTraits));
  return gpu::source_of(texts.at(0));
}

TEST_F(NvrtcTest, DenseKernelsOfWideElementsDoNotSpill) {
  Batch batch;
  for (const OpId op : {OpId::add, OpId::div, OpId::gelu, OpId::pow, OpId::erfinv}) {
    for (const Dtype dtype :
         {Dtype::kFloat32, Dtype::kFloat64, Dtype::kFloat16, Dtype::kBFloat16}) {
      batch.add(std::string(op_info(op).name), dense_source(op, dtype));
    }
  }
  for (const int architecture : {80, 90, 100, 120}) batch.expect_spills_of(0, architecture);
}

// What the library makes of texts before they are assembled, by functions that only tests need.
class PtxTest : public NvrtcTest {
 protected:
  void SetUp() override {
    NvrtcTest::SetUp();
    if (IsSkipped()) return;
    const char* const path = std::getenv("HOLOGRAM_NVRTC_LIBRARY");
    library_ = path == nullptr ? nullptr : dlopen(path, RTLD_NOW);
    if (library_ == nullptr) GTEST_SKIP() << "set HOLOGRAM_NVRTC_LIBRARY to a path";
    find("nvrtcCreateProgram", create_);
    find("nvrtcCompileProgram", build_);
    find("nvrtcGetPTXSize", size_);
    find("nvrtcGetPTX", get_);
    find("nvrtcDestroyProgram", destroy_);
  }
  void TearDown() override {
    if (library_ != nullptr) dlclose(library_);
  }

  std::string ptx(const std::string& source, int architecture = 80) const {
    const std::string text = std::string(kPrologue) + source;
    const std::string target = "--gpu-architecture=compute_" + std::to_string(architecture);
    const char* const options[] = {target.c_str(), "--fmad=false"};
    Handle program = nullptr;
    EXPECT_EQ(create_(&program, text.c_str(), "dense.cu", 0, nullptr, nullptr), 0);
    EXPECT_EQ(build_(program, 2, options), 0) << text;
    size_t bytes = 0;
    size_(program, &bytes);
    std::string result(bytes, ' ');
    get_(program, result.data());
    destroy_(&program);
    return result;
  }

 private:
  using Handle = void*;

  template <class F>
  void find(const char* name, F& function) {
    function = reinterpret_cast<F>(dlsym(library_, name));
    ASSERT_NE(function, nullptr) << name;
  }

  void* library_ = nullptr;
  int (*create_)(Handle*, const char*, const char*, int, const char* const*,
                 const char* const*) = nullptr;
  int (*build_)(Handle, int, const char* const*) = nullptr;
  int (*size_)(Handle, size_t*) = nullptr;
  int (*get_)(Handle, char*) = nullptr;
  int (*destroy_)(Handle*) = nullptr;
};

// The compiler joins no loads by itself.
TEST_F(PtxTest, DenseOperandsAreLoadedAndStoredSixteenBytesAtOnce) {
  const std::pair<Dtype, const char*> cases[] = {{Dtype::kFloat32, ".v4.f32"},
                                                 {Dtype::kFloat64, ".v2.f64"},
                                                 {Dtype::kBFloat16, ".v4.u32"},
                                                 {Dtype::kUInt8, ".v4.u32"}};
  for (const auto& [dtype, wide] : cases) {
    const std::string text = ptx(dense_source(OpId::add, dtype));
    EXPECT_NE(text.find(std::string("ld.global.nc") + wide), std::string::npos) << text;
    EXPECT_NE(text.find(std::string("st.global") + wide), std::string::npos) << text;
  }
}

// Most GPUs compute 64 times as many float32 numbers as float64.
TEST_F(PtxTest, RowsOfFloat32ComputeInFloat32) {
  // CUDA's sin, cos and tan have float64 for huge angles.
  const std::vector<OpId> exempt = {OpId::digamma, OpId::sin, OpId::cos, OpId::tan};
  int rows = 0, wide = 0;
  for (const OpInfo& info : ops()) {
    if (!info.supports(Dtype::kFloat32) || info.result_is_bool) continue;
    const std::string text = ptx(dense_source(info.id, Dtype::kFloat32));
    const bool has_wide = text.find(".f64") != std::string::npos;
    if (std::find(exempt.begin(), exempt.end(), info.id) != exempt.end()) {
      wide += has_wide;
      continue;
    }
    EXPECT_FALSE(has_wide) << info.name << "\n" << text;
    ++rows;
  }
  EXPECT_GT(rows, 50);
  EXPECT_EQ(wide, 4);
}

TEST_F(PtxTest, HalfTypesAreRoundedByTheirInstructions) {
  const auto has = [](const std::string& text, const char* what) {
    return text.find(what) != std::string::npos;
  };
  const std::string half = ptx(dense_source(OpId::exp, Dtype::kFloat16));
  EXPECT_TRUE(has(half, "cvt.f32.f16") && has(half, "cvt.rn.f16.f32")) << half;
  const std::string brain = ptx(dense_source(OpId::exp, Dtype::kBFloat16));
  EXPECT_TRUE(has(brain, "cvt.rn.bf16.f32")) << brain;
  if (!supports(75)) return;
  const std::string old_half = ptx(dense_source(OpId::exp, Dtype::kFloat16), 75);
  EXPECT_TRUE(has(old_half, "cvt.rn.f16.f32")) << old_half;
  const std::string old_brain = ptx(dense_source(OpId::exp, Dtype::kBFloat16), 75);
  EXPECT_FALSE(has(old_brain, "cvt.rn.bf16.f32")) << old_brain;
  EXPECT_FALSE(compile(dense_source(OpId::exp, Dtype::kBFloat16), 75).bytes.empty());
}

TEST_F(NvrtcTest, RandomKernelsCompile) {
  Batch batch;
  for (unsigned seed = 0; batch.size() < 64; ++seed) {
    Random random(seed);
    Case test;
    test.add(RandomKernel(random, test).make());
    const std::string text = source(test.plan.kernels[0]);
    if (!text.empty()) batch.add("seed " + std::to_string(seed), text);
  }
  for (const int architecture : architectures()) batch.compiled(architecture);
}

TEST_F(NvrtcTest, ARefusedTextIsSaidWithTheCompilersWords) {
  try {
    compile("KERNEL(64) hologram_kernel() { nothing(); }\n", 90);
    FAIL() << "was compiled";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("refuses a program for sm_90"), std::string::npos) << text;
    EXPECT_NE(text.find("identifier \"nothing\" is undefined"), std::string::npos) << text;
    EXPECT_NE(text.find("KERNEL(64) hologram_kernel()"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace hologram::cuda
