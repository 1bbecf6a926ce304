// SPDX-License-Identifier: MIT
// Prints the largest and mean error of each row of the op table, on each instruction set and dtype.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "hologram/op.h"
#include "tools/accuracy/measure.h"

namespace hologram::accuracy {
namespace {

constexpr const char* kUsage =
    "usage: hologram_accuracy [--full] [--exact] [row ...]\n"
    "  --full   every one of the 2^32 float32 values for rows of one operand (minutes a row)\n"
    "  --exact  also the rows that are exact by construction\n"
    "Exits with 1 when a row exceeds the accuracy that include/hologram/elementwise.def states.\n";

template <class T>
bool report(const OpInfo& row, const Effort& effort) {
  const std::vector<Isa> isas = available_isas();
  const double stated = stated_ulp<T>(row);
  bool good = true;
  for (const Finding& f : measure<T>(row, isas, effort)) {
    const bool within = f.max_ulp <= stated;
    good = good && within;
    std::printf("%-28s %-8s %-8s max %7.3f  mean %6.3f  stated %5.2f  at (",
                std::string(row.name).c_str(), std::is_same_v<T, float> ? "float32" : "float64",
                std::string(isa_name(f.isa)).c_str(), f.max_ulp, f.mean_ulp(), stated);
    for (int k = 0; k < row.arity; ++k) {
      std::printf("%s%.17Lg", k ? ", " : "", f.operands[k]);
    }
    std::printf(")");
    if (!within) std::printf("  EXCEEDED: %.20Lg instead of %.20Lg", f.got, f.want);
    std::printf("\n");
  }
  std::fflush(stdout);
  return good;
}

int run(int argc, char** argv) {
  Effort effort;
  bool exact = false;
  std::vector<std::string> names;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--full") {
      effort = {.unary32 = int64_t{1} << 32, .unary64 = 50'000'000, .tuples = 50'000'000};
    } else if (argument == "--exact") {
      exact = true;
    } else if (!argument.empty() && argument[0] == '-') {
      std::fputs(kUsage, argument == "--help" || argument == "-h" ? stdout : stderr);
      return argument == "--help" || argument == "-h" ? 0 : 2;
    } else if (!find_op(argument)) {
      std::fprintf(stderr, "hologram_accuracy: there is no row '%s'\n", argument.c_str());
      return 2;
    } else {
      names.push_back(argument);
    }
  }
  bool good = true;
  for (const OpInfo& row : ops()) {
    const bool named = std::find(names.begin(), names.end(), row.name) != names.end();
    if (!is_measured(row) || (!names.empty() && !named)) continue;
    if (row.accuracy == Accuracy::kExact && !exact && !named) continue;
    good = report<float>(row, effort) && good;
    good = report<double>(row, effort) && good;
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace hologram::accuracy

int main(int argc, char** argv) {
  try {
    return hologram::accuracy::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hologram_accuracy: %s\n", error.what());
    return 2;
  }
}
