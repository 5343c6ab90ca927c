#include <charconv>
#include <memory>
#include <string>

#include <CLI/App.hpp>
#include <fmt/format.h>

#include "dear/base/diagnosis/diagnosis.h"
#include "dear/tools/command/commands.h"
#include "dear/tools/options/option_adder.h"

namespace dear::cli {
namespace {

struct DiagnoseArguments {
  std::string job;
  bool json = false;
};

diagnose::JobRecords read_job(const std::string& job) {
  int launcher = 0;
  const auto [end, error] = std::from_chars(job.data(), job.data() + job.size(), launcher);
  const bool is_number = error == std::errc() && end == job.data() + job.size();
  return is_number ? diagnose::read_live(launcher) : diagnose::read_folder(job);
}

}  // namespace

void add_diagnose_command(CLI::App& app) {
  const auto arguments = std::make_shared<DiagnoseArguments>();
  CLI::App* const command =
      app.add_subcommand("diagnose", "Say which rank a job failed by, or waits for, and why");
  const OptionAdder add(*command);
  add("JOB", arguments->job, "DIR or PID",
      "The folder of `dear launch --record`, or the process of a `dear launch` that runs")
      ->required();
  command->add_flag("--json", arguments->json, "Print JSON (docs/formats.md)");
  command->callback([arguments] {
    const diagnose::JobRecords job = read_job(arguments->job);
    const diagnose::Diagnosis diagnosis = diagnose::diagnose(job);
    fmt::print("{}", arguments->json ? to_json(job, diagnosis) : to_text(job, diagnosis));
  });
}

}  // namespace dear::cli
