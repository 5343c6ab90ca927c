#include "tests/fuzz/target.h"

#include "dear/schedule/policies/schedule_file.h"

namespace dear::fuzz {

void schedule(std::string_view bytes) {
  round_trip(
      bytes, [](std::string_view text) { return parse_schedule_file(text, kSource); },
      [](const auto& value) { return to_json(value); });
}

}  // namespace dear::fuzz
