#include "dear/tools/options/manual.h"

#include <sstream>

#include <fmt/format.h>

#include "dear/tools/options/examples.h"

namespace dear::cli {
namespace {

// A text in roff, whose own signs are a backslash, a hyphen (which it would make a dash of), and a dot or an
// apostrophe at the beginning of a line.
std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return !out.empty() && (out.front() == '.' || out.front() == '\'') ? "\\&" + out : out;
}

void add_entry(std::string& page, const std::string& head, const std::string& text) {
  page += fmt::format(".TP\n{}\n{}\n", head, roff(text));
}

void add_command(std::string& page, const CommandHelp& command) {
  page += fmt::format(".SS {}\n{}.\n", roff(command.name), roff(command.meaning));
  for (const OptionHelp& one : command.positionals)
    add_entry(page, fmt::format("\\fI{}\\fR", roff(one.names)), one.meaning);
  for (const OptionHelp& one : command.options) {
    if (one.names == "-h,--help") continue;
    add_entry(page,
              fmt::format("\\fB{}\\fR{}", roff(one.names),
                          one.value.empty() ? "" : fmt::format(" \\fI{}\\fR", roff(one.value))),
              one.meaning);
  }
  std::istringstream lines(command.footer);
  if (!command.footer.empty()) page += ".PP\n";
  for (std::string line; std::getline(lines, line);)
    page += line.empty()          ? ".PP\n"
            : line.front() == ' ' ? fmt::format(".EX\n{}\n.EE\n", roff(line))
                                  : roff(line) + "\n";
  if (!command.example.empty())
    page += fmt::format(".PP\nFor example:\n.PP\n.EX\n  {}\n.EE\n", roff(command.example));
  for (const CommandHelp& inner : command.commands) add_command(page, inner);
}

}  // namespace

CommandHelp help_of(const CLI::App& command) {
  CommandHelp help{.name = name_of(command),
                   .meaning = command.get_description(),
                   .footer = command.get_footer(),
                   .example = example_of(name_of(command)),
                   .positionals = {},
                   .options = {},
                   .commands = {}};
  for (const CLI::Option* const option : command.get_options()) {
    if (option->get_group().empty()) continue;
    (option->get_positional() ? help.positionals : help.options)
        .push_back(help_of(*option, option->get_positional()));
  }
  for (const CLI::App* const inner : command.get_subcommands([](const CLI::App*) { return true; }))
    if (!inner->get_group().empty()) help.commands.push_back(help_of(*inner));
  return help;
}

std::string manual_page(const CommandHelp& dear, const std::string& version) {
  std::string page = fmt::format(
      ".TH DEAR 1 \"\" \"dear {}\" \"User Commands\"\n.SH NAME\ndear \\- {}\n.SH SYNOPSIS\n.B dear\n"
      "\\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n.SH DESCRIPTION\n{}.\n.SH COMMANDS\n",
      roff(version), roff(dear.meaning), roff(dear.meaning));
  for (const CommandHelp& command : dear.commands) add_command(page, command);
  return page +
         ".SH EXIT STATUS\n.TP\n0\nAll went well.\n.TP\n1\nA failure while running, or a loss that is no "
         "number.\n"
         ".TP\n2\nA wrong option, file or value.\n.TP\n130\nInterrupted by Ctrl\\-C; what there was by then "
         "is "
         "written.\n";
}

}  // namespace dear::cli
