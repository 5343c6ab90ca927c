#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dear/base/vocabulary/deadline.h"
#include "dear/comm/group/buffer.h"
#include "dear/comm/group/request.h"

namespace dear {

namespace channels {
class Channels;
}

// Some ranks of a backend, for a backend of their own.
struct Subgroup {
  std::vector<int>
      members{};  // ranks of the whole, in the order of their new ranks; empty: this rank is in none
  int number =
      1;  // from 1 on; tells the groups that are made together from all others that have one of their ranks
  int color = 0;  // tells apart those that are made together
};

// What carries collectives for one rank: single, shm, or another of these over a modelled link. Blocking; a
// Group gives it a thread and the order. One thread at a time calls run(); abort() may come from any.
class Backend {
 public:
  virtual ~Backend() = default;

  // How the record of this rank calls its collectives (base/recorder).
  struct Recorded {
    std::uint16_t group = 0;
    std::int64_t collectives = 0;
  };
  Recorded recorded{};

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  [[nodiscard]] virtual std::string description() const = 0;                 // "shm, 4 ranks on this host"
  [[nodiscard]] virtual std::string modelled_network() const { return ""; }  // "" when real

  // Allocates a buffer on every rank. A collective like any other: every rank asks for the same number of
  // bytes in the same order. TransportError naming the size and the remedy, on every rank, when memory for
  // all ranks cannot be had.
  virtual Buffer allocate(std::int64_t bytes, Deadline deadline) = 0;

  // Whether collectives also take buffers that another backend allocated, in any memory.
  [[nodiscard]] virtual bool takes_any_buffer() const { return false; }

  // Whether the ranks can share one memory; then every collective ends on no rank before all have come to it.
  [[nodiscard]] virtual bool shares_memory() const { return false; }
  // As allocate(), but the same memory on every rank: [Note: shared buffers]. By default it refuses.
  virtual Buffer allocate_shared(std::int64_t bytes, Deadline deadline);
  // Throws a ConfigError that says why this backend cannot share memory, and what to do.
  [[noreturn]] void refuse_to_share() const;

  // Whether run() takes requests whose own shard lies elsewhere. See run_with_own_shard().
  [[nodiscard]] virtual bool takes_own_shards() const { return false; }

  // Whether run() takes requests with unequal shares. By default they are refused (ConfigError).
  [[nodiscard]] virtual bool takes_shares() const { return false; }

  // Returns when this rank's part is done and its buffers may be written again. After an error every further
  // call throws the same one, on this rank; the peers get a TransportError that names this rank and repeats
  // its message.
  virtual Timing run(const Request& request, Deadline deadline) = 0;

  // A backend of its own for the members, of which this rank is one; null where there are none. Every rank of
  // this backend calls it, with the same number. Both may be used at once, in any order, and the new one may
  // live longer. Its errors call ranks by their name. By default it refuses (ConfigError).
  virtual std::unique_ptr<Backend> split(const Subgroup& subgroup, Deadline deadline);
  // Channels between all ranks, for messages beside collectives, with tags from 0 to `tags` - 1. Every rank
  // calls it, with the same numbers; `number` and the next `tags` - 1 tell its messages from those of groups.
  // It may live longer. By default it refuses (ConfigError).
  virtual std::unique_ptr<channels::Channels> open_channels(int number, int tags, Deadline deadline);
  // The number by which messages call this rank: its rank in the backend that was split first.
  [[nodiscard]] virtual int name() const { return rank(); }

  // Makes run(), now or later, here and on the peers, fail with a TransportError that says `reason`.
  virtual void abort(const std::string& reason) noexcept = 0;
};

// Runs a request on any backend: one whose own shard lies elsewhere by run_in_view() where the backend takes
// none.
Timing run_with_own_shard(Backend& backend, const Request& request, Deadline deadline);
// Allocates as allocate() or allocate_shared(), which the record of this rank tells.
Buffer allocate_recorded(Backend& backend, bool shared, std::int64_t bytes, Deadline deadline);
// Copies an own shard that lies elsewhere into the view, runs the request without it, and copies the result
// back.
Timing run_in_view(Backend& backend, const Request& request, Deadline deadline);

}  // namespace dear
