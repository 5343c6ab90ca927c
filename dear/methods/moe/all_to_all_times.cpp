#include "dear/methods/moe/all_to_all_times.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/units.h"
#include "dear/platform/algorithm/algorithms.h"
#include "dear/platform/fabric/play.h"

namespace dear::methods::moe {

AllToAllTimes::AllToAllTimes(std::vector<std::pair<std::int64_t, double>> points)
    : points_(std::move(points)) {
  if (points_.empty()) throw ConfigError("no time of an all-to-all is known: measure one size at least");
  std::int64_t before = -1;
  for (const auto& [bytes, seconds] : points_) {
    if (bytes <= before || !std::isfinite(seconds) || seconds < 0)
      throw ConfigError(
          fmt::format("an all-to-all of {} bytes after one of {} takes {} s: give sizes that ascend, and "
                      "seconds of 0 or more",
                      bytes, before, seconds));
    before = bytes;
  }
}

AllToAllTimes AllToAllTimes::on(const Cluster& cluster, std::int64_t least, std::int64_t most) {
  const fabric::Topology topology(cluster);
  const algorithm::Program program = algorithm::pairwise_all_to_all(cluster.ranks(), 1);
  const double launch = cluster.ranks() > 1 ? cluster.software.launch_seconds : 0;
  std::vector<std::pair<std::int64_t, double>> points;
  constexpr std::int64_t kMost = 256 * kMiB;
  for (std::int64_t bytes = kKiB; bytes <= kMost; bytes *= 2) {
    if (bytes * 2 <= std::min(least, kMost / 2)) continue;
    if (bytes / 2 >= most && points.size() > 1) break;
    points.emplace_back(bytes, launch + fabric::play(program, topology, static_cast<double>(bytes)).seconds);
  }
  return AllToAllTimes(std::move(points));
}

double AllToAllTimes::seconds(std::int64_t bytes) const {
  if (bytes <= 0) return 0;
  if (bytes <= points_.front().first || points_.size() == 1) return points_.front().second;
  auto end = std::lower_bound(points_.begin(), points_.end(), bytes,
                              [](const auto& point, std::int64_t size) { return point.first < size; });
  if (end == points_.end()) --end;
  const auto& [from, low] = *(end - 1);
  const auto& [to, high] = *end;
  return low + (high - low) * static_cast<double>(bytes - from) / static_cast<double>(to - from);
}

}  // namespace dear::methods::moe
