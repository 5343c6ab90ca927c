#include "dear/methods/edge/stragglers.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/methods/edge/draws.h"

namespace dear::methods::edge {

void check(const ComputeLaw& law) {
  if (!std::isfinite(law.shift_seconds) || !std::isfinite(law.mean_seconds) || law.shift_seconds < 0 ||
      law.mean_seconds < 0)
    throw ConfigError(
        fmt::format("computing for {} s and a random {} s cannot be: both must be finite numbers from 0 on",
                    law.shift_seconds, law.mean_seconds));
}

double draw_compute(const ComputeLaw& law, double work, std::uint64_t seed, std::int64_t round, int device) {
  codec::Draw draw = draws_of(seed, Purpose::compute, round, device);
  return work * (law.shift_seconds + law.mean_seconds * exponential(draw));
}

namespace {

void check_count(int k, int n) {
  if (k < 1 || k > n)
    throw ConfigError(fmt::format("{} of {} devices cannot be taken: give from 1 to {}", k, n, n));
}

}  // namespace

double mean_of_kth(const ComputeLaw& law, double work, int k, int n) {
  check(law);
  check_count(k, n);
  double sum = 0;
  for (int before = 0; before < k; ++before) sum += 1.0 / (n - before);
  return work * (law.shift_seconds + law.mean_seconds * sum);
}

double share_within(const ComputeLaw& law, double work, double seconds) {
  const double random = seconds - work * law.shift_seconds;
  if (random < 0) return 0;
  return law.mean_seconds == 0 ? 1 : -std::expm1(-random / (work * law.mean_seconds));
}

std::vector<int> fastest(const std::vector<double>& end_seconds, int k) {
  check_count(k, static_cast<int>(end_seconds.size()));
  std::vector<int> order(end_seconds.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int one, int other) {
    return end_seconds[index_of(one)] < end_seconds[index_of(other)];
  });
  order.resize(index_of(k));
  std::sort(order.begin(), order.end());
  return order;
}

std::vector<int> by_deadline(const std::vector<double>& end_seconds, double deadline_seconds) {
  std::vector<int> in_time;
  for (std::size_t device = 0; device < end_seconds.size(); ++device)
    if (end_seconds[device] <= deadline_seconds) in_time.push_back(static_cast<int>(device));
  return in_time;
}

double sending_joules(double watts, double seconds) { return watts * seconds; }
double computing_joules(double capacitance, double frequency_hz, double cycles) {
  return capacitance * frequency_hz * frequency_hz * cycles;
}

}  // namespace dear::methods::edge
