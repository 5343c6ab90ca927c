#include "dear/comm/group/backend.h"

#include <cstring>

#include <fmt/format.h>

#include "dear/base/recorder/recorder.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/channels/channels.h"
#include "dear/comm/group/shard.h"

namespace dear {
namespace {

// Runs a collective of this backend, or an allocation, which the record and the standing of this rank tell.
template <typename Run>
auto run_recorded(Backend& backend, recorder::Note note, const Run& run) {
  note.number = backend.recorded.collectives++;
  note.group = backend.recorded.group;
  recorder::come_to_collective(note.number, note.collective);
  struct Leaving {
    ~Leaving() { recorder::leave_collective(); }
  } const leaving;
  if (!recorder::is_open()) return run();
  note.kind = recorder::Kind::begun;
  recorder::note(note);
  try {
    auto result = run();
    note.kind = recorder::Kind::ended;
    recorder::note(note);
    return result;
  } catch (const std::exception&) {
    note.kind = recorder::Kind::failed;
    recorder::note(note);
    throw;
  }
}

}  // namespace

Buffer Backend::allocate_shared(std::int64_t /*bytes*/, Deadline /*deadline*/) { refuse_to_share(); }

std::unique_ptr<Backend> Backend::split(const Subgroup& /*subgroup*/, Deadline /*deadline*/) {
  throw ConfigError(fmt::format("rank {}: this group ({}) cannot be split", rank(), description()));
}

std::unique_ptr<channels::Channels> Backend::open_channels(int /*number*/, int /*tags*/,
                                                           Deadline /*deadline*/) {
  throw ConfigError(
      fmt::format("rank {}: this group ({}) carries no messages between two ranks: take backend gloo, or "
                  "mpi-messages under mpirun",
                  rank(), description()));
}

void Backend::refuse_to_share() const {
  const std::string modelled = modelled_network();
  if (!modelled.empty()) {
    throw ConfigError(
        fmt::format("rank {}: ranks on a modelled network ({}) stand for hosts of their own, which share no "
                    "memory: leave the modelled network out",
                    rank(), modelled));
  }
  throw ConfigError(
      fmt::format("rank {}: this group ({}) has no memory that all its ranks share: put them on one host "
                  "with backend shm",
                  rank(), description()));
}

Timing run_with_own_shard(Backend& backend, const Request& request, Deadline deadline) {
  if (request.shares != nullptr && backend.size() > 1 && !backend.takes_shares())
    throw ConfigError(describe(request) + ": " + backend.description() + " has equal shards only");
  const auto run = [&] {
    return request.own.from == nullptr || backend.takes_own_shards()
               ? backend.run(request, deadline)
               : run_in_view(backend, request, deadline);
  };
  return run_recorded(backend,
                      {.first = request.view.count * size_of(request.view.dtype),
                       .second = request.label,
                       .collective = static_cast<std::uint8_t>(request.collective)},
                      run);
}

Buffer allocate_recorded(Backend& backend, bool shared, std::int64_t bytes, Deadline deadline) {
  return run_recorded(
      backend,
      {.first = bytes,
       .second = -1,
       .collective = shared ? recorder::kSharedAllocation : recorder::kAllocation},
      [&] { return shared ? backend.allocate_shared(bytes, deadline) : backend.allocate(bytes, deadline); });
}

Timing run_in_view(Backend& backend, const Request& request, Deadline deadline) {
  const View& view = request.view;
  const std::int64_t element = size_of(view.dtype);
  const Range own = shard_of(request, backend.size(), backend.rank());
  std::byte* const place = view.buffer.data() + view.offset_bytes + own.begin * element;
  const auto bytes = static_cast<std::size_t>(own.size() * element);
  Request inside = request;
  inside.own = {};
  if (bytes > 0) std::memcpy(place, request.own.from, bytes);
  const Timing timing = backend.run(inside, deadline);
  if (bytes > 0) std::memcpy(request.own.to, place, bytes);
  return timing;
}

}  // namespace dear
