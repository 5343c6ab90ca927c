#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dear::studies::lancet {

// The published figures of Lancet, over its models and numbers of GPUs. Numbers of papers stand in a file,
// never in the code.
struct PublishedLancet {
  struct Gain {
    std::string gate;              // see name_of(Gate)
    double largest = 0, mean = 0;  // how many times as fast as the best baseline
  };
  struct ExposedLess {
    std::string than;    // of all_passes()
    double largest = 0;  // part by which less communication is exposed, 0 to 1
  };
  struct OfCluster {
    std::string cluster;  // a preset
    std::vector<Gain> gains;
    std::vector<ExposedLess> exposed_less;
  };
  std::string source;
  int most_parts = 0;      // of a range, in the best plan
  int ablation_ranks = 0;  // on which each pass was left out
  std::vector<OfCluster> clusters;
};

// ConfigError "FILE: ..." with the field for what is no such file.
PublishedLancet read_published_lancet(const std::string& path);
PublishedLancet parse_published_lancet(std::string_view text, const std::string& source);

}  // namespace dear::studies::lancet
