#include "tests/fuzz/target.h"

#include "dear/workload/layers/workload_file.h"

namespace dear::fuzz {

void workload(std::string_view bytes) {
  round_trip(
      bytes, [](std::string_view text) { return parse_workload(text, kSource); },
      [](const auto& value) { return to_json(value); });
}

}  // namespace dear::fuzz
