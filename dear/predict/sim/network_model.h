#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <queue>
#include <vector>

#include "dear/schedule/graph/frontier.h"

namespace dear::sim {

// One rank in one collective: a step that communicates, in one iteration.
struct Visit {
  Instance which;
  int rank = 0;
};

// The network of a simulation of several ranks. They enter collectives, each at its time; the model says when
// each of them is through. Time never goes backwards.
class NetworkModel {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  NetworkModel() = default;
  NetworkModel(const NetworkModel&) = delete;
  NetworkModel& operator=(const NetworkModel&) = delete;
  virtual ~NetworkModel() = default;

  virtual void enter(const Visit& visit, double now_seconds) = 0;
  // When a rank is through next, or something happens on the way there; kNever when all that goes on waits
  // for a rank to enter.
  [[nodiscard]] virtual double next_seconds() = 0;
  // Moves on to that time and appends who is through then.
  virtual void advance(std::vector<Visit>& through) = 0;
};

// Closed forms: a collective begins when the last rank has entered and takes the time foreseen for its step,
// whatever else goes on; then all ranks are through. Exact where lanes keep collectives apart and no others
// share the links.
class ClosedFormNetwork final : public NetworkModel {
 public:
  // `seconds` by StepId; outlives the model.
  ClosedFormNetwork(const std::vector<double>& seconds, int ranks) : seconds_(seconds), ranks_(ranks) {}

  void enter(const Visit& visit, double now_seconds) override;
  [[nodiscard]] double next_seconds() override;
  void advance(std::vector<Visit>& through) override;

 private:
  struct End {
    double at_seconds;
    std::uint64_t number;
    Instance which;
    bool operator>(const End& other) const {
      return at_seconds != other.at_seconds ? at_seconds > other.at_seconds : number > other.number;
    }
  };

  const std::vector<double>& seconds_;
  const int ranks_;
  std::map<Instance, int> entered_;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
  std::uint64_t begun_ = 0;
};

}  // namespace dear::sim
