#include "dear/platform/cluster/pair_cluster.h"

#include "tests/fuzz/target.h"

namespace dear::fuzz {

void pair_cluster(std::string_view bytes) {
  round_trip(
      bytes, [](std::string_view text) { return parse_pair_cluster(text, kSource); },
      [](const auto& value) { return to_json(value); });
}

}  // namespace dear::fuzz
