#pragma once

#include <string_view>
#include <vector>

// Bandwidth for devices that send at the same time in bands of their own (OFDMA), so that the last ends
// soonest; and which devices to take under a limit of time (Shi, Zhou and Niu 2020, arXiv 1910.14154 and
// 2007.07174). All are pure functions; ConfigError in one sentence.
namespace dear::methods::edge {

struct Upload {
  double bits = 0;
  double ready_seconds = 0;  // when its update is computed
  double channel_hz = 0;     // P g / N0: see channel.h
};

struct Round {
  std::vector<double> bandwidth_hz;  // by device; 0 for one that has nothing to send
  std::vector<double> end_seconds;   // likewise
  double seconds = 0;                // the last of them
};

// Min-max: all that send end at the same moment, which a bisection finds; worse channels get more bandwidth.
Round min_max(const std::vector<Upload>& uploads, double bandwidth_hz);
// Each device gets an equal part of the bandwidth.
Round equal_bands(const std::vector<Upload>& uploads, double bandwidth_hz);

struct Allocator {
  std::string_view name, summary;
  Round (*allocate)(const std::vector<Upload>& uploads, double bandwidth_hz);
};
const std::vector<Allocator>& allocators();

// Chosen devices, ascending, and how they share the bandwidth (of devices in that order).
struct Choice {
  std::vector<int> devices;
  Round round;
};
// Greedy: adds the device with which the round is shortest, until the round would take longer than `budget`.
Choice greedy_under(const std::vector<Upload>& uploads, double bandwidth_hz, double budget_seconds);
// The most devices that any choice has: a device needs a bandwidth of its own to end in the budget, whoever
// else sends, so those that need least are taken.
Choice most_under(const std::vector<Upload>& uploads, double bandwidth_hz, double budget_seconds);

struct JointScheduler {
  std::string_view name, summary;
  Choice (*choose)(const std::vector<Upload>& uploads, double bandwidth_hz, double budget_seconds);
};
const std::vector<JointScheduler>& joint_schedulers();
// Null where there is none of this name.
const JointScheduler* find_joint_scheduler(std::string_view name);

}  // namespace dear::methods::edge
