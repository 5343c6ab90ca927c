#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "dear/platform/cost/collective_times.h"
#include "dear/schedule/fusion/grouping.h"
#include "dear/schedule/policies/policy.h"
#include "dear/workload/layers/workload.h"

namespace dear::plan {

// How a simulation groups tensors: as Fusion has it, or "usual": by the settings that the policy's own system
// comes with, or "planned": unequal buckets with the best borders (schedule/fusion/planned.h) for policies
// that take any grouping.
class FusionChoice {
 public:
  FusionChoice() = default;  // usual
  explicit FusionChoice(Fusion given) : kind_(Kind::given), given_(std::move(given)), text_(given_.text()) {}
  static FusionChoice parse(std::string_view text);  // ConfigError with the forms there are
  [[nodiscard]] Grouping resolve(const Policy& policy, const Workload& workload,
                                 const cost::CollectiveTimes& times) const;
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  enum class Kind : std::uint8_t { usual, planned, given };
  Kind kind_ = Kind::usual;
  Fusion given_;
  std::string text_ = "usual";
};

}  // namespace dear::plan
