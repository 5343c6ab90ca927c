#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dear::studies::fusionllm {

// These are the published figures of FusionLLM. Numbers of papers stand in a file, never in the code.
struct PublishedFusionLlm {
  std::string source;
  int devices = 0;
  double least_bits_per_second = 0, most_bits_per_second = 0;  // of links
  double least_speed_up = 0, most_speed_up = 0;                // over the baselines
  std::vector<std::string> models;                             // of the zoo
};

// They throw ConfigError "FILE: ..." with the field for what is no such file.
PublishedFusionLlm read_published_fusionllm(const std::string& path);
PublishedFusionLlm parse_published_fusionllm(std::string_view text, const std::string& source);

}  // namespace dear::studies::fusionllm
