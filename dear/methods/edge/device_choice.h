#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "dear/methods/edge/edge_run.h"
#include "dear/methods/edge/fleet.h"

namespace dear::methods::edge {

// A DeviceChoice says who takes part in the rounds of a run, by its scheduler.
class DeviceChoice {
 public:
  // `bits`: of an update as it travels, and of the whole model. The settings and the fleet outlive this.
  DeviceChoice(const EdgeSettings& settings, const Fleet& fleet, double bits, double whole_bits);

  struct Chosen {
    std::vector<int> devices;    // ascending
    double begin_seconds = 0;    // when their computing may begin: they have the model
    double waited_seconds = 0;   // nobody is chosen before that
    std::vector<int> in_vain{};  // computed, and were not chosen
  };
  // `update`: of a device, as it would compute it now. `ages`: rounds since each took part.
  Chosen choose(std::int64_t round, const std::vector<std::int64_t>& ages,
                const std::function<std::vector<double>(int device)>& update);

 private:
  const EdgeSettings& settings_;
  const Fleet& fleet_;
  double bits_, whole_bits_;
  std::vector<double> mean_rates_;
};

}  // namespace dear::methods::edge
