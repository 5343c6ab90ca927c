#include "dear/tools/launch/rank_environment.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <netinet/in.h>
#include <string_view>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/tools/launch/cores.h"

namespace dear::launch {
namespace {

// A port that the kernel chooses, for `job`.
void hold_port(Job& job) {
  auto socket = std::make_shared<os::FileDescriptor>(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  const int on = 1;
  if (!socket->is_open() || ::bind(socket->get(), generic, length) != 0 ||
      ::setsockopt(socket->get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::getsockname(socket->get(), generic, &length) != 0) {
    throw TransportError(with_errno("cannot find a free port on 127.0.0.1", errno));
  }
  job.master_port = ntohs(address.sin_port);
  job.held_port = std::move(socket);
}

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
  const std::string size = std::to_string(job.ranks);
  Variables variables = {{"RANK", std::to_string(rank)},
                         {"WORLD_SIZE", size},
                         {"LOCAL_RANK", std::to_string(rank)},
                         {"LOCAL_WORLD_SIZE", size},
                         {"GROUP_RANK", "0"},
                         {"GROUP_WORLD_SIZE", "1"},
                         {"NODE_RANK", "0"},
                         {"MASTER_ADDR", "127.0.0.1"},
                         {"MASTER_PORT", std::to_string(job.master_port)},
                         {"TORCHELASTIC_RUN_ID", job.run_id},
                         {"TORCHELASTIC_RESTART_COUNT", std::to_string(job.restarts)}};
  if (!job.secret_file.empty()) variables.emplace_back("DEAR_SECRET_FILE", job.secret_file);
  return variables;
}

}  // namespace

Job describe_job(int ranks) {
  Job job{.ranks = ranks, .run_id = unique_run_id(), .cores = usable_cores()};
  hold_port(job);
  return job;
}

os::FileDescriptor make_secret() {
  std::array<char, 32> bytes{};
  os::FileDescriptor secret(::memfd_create("dear-secret", MFD_CLOEXEC));
  if (!secret.is_open() || ::fchmod(secret.get(), 0600) != 0 ||
      ::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()) ||
      ::write(secret.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
    throw TransportError(with_errno("cannot keep a secret in memory for the ranks", errno));
  }
  return secret;
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
  set("OMP_NUM_THREADS", std::to_string(std::max(1, static_cast<int>(job.cores.size()) / job.ranks)));
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
