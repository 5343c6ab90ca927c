#include "dear/collective/mpi/host_memory.h"

#include <algorithm>
#include <atomic>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "dear/base/error.h"
#include "dear/collective/mpi/talk.h"
#include "dear/collective/shm/control.h"

namespace dear::collective {
namespace {

// They have met over MPI already, so nobody is slow to come.
constexpr auto kMeetingTakes = std::chrono::seconds(10);
// For each rank, and for all of them together.
constexpr std::int64_t kMostRoom = std::int64_t{1} << 20;
constexpr std::int64_t kMostRoomOfAll = std::int64_t{16} << 20;

std::int64_t room_for(int ranks) {
  return std::clamp(kMostRoomOfAll / ranks, HostMemory::kSmallBytes, kMostRoom);
}

// Of no other job, and of no other group of this job.
std::string fresh_name() {
  static std::atomic<int> groups = 0;
  return fmt::format("beside mpi, rank 0 is {}, group {}", getpid(), groups.fetch_add(1));
}

}  // namespace

std::unique_ptr<HostMemory> HostMemory::share(transport::Mpi& mpi, Deadline deadline, std::string& why_not) {
  if (mpi.size() > Control::kMaxRanks) {
    why_not = fmt::format("shared memory takes {} ranks on a host", Control::kMaxRanks);
    return nullptr;
  }
  const std::string name = text_of_rank_0(mpi, fresh_name(), deadline);
  std::unique_ptr<HostMemory> memory;
  try {
    const Deadline soon =
        Deadline::after(std::min<std::chrono::nanoseconds>(kMeetingTakes, deadline.remaining()));
    memory = std::make_unique<HostMemory>(make_shm({.rendezvous = name,
                                                    .rank = mpi.rank(),
                                                    .size = mpi.size(),
                                                    .deadline = soon,
                                                    .meanwhile = [&mpi] { mpi.progress(); }}),
                                          soon);
  } catch (const Error& error) {
    why_not = error.what();
  }
  if (!on_all_ranks(mpi, memory != nullptr, deadline)) {
    if (memory) why_not = "another rank could not have it";
    return nullptr;
  }
  return memory;
}

HostMemory::HostMemory(std::unique_ptr<SharedMemory> host, Deadline deadline)
    : host_(std::move(host)), staged_(*host_, room_for(host_->size()), deadline) {}

bool HostMemory::has_room_for(const Request& request) const {
  return request.view.count * size_of(request.view.dtype) <= staged_.room_bytes();
}

}  // namespace dear::collective
