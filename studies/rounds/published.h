#pragma once

#include <string>
#include <string_view>

namespace dear::studies::rounds {

// The published figures of training by rounds. Numbers of papers stand in a file, never in the code.
struct PublishedRounds {
  std::string source;
  int diloco_steps = 0;        // of a round, at the loss of every-step training
  double streaming_peak = 0;   // times less bandwidth at the peak
  int streaming_bits = 0;      // of outer gradients
  int intellect_steps = 0;     // of a round
  int intellect_bits = 0;      // of outer gradients
  double intellect_bytes = 0;  // times fewer
  int opendiloco_bits = 0;     // of outer gradients that cost nothing
};

// They throw ConfigError "FILE: ..." with the field for what is no such file.
PublishedRounds read_published_rounds(const std::string& path);
PublishedRounds parse_published_rounds(std::string_view text, const std::string& source);

}  // namespace dear::studies::rounds
