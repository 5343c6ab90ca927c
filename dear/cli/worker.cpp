#include "dear/cli/worker.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <system_error>

#include <fmt/format.h>

#include "dear/base/atomic_file.h"
#include "dear/base/error.h"
#include "dear/cli/exit_status.h"

namespace dear::cli {

std::vector<std::string> own_command() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {
    throw TransportError(
        with_errno("cannot find the program to start as workers (/proc/self/exe)", error.value()));
  }
  std::vector<std::string> command;
  const std::string line = read_file("/proc/self/cmdline");  // each argument is ended by a NUL
  for (std::size_t begin = 0; begin < line.size();) {
    const std::size_t end = std::min(line.find('\0', begin), line.size());
    command.push_back(line.substr(begin, end - begin));
    begin = end + 1;
  }
  command.at(0) = program.string();
  std::erase_if(command,
                [](const std::string& word) { return word.starts_with(kBindOption); });  // also --bind=true
  return command;
}

void fail_as_rank(std::string_view command, int rank, const std::exception& error) {
  // Every rank throws the same of these.
  if (rank == 0 || dynamic_cast<const MismatchError*>(&error) == nullptr) {
    const std::string name = fmt::format("rank {}: ", rank);
    const std::string_view message = error.what();
    std::cerr << fmt::format("{}: {}{}\n", command, message.starts_with(name) ? "" : name, message);
  }
  throw ExitStatus{dynamic_cast<const ConfigError*>(&error) != nullptr ? kExitWrongUsage : kExitFailure};
}

}  // namespace dear::cli
