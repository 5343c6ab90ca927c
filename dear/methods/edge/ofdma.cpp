#include "dear/methods/edge/ofdma.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/methods/edge/channel.h"
#include "dear/methods/edge/root.h"

namespace dear::methods::edge {
namespace {

void check(const std::vector<Upload>& uploads, double bandwidth_hz) {
  if (!std::isfinite(bandwidth_hz) || bandwidth_hz <= 0)
    throw ConfigError(
        fmt::format("a bandwidth of {} Hz carries nothing: give a finite number above 0", bandwidth_hz));
  for (std::size_t device = 0; device < uploads.size(); ++device) {
    const Upload& one = uploads[device];
    if (!std::isfinite(one.bits) || one.bits < 0 || !std::isfinite(one.ready_seconds) ||
        one.ready_seconds < 0)
      throw ConfigError(
          fmt::format("device {} has {} bits after {} s, but both must be finite numbers from 0", device,
                      one.bits, one.ready_seconds));
    if (one.bits > 0 && !(std::isfinite(one.channel_hz) && one.channel_hz > 0))
      throw ConfigError(
          fmt::format("device {} has a signal of {} times the noise, so it can send nothing: leave it out",
                      device, one.channel_hz));
  }
}

// What a device needs to end at that moment.
double needed(const Upload& upload, double seconds) {
  if (upload.bits == 0) return seconds >= upload.ready_seconds ? 0 : INFINITY;
  if (seconds <= upload.ready_seconds) return INFINITY;
  return bandwidth_for_rate(upload.bits / (seconds - upload.ready_seconds), upload.channel_hz);
}

void finish(const std::vector<Upload>& uploads, Round& round) {
  for (std::size_t device = 0; device < uploads.size(); ++device) {
    const Upload& one = uploads[device];
    round.end_seconds.push_back(one.ready_seconds);
    if (one.bits > 0)
      round.end_seconds.back() += one.bits / rate_over(round.bandwidth_hz[device], one.channel_hz);
    round.seconds = std::max(round.seconds, round.end_seconds.back());
  }
}

}  // namespace

Round min_max(const std::vector<Upload>& uploads, double bandwidth_hz) {
  check(uploads, bandwidth_hz);
  Round round;
  double earliest = 0, latest = 0;
  for (const Upload& one : uploads) {
    const double least = one.bits == 0 ? 0 : one.bits / most_rate(one.channel_hz);
    earliest = std::max(earliest, one.ready_seconds + least);
    latest = std::max(latest, one.ready_seconds + 2 * least);
  }
  const auto spare = [&](double seconds) {
    double sum = bandwidth_hz;
    for (const Upload& one : uploads) sum -= needed(one, seconds);
    return sum;
  };
  double seconds = earliest;
  if (spare(earliest) < 0)  // else nobody sends
    seconds = narrow(spare, enclose(spare, {earliest, latest, 0}), 1e-14).high;
  double sum = 0;
  for (const Upload& one : uploads) sum += round.bandwidth_hz.emplace_back(needed(one, seconds));
  if (sum > 0)  // what rounding left
    for (double& band : round.bandwidth_hz) band *= bandwidth_hz / sum;
  finish(uploads, round);
  return round;
}

Round equal_bands(const std::vector<Upload>& uploads, double bandwidth_hz) {
  check(uploads, bandwidth_hz);
  const auto senders = static_cast<double>(
      std::count_if(uploads.begin(), uploads.end(), [](const Upload& one) { return one.bits > 0; }));
  Round round;
  for (const Upload& one : uploads) round.bandwidth_hz.push_back(one.bits > 0 ? bandwidth_hz / senders : 0);
  finish(uploads, round);
  return round;
}

const std::vector<Allocator>& allocators() {
  static const std::vector<Allocator> kAllocators = {
      {"min-max", "all devices end at the same moment, as soon as can be", min_max},
      {"equal", "each device has the same bandwidth", equal_bands},
  };
  return kAllocators;
}

namespace {

Choice with(const std::vector<Upload>& uploads, std::vector<int> devices, double bandwidth_hz) {
  std::sort(devices.begin(), devices.end());
  std::vector<Upload> chosen;
  for (const int device : devices) chosen.push_back(uploads[index_of(device)]);
  return {std::move(devices), min_max(chosen, bandwidth_hz)};
}

void check_budget(const std::vector<Upload>& uploads, double bandwidth_hz, double budget_seconds) {
  check(uploads, bandwidth_hz);
  if (!(budget_seconds > 0))
    throw ConfigError(fmt::format("a budget of {} s is none: give a number above 0", budget_seconds));
}

Choice checked(Choice choice, double budget_seconds) {
  if (choice.devices.empty())
    throw ConfigError(fmt::format(
        "no device ends within {:g} s, even if it has the whole bandwidth: give more time", budget_seconds));
  return choice;
}

}  // namespace

Choice greedy_under(const std::vector<Upload>& uploads, double bandwidth_hz, double budget_seconds) {
  check_budget(uploads, bandwidth_hz, budget_seconds);
  Choice choice;
  std::vector<bool> taken(uploads.size());
  while (choice.devices.size() < uploads.size()) {
    Choice best;
    best.round.seconds = INFINITY;
    for (std::size_t device = 0; device < uploads.size(); ++device) {
      if (taken[device]) continue;
      std::vector<int> devices = choice.devices;
      devices.push_back(static_cast<int>(device));
      Choice one = with(uploads, std::move(devices), bandwidth_hz);
      if (one.round.seconds < best.round.seconds) best = std::move(one);
    }
    if (best.round.seconds > budget_seconds) break;
    choice = std::move(best);
    for (const int device : choice.devices) taken[index_of(device)] = true;
  }
  return checked(std::move(choice), budget_seconds);
}

Choice most_under(const std::vector<Upload>& uploads, double bandwidth_hz, double budget_seconds) {
  check_budget(uploads, bandwidth_hz, budget_seconds);
  std::vector<std::pair<double, int>> needs;
  for (std::size_t device = 0; device < uploads.size(); ++device)
    needs.emplace_back(needed(uploads[device], budget_seconds), static_cast<int>(device));
  std::sort(needs.begin(), needs.end());
  std::vector<int> devices;
  double left = bandwidth_hz;
  for (const auto& [need, device] : needs) {
    if (need > left) break;
    left -= need;
    devices.push_back(device);
  }
  return checked(with(uploads, std::move(devices), bandwidth_hz), budget_seconds);
}

const std::vector<JointScheduler>& joint_schedulers() {
  static const std::vector<JointScheduler> kJointSchedulers = {
      {"greedy", "adds the device with which the round is shortest (arXiv 2007.07174)", greedy_under},
      {"most", "as many devices as any choice has, those that need least bandwidth", most_under},
  };
  return kJointSchedulers;
}

const JointScheduler* find_joint_scheduler(std::string_view name) {
  for (const JointScheduler& one : joint_schedulers())
    if (one.name == name) return &one;
  return nullptr;
}

}  // namespace dear::methods::edge
