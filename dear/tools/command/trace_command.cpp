#include <memory>
#include <string>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>

#include "dear/base/trace/chrome.h"
#include "dear/base/trace/summary.h"
#include "dear/tools/command/commands.h"

namespace dear::cli {
namespace {

void run_summary(const std::string& path) {
  const Trace trace = read_chrome_trace(path);
  const std::string text = to_text(summarize(trace), trace);
  fmt::print("{}{}", text, text.ends_with('\n') ? "" : "\n");
}

}  // namespace

void add_trace_command(CLI::App& app) {
  CLI::App* const command = app.add_subcommand("trace", "Look into traces")->require_subcommand(1);
  CLI::App* const summary = command->add_subcommand("summary", "Say where the time of a run went");
  auto path = std::make_shared<std::string>();
  summary->add_option("FILE", *path, "What --trace of `dear train` or `dear simulate` wrote")->required();
  summary->callback([path] { run_summary(*path); });
}

}  // namespace dear::cli
