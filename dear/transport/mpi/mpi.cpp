#include "dear/transport/mpi/mpi.h"

#include <cstring>

#include <fmt/format.h>

#include "dear/base/error.h"
#include "dear/transport/mpi/modules.h"
#include "dear/transport/mpi/mpi_channels.h"
#include "dear/transport/mpi/process.h"

namespace dear::transport {
namespace {

MpiCall call_of(const MpiCollective& collective) {
  return {.operation = static_cast<std::int32_t>(collective.operation),
          .dtype = static_cast<std::int32_t>(collective.dtype),
          .reduction = static_cast<std::int32_t>(collective.reduction),
          .root = collective.root,
          .count = collective.count,
          .data = collective.data,
          .output = collective.output};
}

}  // namespace

bool MpiChannels::supports(const MpiCollective& collective) const {
  const MpiCall call = call_of(collective);
  return world_.binding->has(&call) != 0;
}

template <typename Carry>
void MpiChannels::carry(const MpiCollective& collective, const Carry& by_mpi) {
  if (!supports(collective)) {
    throw ConfigError(fmt::format("{} has no such collective: {} elements of {}, {}", description(),
                                  collective.count, name_of(collective.dtype),
                                  name_of(collective.reduction)));
  }
  MpiCall call = call_of(collective);
  // MPI would put the shard to the front of the vector.
  const bool in_place =
      collective.operation == MpiCollective::Operation::reduce_scatter && collective.output == nullptr;
  const auto bytes = static_cast<std::size_t>(collective.count / size() * size_of(collective.dtype));
  if (in_place) {
    shard_.resize(bytes);
    call.output = shard_.data();
  }
  guarded([&] { by_mpi(call); });
  if (in_place && bytes > 0) {
    std::memcpy(collective.data + static_cast<std::size_t>(rank()) * bytes, shard_.data(), bytes);
  }
}

void MpiChannels::run(const MpiCollective& collective, const Describe& what, Deadline deadline) {
  carry(collective, [&](const MpiCall& call) {
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

void MpiChannels::run_blocking(const MpiCollective& collective) {
  carry(collective,
        [&](const MpiCall& call) { check(world_.binding->perform(&call), "carry a collective"); });
}

std::unique_ptr<Mpi> open_mpi(const MpiOptions& options) {
  const MpiBinding& binding = load_mpi_module(options.implementation);
  auto channels = std::make_unique<MpiChannels>(take_mpi(binding, options.outlive_peers, options.deadline));
  channels->meet(options.deadline);
  return channels;
}

}  // namespace dear::transport
