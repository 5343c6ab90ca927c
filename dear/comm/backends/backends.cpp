#include "dear/comm/backends/backends.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/nearest.h"
#include "dear/comm/awaited/channels/awaited.h"
#include "dear/comm/gloo/gloo.h"
#include "dear/comm/group/single.h"
#include "dear/comm/mpi/channels/mpi.h"
#include "dear/comm/mpi/mpi.h"
#include "dear/comm/mpi/start_up_exchange.h"
#include "dear/comm/shm/shm.h"
#include "dear/comm/two_level/two_level.h"

namespace dear {
namespace {

std::string nothing_missing() { return ""; }

MadeBackend make_single(const Placement& placement) {
  if (placement.environment.size != 1) {
    throw ConfigError(fmt::format(
        "backend single is for one rank, and {} started {}: leave the choice to DeAR, or name another",
        placement.environment.launcher, placement.environment.size));
  }
  return {.backend = comm::make_single(), .note = ""};
}

MadeBackend make_shm(const Placement& placement) {
  const LaunchEnvironment& environment = placement.environment;
  if (environment.local_size != environment.size) {
    throw ConfigError(
        fmt::format("backend shm is for ranks on one host, and {} started {} of {} here: use another backend",
                    environment.launcher, environment.local_size, environment.size));
  }
  return {.backend = backends::make_shm({.rendezvous = environment.rendezvous,
                                         .rank = environment.rank,
                                         .size = environment.size,
                                         .deadline = placement.deadline}),
          .note = ""};
}

std::unique_ptr<channels::Mpi> open_mpi(const Placement& placement) {
  const LaunchEnvironment& environment = placement.environment;
  auto mpi = channels::open_mpi(
      {.implementation = backends::mpi_of_launcher(environment.launcher), .deadline = placement.deadline});
  if (mpi->size() != environment.size || mpi->rank() != environment.rank) {
    throw ConfigError(fmt::format(
        "{} says rank {} of {}, and {} says rank {} of {}: start all ranks with one mpirun of this MPI",
        mpi->description(), mpi->rank(), mpi->size(), environment.launcher, environment.rank,
        environment.size));
  }
  return mpi;
}

std::string mpi_missing() {
  return channels::mpi_implementations().empty()
             ? "DeAR was built without MPI: install libopenmpi-dev or libmpich-dev and build it again"
             : "";
}

MadeBackend over(std::unique_ptr<channels::Mpi> mpi, const Placement& placement, bool share_memory = true) {
  auto made = backends::make_mpi(std::move(mpi), {.reproducible = placement.reproducible,
                                                  .cache_folder = placement.environment.cache_folder,
                                                  .share_memory = share_memory,
                                                  .deadline = placement.deadline});
  return {.backend = std::move(made.backend), .note = "; " + made.choices};
}

MadeBackend make_mpi(const Placement& placement) { return over(open_mpi(placement), placement); }
MadeBackend make_mpi_messages(const Placement& placement) {
  return over(open_mpi(placement), placement, false);
}

std::string counted(int ranks) { return fmt::format("{} {}", ranks, ranks == 1 ? "rank" : "ranks"); }

// The ranks of one host meet under the name of the job and the number of the host.
MadeBackend two_level_over(std::unique_ptr<channels::Mpi> mpi, const backends::TwoLevelShape& shape,
                           const Placement& placement) {
  // A launcher may name the job differently on each host, so rank 0 decides.
  const std::string job =
      backends::text_of_rank_0(*mpi, placement.environment.rendezvous, placement.deadline);
  const int rank = mpi->rank();
  const int host = mpi->hosts()[static_cast<std::size_t>(rank)];
  std::vector<int> names(static_cast<std::size_t>(shape.ranks_per_host));
  std::iota(names.begin(), names.end(), rank / shape.ranks_per_host * shape.ranks_per_host);
  auto inside = backends::make_shm({.rendezvous = fmt::format("{} host {}", job, host),
                                    .rank = rank % shape.ranks_per_host,
                                    .size = shape.ranks_per_host,
                                    .deadline = placement.deadline,
                                    .names = std::move(names)});
  return {.backend = backends::make_two_level(std::move(inside), std::move(mpi),
                                              {.shape = shape, .reproducible = placement.reproducible}),
          .note = ""};
}

MadeBackend make_two_level(const Placement& placement) {
  std::unique_ptr<channels::Mpi> mpi = open_mpi(placement);
  const auto shape = backends::two_level_shape(mpi->hosts());
  if (!shape) {
    throw ConfigError(
        fmt::format("backend two-level is for hosts with equally many ranks each, two or more, rank by rank, "
                    "and these are "
                    "{}: use mpi, or start the ranks host by host",
                    backends::describe(*mpi)));
  }
  return two_level_over(std::move(mpi), *shape, placement);
}

BackendChoice choose_over_mpi(const Placement& placement) {
  std::unique_ptr<channels::Mpi> mpi = open_mpi(placement);
  const bool one_host = channels::on_one_host(*mpi);
  if (!one_host) {
    const std::string reason = backends::describe(*mpi);
    const auto shape = backends::two_level_shape(mpi->hosts());
    if (shape && !placement.reproducible) {
      return {.name = "two-level",
              .reason = reason + ", which share memory inside hosts",
              .backend = two_level_over(std::move(mpi), *shape, placement).backend};
    }
    MadeBackend made = over(std::move(mpi), placement);
    return {.name = "mpi", .reason = reason + made.note, .backend = std::move(made.backend)};
  }
  Placement together = placement;
  together.environment.rendezvous =
      backends::text_of_rank_0(*mpi, placement.environment.rendezvous, placement.deadline);
  together.environment.local_rank = placement.environment.rank;
  together.environment.local_size = placement.environment.size;
  return {.name = "shm",
          .reason = fmt::format("{} over {} are all on this host", counted(mpi->size()), mpi->description()),
          .backend = make_shm(together).backend};
}

bool is_mpi(const std::string& launcher) { return launcher == "Open MPI" || launcher == "MPICH"; }

channels::GlooOptions gloo_options(const Placement& placement) {
  const LaunchEnvironment& environment = placement.environment;
  if (environment.master_address.empty() || environment.master_port == 0) {
    throw ConfigError(fmt::format(
        "rank {} of {} ({}) does not know where to meet the others over Gloo: set MASTER_ADDR to the host of "
        "rank 0 and MASTER_PORT to a free port on it (1 to 65535), alike on all ranks",
        environment.rank, environment.size, environment.launcher));
  }
  return {.rank = environment.rank,
          .size = environment.size,
          .master_address = environment.master_address,
          .master_port = environment.master_port,
          .job = environment.job,
          .secret = read_secret(environment.secret_file),
          .interface_name = environment.network_interface,
          .deadline = placement.deadline};
}

MadeBackend make_gloo(const Placement& placement) {
  return {.backend = backends::make_gloo(gloo_options(placement), {.reproducible = placement.reproducible}),
          .note = ""};
}

BackendChoice choose_gloo(const Placement& placement) {
  const LaunchEnvironment& environment = placement.environment;
  const std::string where = fmt::format("{} started {} of {} ranks on this host", environment.launcher,
                                        environment.local_size, environment.size);
  if (const std::string missing = channels::gloo_missing(); !missing.empty()) {
    throw ConfigError(
        fmt::format("{}: ranks on several hosts are carried by Gloo, or by MPI where mpirun starts them; {}",
                    where, missing));
  }
  return {.name = "gloo",
          .reason = fmt::format("{}, and they met at {} port {}", where, environment.master_address,
                                environment.master_port),
          .backend = make_gloo(placement).backend};
}

std::unique_ptr<channels::Channels> open_gloo_channels(const Placement& placement) {
  return channels::make_awaited(channels::open_gloo(gloo_options(placement)));
}
std::unique_ptr<channels::Channels> open_mpi_channels(const Placement& placement) {
  return open_mpi(placement);
}

BackendChoice choose(const Placement& placement) {
  const LaunchEnvironment& environment = placement.environment;
  if (environment.size == 1) {
    return {.name = "single", .reason = "there is one rank", .backend = make_single(placement).backend};
  }
  if (environment.local_size == environment.size) {
    std::unique_ptr<Backend> backend = make_shm(placement).backend;
    return {.name = "shm",
            .reason = fmt::format("all {} met in this host's memory", counted(environment.size)),
            .backend = std::move(backend)};
  }
  return is_mpi(environment.launcher) ? choose_over_mpi(placement) : choose_gloo(placement);
}

}  // namespace

const std::vector<BackendEntry>& backend_table() {
  static const std::vector<BackendEntry> kTable = {
      {"single", "one rank, nothing to send", nothing_missing, make_single, nullptr},
      {"shm", "ranks of one host on shared memory", nothing_missing, make_shm, nullptr},
      {"gloo", "ranks on any hosts, over Gloo (TCP), whoever started them", channels::gloo_missing, make_gloo,
       open_gloo_channels},
      {"mpi", "ranks on any hosts, over the MPI that started them", mpi_missing, make_mpi, open_mpi_channels},
      {"mpi-messages", "the same, all of it by messages on one host, too", mpi_missing, make_mpi_messages,
       open_mpi_channels},
      {"two-level", "shared memory inside hosts, MPI across", mpi_missing, make_two_level, nullptr},
  };
  return kTable;
}

const BackendEntry& find_backend(std::string_view name) {
  std::vector<std::string_view> names;
  for (const BackendEntry& entry : backend_table()) {
    if (entry.name == name) {
      return entry;
    }
    names.push_back(entry.name);
  }
  throw ConfigError(fmt::format("there is no backend '{}'{} choose one of {}", name,
                                did_you_mean(name, names), fmt::join(names, ", ")));
}

BackendChoice choose_backend(std::string_view name, const Placement& placement) {
  if (name.empty()) {
    return choose(placement);
  }
  const BackendEntry& entry = find_backend(name);
  if (const std::string missing = entry.missing(); !missing.empty()) {
    throw ConfigError(missing);
  }
  MadeBackend made = entry.make(placement);
  const std::string description = made.backend->description();
  return {.name = std::string(name),
          .reason = fmt::format("as asked for ({}){}", description, made.note),
          .backend = std::move(made.backend)};
}

void require_messages(std::string_view name) {
  if (find_backend(name).open_channels != nullptr) return;
  std::vector<std::string_view> others;
  for (const BackendEntry& entry : backend_table())
    if (entry.open_channels != nullptr) others.push_back(entry.name);
  throw ConfigError(fmt::format(
      "backend {} does not carry all bytes as messages between two ranks, which links of pairs are "
      "for: choose one of {}",
      name, fmt::join(others, ", ")));
}

ChannelsChoice choose_channels(std::string_view name, const Placement& placement) {
  const std::string& launcher = placement.environment.launcher;
  const bool asked_for = !name.empty();
  if (!asked_for) name = is_mpi(launcher) ? "mpi-messages" : "gloo";
  require_messages(name);
  const BackendEntry& entry = find_backend(name);
  if (const std::string missing = entry.missing(); !missing.empty()) {
    throw ConfigError(missing);
  }
  return {.name = std::string(name),
          .reason = asked_for ? "as asked for"
                              : fmt::format("messages between the ranks that {} started", launcher),
          .channels = entry.open_channels(placement)};
}

}  // namespace dear
