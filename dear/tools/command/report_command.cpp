#include <cstddef>
#include <filesystem>
#include <fstream>
#include <ios>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>

#include "dear/base/os/atomic_file.h"
#include "dear/base/vocabulary/error.h"
#include "dear/tools/command/commands.h"
#include "dear/tools/options/option_checks.h"
#include "dear/tools/report_command/page.h"

namespace dear::cli {
namespace {

constexpr std::size_t kBeginOfPage = 1024;  // bytes

struct ReportArguments {
  std::vector<std::string> runs;
  std::optional<std::string> out;
  std::string title;
};

// The page would replace what it is made of.
void refuse_to_overwrite_runs(const std::string& out, const report_command::Runs& runs) {
  for (const report_command::Run& run : runs.runs()) {
    for (const std::string& source : run.sources) refuse_shared_outputs({{"RUN", source}, {"--out", out}});
  }
}

// Another page is replaced, as files of results are; anything else is not.
void refuse_to_replace(const std::string& out) {
  if (!std::filesystem::is_regular_file(out)) return;
  std::ifstream file(out, std::ios::binary);
  std::string begin(kBeginOfPage, '\0');
  file.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  if (file.gcount() > 0 && begin.find(report_command::kGenerator) == std::string::npos)
    throw ConfigError(fmt::format(
        "--out: '{}' exists and is no page of `dear report`: name another file, or remove it", out));
}

void run_report(const ReportArguments& arguments) {
  const std::string out = checked_output_path("--out", arguments.out);
  if (out.empty()) throw ConfigError("--out is missing: name the file of the page, as in --out report.html");
  refuse_to_replace(out);
  const report_command::Runs runs = report_command::read_runs(arguments.runs);
  refuse_to_overwrite_runs(out, runs);
  const std::string page = report_command::page_of(runs, arguments.title);
  write_checked([&] { os::write_file_atomically(out, page); });
  fmt::print("{}\n", out);
}

}  // namespace

void add_report_command(CLI::App& app) {
  CLI::App* const command =
      app.add_subcommand("report", "Make one page of HTML of traces, metrics and results");
  auto arguments = std::make_shared<ReportArguments>();
  command
      ->add_option("RUN", arguments->runs,
                   "FILE or NAME=FILE: what --trace, --metrics or --json of a command wrote, or a trace of "
                   "torch.profiler; files of one NAME are one run")
      ->required();
  command->add_option("--out", arguments->out, "Write the page to FILE; it opens without a network")
      ->type_name("FILE");
  command->add_option("--title", arguments->title, "Head of the page")->type_name("TEXT");
  command->callback([arguments] { run_report(*arguments); });
}

}  // namespace dear::cli
