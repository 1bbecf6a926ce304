// SPDX-License-Identifier: MIT
// The calls of the library as data: what each is called, takes and gives. One row of
// src/ops/calls.def is one call; every front end (C, C++, Python, PyTorch) translates to it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hologram/api.h"
#include "hologram/call.h"

namespace hologram {

// The parameter `kind` of the call resample: how the outputs along an axis are made of inputs; all
// axes of an image in the same way.
enum class Resampling : uint8_t {
  windows,        // means of windows: kernel, stride, padding
  adaptive,       // means of windows that cover the inputs evenly
  nearest,        // the input at floor(i * step)
  nearest_exact,  // the input at floor((i + 0.5) * step)
  linear,         // between two inputs
  cubic,          // between four inputs: Keys' kernel with a = -0.75
};

// Which dtypes an operand may have; the letter is that of the schema.
enum class CallDtype : char {
  any = 'A',       // any; all of a call agree
  each = 'E',      // any, each operand its own
  number = 'N',    // float16, bfloat16, float32, float64, int32 or int64; all agree
  floating = 'T',  // float16, bfloat16, float32 or float64; all agree
  param = 'P',     // that of the floating operands or, beside a half type, float32; all agree
  stat = 'S',      // as param, for itself; a result is float32 beside a half type
  real = 'R',      // float32 or float64; all agree
  index = 'I',     // int32 or int64
  int64 = 'L',
  int8 = 'C',
  uint8 = 'U',
  boolean = 'B',
  float32 = 'F',
};

// One entry of a shape: a product of a number, sizes (capital letters) and parameters, or a run of
// dimensions (*S), of which there may be one in a shape unless the others say how many they are.
struct CallDim {
  int64_t factor = 1;
  std::vector<std::string> names;
  bool run = false;
  std::string count;  // of a run: the parameter that says how many dimensions it has
};

struct CallOperandInfo {
  std::string name;
  CallDtype dtype = CallDtype::any;
  std::vector<CallDim> shape;
  std::string shape_text;   // "[N, C, *S]"
  bool free_shape = false;  // any shape: the front end knows which
  bool is_result = false;
  bool is_saved = false;    // a result for a backward call, which users do not see
  bool is_updated = false;  // an input that is written,
  bool is_covered = false;  // and that whatever it held
  bool is_optional = false;
  bool is_list = false;      // any number of tensors, each with one of every other list
  bool broadcasts = false;   // repeated to the shape
  std::string positions_in;  // its elements are positions in a dimension of this size
};

struct CallParameterInfo {
  enum class Kind : uint8_t {
    integer,   // a word of the call
    boolean,   // a word
    integers,  // a word that counts them, and one for each
    number,    // a float64, which may differ between equal calls
    word,      // a uint64, which may differ
    scalar,    // a float64, or a tensor of one element that holds one
  };
  std::string name;
  Kind kind = Kind::integer;
  bool only_shapes = false;  // settles the shapes of results; kernels do not see it
  bool is_list = false;      // one for each tensor of the lists
  bool is_required = true;
  double value = 0;      // where it is not given,
  std::string value_of;  // or that of another parameter
};

// A row. call_structs.h has a struct for each.
struct CallOp {
  const char* name = nullptr;
  const char* schema = nullptr;
  const char* doc = nullptr;
  uint16_t number = 0;  // the kind's, see register_call()
  std::vector<CallOperandInfo> operands = {};
  std::vector<CallParameterInfo> parameters = {};
};

// All rows, in order of their numbers. They live as long as the process.
HOLOGRAM_API std::span<const CallOp> call_ops();
// Null where there is none of that name.
HOLOGRAM_API const CallOp* find_call(std::string_view name);
// Error(kInvalidArgument) where there is none.
HOLOGRAM_API const CallOp& call_op(std::string_view name);

}  // namespace hologram
