#include <cerrno>
#include <cstdio>
#include <exception>
#include <fcntl.h>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/printable.h"
#include "dear/tools/command/commands.h"
#include "dear/tools/command/version.h"
#include "dear/tools/options/examples.h"
#include "dear/tools/options/exit_status.h"
#include "dear/tools/options/help.h"
#include "dear/tools/options/refusals.h"

namespace dear::cli {
namespace {

constexpr std::size_t kLongestMessage = 1500;

// How a call ended, and whether standard error says why.
struct Outcome {
  int code = 0;
  bool said = false;
};

// One line, whatever the message was made of.
Outcome report(const CLI::App& app, const std::string& message, int code) {
  const std::string name = cli::name_of(cli::chosen(app));
  const std::string first = message.substr(0, message.find('\n'));
  fmt::print(stderr, "{}: {}{}\n", name, printable(shortened(first, kLongestMessage)),
             code == kExitWrongUsage ? fmt::format(" (see {} --help)", name) : "");
  return {.code = code, .said = true};
}

// "--json=" with nothing behind it, and "--ranks ,", for which CLI11 would take the next word; not of a
// program's own words.
void refuse_empty_assignments(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "launch") return;
  for (int i = 1; i < argc; ++i)
    if (const std::string_view word = argv[i]; word.starts_with("--") && word.ends_with('=')) {
      throw ConfigError(fmt::format("{} is empty: give it a value", word.substr(0, word.size() - 1)));
    } else if (!word.empty() && word.find_first_not_of(',') == std::string_view::npos) {
      throw ConfigError(
          fmt::format("'{}' has no value in it: give one, or several with commas between them", word));
    }
}

// A file that is opened while standard output is closed would take its place, and get what is printed.
void occupy_standard_files() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF)
      static_cast<void>(::open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY));
}

// Whether something that was printed did not arrive: a disk is full, or nobody listens.
bool output_is_lost() { return std::ferror(stdout) != 0 || !std::cout.good(); }

// ": No space left on device", where the system says so when an empty line is written once more.
std::string why_output_is_lost(int error_number) {
  if (error_number == 0 && ::write(STDOUT_FILENO, "\n", 1) < 0) error_number = errno;
  return error_number == 0 ? "" : dear::with_errno("", error_number);
}

Outcome run(int argc, char** argv) {
  CLI::App app(
      "Data-parallel training with communication hidden under the backward and the next forward pass",
      "dear");
  app.set_version_flag("--version", version_text, "Print the version and what this build has");
  app.set_help_flag("-h,--help", "Print this help message and exit");
  app.formatter(std::make_shared<cli::HelpFormatter>(cli::width_of_output()));
  app.require_subcommand(1);
  for (const AddCommand add : commands()) add(app);
  cli::refuse_values_that_are_none(app);
  try {
    refuse_empty_assignments(argc, argv);
    app.parse(argc, argv);
    return {};
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return {.code = app.exit(error)};
    return report(app, cli::sentence_of(error, cli::chosen(app)), kExitWrongUsage);
  } catch (const ExitStatus& status) {
    return {.code = status.code, .said = true};
  } catch (const ConfigError& error) {
    return report(app, error.what(), kExitWrongUsage);
  } catch (const std::exception& error) {
    return output_is_lost() ? Outcome{.code = kExitFailure} : report(app, error.what(), kExitFailure);
  }
}

}  // namespace
}  // namespace dear::cli

int main(int argc, char** argv) {
  using namespace dear::cli;
  occupy_standard_files();
  const Outcome outcome = run(argc, argv);
  // Only now is it known whether the output was written.
  errno = 0;
  std::cout.flush();
  if (std::fflush(stdout) == 0 && !output_is_lost()) return outcome.code;
  if (!outcome.said)
    fmt::print(stderr, "dear: cannot write to standard output{}\n", why_output_is_lost(errno));
  return outcome.code != 0 ? outcome.code : kExitFailure;
}
