#include "tests/fuzz/target.h"

#include "dear/predict/tune/cache.h"

namespace dear::fuzz {

void tuning_cache(std::string_view bytes) {
  round_trip(
      bytes, [](std::string_view text) { return tune::Cache::parse(text, kSource); },
      [](const tune::Cache& read) { return read.to_json(); });
}

}  // namespace dear::fuzz
