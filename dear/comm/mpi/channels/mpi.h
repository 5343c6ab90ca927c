#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dear/base/vocabulary/collective.h"
#include "dear/base/vocabulary/dtype.h"
#include "dear/base/vocabulary/reduction.h"
#include "dear/comm/channels/channels.h"

// MPI as a messaging library underneath. Implementations of MPI differ in their binary interface, so each
// that is found when DeAR is built becomes a module of its own, loaded at run time by whoever needs it: the
// same `dear` runs under any of their launchers, and on machines without MPI.
namespace dear::channels {

// A collective as MPI itself carries it. `data` has `count` elements; shards are equal blocks of count / size
// elements (count is a multiple of size for reduce_scatter, all_gather and all_to_all; rank r's lies at
// r * count / size). With an `output`, a reduce_scatter puts this rank's shard there, and an all_gather takes
// it from there; so MPI copies nothing more than it needs. Without, both work in place.
struct MpiCollective {
  Collective collective = Collective::barrier;
  std::byte* data = nullptr;
  std::byte* output = nullptr;  // one block, optional; for all_to_all `count` elements, required
  std::int64_t count = 0;
  DType dtype = DType::f32;
  Reduction reduction = Reduction::sum;  // all but average
  int root = 0;
};

// What one rank sends to another in an exchange, and gets from it.
struct EagerMessage {
  int peer = 0;
  const std::byte* out = nullptr;
  std::int64_t bytes = 0;
  std::byte* in = nullptr;
  std::int64_t room =
      0;  // for what comes; a longer message is a TransportError, a shorter one says so itself
};

class Mpi : public Channels {
 public:
  // By rank, the number of its host, counted from 0 as ranks first name one. Ranks of one number can share
  // memory (see host_key.h): each has said where it runs.
  [[nodiscard]] virtual const std::vector<int>& hosts() const = 0;
  // A message to each of these ranks and one from each, at once and of any length up to the room: the
  // quickest way for what is small. In order with the transfers of the same tag.
  virtual void exchange(std::span<const EagerMessage> messages, Tag tag, const Describe& what,
                        Deadline deadline) = 0;

  // Whether MPI has it: no sums of fp16 and bf16.
  [[nodiscard]] virtual bool supports(const MpiCollective& collective) const = 0;
  // By MPI's nonblocking collective, looked after as wait() looks after transfers; TimeoutError at the
  // deadline.
  virtual void run(const MpiCollective& collective, const Describe& what, Deadline deadline) = 0;
  // By MPI's blocking collective, as a program on plain MPI would: waits without an end. For rivals in
  // benches.
  virtual void run_blocking(const MpiCollective& collective) = 0;
};

// Whether all its ranks can share memory.
bool on_one_host(const Mpi& mpi);

// The implementations that this build has modules for.
std::vector<std::string> mpi_implementations();

struct MpiOptions {
  std::string implementation;  // one of them: that whose launcher started this process
  Deadline deadline;           // for all ranks to come and every connection to stand
  // MPI does without what would end this process when a peer dies, unless the environment says how it is to
  // carry (UCX_TLS). false: as a program on plain MPI would have it. For rivals in benches.
  bool outlive_peers = true;
};
// Starts MPI, and brings every connection up; all ranks of the job call it. One at a time in a process; MPI
// ends with the process, by its own farewell when nothing failed. ConfigError where the module is missing;
// TimeoutError where ranks did not come.
std::unique_ptr<Mpi> open_mpi(const MpiOptions& options);

// What open_mpi() opened and is still there; null for nothing. For benches, which compare what a group does
// with what the MPI below it does, while the group is idle.
Mpi* mpi_in_use();

}  // namespace dear::channels
