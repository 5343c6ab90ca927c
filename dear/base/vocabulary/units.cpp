#include "dear/base/vocabulary/units.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <span>
#include <system_error>

#include "dear/base/vocabulary/error.h"

namespace dear {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr std::array<Unit, 8> kByteUnits{{{"B", 1},
                                          {"kB", 1e3},
                                          {"KB", 1e3},
                                          {"MB", 1e6},
                                          {"GB", 1e9},
                                          {"KiB", kKiB},
                                          {"MiB", kMiB},
                                          {"GiB", kGiB}}};
// Divisors, because 1e-6 has no exact double and 50 / 1e6 is nearer to the decimal that was written than 50 *
// 1e-6.
constexpr std::array<Unit, 4> kSecondUnits{{{"ns", 1e9}, {"us", 1e6}, {"ms", 1e3}, {"s", 1}}};
struct Quantity {
  std::string_view digits;
  double number = 0;
  double factor = 0;
};

[[noreturn]] void refuse(std::string_view text, std::string_view expected) {
  throw ConfigError("'" + std::string(text) + "' cannot be used: expected " + std::string(expected));
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

double factor_of(std::string_view name, std::span<const Unit> units) {
  for (const Unit& unit : units)
    if (unit.name == name) return unit.factor;
  return 0;
}

// Units of bandwidth: as tc has them (1gbit), as cards are sold (1Gbps, 1Gb/s), and in bytes (125MB/s). A
// small letter stands before bits alone, since MB/s and mb/s are not the same.
double factor_of_rate(std::string_view name) {
  static constexpr std::array<Unit, 9> kPrefixes{{{"k", 1e3},
                                                  {"K", 1e3},
                                                  {"m", 1e6},
                                                  {"M", 1e6},
                                                  {"g", 1e9},
                                                  {"G", 1e9},
                                                  {"t", 1e12},
                                                  {"T", 1e12},
                                                  {"", 1}}};
  if (name.ends_with("B/s")) return 8 * factor_of(name.substr(0, name.size() - 2), kByteUnits);
  for (const std::string_view bits : {"bit", "bit/s", "bps", "b/s"})
    if (name.ends_with(bits)) return factor_of(name.substr(0, name.size() - bits.size()), kPrefixes);
  return 0;
}

// A number begins and ends with a digit: this leaves no room for signs, exponents, "inf", "nan" and blanks.
// `factor` returns 0 for a name that is no unit.
template <typename Factor>
Quantity parse_quantity(std::string_view text, const Factor& factor, std::string_view expected) {
  const std::size_t length = std::min(text.find_first_not_of("0123456789."), text.size());
  Quantity quantity{.digits = text.substr(0, length)};
  if (length == 0 || !is_digit(quantity.digits.front()) || !is_digit(quantity.digits.back())) {
    refuse(text, expected);
  }
  const char* end = quantity.digits.data() + length;
  const auto [parsed_to, error] =
      std::from_chars(quantity.digits.data(), end, quantity.number, std::chars_format::fixed);
  if (error != std::errc() || parsed_to != end) refuse(text, expected);
  quantity.factor = factor(text.substr(length));
  if (quantity.factor == 0) refuse(text, expected);
  return quantity;
}

// Three significant digits without trailing zeros; whole numbers stay whole up to four digits.
std::string three_digits(double value) {
  std::array<char, 64> buffer{};
  const auto format = std::abs(value) < 999.5 ? std::chars_format::general : std::chars_format::fixed;
  const int precision = format == std::chars_format::general ? 3 : 0;
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, format, precision);
  return result.ec == std::errc() ? std::string(buffer.data(), result.ptr) : std::to_string(value);
}

}  // namespace

std::int64_t parse_bytes(std::string_view text) {
  static constexpr std::string_view kExpected =
      "a size of at least one byte with its unit, such as 25MiB, 64KiB, 1.5GiB, 100MB or 512B";
  const Quantity quantity =
      parse_quantity(text, [](std::string_view name) { return factor_of(name, kByteUnits); }, kExpected);
  std::int64_t bytes = 0;
  if (quantity.digits.find('.') == std::string_view::npos) {
    // In integers: a double would lose the last bytes of a number above 2^53.
    const char* end = quantity.digits.data() + quantity.digits.size();
    const bool fits = std::from_chars(quantity.digits.data(), end, bytes).ec == std::errc();
    const auto factor = static_cast<std::int64_t>(quantity.factor);
    if (!fits || bytes > std::numeric_limits<std::int64_t>::max() / factor)
      refuse(text, "a size below 2^63 bytes");
    bytes *= factor;
  } else {
    const double exact = std::round(quantity.number * quantity.factor);
    if (exact >= 0x1p63) refuse(text, "a size below 2^63 bytes");
    bytes = static_cast<std::int64_t>(exact);
  }
  if (bytes < 1) refuse(text, kExpected);
  return bytes;
}

double parse_seconds(std::string_view text) {
  const Quantity quantity = parse_quantity(
      text, [](std::string_view name) { return factor_of(name, kSecondUnits); },
      "a time with its unit, such as 50us, 1.5ms, 2s or 800ns");
  return quantity.number / quantity.factor;
}

double parse_bits_per_second(std::string_view text) {
  static constexpr std::string_view kExpected =
      "a rate above zero with its unit, such as 1gbit, 1Gbps, 1Gb/s or 125MB/s";
  const Quantity quantity = parse_quantity(text, factor_of_rate, kExpected);
  const double rate = quantity.number * quantity.factor;
  if (!(rate > 0) || !std::isfinite(rate)) refuse(text, kExpected);
  return rate;
}

std::string format_bytes(std::int64_t bytes) {
  static constexpr std::array<std::string_view, 4> kUnits{" B", " KiB", " MiB", " GiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  // 1023.5 and above would be printed as 1024.
  while (std::abs(value) >= (unit == 0 ? 1024 : 1023.5) && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return three_digits(value) + std::string(kUnits[unit]);
}

std::string format_seconds(double seconds) {
  static constexpr std::array<std::string_view, 4> kUnits{" s", " ms", " us", " ns"};
  if (seconds == 0 || !std::isfinite(seconds)) return three_digits(seconds) + " s";
  double value = seconds;
  std::size_t unit = 0;
  // 0.9995 of a unit is where three digits round up to 1.
  while (std::abs(value) < 0.9995 && unit + 1 < kUnits.size()) {
    value *= 1000;
    ++unit;
  }
  return three_digits(value) + std::string(kUnits[unit]);
}

}  // namespace dear
