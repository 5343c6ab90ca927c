#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "dear/methods/rounds/rounds.h"

namespace dear::methods::rounds {

// When a run ends. The error is |x - x*|^2, divided by what it is at the start.
struct Target {
  double error = 1e-8;
  std::int64_t rounds = 1'000'000;
};

enum class End : std::uint8_t {
  reached,   // the error
  stalled,   // in as many rounds as the best error took, 1000 at least, it has not become a tenth smaller
  diverged,  // a million times the first error
  ended      // all rounds, or the stages of a saddle
};
std::string_view name_of(End end);

// A round on the way, with sums until then.
struct Milestone {
  Counts counts;
  double error = 1;
};

struct Outcome {
  End end = End::ended;
  Milestone last{};
  Traffic traffic{};
  double control_sum = 0;               // Rounds::control_sum() at the end
  std::vector<Milestone> milestones{};  // each at 3 % more rounds than the one before
};

// Makes rounds until the run ends. `on_milestone` is called for each milestone; it may be empty.
Outcome run_to(Rounds& rounds, std::span<const double> optimum, const Target& target,
               const std::function<void(const Milestone&)>& on_milestone = {});

}  // namespace dear::methods::rounds
