#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

// A scheduler chooses the devices that take part in a round. BN2, BC-BN2 and BN2-C: Amiri, Gunduz, Kulkarni
// and Poor 2020, arXiv 2001.10402; ages: Yang, Arafa, Quek and Poor 2019, arXiv 1908.06287.
namespace dear::methods::edge {

// Facts about the devices before a round, by the number of the device.
struct Candidates {
  std::int64_t round = 0;
  int count = 1;  // of devices that are to take part
  std::uint64_t seed = 1;
  std::vector<double> channels_hz;     // P g / N0 in this round
  std::vector<double> rates;           // bits a second over an equal part of the bandwidth
  std::vector<double> mean_rates;      // bits a second that each was given in the rounds before
  std::vector<std::int64_t> ages;      // rounds since each took part
  std::vector<double> end_seconds;     // computing, then sending over an equal part of the bandwidth
  std::vector<double> norms;           // of updates; for policies that look at them
  std::vector<double> norms_that_fit;  // of what each can send of its update over its channel
};

struct Scheduler {
  std::string_view name, summary;
  // Whether every device computes an update before it is chosen.
  bool looks_at_updates = false;
  // Returns the devices, ascending.
  std::vector<int> (*choose)(const Candidates& candidates);
};
const std::vector<Scheduler>& schedulers();
const Scheduler& find_scheduler(std::string_view name);

// Takes devices with the scheduler. ConfigError for a count beyond the number of devices, or of 0; Error for
// an update that is not finite, which names its device.
std::vector<int> choose_devices(const Scheduler& scheduler, const Candidates& candidates);

// Mean age that a scheduler of m of n devices tends to: of random (n - m) / m, of round robin (n / m - 1)
// / 2.
double mean_age_of_random(int devices, int chosen);
double mean_age_of_round_robin(int devices, int chosen);
// Ages after a round: 0 for those that took part, else one more, up to the largest number that there is.
void grow_ages(std::vector<std::int64_t>& ages, const std::vector<int>& chosen);

}  // namespace dear::methods::edge
