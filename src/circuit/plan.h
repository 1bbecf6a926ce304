// SPDX-License-Identifier: MIT
// Plan: what a circuit became. A few kernels in launch order, each some instructions over blocks of
// its domain, and the buffers that need memory before they run. No addresses: a plan serves every
// circuit with the same words. make_plan() makes it, the plan cache keeps it, Device::run_plan()
// reads it.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "hologram/dtype.h"
#include "hologram/op_ids.h"
#include "src/circuit/plan_limits.h"
#include "src/circuit/tape.h"

namespace hologram::circuit {

inline constexpr int kMaxDomainDims = 8;

// How many elements a value has.
enum class Rank : uint8_t {
  kFull,  // one for each element of the domain
  kRow,   // one for each row: the same along the domain's last dimension
  kOne,   // one in all
};

// Memory that a kernel reads or writes.
struct MemoryAccess {
  uint32_t slot = 0;
  int64_t offset = 0;  // bytes
  Dtype dtype = Dtype::kFloat32;
  Rank rank = Rank::kFull;
  bool loaded = false;  // read before this kernel writes it, if it does
  bool stored = false;
  // What the kernel's call gave, wherever that is: in the slot where the call stores it.
  bool product = false;
  // Elements per step of each dimension of the domain; 0 where repeated. For kRow the last is 0,
  // for kOne all are.
  std::array<int64_t, kMaxDomainDims> strides{};
};

// A value that one instruction writes and later ones read while a block is computed. Where it is
// kept is the device's business.
struct Temp {
  Dtype dtype = Dtype::kFloat32;
  Rank rank = Rank::kFull;

  bool operator==(const Temp&) const = default;
};

struct Ref {
  enum Kind : uint8_t { kNone, kAccess, kTemp, kImmediate } kind = kNone;
  uint32_t index = 0;

  bool operator==(const Ref&) const = default;
};

// One step. An operand of one element (kOne, or kRow where there is one row) may be read once for
// all blocks: no step reads one from memory that an earlier step has written. Inputs of lower rank
// than the step's are repeated along the row (or everywhere). An immediate's 8 bytes hold a number
// in `compute`, as in Tape.
struct Instr {
  uint16_t code = 0;                // an OpId, or a Code
  uint16_t attr = 0;                // kCodeReduction: Reduction; kCodeRow: RowOp
  Dtype compute = Dtype::kFloat32;  // of the inputs; for kCodeConvert what is converted from
  Dtype result = Dtype::kFloat32;   // of the output
  Rank rank = Rank::kFull;          // of the output; the input of a fold is kFull
  uint8_t arity = 0;
  Ref in[kMaxArity];
  Ref out;  // kTemp or kAccess
  double parameter = 0;
  int record = -1;  // of the tape, which this computes, or converts for

  bool is_op() const { return code < kCodeConvert; }
  OpId op() const { return static_cast<OpId>(code); }
};

// A call as a kernel, or as what a kernel begins with.
struct KernelCall {
  uint16_t kind = 0;
  int record = -1;  // of the tape
  int number = 0;   // which of its calls
  // In the order in which they were recorded. A result that the kernel's instructions alone see is
  // not present.
  std::vector<CallSlot> operands;
  int result = -1;                   // which of them is one; -1: none
  std::vector<uint64_t> attributes;  // in the order in which they were recorded
  uint32_t first_number = 0;         // its numbers follow each other among the immediates
  // The operand that is not the tape's but what that is converted from; -1: none. Its offset and
  // its bytes as ids, as in Kernel::formulas.
  int narrowed = -1;
  uint32_t narrowed_offset = 0, narrowed_bytes = 0;

  int64_t bytes() const;  // read and written
};

// Runs its instructions in order on every block of the domain, blocks in any order and on any
// thread. Results do not depend on the blocks: an element's value (a row's, where whole_rows)
// depends on its inputs alone. What one block stores no other block loads or stores.
//
// Where it has a call, that comes first, and there may be nothing else: no domain, no instructions,
// no accesses. Else the domain is the rows and columns of the call's result, the rows in several
// dimensions where they come in groups, and the instructions run on blocks of it as soon as those
// are done.
struct Kernel {
  int ndim = 1;
  std::array<int64_t, kMaxDomainDims> shape{};  // the domain, columns last
  // Folds and row functions need rows in one piece: a block is some number of whole rows.
  bool whole_rows = false;
  std::vector<MemoryAccess> accesses;
  std::vector<Temp> temps;
  std::vector<Instr> instrs;
  std::shared_ptr<KernelCall> call;
  int live_values = 0;  // temps alive at once, at most: see PlanLimits::scratch_slots
  bool heavy = false;   // costs many instructions an element
  // Kernels of one stage do not depend on each other and may run at once. Stages ascend.
  int stage = 0;
  // The group: equal for kernels of one stage with equal programs over different slots. They are
  // lowered once and each run on its own memory.
  int launch = 0;
  // Of a plan that serves other sizes too (see plan_template.h): what computes the shape, the
  // strides of the accesses and then their offsets, as ids of its formulas. 0: always the same.
  std::vector<uint32_t> formulas;

  int64_t numel() const {
    int64_t n = 1;
    for (int d = 0; d < ndim; ++d) n *= shape[d];
    return n;
  }
  int64_t rows() const { return ndim > 0 && shape[ndim - 1] != 0 ? numel() / shape[ndim - 1] : 0; }
  int64_t cols() const { return ndim > 0 ? shape[ndim - 1] : 1; }
};

struct PlanStats {
  int ops = 0;                // records
  int dead = 0;               // of them, those whose results are never read
  int kernels = 0;            // each bound to its memory and run
  int groups = 0;             // of them: those of one stage with equal programs are one
  int live_values = 0;        // of the kernel with most
  int64_t bytes_moved = 0;    // read and written by the kernels
  int64_t bytes_unfused = 0;  // by the ops one by one
  // Nodes, dependences and parts of trees that planning looked at, counted as often as it did.
  int64_t visits = 0;
};

// What a device made of a plan's kernels.
class PlanCode {
 public:
  virtual ~PlanCode() = default;
  // Memory that it takes.
  virtual size_t bytes() const = 0;
  // The same for a copy of the plan, of which the sizes may be others. Null: the device makes it
  // anew.
  virtual std::unique_ptr<PlanCode> copy() const { return nullptr; }

  uint64_t sizes = 0;  // Plan::sizes of those that it is for
};

struct Plan;

// One group of a plan's kernels as a plan of its own; see hologram/trace.h.
struct PlanPart {
  std::string name;  // kernel_name
  int64_t bytes = 0;
  int64_t elements = 0;
  std::string operands;      // Launch::operands
  std::vector<int> records;  // of the tape, that it computes
  std::unique_ptr<Plan> plan;
};

// A slot whose contents are made in one stage and are not wanted after another, by anyone. Others
// may have its memory before and after: see MemorySharing (src/circuit/passing_values.h).
struct PassingValue {
  uint32_t slot = 0;
  int first = 0, last = 0;  // stages
};

struct Plan {
  std::vector<Kernel> kernels;        // ascending stages, groups side by side
  std::vector<uint32_t> attach;       // slots that must have memory of their own
  std::vector<PassingValue> passing;  // the others that must have memory, by first stage
  int slots = 0;
  PlanStats stats;
  // Set by the device at the first run; later runs find it.
  std::unique_ptr<PlanCode> code;
  std::vector<PlanPart> parts;  // one for each group, made when the plan is first watched
  int running = 0;              // which kernel a device is at: what an error is about
  uint64_t runs = 0;
  // How often the plan was given other sizes: what a device has made of it may be for earlier ones.
  uint64_t sizes = 0;
  uint32_t unfused_formula = 0;  // of stats.bytes_unfused, as in Kernel::formulas
  uint64_t cache_hash = 0;       // of the key under which the plan cache may know it
};

// Where the slots and numbers of one run are.
struct Bindings {
  char* const* slots = nullptr;  // null for slots that the plan does not touch
  const uint64_t* immediates = nullptr;
};

struct PlanOptions {
  PlanLimits limits = {};  // of the device that is to run the plan
  bool fuse = true;        // false: one kernel for each record, as recorded
  // false: none on floats, for circuits that round otherwise than to nearest, or treat denormal
  // numbers as zero. Then x * 1 is not x, and x + -0 may be another zero.
  bool float_laws = true;
  // The records are cut into segments of this many. A kernel has ops of one segment, and all
  // kernels of a segment run before those of the next. Short segments keep few dead values in
  // memory at once, about as many as ops that run one by one.
  int segment = std::numeric_limits<int>::max();

  bool operator==(const PlanOptions&) const = default;
};

// Canonical form, fusion, kernels. states[s] (see SlotState) for every slot.
// Deterministic. Throws Error(kOutOfMemory) only.
std::unique_ptr<Plan> make_plan(std::span<const uint64_t> words, std::span<const uint8_t> states,
                                const PlanOptions& options = {});

// Equal for circuits that mean the same.
uint64_t canonical_hash(const Plan& plan);

// Position of the access that is the result of the kernel's call; -1: there is none.
int product_access(const Kernel& kernel);

// Whether its blocks are whole rows: for folds, and because a value of a row may be stored only
// once.
bool wants_whole_rows(const Kernel& kernel);

// Bytes that a kernel reads and writes, repeated ones counted once.
int64_t kernel_bytes(const Kernel& kernel);

// Calls f(slot) for everything that a kernel touches; the same slot may come up again.
template <class F>
void for_slots(const Kernel& kernel, F&& f) {
  for (const MemoryAccess& access : kernel.accesses) {
    if (!access.product) f(access.slot);
  }
  if (kernel.call == nullptr) return;
  for (const CallSlot& operand : kernel.call->operands) {
    if (operand.present) f(operand.slot);
  }
}

// "add", "convert", "mean", "softmax", "nll_loss": what a record or an instruction does.
std::string code_name(uint16_t code, uint16_t attr);
// What a kernel does, op by op: "mul_add_relu"; a call's name comes first: "gemm_relu".
// Repeats are counted ("mul_add_x3"). Conversions are named only where there is nothing else.
// Long programs are cut short.
std::string kernel_name(const Kernel& kernel);

// Operands and kernels as JSON, field by field as in the structures above.
std::string tape_json(std::span<const uint64_t> words);
std::string plan_json(const Plan& plan);

// What a kernel reads and writes, as Launch::operands (hologram/trace.h).
std::string operands_json(const Kernel& kernel);

// For people: the records, and the kernels with their instructions.
std::string print_tape(std::span<const uint64_t> words);
std::string print_plan(const Plan& plan);

}  // namespace hologram::circuit
