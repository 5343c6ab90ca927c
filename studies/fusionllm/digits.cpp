#include "studies/fusionllm/digits.h"

#include <algorithm>

#include <fmt/format.h>

#include "dear/base/os/atomic_file.h"
#include "dear/base/vocabulary/error.h"

namespace dear::studies::fusionllm {
namespace {

constexpr std::string_view kPixelDigits = "0123456789abcdefg";
constexpr std::size_t kLeastImages = 100;

}  // namespace

Digits parse_digits(std::string_view text, const std::string& source) {
  Digits digits;
  for (std::size_t line = 1; !text.empty(); ++line) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view one = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (one.starts_with('#')) continue;
    const std::string_view pixels = one.substr(0, Digits::kPixels);
    if (one.size() != Digits::kPixels + 2 ||
        pixels.find_first_not_of(kPixelDigits) != std::string_view::npos || one[Digits::kPixels] != ' ' ||
        one.back() < '0' || one.back() > '9')
      throw ConfigError(fmt::format(
          "{}: line {} is no image: write {} pixels as 0 to 9 and a to g, a space and a class from 0 to 9",
          source, line, Digits::kPixels));
    for (const char pixel : pixels)
      digits.images.push_back(static_cast<float>(kPixelDigits.find(pixel)) / 16);
    digits.labels.push_back(one.back() - '0');
  }
  if (digits.labels.size() < kLeastImages)
    throw ConfigError(fmt::format("{}: {} images are too few to learn from: give at least {}", source,
                                  digits.labels.size(), kLeastImages));
  return digits;
}

Digits read_digits(const std::string& path) { return parse_digits(os::read_file(path), path); }

}  // namespace dear::studies::fusionllm
