#include "dear/base/launch/own_command.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "dear/base/os/atomic_file.h"
#include "dear/base/vocabulary/error.h"

namespace dear::launch {

std::string own_program() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {
    throw TransportError(
        with_errno("cannot find the program to start as workers (/proc/self/exe)", error.value()));
  }
  return program.string();
}

std::vector<std::string> own_command(std::string_view left_out) {
  std::vector<std::string> command;
  const std::string line = os::read_file("/proc/self/cmdline");  // each argument is ended by a NUL
  for (std::size_t begin = 0; begin < line.size();) {
    const std::size_t end = std::min(line.find('\0', begin), line.size());
    command.push_back(line.substr(begin, end - begin));
    begin = end + 1;
  }
  command.at(0) = own_program();
  const auto dropped = std::remove_if(command.begin() + 1, command.end(),
                                      [&](const std::string& word) { return word.starts_with(left_out); });
  command.erase(dropped, command.end());
  return command;
}

}  // namespace dear::launch
