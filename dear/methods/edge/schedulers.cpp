#include "dear/methods/edge/schedulers.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/base/vocabulary/nearest.h"
#include "dear/methods/edge/draws.h"

namespace dear::methods::edge {
namespace {

std::vector<int> everyone(const Candidates& candidates) {
  std::vector<int> all(candidates.channels_hz.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// Of `among`, those with the largest values; ties go to the lower number.
template <typename Value>
std::vector<int> largest(std::vector<int> among, int count, const Value& value) {
  std::stable_sort(among.begin(), among.end(),
                   [&](int one, int other) { return value(index_of(one)) > value(index_of(other)); });
  among.resize(std::min(among.size(), index_of(count)));
  std::sort(among.begin(), among.end());
  return among;
}

std::vector<int> at_random(const Candidates& candidates) {
  std::vector<int> order = everyone(candidates);
  codec::Draw draw = draws_of(candidates.seed, Purpose::schedule, candidates.round);
  for (std::size_t place = 0; place < index_of(candidates.count); ++place)
    std::swap(order[place], order[place + draw.below(order.size() - place)]);
  order.resize(index_of(candidates.count));
  std::sort(order.begin(), order.end());
  return order;
}

std::vector<int> round_robin(const Candidates& candidates) {
  std::vector<int> chosen;
  const auto devices = static_cast<std::int64_t>(candidates.channels_hz.size());
  for (int next = 0; next < candidates.count; ++next)
    chosen.push_back(static_cast<int>((candidates.round % devices * candidates.count + next) % devices));
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

std::vector<int> best_channel(const Candidates& candidates) {
  return largest(everyone(candidates), candidates.count,
                 [&](std::size_t device) { return candidates.channels_hz[device]; });
}

std::vector<int> best_norm(const Candidates& candidates) {
  return largest(everyone(candidates), candidates.count,
                 [&](std::size_t device) { return candidates.norms[device]; });
}

// Twice as many by their channels, of which those with the largest updates.
std::vector<int> best_channel_then_norm(const Candidates& candidates) {
  Candidates wider = candidates;
  wider.count = std::min(2 * candidates.count, static_cast<int>(candidates.channels_hz.size()));
  return largest(best_channel(wider), candidates.count,
                 [&](std::size_t device) { return candidates.norms[device]; });
}

std::vector<int> best_norm_that_fits(const Candidates& candidates) {
  return largest(everyone(candidates), candidates.count,
                 [&](std::size_t device) { return candidates.norms_that_fit[device]; });
}

std::vector<int> proportional_fair(const Candidates& candidates) {
  return largest(everyone(candidates), candidates.count, [&](std::size_t device) {
    const double mean = candidates.mean_rates[device];
    return mean == 0 ? INFINITY : candidates.rates[device] / mean;
  });
}

std::vector<int> oldest(const Candidates& candidates) {
  return largest(everyone(candidates), candidates.count,
                 [&](std::size_t device) { return candidates.ages[device]; });
}

std::vector<int> fastest_k(const Candidates& candidates) {
  return largest(everyone(candidates), candidates.count,
                 [&](std::size_t device) { return -candidates.end_seconds[device]; });
}

}  // namespace

const std::vector<Scheduler>& schedulers() {
  static const std::vector<Scheduler> kSchedulers = {
      {"random", "devices that are drawn", false, at_random},
      {"round-robin", "devices in turn", false, round_robin},
      {"best-channel", "devices with the best channels", false, best_channel},
      {"bn2", "devices with the largest updates", true, best_norm},
      {"bc-bn2", "of twice as many with the best channels, those with the largest updates", true,
       best_channel_then_norm},
      {"bn2-c", "devices with the largest updates after what their channels cannot carry is left out", true,
       best_norm_that_fits},
      {"proportional-fair", "devices whose channels are best beside the rate that they had", false,
       proportional_fair},
      {"age-based", "devices that took part longest ago", false, oldest},
      {"fastest-k", "devices that compute and send soonest", false, fastest_k},
  };
  return kSchedulers;
}

const Scheduler& find_scheduler(std::string_view name) { return find_named(schedulers(), name, "scheduler"); }

std::vector<int> choose_devices(const Scheduler& scheduler, const Candidates& candidates) {
  const auto devices = static_cast<int>(candidates.channels_hz.size());
  if (candidates.count < 1 || candidates.count > devices)
    throw ConfigError(fmt::format("{} of {} devices cannot take part in a round: give from 1 to {}",
                                  candidates.count, devices, devices));
  if (scheduler.looks_at_updates)
    for (std::size_t device = 0; device < candidates.norms.size(); ++device)
      if (!std::isfinite(candidates.norms[device]))
        throw Error(fmt::format("the update of device {} in round {} is not finite: take a smaller step size",
                                device, candidates.round));
  return scheduler.choose(candidates);
}

double mean_age_of_random(int devices, int chosen) { return static_cast<double>(devices - chosen) / chosen; }
double mean_age_of_round_robin(int devices, int chosen) {
  return (static_cast<double>(devices) / chosen - 1) / 2;
}

void grow_ages(std::vector<std::int64_t>& ages, const std::vector<int>& chosen) {
  for (std::int64_t& age : ages)
    if (age < std::numeric_limits<std::int64_t>::max()) ++age;
  for (const int device : chosen) ages[index_of(device)] = 0;
}

}  // namespace dear::methods::edge
