#include "dear/collective/init.h"

#include <utility>

#include <fmt/format.h>

#include "dear/base/error.h"
#include "dear/collective/environment.h"
#include "dear/collective/shaped/shaped.h"
#include "dear/collective/shm/shm.h"
#include "dear/collective/single/single.h"

namespace dear {
namespace {

std::unique_ptr<Backend> make_backend(const LaunchEnvironment& environment, Deadline deadline) {
  if (environment.size == 1) {
    return collective::make_single();
  }
  return collective::make_shm({.rendezvous = environment.rendezvous,
                               .rank = environment.rank,
                               .size = environment.size,
                               .deadline = deadline});
}

}  // namespace

Group init(const InitOptions& options) {
  const LaunchEnvironment environment = read_launch_environment();
  if (environment.local_size != environment.size) {
    throw ConfigError(
        fmt::format("{} started {} of {} ranks on this host: ranks on several hosts are not supported yet, "
                    "start all on one",
                    environment.launcher, environment.local_size, environment.size));
  }
  std::unique_ptr<Backend> backend = make_backend(environment, Deadline::after(options.timeout));
  if (options.network) {
    backend = collective::make_shaped(std::move(backend), *options.network);
  }
  return Group(std::move(backend), {.timeout = options.timeout});
}

}  // namespace dear
