#include "dear/methods/edge/device_choice.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "dear/base/vocabulary/ids.h"
#include "dear/methods/edge/ofdma.h"
#include "dear/methods/edge/schedulers.h"
#include "dear/methods/rounds/vectors.h"

namespace dear::methods::edge {
namespace {

constexpr double kRateMemory = 20;  // rounds, of the mean rates of proportional-fair
constexpr double kElementBits = 32;

// The norm of as many of the largest elements as so many bits carry, each with its index.
double norm_that_fits(const std::vector<double>& update, double bits) {
  std::vector<double> squares;
  for (const double element : update) squares.push_back(element * element);
  std::sort(squares.begin(), squares.end(), std::greater<>());
  const double fits = std::min(bits / (2 * kElementBits), static_cast<double>(squares.size()));
  const auto kept = static_cast<std::ptrdiff_t>(fits);
  return std::sqrt(std::accumulate(squares.begin(), squares.begin() + kept, 0.0));
}

}  // namespace

DeviceChoice::DeviceChoice(const EdgeSettings& settings, const Fleet& fleet, double bits, double whole_bits)
    : settings_(settings),
      fleet_(fleet),
      bits_(bits),
      whole_bits_(whole_bits),
      mean_rates_(index_of(fleet.size())) {}

DeviceChoice::Chosen DeviceChoice::choose(std::int64_t round, const std::vector<std::int64_t>& ages,
                                          const std::function<std::vector<double>(int device)>& update) {
  std::vector<int> all(index_of(fleet_.size()));
  std::iota(all.begin(), all.end(), 0);
  Chosen chosen;
  if (const JointScheduler* const joint = find_joint_scheduler(settings_.scheduler)) {
    chosen.begin_seconds = fleet_.broadcast_seconds(whole_bits_, round, all);
    std::vector<Upload> uploads;
    for (const int device : all)
      uploads.push_back({.bits = bits_,
                         .ready_seconds = chosen.begin_seconds + fleet_.compute_seconds(round, device),
                         .channel_hz = fleet_.channel_hz(round, device)});
    chosen.devices = joint->choose(uploads, settings_.cell.bandwidth_hz, settings_.budget_seconds).devices;
    return chosen;
  }
  const Scheduler& scheduler = find_scheduler(settings_.scheduler);
  Candidates candidates{.round = round,
                        .count = settings_.cohort,
                        .seed = settings_.seed,
                        .channels_hz = {},
                        .rates = {},
                        .mean_rates = mean_rates_,
                        .ages = ages,
                        .end_seconds = {},
                        .norms = {},
                        .norms_that_fit = {}};
  for (const int device : all) {
    candidates.channels_hz.push_back(fleet_.channel_hz(round, device));
    candidates.rates.push_back(
        rate_over(settings_.cell.bandwidth_hz / settings_.cohort, candidates.channels_hz.back()));
    candidates.end_seconds.push_back(fleet_.compute_seconds(round, device) + bits_ / candidates.rates.back());
  }
  if (scheduler.looks_at_updates) {
    std::vector<double> rates = candidates.rates;
    std::nth_element(rates.begin(), rates.begin() + static_cast<std::ptrdiff_t>(rates.size() / 2),
                     rates.end());
    const double slot = whole_bits_ / rates[rates.size() / 2];
    chosen.begin_seconds = fleet_.broadcast_seconds(whole_bits_, round, all);
    for (const int device : all) {
      const std::vector<double> one = update(device);
      candidates.norms.push_back(std::sqrt(rounds::dot(one, one)));
      candidates.norms_that_fit.push_back(norm_that_fits(one, slot * candidates.rates[index_of(device)]));
    }
  }
  chosen.devices = choose_devices(scheduler, candidates);
  const auto sends = [&](int device) {
    return std::binary_search(chosen.devices.begin(), chosen.devices.end(), device);
  };
  if (scheduler.looks_at_updates) {
    // Nobody is chosen before the slowest has computed.
    for (const int device : all) {
      chosen.waited_seconds =
          std::max(chosen.waited_seconds, chosen.begin_seconds + fleet_.compute_seconds(round, device));
      if (!sends(device)) chosen.in_vain.push_back(device);
    }
  } else {
    chosen.begin_seconds = fleet_.broadcast_seconds(whole_bits_, round, chosen.devices);
  }
  for (const int device : all) {
    double& mean = mean_rates_[index_of(device)];
    mean += ((sends(device) ? candidates.rates[index_of(device)] : 0) - mean) / kRateMemory;
  }
  return chosen;
}

}  // namespace dear::methods::edge
