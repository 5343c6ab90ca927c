#include "dear/comm/backends/environment.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "dear/base/os/file_descriptor.h"
#include "dear/base/vocabulary/error.h"

namespace dear {
namespace {

// Reads variables that ranks are described by; every complaint names one.
class Variables {
 public:
  explicit Variables(const GetVariable& get) : get_(get) {}

  // An empty variable is as good as none.
  [[nodiscard]] std::optional<std::string> text(const std::string& name) const {
    auto value = get_(name);
    return value && !value->empty() ? value : std::nullopt;
  }
  [[nodiscard]] bool has(const std::string& name) const { return text(name).has_value(); }

  [[nodiscard]] std::optional<int> number(const std::string& name) const {
    const auto value = text(name);
    if (!value) {
      return std::nullopt;
    }
    int result = 0;
    const char* end = value->data() + value->size();
    const auto [stop, error] = std::from_chars(value->data(), end, result);
    if (error != std::errc() || stop != end || result < 0) {
      throw ConfigError(fmt::format("environment variable {} is \"{}\": it must be a whole number, 0 or more",
                                    name, *value));
    }
    return result;
  }
  // `because` names the variable that made this one necessary.
  [[nodiscard]] int required(const std::string& name, const std::string& because) const {
    const auto value = number(name);
    if (!value) {
      throw ConfigError(fmt::format(
          "environment variable {} is not set although {} is: set both (the launcher does)", name, because));
    }
    return *value;
  }

 private:
  const GetVariable& get_;
};

struct Names {
  std::string rank, size, local_rank, local_size;
};

// Where the launcher does not say which ranks are local, all count as being on this host; if they are not,
// their meeting says so.
LaunchEnvironment read_counts(const Variables& variables, const Names& names) {
  LaunchEnvironment found;
  found.rank = variables.required(names.rank, names.size);
  found.size = variables.required(names.size, names.rank);
  if (found.size < 1 || found.rank >= found.size) {
    throw ConfigError(
        fmt::format("environment variable {} is {} and {} is {}: a rank must be below the number of ranks",
                    names.rank, found.rank, names.size, found.size));
  }
  const auto local_rank = variables.number(names.local_rank);
  const auto local_size = variables.number(names.local_size);
  found.local_size = local_size.value_or(found.size);
  found.local_rank = local_rank.value_or(found.local_size == 1 ? 0 : found.rank);
  if (found.local_size < 1 || found.local_size > found.size) {
    throw ConfigError(
        fmt::format("environment variable {} is {} and {} is {}: there are 1 to that many ranks on a host",
                    names.local_size, found.local_size, names.size, found.size));
  }
  if (!local_rank && found.local_size > 1 && found.local_size < found.size) {
    throw ConfigError(fmt::format(
        "environment variable {} is {} of {}, and {} is not set: set it to the rank among those of this host",
        names.local_size, found.local_size, found.size, names.local_rank));
  }
  if (found.local_rank >= found.local_size) {
    throw ConfigError(fmt::format(
        "environment variable {} is {}, but this host has {} ranks ({}): a local rank must be below that",
        names.local_rank, found.local_rank, found.local_size, names.local_size));
  }
  return found;
}

// A name for the job where its launcher gives none: the ranks of a host are children of one process.
std::string name_of_parent() {
  std::ifstream file(fmt::format("/proc/{}/stat", getppid()));
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  // The start time is the 20th word behind the name in parentheses. A process number may be used again, but
  // not together with its start time.
  const std::size_t end_of_name = text.rfind(')');
  std::istringstream words(end_of_name == std::string::npos ? "" : text.substr(end_of_name + 1));
  std::string start;
  for (int i = 0; i < 20; ++i) {
    words >> start;
  }
  return fmt::format("parent {} started at {}", getppid(), start);
}

LaunchEnvironment read_slurm(const Variables& variables);

// A batch script for Slurm often sets RANK and WORLD_SIZE alone: Slurm knows which ranks are local.
void take_local_ranks_of_slurm(const Variables& variables, LaunchEnvironment& found) {
  if (variables.has("LOCAL_WORLD_SIZE") || variables.has("LOCAL_RANK")) return;
  if (!variables.has("SLURM_STEP_TASKS_PER_NODE") || variables.number("SLURM_STEP_NUM_TASKS") != found.size ||
      variables.number("SLURM_PROCID") != found.rank)
    return;
  const LaunchEnvironment slurm = read_slurm(variables);
  found.local_rank = slurm.local_rank;
  found.local_size = slurm.local_size;
}

LaunchEnvironment read_torchrun(const Variables& variables) {
  LaunchEnvironment found = read_counts(variables, {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"});
  take_local_ranks_of_slurm(variables, found);
  // `dear launch` sets torchrun's variables; its run ids begin with "dear-".
  const std::string run_id = variables.text("TORCHELASTIC_RUN_ID").value_or("");
  found.launcher = run_id.starts_with("dear-") ? "dear launch" : "torchrun";
  found.job = run_id == "none" ? "" : run_id;
  // Ranks that torchrun starts again never meet one of those before, which may not have ended yet.
  const int restarts = variables.number("TORCHELASTIC_RESTART_COUNT").value_or(0);
  const std::string restart = restarts > 0 ? fmt::format(" restart {}", restarts) : "";
  // Each agent of torchrun counts its own: one that learns first of another host's failure starts its ranks
  // again without a count.
  if (found.local_size == found.size) {
    found.restarts = restarts;
    found.job += restart;
  }
  if (found.size > 1 && !variables.has("DEAR_RENDEZVOUS")) {
    const auto port = variables.number("MASTER_PORT");
    if (!port) {
      throw ConfigError(
          "environment variable MASTER_PORT is not set although RANK is: set MASTER_ADDR and MASTER_PORT "
          "alike on all "
          "ranks, or DEAR_RENDEZVOUS to a text of the job's own");
    }
    found.rendezvous =
        fmt::format("torchrun {}:{} {}", variables.text("MASTER_ADDR").value_or("localhost"), *port, run_id);
    found.rendezvous += restart;
  }
  return found;
}

LaunchEnvironment read_open_mpi(const Variables& variables) {
  const std::string prefix = "OMPI_COMM_WORLD_";
  LaunchEnvironment found = read_counts(
      variables, {prefix + "RANK", prefix + "SIZE", prefix + "LOCAL_RANK", prefix + "LOCAL_SIZE"});
  found.launcher = "Open MPI";
  auto job = variables.text("PMIX_NAMESPACE");
  if (!job) {
    job = variables.text("OMPI_MCA_ess_base_jobid");
  }
  found.rendezvous = "openmpi " + (job ? *job : name_of_parent());
  return found;
}

LaunchEnvironment read_mpich(const Variables& variables) {
  LaunchEnvironment found =
      read_counts(variables, {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"});
  found.launcher = "MPICH";
  found.rendezvous = "mpich " + name_of_parent();
  return found;
}

// The number of tasks on node `node` by a list such as "4(x2),3": two nodes with four tasks, one with three.
int tasks_on_node(const std::string& name, std::string_view list, int node) {
  const std::string whole(list);
  const auto bad = [&] {
    return ConfigError(
        fmt::format("environment variable {} is \"{}\": it must list the tasks of every node, as in "
                    "\"4(x2),3\", and SLURM_NODEID be one of them",
                    name, whole));
  };
  const auto take_number = [&] {
    int value = 0;
    const auto [stop, error] = std::from_chars(list.data(), list.data() + list.size(), value);
    if (error != std::errc() || value < 1) {
      throw bad();
    }
    list.remove_prefix(static_cast<std::size_t>(stop - list.data()));
    return value;
  };
  const auto take = [&](std::string_view text) {
    if (!list.starts_with(text)) {
      return false;
    }
    list.remove_prefix(text.size());
    return true;
  };
  for (int first = 0;;) {
    const int tasks = take_number();
    int nodes = 1;
    if (take("(x")) {
      nodes = take_number();
      if (!take(")")) {
        throw bad();
      }
    }
    if (node - first < nodes) {
      return tasks;
    }
    first += nodes;
    if (!take(",")) {
      throw bad();
    }
  }
}

// "gpu03" of "gpu[03-07,9],cpu1", a list of hosts as Slurm writes it.
std::string first_host(std::string_view list) {
  std::string host;
  for (std::size_t i = 0; i < list.size() && list[i] != ','; ++i) {
    if (list[i] != '[') {
      host += list[i];
      continue;
    }
    const std::size_t end_of_number = list.find_first_of("-,]", i);
    const std::size_t end = list.find(']', i);
    if (end == std::string_view::npos) break;
    host += list.substr(i + 1, end_of_number - i - 1);
    i = end;
  }
  return host;
}

// The place where ranks under Slurm meet if nobody names one: the first host of the step, where Slurm puts
// rank 0, at a port below those that the kernel hands out.
void choose_place_to_meet(const Variables& variables, LaunchEnvironment& found) {
  constexpr int kFirstPort = 20'000;
  constexpr int kPorts = 12'000;
  const auto hosts = variables.text("SLURM_STEP_NODELIST");
  if (!hosts) return;
  found.master_address = first_host(*hosts);
  const int job = variables.number("SLURM_JOB_ID").value_or(0) % kPorts;
  const int step = variables.number("SLURM_STEP_ID").value_or(0) % kPorts;
  found.master_port = kFirstPort + (7 * job + step) % kPorts;
}

LaunchEnvironment read_slurm(const Variables& variables) {
  const std::string per_node = "SLURM_STEP_TASKS_PER_NODE";
  LaunchEnvironment found =
      read_counts(variables, {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ""});
  found.launcher = "Slurm";
  if (const auto list = variables.text(per_node)) {
    found.local_size = tasks_on_node(per_node, *list, variables.required("SLURM_NODEID", per_node));
  } else if (found.size > 1) {
    throw ConfigError(
        fmt::format("environment variable {} is not set although SLURM_PROCID is: it says how many ranks are "
                    "on this host",
                    per_node));
  }
  found.local_rank = variables.required("SLURM_LOCALID", "SLURM_PROCID");
  if (found.local_size > found.size || found.local_rank >= found.local_size) {
    throw ConfigError(
        fmt::format("environment variable SLURM_LOCALID is {}, {} says {} ranks on this host of {} in all: "
                    "these contradict",
                    found.local_rank, per_node, found.local_size, found.size));
  }
  const int step = variables.required("SLURM_STEP_ID", "SLURM_PROCID");
  const auto job = variables.text("SLURM_JOB_ID");
  found.rendezvous = fmt::format("slurm {}.{}", job.value_or(name_of_parent()), step);
  found.job = job ? fmt::format("{}.{}", *job, step) : "";
  choose_place_to_meet(variables, found);
  return found;
}

constexpr std::size_t kShortestSecret = 16;
constexpr std::size_t kLongestSecret = 4096;

LaunchEnvironment read_any(const Variables& variables) {
  if (variables.has("RANK")) {
    return read_torchrun(variables);
  }
  if (variables.has("OMPI_COMM_WORLD_RANK") || variables.has("OMPI_COMM_WORLD_SIZE")) {
    return read_open_mpi(variables);
  }
  // srun sets variables of the batch script and of salloc's shell too, but a step's only for its tasks. It
  // may speak PMI to the tasks as well, and then alone knows which are on this host.
  const bool under_srun = variables.has("SLURM_STEP_ID") && variables.has("SLURM_STEP_NUM_TASKS");
  const bool under_pmi = variables.has("PMI_RANK") || variables.has("PMI_SIZE");
  if (under_pmi && (variables.has("MPI_LOCALNRANKS") || !under_srun)) {
    return read_mpich(variables);
  }
  if (under_srun) {
    return read_slurm(variables);
  }
  if (variables.number("WORLD_SIZE").value_or(1) > 1) {
    static_cast<void>(variables.required("RANK", "WORLD_SIZE"));
  }
  LaunchEnvironment alone;
  alone.launcher = "none";
  return alone;
}

}  // namespace

LaunchEnvironment read_launch_environment(const GetVariable& get) {
  const Variables variables(get);
  LaunchEnvironment found = read_any(variables);
  if (const auto rendezvous = variables.text("DEAR_RENDEZVOUS")) {
    found.rendezvous = "given " + *rendezvous;
    found.job += " given " + *rendezvous;
  }
  found.master_address = variables.text("MASTER_ADDR").value_or(found.master_address);
  found.master_port = variables.number("MASTER_PORT").value_or(found.master_port);
  if (found.master_port != 0 && variables.text("TORCHELASTIC_USE_AGENT_STORE") == "True") ++found.master_port;
  found.network_interface = variables.text("GLOO_SOCKET_IFNAME").value_or("");
  found.secret_file = variables.text("DEAR_SECRET_FILE").value_or("");
  found.elastic_folder = variables.text("DEAR_ELASTIC_FOLDER").value_or("");
  found.membership = variables.text("DEAR_MEMBERSHIP").value_or("");
  if (!found.membership.empty()) found.member = variables.required("DEAR_MEMBER", "DEAR_MEMBERSHIP");
  const auto home = variables.text("HOME");
  found.cache_folder = variables.text("XDG_CACHE_HOME").value_or(home ? *home + "/.cache" : "");
  return found;
}

LaunchEnvironment read_launch_environment() {
  return read_launch_environment([](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
  });
}

std::string read_secret(const std::string& file) {
  if (file.empty()) return "";
  const std::string where = fmt::format("the file '{}' of environment variable DEAR_SECRET_FILE", file);
  const os::FileDescriptor opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status{};
  if (!opened.is_open() || ::fstat(opened.get(), &status) != 0)
    throw ConfigError(with_errno("cannot open " + where, errno) +
                      "; name a file that only you may read, alike on all ranks");
  if (!S_ISREG(status.st_mode) || status.st_uid != ::geteuid() || (status.st_mode & 077) != 0) {
    throw ConfigError(where + " is not this user's own: make it a file that only you may read (chmod 600)");
  }
  std::array<char, kLongestSecret + 1> secret{};
  const auto bytes =
      static_cast<std::size_t>(std::max<ssize_t>(0, ::read(opened.get(), secret.data(), secret.size())));
  if (bytes < kShortestSecret || bytes > kLongestSecret) {
    throw ConfigError(fmt::format(
        "{} holds {} bytes: a secret has {} to {}, alike on all ranks (head -c 32 "
        "/dev/urandom)",
        where, bytes > kLongestSecret ? "too many" : std::to_string(bytes), kShortestSecret, kLongestSecret));
  }
  return {secret.data(), bytes};
}

}  // namespace dear
