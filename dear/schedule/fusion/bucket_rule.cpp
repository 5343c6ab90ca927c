#include "dear/schedule/fusion/bucket_rule.h"

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear {
namespace {

constexpr std::string_view kPlanned = "planned", kTuned = "auto", kTunedFrom = "auto=";

}  // namespace

BucketRule BucketRule::parse(std::string_view text) {
  if (text == kPlanned) return {.kind = Kind::planned};
  if (text == kTuned) return {.kind = Kind::tuned};
  const bool tuned = text.starts_with(kTunedFrom);
  try {
    return {.kind = tuned ? Kind::tuned : Kind::given,
            .fusion = Fusion::parse(tuned ? text.substr(kTunedFrom.size()) : text)};
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}; or {}, {} or {}SIZE", error.what(), kPlanned, kTuned, kTunedFrom));
  }
}

std::string BucketRule::text() const {
  if (kind == Kind::planned) return std::string(kPlanned);
  if (kind == Kind::given) return fusion.text();
  const bool usual = fusion.text() == Fusion().text();
  return usual ? std::string(kTuned) : fmt::format("{}{}", kTunedFrom, fusion.text());
}

}  // namespace dear
