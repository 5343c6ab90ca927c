#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dear/platform/cost/collective_times.h"
#include "dear/schedule/fusion/grouping.h"
#include "dear/schedule/policies/policy.h"
#include "dear/workload/layers/workload.h"

namespace dear {

// How a training or a simulation chooses its buckets, as the option `fusion` names it.
struct FusionChoice {
  enum class Kind : std::uint8_t {
    given,    // as `fusion` has it
    planned,  // unequal buckets with the best borders (schedule/fusion/planned.h)
    tuned,    // by trials while training, which begin with `fusion`
    usual     // by the settings that the policy's own system comes with; of a simulation
  };
  Kind kind = Kind::tuned;
  Fusion fusion{};

  // "planned", "auto", "auto=SIZE", or what Fusion::parse() takes; ConfigError with the forms there are.
  static FusionChoice of_training(std::string_view text);
  // "usual", "planned", or what Fusion::parse() takes; ConfigError likewise.
  static FusionChoice of_simulation(std::string_view text);
  [[nodiscard]] std::string text() const;  // as these take it

  // The buckets of a simulation. Those that are planned are for policies that take any grouping; those that
  // are tuned are the ones of the first trial.
  [[nodiscard]] Grouping resolve(const Policy& policy, const Workload& workload,
                                 const cost::CollectiveTimes& times) const;
};

}  // namespace dear
