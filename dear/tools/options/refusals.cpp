#include "dear/tools/options/refusals.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/nearest.h"
#include "dear/base/vocabulary/printable.h"
#include "dear/tools/options/help.h"

namespace dear::cli {
namespace {

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* const option : command.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

std::vector<std::string> command_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* const inner : command.get_subcommands([](const CLI::App*) { return true; }))
    if (!inner->get_group().empty()) names.push_back(inner->get_name());
  return names;
}

}  // namespace

std::string unknown_word(const std::string& word, const CLI::App& command) {
  const bool is_option = word.starts_with('-');
  const std::vector<std::string> names = is_option ? option_names(command) : command_names(command);
  const std::string name = is_option ? word.substr(0, word.find('=')) : word;
  const std::string meant = did_you_mean(name, {names.begin(), names.end()}, "");
  if (is_option) return fmt::format("there is no option {}{}", name, meant);
  if (names.empty()) return fmt::format("'{}' is one word too many", word);
  return fmt::format("there is no command {}{}{}", word, meant,
                     meant.empty() ? fmt::format("; there are {}", fmt::join(names, ", ")) : "");
}

namespace {

// The option some value of which is empty.
const CLI::Option* empty_option(const CLI::App& command) {
  for (const CLI::Option* const option : command.get_options())
    if (option->get_expected_max() > 0 && std::any_of(option->results().begin(), option->results().end(),
                                                      [](const auto& one) { return one.empty(); }))
      return option;
  return nullptr;
}

// The rest of a text behind `begin`; "" where it does not begin so.
std::string_view behind(std::string_view text, std::string_view begin) {
  return text.starts_with(begin) ? text.substr(begin.size()) : std::string_view();
}

// "1 to 8" of "1 to 8", or of "[1 - 8]", as CLI11 writes it since version 2.4.
std::string limits_in(std::string text) {
  if (!text.starts_with('[')) return text;
  text = text.substr(1, text.size() - 2);
  const std::size_t dash = text.find(" - ");
  return dash == std::string::npos ? text : text.replace(dash, 3, " to ");
}

// "--optimizer: sdg not in {sgd,kfac}"
std::string not_in_set(std::string_view said) {
  const std::size_t colon = said.find(": "), set = said.find(" not in {");
  const std::string_view word = said.substr(colon + 2, set - colon - 2);
  std::vector<std::string_view> names;
  for (std::string_view rest = said.substr(set + 9, said.rfind('}') - set - 9); !rest.empty();) {
    const std::size_t end = std::min(rest.find(','), rest.size());
    names.push_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return fmt::format("{}: there is no '{}'{} choose one of {}", said.substr(0, colon), word,
                     did_you_mean(word, names), fmt::join(names, ", "));
}

// CLI11 takes the nearest number that there is for one beyond 64 bits.
std::string why_it_is_none(const std::string& value) {
  if (value.empty()) return "is empty";
  const bool is_whole = value.find_first_not_of("0123456789") == std::string::npos;
  std::uint64_t number = 0;
  return is_whole && std::from_chars(value.data(), value.data() + value.size(), number).ec != std::errc()
             ? fmt::format("{} is beyond all bounds: give a smaller number", shortened(value, 40))
             : "";
}

// CLI11 takes a negative number for one of 64 bits without a sign.
std::string why_it_is_no_seed(const std::string& value) {
  return value.starts_with('-') ? fmt::format("is '{}', but must be a number from 0", value) : "";
}

}  // namespace

const CLI::App& chosen(const CLI::App& app) {
  const auto inner = app.get_subcommands();
  return inner.empty() ? app : chosen(*inner.front());
}

void refuse_values_that_are_none(CLI::App& app) {
  for (CLI::Option* const option : app.get_options([](const CLI::Option*) { return true; }))
    if (option->get_type_size() != 0 && option->get_expected_max() > 0) {
      option->check(why_it_is_none);
      if (option->check_lname("seed")) option->check(why_it_is_no_seed);
    }
  for (CLI::App* const inner : app.get_subcommands([](const CLI::App*) { return true; }))
    refuse_values_that_are_none(*inner);
}

std::string sentence_of(const CLI::ParseError& error, const CLI::App& command) {
  const std::string said = error.what();
  const std::vector<std::string> left = command.remaining();
  const bool expects_command = command.get_require_subcommand_min() > 0;
  // A mistyped option explains what is missing, and not the reverse.
  const bool is_option = !left.empty() && left.front().starts_with('-') && left.front() != "--";
  if (is_option ||
      (!left.empty() && (expects_command || dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr)))
    return unknown_word(left.front(), command);
  if (expects_command && dynamic_cast<const CLI::RequiredError*>(&error) != nullptr)
    return fmt::format("a command is missing: give one of {}", fmt::join(command_names(command), ", "));
  if (const CLI::Option* const option = empty_option(command))
    return fmt::format("{} is empty: give {}", option->get_name(), help_of(*option, false).value);
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr)
    return said.substr(0, said.find(':')) + " needs a value";
  if (const std::string_view rest = behind(said, "Could not convert: "); !rest.empty()) {
    const std::size_t equals = rest.find(" = ");
    if (equals != std::string_view::npos)
      return fmt::format("{} is '{}', but must be a number", rest.substr(0, equals), rest.substr(equals + 3));
  }
  if (said.find(" not in {") != std::string::npos && said.find(": ") != std::string::npos)
    return not_in_set(said);
  if (const std::size_t value = said.find(": Value "), range = said.find(" not in range ");
      value != std::string::npos && range != std::string::npos)
    return fmt::format("{} is '{}', but must be from {}", said.substr(0, value),
                       said.substr(value + 8, range - value - 8), limits_in(said.substr(range + 14)));
  if (const std::size_t colon = said.find(": is '"); colon != std::string::npos)
    return said.substr(0, colon) + said.substr(colon + 1);
  return said;
}

}  // namespace dear::cli
