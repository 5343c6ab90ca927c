#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dear/schedule/fusion/grouping.h"

namespace dear {

// How a training chooses its buckets, as options name it.
struct BucketRule {
  // Given as `fusion`; planned from the times of the first steps, or tuned by trials, which begin with it.
  enum class Kind : std::uint8_t { given, planned, tuned };
  Kind kind = Kind::tuned;
  Fusion fusion{};

  // "planned", "auto", "auto=SIZE", or what Fusion::parse() takes; ConfigError with the forms there are.
  static BucketRule parse(std::string_view text);
  [[nodiscard]] std::string text() const;  // as parse() takes it
};

}  // namespace dear
