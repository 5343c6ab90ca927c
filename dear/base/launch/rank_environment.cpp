#include "dear/base/launch/rank_environment.h"

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "dear/base/launch/cores.h"
#include "dear/base/vocabulary/error.h"

namespace dear::launch {
namespace {

std::string unique_run_id() {
  std::uint64_t random = 0;
  if (::getrandom(&random, sizeof random, 0) != static_cast<ssize_t>(sizeof random)) {
    throw TransportError(with_errno("cannot draw random bytes to name the job", errno));
  }
  return fmt::format("dear-{}-{:016x}", ::getpid(), random);
}

std::string_view name_of_entry(std::string_view entry) { return entry.substr(0, entry.find('=')); }

bool holds(const std::vector<std::string>& entries, std::string_view name) {
  return std::any_of(entries.begin(), entries.end(),
                     [&](const std::string& entry) { return name_of_entry(entry) == name; });
}

Variables torchrun_variables(const Job& job, int rank) {
  Variables variables = {{"RANK", std::to_string(rank)},
                         {"WORLD_SIZE", std::to_string(job.ranks)},
                         {"LOCAL_RANK", std::to_string(rank - job.first_rank)},
                         {"LOCAL_WORLD_SIZE", std::to_string(job.local_ranks)},
                         {"GROUP_RANK", std::to_string(job.host)},
                         {"GROUP_WORLD_SIZE", std::to_string(job.hosts)},
                         {"NODE_RANK", std::to_string(job.host)},
                         {"MASTER_ADDR", job.master_address},
                         {"MASTER_PORT", std::to_string(job.master_port.port)},
                         {"TORCHELASTIC_RUN_ID", job.run_id},
                         {"TORCHELASTIC_RESTART_COUNT", std::to_string(job.restarts)}};
  if (!job.secret_file.empty()) variables.emplace_back("DEAR_SECRET_FILE", job.secret_file);
  return variables;
}

}  // namespace

Job describe_job(int ranks, const std::string& address) {
  return {.ranks = ranks,
          .local_ranks = ranks,
          .master_address = address,
          .master_port = hold_port(address),
          .run_id = unique_run_id(),
          .cores = usable_cores()};
}

std::string random_secret() {
  std::string bytes(32, '\0');
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw TransportError(with_errno("cannot draw a secret for the ranks", errno));
  return bytes;
}

os::FileDescriptor make_secret(const std::string& secret) {
  os::FileDescriptor file(::memfd_create("dear-secret", MFD_CLOEXEC));
  if (!file.is_open() || ::fchmod(file.get(), 0600) != 0 ||
      ::write(file.get(), secret.data(), secret.size()) != static_cast<ssize_t>(secret.size())) {
    throw TransportError(with_errno("cannot keep a secret in memory for the ranks", errno));
  }
  return file;
}

std::string secret_file(const os::FileDescriptor& secret) {
  return fmt::format("/proc/{}/fd/{}", ::getpid(), secret.get());
}

std::vector<std::string> rank_environment(const Job& job, int rank, const std::vector<std::string>& inherited,
                                          const Variables& extra) {
  std::vector<std::string> entries;
  const auto set = [&](const std::string& name, const std::string& value) {
    if (!holds(entries, name)) {
      entries.push_back(fmt::format("{}={}", name, value));
    }
  };
  for (const auto& [name, value] : torchrun_variables(job, rank)) {
    set(name, value);
  }
  for (const auto& [name, value] : extra) {
    set(name, value);
  }
  for (const std::string& entry : inherited) {
    if (!holds(entries, name_of_entry(entry))) {
      entries.push_back(entry);
    }
  }
  set("OMP_NUM_THREADS",
      std::to_string(std::max(1, static_cast<int>(job.cores.size()) / std::max(1, job.local_ranks))));
  return entries;
}

std::vector<std::string> inherited_environment() {
  std::vector<std::string> entries;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    entries.emplace_back(*entry);
  }
  return entries;
}

}  // namespace dear::launch
