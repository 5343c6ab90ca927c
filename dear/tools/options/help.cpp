#include "dear/tools/options/help.h"

#include <algorithm>
#include <sstream>
#include <string_view>
#include <sys/ioctl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "dear/tools/options/examples.h"

namespace dear::cli {
namespace {

constexpr std::size_t kColumn = 30;  // where descriptions begin

// This is what CLI11 appends to the name of a type for a check: "N:INT in [1 - 8]", "NAME:{sgd,kfac}".
struct Type {
  std::string value, limits, choices;
};
bool is_of_check(std::string_view text) {
  return text.starts_with('{') || text.starts_with("POSITIVE") || text.starts_with("NONNEGATIVE") ||
         text.starts_with("NUMBER") || text.substr(0, text.find(':')).find(" in [") != std::string_view::npos;
}
Type type_of(const std::string& name) {
  std::size_t end = name.find(':');  // a name may have one itself: "MIN:MAX"
  while (end != std::string::npos && !is_of_check(std::string_view(name).substr(end + 1)))
    end = name.find(':', end + 1);
  Type type{.value = name.substr(0, end), .limits = {}, .choices = {}};
  if (type.value == "TEXT" || type.value == "INT" || type.value == "UINT" || type.value == "FLOAT")
    type.value = type.value == "TEXT" ? "TEXT" : "N";
  const std::size_t in = name.find(" in [");
  if (in != std::string::npos) {
    const std::string range = name.substr(in + 5, name.find(']', in) - in - 5);
    const std::size_t dash = range.find(" - ");
    type.limits = range.substr(0, dash) + " to " + range.substr(dash + 3);
  }
  if (const std::size_t brace = name.find(":{"); brace != std::string::npos) {
    type.choices = name.substr(brace + 2, name.find('}', brace) - brace - 2);
    for (std::size_t at = 0; (at = type.choices.find(',', at)) != std::string::npos; at += 2)
      type.choices.replace(at, 1, ", ");
  }
  return type;
}

// Takes the default off a description that ends with it: "...; default: 2", "... (default 2)".
std::string take_default(std::string& text) {
  std::size_t begin = text.ends_with(')') ? text.rfind("(default") : std::string::npos;
  std::size_t end = text.size() - 1;
  if (begin == std::string::npos) {
    begin = text.rfind("; default: ");
    end = text.size();
  }
  if (begin == std::string::npos || text.find(')', begin) < end) return "";
  const std::size_t word = text.find_first_not_of(": ", text.find("default", begin) + 7);
  const std::string usual = text.substr(word, end - word);
  text.erase(begin);
  while (text.ends_with(' ')) text.pop_back();
  return usual;
}

}  // namespace

OptionHelp help_of(const CLI::Option& option, bool positional) {
  OptionHelp help{.names = positional ? option.get_name(true, false) : option.get_name(false, true),
                  .value = {},
                  .meaning = option.get_description()};
  for (std::size_t at = 0; (at = help.names.find("{false}")) != std::string::npos;) help.names.erase(at, 7);
  const bool takes_value = option.get_type_size() != 0 && option.get_expected_max() > 0;
  if (!takes_value) return help;
  const Type type = type_of(option.get_type_name());
  if (!positional) help.value = type.value;
  std::string usual = option.get_default_str();
  if (const std::string said = take_default(help.meaning); !said.empty()) usual = said;
  const auto says = [&](std::string_view words) { return help.meaning.find(words) != std::string::npos; };
  if (!type.limits.empty() && !says(type.limits)) help.meaning += ", " + type.limits;
  if (!type.choices.empty() && !says(type.choices)) help.meaning += ": one of " + type.choices;
  if (option.get_required()) {
    help.meaning += " (required)";
  } else if (!usual.empty() && usual != "[]" && usual != "{}") {
    help.meaning += " (default: " + usual + ")";
  }
  return help;
}

std::string wrapped(const std::string& text, std::size_t width, std::size_t indent) {
  std::istringstream words(text);
  std::string lines;
  std::size_t used = 0;
  for (std::string word; words >> word;) {
    if (used > 0 && used + 1 + word.size() > width) {
      lines += "\n" + std::string(indent, ' ');
      used = 0;
    }
    lines += (used > 0 ? " " : "") + word;
    used += (used > 0 ? 1 : 0) + word.size();
  }
  return lines;
}

std::string reflowed(const std::string& text, std::size_t width) {
  std::string out, paragraph;
  const auto end_paragraph = [&] {
    if (!paragraph.empty()) out += wrapped(paragraph, width, 0) + "\n";
    paragraph.clear();
  };
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.front() == ' ') {
      end_paragraph();
      out += line + "\n";
    } else {
      paragraph += " " + line;
    }
  }
  end_paragraph();
  return out;
}

std::string HelpFormatter::entry(const std::string& head, const std::string& text) const {
  const std::string shown = "  " + head;
  const std::size_t width = width_ - kColumn;
  const std::string described = wrapped(text, width, kColumn);
  if (described.empty()) return shown + "\n";
  return shown.size() + 2 <= kColumn ? fmt::format("{:<{}}{}\n", shown, kColumn, described)
                                     : fmt::format("{}\n{}{}\n", shown, std::string(kColumn, ' '), described);
}

std::string HelpFormatter::make_option(const CLI::Option* option, bool positional) const {
  const OptionHelp help = help_of(*option, positional);
  return entry(help.names + (help.value.empty() ? "" : " " + help.value), help.meaning);
}

std::string HelpFormatter::make_subcommand(const CLI::App* command) const {
  return entry(command->get_name(), command->get_description());
}

std::string HelpFormatter::make_description(const CLI::App* command) const {
  return wrapped(command->get_description(), width_, 0) + "\n";
}

std::string HelpFormatter::make_footer(const CLI::App* command) const {
  std::string text = reflowed(command->get_footer(), width_);
  const std::string example = example_of(name_of(*command));
  if (!example.empty()) text += (text.empty() ? "" : "\n") + ("For example: " + example) + "\n";
  return text;
}

std::size_t width_of_output() {
  winsize size{};
  if (::isatty(STDOUT_FILENO) == 0 || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
    return 100;
  return std::clamp<std::size_t>(size.ws_col, 60, 120);
}

}  // namespace dear::cli
