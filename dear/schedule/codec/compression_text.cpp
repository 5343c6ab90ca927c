#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/nearest.h"
#include "dear/schedule/codec/compression.h"
#include "dear/schedule/codec/compression_options.h"

namespace dear {
namespace {

using codec::amount_rows;
using codec::bit_of;
using codec::option_rows;
using codec::OptionRow;

std::vector<std::string_view> names_of(unsigned mask) {
  std::vector<std::string_view> names;
  for (const SchemeInfo& info : schemes()) {
    if ((mask & bit_of(info.scheme)) != 0) names.push_back(info.name);
  }
  return names;
}

constexpr std::array<std::string_view, 3> kScopes{"tensor", "bucket", "model"};
constexpr std::array<std::string_view, 3> kIndices{"automatic", "bitmap", "bloom"};

template <class Number>
bool read(std::string_view text, Number* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}
template <class Choice>
bool read_choice(std::string_view text, std::span<const std::string_view> names, Choice* value) {
  const auto found = std::ranges::find(names, text);
  if (found == names.end()) return false;
  *value = static_cast<Choice>(found - names.begin());
  return true;
}
bool read(std::string_view /*text*/, bool* value) {
  *value = true;
  return true;
}
bool read(std::string_view text, Scope* value) { return read_choice(text, kScopes, value); }
bool read(std::string_view text, SketchSpec::Index* value) { return read_choice(text, kIndices, value); }

// The parts between separators; one empty part of an empty text.
std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}
bool read(std::string_view text, std::vector<std::string>* value) {
  value->clear();
  if (text.empty()) return true;
  for (const std::string_view pattern : split(text, ';')) value->emplace_back(pattern);
  return true;
}

template <class Number>
std::string written(const Number& value) {
  return fmt::format("{}", value);
}
std::string written(Scope value) { return std::string(kScopes[static_cast<std::size_t>(value)]); }
std::string written(SketchSpec::Index value) {
  return std::string(kIndices[static_cast<std::size_t>(value)]);
}
std::string written(const std::vector<std::string>& value) {
  return fmt::format("{}", fmt::join(value, ";"));
}

std::string value_of(const OptionRow& row, Compression compression) {
  return std::visit([](const auto* value) { return written(*value); }, row.place(compression));
}
bool has_default(const OptionRow& row, Compression compression) {
  Compression defaults;
  return std::visit(
      [](const auto* value, const auto* other) {
        if constexpr (std::is_same_v<decltype(value), decltype(other)>) return *value == *other;
        return false;
      },
      row.place(compression), row.place(defaults));
}

std::string out_of_range(const OptionRow& row, std::string_view value) {
  return fmt::format("{} is '{}': it must be {}", row.name, value, row.range);
}
std::string not_of_scheme(const OptionRow& row, Scheme scheme) {
  return fmt::format("{} has no option {}: {} {} it", name_of(scheme), row.name,
                     fmt::join(names_of(row.schemes), ", "),
                     std::has_single_bit(row.schemes) ? "has" : "have");
}

// Says what excludes what, beside what a scheme has.
struct Exclusion {
  bool (*broken)(const Compression&);
  std::string_view fault;
};
constexpr std::array<Exclusion, 3> kExclusions{{
    {.broken = [](const Compression& c) { return c.unbiased && c.feedback; },
     .fault = "unbiased and ef exclude each other, since what did not travel is sent later, unscaled: leave "
              "one out"},
    {.broken = [](const Compression& c) { return c.nesterov && c.momentum == 0; },
     .fault = "nesterov is a form of momentum: add momentum=0.9, or leave nesterov out"},
    {.broken = [](const Compression& c) { return c.correction && (c.momentum == 0 || !c.feedback); },
     .fault =
         "correction is of momentum with error feedback: add momentum=0.9 and ef, or leave correction out"},
}};

std::optional<std::string> fault_of(const Compression& compression, std::span<const OptionRow> rows) {
  for (const OptionRow& row : rows) {
    if (has_default(row, compression)) continue;
    if ((row.schemes & bit_of(compression.scheme)) == 0) return not_of_scheme(row, compression.scheme);
    if (!row.fits(compression)) return out_of_range(row, value_of(row, compression));
  }
  return std::nullopt;
}
std::optional<std::string> fault_of(const Compression& compression) {
  if (auto fault = fault_of(compression, amount_rows())) return fault;
  if (auto fault = fault_of(compression, option_rows())) return fault;
  for (const Exclusion& exclusion : kExclusions) {
    if (exclusion.broken(compression)) return std::string(exclusion.fault);
  }
  return std::nullopt;
}

const OptionRow* amount_of(Scheme scheme) {
  const auto row = std::ranges::find_if(
      amount_rows(), [&](const OptionRow& r) { return (r.schemes & bit_of(scheme)) != 0; });
  return row == amount_rows().end() ? nullptr : &*row;
}

// The part of a text before `separator`, and what follows it, if it is there.
struct Halves {
  std::string_view name;
  std::optional<std::string_view> value;
};
Halves halves(std::string_view text, char separator) {
  const std::size_t at = text.find(separator);
  if (at == std::string_view::npos) return {.name = text, .value = std::nullopt};
  return {.name = text.substr(0, at), .value = text.substr(at + 1)};
}

void read_into(Compression& compression, const OptionRow& row, std::string_view text) {
  const bool done = std::visit([&](auto* value) { return read(text, value); }, row.place(compression));
  if (!done) throw ConfigError(out_of_range(row, text));
}

void read_scheme(Compression& compression, std::string_view text) {
  const auto [name, amount] = halves(text, ':');
  compression.scheme = find_named(schemes(), name, "scheme").scheme;
  if (!amount) return;
  const OptionRow* const row = amount_of(compression.scheme);
  if (row == nullptr) throw ConfigError(fmt::format("{} has no ratio: leave ':{}' out", name, *amount));
  read_into(compression, *row, *amount);
}

void read_option(Compression& compression, const OptionRow& row, std::optional<std::string_view> value) {
  if ((row.schemes & bit_of(compression.scheme)) == 0) {
    throw ConfigError(not_of_scheme(row, compression.scheme));
  }
  if (row.value.empty() && value) {
    throw ConfigError(fmt::format("option {} has no value: leave '={}' out", row.name, *value));
  }
  if (!row.value.empty() && !value) {
    throw ConfigError(fmt::format("option {} needs a value: write {}={}", row.name, row.name, row.value));
  }
  read_into(compression, row, value.value_or(""));
}

Compression read_all(std::string_view text) {
  Compression compression;
  const std::vector<std::string_view> parts = split(text, ',');
  read_scheme(compression, parts.front());
  std::vector<std::string_view> seen;
  for (const std::string_view part : std::span(parts).subspan(1)) {
    const auto [name, value] = halves(part, '=');
    const auto row = std::ranges::find(option_rows(), name, &OptionRow::name);
    if (row == option_rows().end()) {
      std::vector<std::string_view> names;
      for (const OptionRow& option : option_rows()) {
        if ((option.schemes & bit_of(compression.scheme)) != 0) names.push_back(option.name);
      }
      throw ConfigError(no_such("option", name, names));
    }
    if (std::ranges::find(seen, name) != seen.end()) {
      throw ConfigError(fmt::format("option {} is given twice: give it once", name));
    }
    seen.push_back(name);
    read_option(compression, *row, value);
  }
  if (const auto fault = fault_of(compression)) throw ConfigError(*fault);
  return compression;
}

}  // namespace

Compression Compression::parse(std::string_view text) {
  try {
    return read_all(text);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("compression '{}': {}", text, error.what()));
  }
}

std::string Compression::text() const {
  std::string text(name_of(scheme));
  for (const OptionRow& row : amount_rows()) {
    if ((row.schemes & bit_of(scheme)) != 0 || !has_default(row, *this))
      text += fmt::format(":{}", value_of(row, *this));
  }
  for (const OptionRow& row : option_rows()) {
    if (has_default(row, *this)) continue;
    text += fmt::format(",{}", row.name);
    if (!row.value.empty()) text += fmt::format("={}", value_of(row, *this));
  }
  return text;
}

void validate(const Compression& compression) {
  if (const auto fault = fault_of(compression)) {
    throw ConfigError(fmt::format("compression {}: {}", name_of(compression.scheme), *fault));
  }
}

std::vector<CompressionOption> compression_options() {
  std::vector<CompressionOption> options;
  for (const OptionRow& row : option_rows()) {
    options.push_back(
        {.name = row.name, .value = row.value, .summary = row.summary, .schemes = names_of(row.schemes)});
  }
  return options;
}

std::string compression_grammar() {
  return "SCHEME[:RATIO][,OPTION...], of low-rank RANK instead of RATIO, for example top-k:0.01,ef";
}

}  // namespace dear
