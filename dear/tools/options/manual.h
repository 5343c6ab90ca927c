#pragma once

#include <map>
#include <string>
#include <vector>

#include "dear/tools/options/help.h"

// Tells what the commands and options of `dear` are, for others than `--help`: a manual page, and shells that
// complete words.
namespace dear::cli {

struct CommandHelp {
  std::string name;  // "dear trace summary"
  std::string meaning, footer, example;
  std::vector<OptionHelp> positionals, options;
  std::vector<CommandHelp> commands;  // those that --help shows
};
CommandHelp help_of(const CLI::App& command);

std::string manual_page(const CommandHelp& dear, const std::string& version);  // roff, section 1

// Names that a value may be, by option: {"--policy", {"serial", "dear"}}; of one command, where it has
// other names than others: {"dear pipeline plan --cluster", {"two-sites"}}.
using Values = std::map<std::string, std::vector<std::string>>;

// A script that completes commands, options, and values that are names or files; of shell "bash" or "zsh".
// ConfigError for another.
std::string completion_script(const CommandHelp& dear, const Values& values, const std::string& shell);

}  // namespace dear::cli
