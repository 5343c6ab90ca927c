#include "dear/tools/bench_collectives/mpi_launcher.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <poll.h>
#include <sstream>
#include <unistd.h>

#include <fmt/format.h>

#include "dear/base/launch/keeper.h"
#include "dear/base/launch/pipe.h"
#include "dear/base/launch/rank_environment.h"
#include "dear/base/launch/rank_process.h"
#include "dear/base/vocabulary/error.h"

namespace dear::bench_collectives {
namespace {

struct Implementation {
  std::string name;
  std::string title;
  std::vector<std::string> programs;  // first those that only this implementation has
  std::vector<std::string> options;
  std::vector<std::string> before_version;  // what stands before it in what the launcher prints, in order
};

// Ranks share cores where they must, and bind themselves; in a container everyone is root.
const std::vector<Implementation>& implementations() {
  static const std::vector<Implementation> kTable{
      {.name = "openmpi",
       .title = "Open MPI",
       .programs = {"mpirun.openmpi", "mpiexec.openmpi", "mpirun", "mpiexec"},
       .options = {"--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n"},
       .before_version = {"(Open MPI)"}},
      {.name = "mpich",
       .title = "MPICH",
       .programs = {"mpiexec.mpich", "mpirun.mpich", "mpiexec", "mpirun"},
       .options = {"-n"},
       .before_version = {"HYDRA build details:", "Version:"}}};
  return kTable;
}

const Implementation& find_implementation(const std::string& name) {
  for (const Implementation& implementation : implementations()) {
    if (implementation.name == name) {
      return implementation;
    }
  }
  throw ConfigError(fmt::format("there is no implementation of MPI '{}'; choose openmpi or mpich", name));
}

// What a program prints; "" when it cannot be run. One that does not end in time is killed.
std::string output_of(const std::vector<std::string>& command) {
  launch::RankProgram program{
      .command = command, .environment = launch::inherited_environment(), .piped_output = true};
  ::sigemptyset(&program.signal_mask);
  std::string text;
  std::optional<launch::RankProcess> process;
  const launch::Keeper keeper;  // after the process: gone before that is reaped (keeper.h)
  try {
    process.emplace(program, keeper);
    const Deadline deadline = Deadline::after(std::chrono::seconds(10));
    for (ssize_t got = 1; got != 0 && !deadline.expired();) {
      std::array<char, 4096> bytes;
      std::array<pollfd, 1> readable{{{.fd = process->output.get(), .events = POLLIN, .revents = 0}}};
      launch::poll_until(readable, deadline);
      got = ::read(process->output.get(), bytes.data(), bytes.size());
      text.append(bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    }
  } catch (const ConfigError&) {
  }
  return text;
}

}  // namespace

std::string mpi_version_in(const std::string& implementation, const std::string& printed) {
  const Implementation& known = find_implementation(implementation);
  std::size_t at = 0;
  for (const std::string& words : known.before_version) {
    at = printed.find(words, at);
    if (at == std::string::npos) {
      return "";
    }
    at += words.size();
  }
  std::string version;
  std::istringstream(printed.substr(at)) >> version;
  return version.empty() ? "" : fmt::format("{} {}", known.title, version);
}

std::optional<MpiLauncher> find_mpi_launcher(const std::string& implementation) {
  const Implementation& known = find_implementation(implementation);
  for (const std::string& program : known.programs) {
    const std::string version = mpi_version_in(implementation, output_of({program, "--version"}));
    if (!version.empty()) {
      MpiLauncher launcher{.command = {program}, .version = version};
      launcher.command.insert(launcher.command.end(), known.options.begin(), known.options.end());
      return launcher;
    }
  }
  return std::nullopt;
}

}  // namespace dear::bench_collectives
