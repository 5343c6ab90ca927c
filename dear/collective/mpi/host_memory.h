#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "dear/base/deadline.h"
#include "dear/collective/request.h"
#include "dear/collective/shm/shm.h"
#include "dear/collective/shm/staged.h"
#include "dear/transport/mpi/mpi.h"

namespace dear::collective {

// [Note: memory beside MPI] Where all ranks of an MPI are on one host, a message through MPI is a detour:
// what is small goes through memory that they share. There ranks also compare what they ask for, whichever
// way the data takes afterwards, since who waits in the one place would not see a peer that waits in the
// other. A rank that waits here moves MPI on meanwhile: what MPI took from it may not have left it yet.
class HostMemory {
 public:
  // Vectors up to here go this way by rule: nothing is quicker. Larger ones by measurement.
  static constexpr std::int64_t kSmallBytes = 64 * 1024;

  // All ranks of `mpi` call it, all of them on one host; `mpi` outlives what it gives. Null on all of them
  // where any cannot have the memory, and then `why_not` says why, where this rank knows.
  static std::unique_ptr<HostMemory> share(transport::Mpi& mpi, Deadline deadline, std::string& why_not);

  HostMemory(std::unique_ptr<SharedMemory> host, Deadline deadline);

  [[nodiscard]] bool has_room_for(const Request& request) const;
  // Of a request it has room for. Throws what a collective would.
  Timing run(const Request& request, Deadline deadline) {
    return staged_.run(request, start_of(request.view), start_of(request.output), deadline);
  }

  // Only compares.
  void compare(const Request& request, Deadline deadline) {
    host_->meet_for(without_buffers(request), deadline);
  }
  void compare_allocation(std::int64_t bytes, Deadline deadline) {
    host_->meet_for_allocation(bytes, deadline);
  }

  void abort(const std::string& reason) noexcept { host_->abort(reason); }

 private:
  static std::byte* start_of(const View& view) {
    return view.count > 0 ? view.buffer.data() + view.offset_bytes : nullptr;
  }

  std::unique_ptr<SharedMemory> host_;
  Staged staged_;
};

}  // namespace dear::collective
