#include "dear/base/trace/kineto.h"

#include "tests/fuzz/target.h"

#include "dear/base/trace/summary.h"

namespace dear::fuzz {

void kineto(std::string_view bytes) {
  static_cast<void>(is_kineto(bytes));
  const KinetoTrace read = parse_kineto(bytes, kSource);
  static_cast<void>(to_text(summarize(read.trace), read.trace));
}

}  // namespace dear::fuzz
