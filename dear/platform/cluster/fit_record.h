#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dear {

// How a link was found: measured times, and those that the model gives for it.
struct FitRecord {
  struct Sample {
    std::int64_t bytes = 0;
    double seconds = 0;
    double modelled_seconds = 0;
    friend bool operator==(const Sample&, const Sample&) = default;
  };
  std::string backend;
  std::string operation;
  std::string dtype;
  std::string model;
  double rms_residual = 0;    // of the relative residuals
  double worst_residual = 0;  // the largest without its sign
  std::vector<Sample> samples;
  friend bool operator==(const FitRecord&, const FitRecord&) = default;
};

}  // namespace dear
