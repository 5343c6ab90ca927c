#include "dear/tools/bench_collectives/result.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace dear::bench_collectives {

std::string Result::label() const { return computation_slowdown ? backend + ", computing" : backend; }

double Result::algorithm_bandwidth() const {
  return seconds.median > 0 ? static_cast<double>(bytes) / seconds.median : 0;
}

double Result::bus_bandwidth() const {
  if (!sent_bytes.empty()) {
    const auto most = static_cast<double>(*std::max_element(sent_bytes.begin(), sent_bytes.end()));
    return seconds.median > 0 ? most / seconds.median : 0;
  }
  const double factor = copies ? 1 : bus_factor(operation, ranks);
  return factor * algorithm_bandwidth();
}

std::string results_json(const std::vector<Result>& results) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Result& result : results) {
    list.push_back(
        {{"backend", result.backend},
         {"operation", name_of(result.operation)},
         {"dtype", name_of(result.dtype)},
         {"ranks", result.ranks},
         {"bytes", result.bytes},
         {"seconds",
          {{"median", result.seconds.median}, {"p10", result.seconds.p10}, {"p90", result.seconds.p90}}},
         {"busbw_bytes_per_second", result.bus_bandwidth()},
         {"verified", result.verified}});
    if (result.planned_seconds) list.back()["planned_seconds"] = *result.planned_seconds;
    if (!result.sent_bytes.empty()) list.back()["sent_bytes"] = result.sent_bytes;
    if (result.ahead > 1) list.back()["ahead"] = result.ahead;
    if (result.touched) list.back()["touched"] = true;
    if (result.waiting_share) list.back()["waiting_core_share"] = *result.waiting_share;
    if (result.computation_slowdown) list.back()["computation_slowdown"] = *result.computation_slowdown;
  }
  return list.dump(2) + "\n";
}

}  // namespace dear::bench_collectives
