// SPDX-License-Identifier: MIT
// Emitter: writes the machine code of one loop from its graph and schedule.
#pragma once

#include <cstddef>
#include <vector>

#include "src/cpu/jit/assembler.h"
#include "src/cpu/jit/schedule.h"

namespace hologram::cpu::jit {

class Emitter : public Assembler {
 public:
  Emitter(const LoopGraph& graph, const Schedule& schedule, void* buffer, size_t capacity);

  // Writes the function. Throws Xbyak::Error where the buffer is too small.
  void emit();

 private:
  static constexpr int kNoHome = -1;
  static constexpr int kWorkRegisters = 5;  // that invariants are computed in
  // Offsets in the frame: the inputs of a call, what the function was given, the strip at hand, and
  // pointers that have no register. 128 to 191 are the Assembler's tail masks.
  static constexpr int kCallIn = 0, kInputs = 32, kNumbers = 40, kOutputs = 48, kCount = 56;
  static constexpr int kStart = 64, kEnd = 72, kRows = 80, kSteps = 88, kAhead = 96;
  static constexpr int kBases = 192;

  // What a run of code works on, from the index on.
  enum class Part : uint8_t {
    kWhole,   // a vector
    kHeld,    // a vector whose results stay in the frame
    kHalves,  // the row's first half of a vector, and its last, which is at the index
    kMasked,  // the first lanes of one
  };

  // Where a node's value is, within one straight run of code.
  struct Residence {
    int reg = -1;
    int home = kNoHome;  // offset in the frame
    bool pinned = false;
    bool locked = false;    // an operand of the operation being written
    size_t next = 0;        // position in uses
    std::vector<int> uses;  // items that read it, ascending
  };

  // ---- the function ----
  void all_in_one();
  void lay_out_frame();
  void enter();
  void leave();
  // Those that change from row to row, or those that do not.
  void compute_invariants(bool varying);
  void compute_invariant(int id);
  void load_number(int to, const LoopNode& node);
  void load_constant(int to, const LoopNode& node);
  void fill_strips();
  void phase(const Phase& phase);
  void calls(const Phase& phase);
  void argument_address(const Xbyak::Reg64& to, const CallArgument& argument);
  void strip_end();

  // ---- rows and folds ----
  struct Fold {
    int reg = -1;   // the first of its accumulators, or
    int home = -1;  // offset of them in the frame
  };
  // How the accumulator is chosen that an element's vector is added to.
  static constexpr int kAccumulators = 8;
  static constexpr int kByIndex = -1;

  void check_rows() const;
  bool varies(int id) const { return row_varies_[static_cast<size_t>(id)] != 0; }
  void find_varying();
  void copy_bases();
  void rows(const Phase& phase);
  void next_row();
  void distance_ahead();
  void fetch_ahead(int ahead);
  int base_of_number(int index) const;
  int base_of_fold(int index) const;
  void place_folds(const Phase& phase);
  void clear_folds();
  void fold_loops(const Phase& phase);
  void join_folds(int from, int to, int count);
  void finish_folds();
  void take_in(const Phase& phase, const Item& item);
  Xbyak::Address accumulator(const Fold& fold, int index);

  // ---- a phase ----
  void load_pointers(const Phase& phase);
  void array_base(const Xbyak::Reg64& to, int array);
  Xbyak::Address element(int array, int ahead);
  void loops(const Phase& phase);
  void loop(const Phase& phase, int unroll);
  void tail(const Phase& phase);
  bool holds_last() const;
  void hold_last(const Phase& phase);
  void store_last(const Phase& phase);
  void tail_masks();
  void gap_mask();
  bool is_packed(int array) const;
  void copy_tail_bytes(int array, bool in);
  bool is_narrow(int array) const;
  bool streams(const Array& array) const;

  // ---- a run of a phase's items over one vector ----
  void find_uses(const Phase& phase);
  void choose_pinned(const Phase& phase);
  void load_pinned(int id);
  bool loads_where_pinned(int id) const;
  int pressure(const Phase& phase, bool masks) const;
  void run(const Phase& phase, int ahead, Part part = Part::kWhole);
  Place place_of(int array, bool stored);
  void compute(const Phase& phase, int id, size_t position);
  int fetch(const Phase& phase, int id);
  int in_place(const LoopNode& n, const int* from, int registers);
  int allocate(bool mask);
  int evict(bool mask);
  void release(int id, size_t position);
  bool in_mask_file(int id) const { return is_wide() && node(id).is_mask(); }
  const LoopNode& node(int id) const { return graph_.nodes[static_cast<size_t>(id)]; }
  Residence& value(int id) { return values_[static_cast<size_t>(id)]; }
  const Residence& value(int id) const { return values_[static_cast<size_t>(id)]; }
  Xbyak::Address frame(int offset) { return ptr[rsp + offset]; }
  int new_home();

  const LoopGraph& graph_;
  const Schedule& schedule_;
  bool simple_ = false;           // one loop over everything
  std::vector<char> row_varies_;  // by node: an invariant that depends on numbers of rows
  std::vector<Fold> folds_;
  int fold_lane_ = 0;   // the accumulator in use, or kByIndex
  int vector_end_ = 0;  // registers from here on are accumulators
  std::vector<Residence> values_;
  std::vector<int> owner_;        // value by vector register, or -1
  std::vector<int> mask_owner_;   // value by mask register
  std::vector<int> free_homes_;   // of the frame, given back
  std::vector<int> pointer_;      // by array: general register, or -1 where it is in the frame
  std::vector<int> tail_buffer_;  // by array: offset in the frame, or -1
  std::vector<int> held_;         // by array: the same, of a row's last vector
  int strips_ = 0;
  int frame_bytes_ = 0;
  size_t frame_size_at_ = 0;  // in the code
  int ahead_ = 0;             // of the run being written: elements after the index
  Part part_ = Part::kWhole;
  Xbyak::Label tail_table_;
  bool has_tail_table_ = false;
};

}  // namespace hologram::cpu::jit
