#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "dear/schedule/codec/compression.h"

namespace dear::codec {

// Where a Compression keeps the value of an option.
using Place = std::variant<bool*, int*, std::int64_t*, std::uint64_t*, double*, Scope*, SketchSpec::Index*,
                           std::vector<std::string>*>;

// An option of Compression::parse().
struct OptionRow {
  std::string_view name;
  std::string_view value{};  // its placeholder; empty for an option that stands alone
  unsigned schemes = 0;      // that have it, bit_of() each
  std::string_view summary;
  std::string_view range{};  // what its value must be, in words
  Place (*place)(Compression&) = nullptr;
  // Whether the value is in its range.
  bool (*fits)(const Compression&) = [](const Compression&) { return true; };
};

constexpr unsigned bit_of(Scheme scheme) { return 1U << static_cast<unsigned>(scheme); }

// The values that may stand after a scheme and a colon, whose `value` is the scheme's `amount`; and the
// options that stand after commas.
std::span<const OptionRow> amount_rows();
std::span<const OptionRow> option_rows();

}  // namespace dear::codec
