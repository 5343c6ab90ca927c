#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "dear/predict/tune/draws.h"
#include "dear/predict/tune/tuner.h"

// Made-up functions of candidates, and the course that a tuner takes over them.
namespace dear::tune::courses {

using Function = std::function<double(const Candidate& candidate)>;

inline Candidates grid(std::size_t dimensions, std::size_t points) {
  return candidates_on_grid(
      std::vector<Dimension>(dimensions, {.name = "x", .low = 0, .high = 1, .scale = Scale::linear}),
      [](const std::vector<double>& values) {
        std::string key;
        for (const double value : values) key += std::to_string(value) + " ";
        return key;
      },
      {.points = points});
}

struct Course {
  std::vector<std::size_t> tried;
  std::size_t best = 0;
};

inline Course run(Tuner& tuner, const Candidates& candidates, const Function& function, double noise = 0,
                  std::uint64_t seed = 1) {
  Draws draws(seed);
  Course course;
  while (const auto candidate = tuner.suggest()) {
    EXPECT_EQ(tuner.suggest(), candidate);
    tuner.observe(*candidate, function(candidates[*candidate]) * std::exp(noise * draws.normal()));
    course.tried.push_back(*candidate);
    EXPECT_LE(course.tried.size(), 1000U);
  }
  course.best = *tuner.best();
  return course;
}

// By squared distance from a point, in parts of the least.
inline Function bowl(std::vector<double> valley, double depth) {
  return [=](const Candidate& candidate) {
    double sum = 0;
    for (std::size_t d = 0; d < valley.size(); ++d) sum += std::pow(candidate.position[d] - valley[d], 2);
    return 0.2 * (1 + depth * sum);
  };
}

}  // namespace dear::tune::courses
