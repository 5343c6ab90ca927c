#pragma once

#include <cstdint>
#include <string>

namespace dear::cli {

// The number as "1,234,567".
std::string with_separators(std::int64_t value);
// A duration as "1:05:07", "2:03" or "45 s".
std::string clock_time(double seconds);
// A loss as it is shown: some operations give a NaN a sign, which tells nothing.
double without_sign_of_nan(double loss);

}  // namespace dear::cli
