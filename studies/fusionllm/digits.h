#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace dear::studies::fusionllm {

// Digits holds images, row after row, of pixels from 0 to 1, and the class of each.
struct Digits {
  static constexpr std::size_t kPixels = 64;
  static constexpr int kClasses = 10;
  std::vector<float> images;
  std::vector<int> labels;
};

// A file is text with a line for each image: its 64 pixels from 0 to 16 as a character each, 0 to 9 and a to
// g, then a space and its class. Lines that begin with # are comments. ConfigError "FILE: ..." with the line
// for anything else, and for fewer than 100 images.
Digits read_digits(const std::string& path);
Digits parse_digits(std::string_view text, const std::string& source);

}  // namespace dear::studies::fusionllm
