#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dear::studies::themis {

// The published figures of Themis, means and largest values over six networks. Numbers of papers stand in a
// file, never in the code.
struct PublishedThemis {
  struct Utilisation {
    std::string algorithm;  // of chunk_planners()
    double mean = 0;        // of all bandwidth, 0 to 1
  };
  struct Gain {
    std::string algorithm;
    double mean = 0;     // how many times as fast as the baseline
    double largest = 0;  // 0 where it is not known
  };
  struct Iteration {
    std::string model;  // of the zoo
    double gain = 0;    // how many times as fast an iteration is as with the baseline
    double largest = 0;
    double ideal = 0;  // if all bandwidth were used
  };
  std::string source;
  std::vector<Utilisation> utilisation;
  std::vector<Gain> gains;
  std::vector<Iteration> iterations;
};

// ConfigError "FILE: ..." with the field for what is no such file.
PublishedThemis read_published_themis(const std::string& path);
PublishedThemis parse_published_themis(std::string_view text, const std::string& source);

}  // namespace dear::studies::themis
