#pragma once

#include <cstdint>
#include <vector>

// Devices that compute slowly at times: a shifted exponential law (Lee et al. 2018,
// doi:10.1109/TIT.2017.2736066), deadlines, and the fastest k of n. Pure functions; ConfigError in one
// sentence.
namespace dear::methods::edge {

// Seconds of `work` units: work (shift + an exponential number with that mean).
struct ComputeLaw {
  double shift_seconds = 0;
  double mean_seconds = 0;  // of the random part
};
void check(const ComputeLaw& law);
double draw_compute(const ComputeLaw& law, double work, std::uint64_t seed, std::int64_t round, int device);

// The mean time of the k-th of n devices: work (shift + mean sum_{i < k} 1 / (n - i)).
double mean_of_kth(const ComputeLaw& law, double work, int k, int n);
// The probability that a device ends in so many seconds.
double share_within(const ComputeLaw& law, double work, double seconds);

// Devices that end first, ascending by number; ties go to the lower number. ConfigError for k beyond n.
std::vector<int> fastest(const std::vector<double>& end_seconds, int k);
// Devices that end by the deadline; none where all are late.
std::vector<int> by_deadline(const std::vector<double>& end_seconds, double deadline_seconds);

// Joules of a device: of sending with so many watts, and of computing, capacitance x f^2 x cycles (Mao et al.
// 2017, doi:10.1109/COMST.2017.2745201).
double sending_joules(double watts, double seconds);
double computing_joules(double capacitance, double frequency_hz, double cycles);

}  // namespace dear::methods::edge
