#pragma once

#include <cstdint>
#include <string>
#include <string_view>

// Quantities as a user writes them. Every parser throws a ConfigError that says what was expected for a
// missing unit, a negative or non-finite number, and trailing characters.
namespace dear {

inline constexpr std::int64_t kKiB = 1024;
inline constexpr std::int64_t kMiB = 1024 * kKiB;
inline constexpr std::int64_t kGiB = 1024 * kMiB;

std::int64_t parse_bytes(std::string_view text);      // "25MiB", "64KiB", "1.5GiB", "100MB", "512B"
double parse_seconds(std::string_view text);          // "50us", "1.5ms", "2s", "800ns"
double parse_bits_per_second(std::string_view text);  // "1gbit", "2.5Gbps", "100Mb/s", "125MB/s" (decimal)

std::string format_bytes(std::int64_t bytes);  // "25 MiB", "1.5 KiB", "17 B"
std::string format_seconds(double seconds);    // "1.23 s", "45.6 ms", "7.89 us", "12 ns"

}  // namespace dear
