#pragma once

#include <cstdint>
#include <string>

#include "dear/methods/rounds/algorithms.h"
#include "dear/methods/rounds/problem.h"

namespace dear::methods::rounds {

// The stages of a saddle: each steps around the mean of the iterates of the one before, with smaller steps.
struct Stages {
  int count = 4;
  std::int64_t steps = 4000;  // of a client in a stage
  double shrink = 3;          // step size of a stage, divided by that of the next
  double proximal = 500;      // weight of the distance to the proximal point: 1 / (2 proximal)
};

// The settings of a run; 0 stands for what completed() finds.
struct Settings {
  const Algorithm* algorithm = nullptr;
  int cohort = 0;          // clients of a round; all
  int owners = 0;          // clients that send a coordinate; by theory, where a client sends a part
  double gamma = 0;        // step size; by theory, for a saddle 0.1, of the first stage
  double probability = 0;  // that a local step is the last of its round; by theory
  double chi = 0;          // of control variates; the largest
  std::int64_t every = 0;  // local steps of a round where they are fixed; 1 / probability of Scaffnew
  double alpha = 0;        // what a real sent down costs, where one sent up costs 1
  double absence = 0;      // probability that a client that was drawn for a round does not answer
  int batch = 0;           // samples of a gradient; all
  std::uint64_t seed = 1;
  bool beyond_theory = false;  // takes values for which nothing is proven
  Stages stages{};
};

// Fills in what is 0. ConfigError, in one sentence that says what is possible, for what cannot be, and,
// unless `beyond_theory`, for a step size or chi with which the algorithm may diverge.
Settings completed(Settings settings, const Problem& problem);

// The text of all that must be the same on all ranks.
std::string describe(const Settings& settings);

}  // namespace dear::methods::rounds
