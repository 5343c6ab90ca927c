#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>

#include "dear/base/atomic_file.h"
#include "dear/base/error.h"
#include "dear/cli/commands.h"
#include "dear/study/paper.h"

namespace dear::cli {

void add_study_command(CLI::App& app) {
  auto folder = std::make_shared<std::string>("docs/study");
  CLI::App* const command = app.add_subcommand("study", "Simulate whole studies");
  command->require_subcommand(1);
  CLI::App* const paper = command->add_subcommand(
      "paper", "The five models, two networks and 16 to 64 ranks of DeAR's paper, by every policy");
  paper->add_option("--out", *folder, "Folder to write to: README.md, pictures, results.json")
      ->type_name("FOLDER")
      ->capture_default_str();
  paper->callback([folder] {
    std::error_code error;
    std::filesystem::create_directories(*folder, error);
    if (error) throw ConfigError(fmt::format("cannot make the folder {}: {}", *folder, error.message()));
    for (const study::StudyFile& file : study::study_of_the_paper()) {
      const std::string path = (std::filesystem::path(*folder) / file.name).string();
      write_file_atomically(path, file.content);
      fmt::print("{}\n", path);
    }
  });
}

}  // namespace dear::cli
