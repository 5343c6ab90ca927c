#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"
#include "dear/tools/options/manual.h"

namespace dear::cli {
namespace {

void collect(const CommandHelp& command, std::vector<const CommandHelp*>& all) {
  all.push_back(&command);
  for (const CommandHelp& inner : command.commands) collect(inner, all);
}

std::vector<std::string> split(const std::string& names) {
  std::vector<std::string> all;
  for (std::size_t begin = 0; begin <= names.size();) {
    const std::size_t end = std::min(names.find(',', begin), names.size());
    all.push_back(names.substr(begin, end - begin));
    begin = end + 1;
  }
  return all;
}

// The words that may follow a command.
std::vector<std::string> words_of(const CommandHelp& command) {
  std::vector<std::string> words;
  for (const CommandHelp& inner : command.commands)
    words.push_back(inner.name.substr(inner.name.rfind(' ') + 1));
  for (const OptionHelp& option : command.options)
    for (std::string& name : split(option.names))
      if (name.starts_with("--")) words.push_back(std::move(name));
  return words;
}

bool is_path(std::string_view value) { return value == "FILE" || value == "FOLDER" || value == "PATH"; }

// The arms of a `case` over "COMMAND WORD BEFORE": values of an option, those that are files, and those of
// which nothing is known. What has no arm is completed as the next word.
struct Arms {
  std::string names, files, others;
};
Arms arms_of(const std::vector<const CommandHelp*>& commands, const Values& by_option,
             std::string_view offer) {
  Arms arms;
  for (const CommandHelp* const command : commands) {
    for (const OptionHelp& option : command->options) {
      if (option.value.empty()) continue;
      for (const std::string& name : split(option.names)) {
        const std::string place = fmt::format("'{} {}'", command->name, name);
        auto found = by_option.find(fmt::format("{} {}", command->name, name));
        if (found == by_option.end()) found = by_option.find(name);
        if (found != by_option.end()) {
          arms.names += fmt::format("    {}) {} ;;\n", place,
                                    fmt::format(fmt::runtime(offer), fmt::join(found->second, " ")));
        } else {
          std::string& places = is_path(option.value) ? arms.files : arms.others;
          places += (places.empty() ? "" : "|") + place;
        }
      }
    }
  }
  return arms;
}

constexpr std::string_view kBash =
    R"(# Completion of dear in bash: source it, or put it where bash-completion looks.
_dear() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} command=dear word words=
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$command $word" in
      {0}) command="$command $word" ;;
    esac
  done
  COMPREPLY=()
  case "$command $prev" in
    {2}) return ;;
    {4}) ;;
{1}    *) words=- ;;
  esac
  if [[ $words == - || $cur == -* ]]; then
    case "$command" in
{3}    esac
  fi
  while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -W "$words" -- "$cur"; [[ $cur == -* ]] || compgen -f -- "$cur")
}}
complete -o filenames -F _dear dear
)";

constexpr std::string_view kZsh = R"(#compdef dear
# Completion of dear in zsh: put it into a folder of $fpath, as _dear.
local at=dear word prev=${{words[CURRENT-1]}} known=
for word in ${{words[2,CURRENT-1]}}; do
  case "$at $word" in
    {0}) at="$at $word" ;;
  esac
done
case "$at $prev" in
  {2}) return 1 ;;
  {4}) _files; return ;;
{1}  *) ;;
esac
if [[ -z $known ]]; then
  case "$at" in
{3}  esac
fi
compadd -- ${{=known}}
[[ $PREFIX == -* ]] || _files
)";

}  // namespace

std::string completion_script(const CommandHelp& dear, const Values& values, const std::string& shell) {
  if (shell != "bash" && shell != "zsh")
    throw ConfigError(fmt::format("there is no completion for the shell '{}': choose bash or zsh", shell));
  std::vector<const CommandHelp*> commands;
  collect(dear, commands);
  const std::string_view offer = shell == "bash" ? "words='{}'" : "known='{}'";
  const Arms arms = arms_of(commands, values, offer);
  std::string places, words;
  for (const CommandHelp* const command : commands) {
    if (command != commands.front())
      places += fmt::format("{}'{}'", places.empty() ? "" : "|", command->name);
    words += fmt::format("      '{}') {} ;;\n", command->name,
                         fmt::format(fmt::runtime(offer), fmt::join(words_of(*command), " ")));
  }
  return fmt::format(fmt::runtime(shell == "bash" ? kBash : kZsh), places, arms.names, arms.others, words,
                     arms.files);
}

}  // namespace dear::cli
