#include "tests/fuzz/target.h"

#include "dear/platform/cluster/cluster_file.h"

namespace dear::fuzz {

void cluster(std::string_view bytes) {
  round_trip(
      bytes, [](std::string_view text) { return parse_cluster(text, kSource); },
      [](const auto& value) { return to_json(value); });
}

}  // namespace dear::fuzz
