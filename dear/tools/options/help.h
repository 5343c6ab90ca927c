#pragma once

#include <string>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

// Writes what `--help` prints: as wide as the terminal, with what a value must be, and the default, in words.
namespace dear::cli {

// An option as help, the manual page and completion say it.
struct OptionHelp {
  std::string names;    // "-n,--ranks", or the name of a positional argument
  std::string value;    // "N"; "" for a flag
  std::string meaning;  // "Ranks to start, 1 to 1024 (required)"
};
OptionHelp help_of(const CLI::Option& option, bool positional);

// Words at most `width` apart, each line after the first behind `indent` blanks.
std::string wrapped(const std::string& text, std::size_t width, std::size_t indent);
// The paragraphs of a text, each wrapped; lines that begin with a blank stay as they are.
std::string reflowed(const std::string& text, std::size_t width);

class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(std::size_t width) : width_(width) {}
  std::string make_option(const CLI::Option* option, bool positional) const override;
  std::string make_subcommand(const CLI::App* command) const override;
  std::string make_description(const CLI::App* command) const override;
  std::string make_footer(const CLI::App* command) const override;

 private:
  [[nodiscard]] std::string entry(const std::string& head, const std::string& text) const;
  std::size_t width_;
};

// Columns of the terminal that standard output is, from 60 on; 100 where it is none.
std::size_t width_of_output();

}  // namespace dear::cli
