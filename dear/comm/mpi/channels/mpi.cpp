#include "dear/comm/mpi/channels/mpi.h"

#include <cstring>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/mpi/channels/modules.h"
#include "dear/comm/mpi/channels/mpi_channels.h"
#include "dear/comm/mpi/channels/process.h"

namespace dear::channels {
namespace {

MpiCall call_of(const MpiCollective& request) {
  return {.collective = static_cast<std::int32_t>(request.collective),
          .dtype = static_cast<std::int32_t>(request.dtype),
          .reduction = static_cast<std::int32_t>(request.reduction),
          .root = request.root,
          .count = request.count,
          .data = request.data,
          .output = request.output};
}

}  // namespace

bool MpiChannels::supports(const MpiCollective& request) const {
  const MpiCall call = call_of(request);
  return world_.binding->has(&call) != 0;
}

template <typename Carry>
void MpiChannels::carry(const MpiCollective& request, const Carry& by_mpi) {
  if (!supports(request)) {
    throw ConfigError(fmt::format("{} has no such collective: {} elements of {}, {}", description(),
                                  request.count, name_of(request.dtype), name_of(request.reduction)));
  }
  MpiCall call = call_of(request);
  // MPI would put the shard to the front of the vector.
  const bool in_place = request.collective == Collective::reduce_scatter && request.output == nullptr;
  const auto bytes = static_cast<std::size_t>(request.count / size() * size_of(request.dtype));
  if (in_place) {
    shard_.resize(bytes);
    call.output = shard_.data();
  }
  guarded([&] { by_mpi(call); });
  if (in_place && bytes > 0) {
    std::memcpy(request.data + static_cast<std::size_t>(rank()) * bytes, shard_.data(), bytes);
  }
}

void MpiChannels::run(const MpiCollective& request, const Describe& what, Deadline deadline) {
  carry(request, [&](const MpiCall& call) {
    const MpiBinding& mpi = *world_.binding;
    check(mpi.begin(&call), "begin a collective");
    const auto look = [&] {
      int done = 0;
      check(mpi.test(&done), "carry a collective");
      return done != 0;
    };
    look_until(look, what, deadline, deadline);
  });
}

void MpiChannels::run_blocking(const MpiCollective& request) {
  carry(request, [&](const MpiCall& call) { check(world_.binding->perform(&call), "carry a collective"); });
}

std::unique_ptr<Mpi> open_mpi(const MpiOptions& options) {
  const MpiBinding& binding = load_mpi_module(options.implementation);
  auto channels = std::make_unique<MpiChannels>(take_mpi(binding, options.outlive_peers, options.deadline));
  channels->meet(options.deadline);
  return channels;
}

}  // namespace dear::channels
