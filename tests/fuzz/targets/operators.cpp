#include "dear/methods/pipeline/operators.h"

#include "tests/fuzz/target.h"

namespace dear::fuzz {

void operators(std::string_view bytes) {
  round_trip(
      bytes, [](std::string_view text) { return methods::pipeline::parse_operators(text, kSource); },
      [](const auto& value) { return to_json(value); });
}

}  // namespace dear::fuzz
