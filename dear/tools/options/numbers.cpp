#include "dear/tools/options/numbers.h"

#include <cmath>
#include <cstdlib>
#include <limits>

#include <fmt/format.h>

namespace dear::cli {

std::string with_separators(std::int64_t value) {
  const std::string digits = fmt::format("{}", std::abs(value));
  std::string text = value < 0 ? "-" : "";
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) {
      text.push_back(',');
    }
    text.push_back(digits[i]);
  }
  return text;
}

std::string clock_time(double seconds) {
  const std::int64_t whole = std::llround(seconds);
  if (whole < 60) {
    return fmt::format("{} s", whole);
  }
  if (whole < 3600) {
    return fmt::format("{}:{:02}", whole / 60, whole % 60);
  }
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

double without_sign_of_nan(double loss) {
  return std::isnan(loss) ? std::numeric_limits<double>::quiet_NaN() : loss;
}

}  // namespace dear::cli
