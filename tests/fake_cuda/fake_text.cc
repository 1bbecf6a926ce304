// SPDX-License-Identifier: MIT
// See fake_text.h.
#include "tests/fake_cuda/fake_text.h"

#include <regex>

#include "hologram/error.h"
#include "src/cuda/prologue.h"

namespace hologram::fake_cuda {

Text for_opencl(const std::string& source, size_t parameter_bytes) {
  if (!source.starts_with(cuda::kPrologue)) {
    fail(ErrorKind::kInternal, "a text does not begin with the prologue");
  }
  const std::string body = source.substr(cuda::kPrologue.size());
  static const std::regex kKernel(R"(KERNEL\((\d+)\)\s+(\w+)\(([^)]*)\)\s*\{)");
  static const std::regex kPointer(R"(\s*GLOBAL (const )?(\w+)\* (RESTRICT )?(\w+)\s*)");
  static const std::regex kStruct(R"(\s*PARAMETER (\w+) (\w+)\s*)");
  std::smatch kernel;
  if (!std::regex_search(body, kernel, kKernel)) {
    fail(ErrorKind::kInternal, "a text has no kernel");
  }
  Text text;
  text.group_items = std::stoul(kernel[1]);
  std::string parameters, begin, members, names;
  const std::string all = kernel[3];
  static const std::regex kComma(",");
  for (auto at = std::sregex_token_iterator(all.begin(), all.end(), kComma, -1);
       at != std::sregex_token_iterator(); ++at) {
    const std::string parameter = *at;
    std::smatch part;
    if (std::regex_match(parameter, part, kPointer) && text.words == 0) {
      const std::string n = std::to_string(text.pointers++);
      const std::string type = "GLOBAL " + part[1].str() + part[2].str() + "*";
      const std::string name = part[3].str() + part[4].str();
      parameters.append("GLOBAL u8* fake_b").append(n).append(", ");
      begin.append("  ").append(type).append(" ").append(name).append(" = (").append(type);
      begin.append(")(fake_b").append(n).append(" + FAKE.at[").append(n).append("]);\n");
    } else if (std::regex_match(parameter, part, kStruct) && text.words == 0) {
      const std::regex size("typedef struct \\{ i64 w\\[(\\d+)\\]; \\} " + part[1].str() + ";");
      std::smatch found;
      if (!std::regex_search(body, found, size)) {
        fail(ErrorKind::kInternal, "a text does not say what ", part[1].str(), " is");
      }
      text.words = std::stoul(found[1]);
      members = part[1].str() + " " + part[2].str() + "; ";
      names = "#define " + part[2].str() + " FAKE." + part[2].str() + "\n";
    } else {
      fail(ErrorKind::kInternal, "a parameter is not understood: ", parameter);
    }
  }
  text.words_in_memory = 8 * (2 * text.pointers + text.words) > parameter_bytes;
  text.source =
      kernel.prefix().str() + "typedef struct { " + members + "i64 at[" +
      std::to_string(text.pointers) + "]; } FakeWords;\n" + "#define FAKE " +
      (text.words_in_memory ? "(*fake)" : "fake") + "\nKERNEL(" + kernel[1].str() + ") " +
      kernel[2].str() + "(" + parameters +
      (text.words_in_memory ? "GLOBAL const FakeWords* RESTRICT fake" : "const FakeWords fake") +
      ") {\n" + names + begin + kernel.suffix().str();
  return text;
}

}  // namespace hologram::fake_cuda
