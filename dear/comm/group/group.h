#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "dear/comm/group/backend.h"
#include "dear/comm/group/buffer.h"
#include "dear/comm/group/request.h"
#include "dear/comm/group/shard.h"

namespace dear {

namespace channels {
class Channels;
}
namespace liveness {
class Liveness;
}

// How a collective ended; `error` is empty on success.
struct CollectiveResult {
  Timing timing;
  std::exception_ptr error;
};

struct Ticket;  // in group_lane.h

// A handle of a collective that was issued. It may be dropped.
class Pending {
 public:
  Pending() = default;
  [[nodiscard]] bool done() const;
  // Returns when the collective is complete on this rank, or throws what it failed with. A wait ends within
  // the group's timeout for each collective issued up to this one.
  Timing wait() const;

 private:
  friend class Group;
  explicit Pending(std::shared_ptr<Ticket> ticket) : ticket_(std::move(ticket)) {}
  std::shared_ptr<Ticket> ticket_;
};

// The ranks of a job as a value with collectives on it. Copies share one thread, which runs collectives one
// after another in the order in which they were issued; every rank must issue the same ones in the same
// order, which is checked on each. Results do not depend on timing: reductions add rank 0's contribution
// first, then rank 1's, ... (fp16 and bf16 are summed in fp32 and rounded once; an average is the sum divided
// by the number of ranks, truncated for integers).
//
// Methods may be called from any thread. The first failure ends the group: that collective and all later ones
// throw. Waiting is bounded: `timeout` for each collective, from the moment this rank reaches it.
class Group {
 public:
  struct Options {
    std::chrono::duration<double> timeout = std::chrono::seconds(120);
  };
  Group(std::unique_ptr<Backend> backend, Options options);

  [[nodiscard]] int rank() const;
  [[nodiscard]] int size() const;
  [[nodiscard]] std::string description() const;
  [[nodiscard]] std::string modelled_network() const;  // "" when the network is real
  [[nodiscard]] std::chrono::duration<double> timeout() const;

  // Allocates a buffer on every rank, and waits for the peers to do so. See Backend::allocate.
  [[nodiscard]] Buffer allocate(std::int64_t bytes) const;

  // [Note: shared buffers] One memory for all ranks, where the group has that: a write of one rank is a write
  // for all. An all-gather of such a buffer copies nothing: it ends on no rank before all have come to it,
  // and what each wrote until then is seen by all after it. No other collective takes one (ConfigError), and
  // who writes when is for the callers to agree on. ConfigError, on every rank, where nothing is shared.
  [[nodiscard]] Buffer allocate_shared(std::int64_t bytes) const;
  // Whether allocate_shared() works: all ranks are on one host, on shared memory, without a modelled network;
  // or there is one rank. Every collective of such a group ends on no rank before all have come to it.
  [[nodiscard]] bool shares_memory() const;

  // Whether collectives take unequal shards (Request::shares): on shared memory, and over messages without
  // a grid, levels, MPI or a modelled network; or there is one rank.
  [[nodiscard]] bool takes_shares() const;

  // Makes a group of its own of the same ranks. A collective: every rank calls it. See split().
  [[nodiscard]] Group duplicate() const;
  // [Note: parts of a group] Groups of their own, each of the ranks that give one color, in the order of
  // their keys and, where keys are equal, of their ranks here. Nothing for a negative color. Collective:
  // every rank calls it, those with a negative color too; MismatchError, on every rank, where some duplicate
  // and others split.
  //
  // The new group has a thread of its own. Collectives of both may be issued in any order and run at once,
  // and either may be dropped before the other; buffers belong to the group that allocated them. When this
  // group fails, so does the new one, but not the other way round: only over messages (all backends but shm)
  // they fail together, for they share channels. Messages of a failure call ranks by their numbers in the
  // first group that was split.
  [[nodiscard]] std::optional<Group> split(int color, int key) const;

  // Opens channels between all ranks (comm/channels/channels.h), for messages with tags from 0 to `tags` - 1
  // beside collectives. A collective: every rank calls it with the same number. They may live longer than the
  // group, and fail when it does. ConfigError, on every rank, where the backend carries no messages.
  [[nodiscard]] std::unique_ptr<channels::Channels> open_channels(int tags) const;

  // In place. With n = view.count, rank r afterwards holds:
  //   reduce_scatter  the reduction in elements shard_of(n, dtype, size, r); the rest as it was
  //   all_gather      in elements shard_of(n, dtype, size, q), for every q, what rank q held there
  //   all_reduce      the reduction in all n elements
  //   broadcast       what `root` held
  //   reduce          the reduction in all n elements on `root`; anything elsewhere
  // all_to_all sends block q of `view` to rank q, which finds it as block r of its `output`; both have n
  // elements, n a multiple of size. all_to_all_v sends of each block only the rows that `rows.sent` counts,
  // and tells in `rows.received` how many came: see ChunkRows. Ranks give counts of their own; shapes are
  // alike. A count of a peer that its chunk has no room for ends the group, before a row is written
  // there.
  Pending reduce_scatter(const View& view, Reduction reduction) const;
  Pending all_gather(const View& view, const ShardShares* shares = nullptr) const;
  Pending all_reduce(const View& view, Reduction reduction) const;
  Pending broadcast(const View& view, int root) const;
  Pending reduce(const View& view, Reduction reduction, int root) const;
  Pending all_to_all(const View& view, const View& output) const;
  Pending all_to_all_v(const View& view, const View& output, const ChunkRows& rows) const;
  Pending barrier() const;

  // The general form: `then` is called once, on the group's thread, before the handle is done. It must not
  // wait for this group and must not throw. A request that no rank could run (a view outside its buffer, an
  // unknown root) is a ConfigError here and now. A group that has ended throws its failure here and now.
  // Where this throws, `then` is not called.
  using Continuation = std::function<void(const CollectiveResult&)>;
  Pending issue(const Request& request, Continuation then = {}) const;
  // Issues a request whose outcome decides on others: when it has ended, `next` is called on the group's
  // thread, and the request that it returns, if any, runs at once, before what was issued later; and so on
  // until it returns none. It returns the same on every rank, may throw, and must not wait for this group.
  // `then` is called after the last.
  using Next = std::function<std::optional<Request>()>;
  Pending issue(const Request& request, Next next, Continuation then) const;

  // Issues and waits, with less delay: when nothing else is at work or waiting, the collective runs on the
  // calling thread, no other is woken, and nobody is told when it ran. For small things that are needed at
  // once.
  void perform(Request request) const;

  // Whether this is the first call on this rank, on any copy of the handle: of whose issues collectives from
  // threads of its own, at times of its own, a group takes one. The next makes a duplicate.
  [[nodiscard]] bool claim() const;

  // From now on failures of this group, and the lives of its ranks, are told to the others there, and what it
  // decides is what every rank throws, of this group and its parts. Null changes nothing. All ranks call it,
  // before the group is split.
  void watch(const std::shared_ptr<liveness::Liveness>& liveness) const;

  // Ends the group with this reason, here and on the peers.
  void abort(const std::string& reason) const noexcept;

 private:
  class Lane;
  enum class Making : std::uint8_t;
  explicit Group(std::shared_ptr<Lane> lane) : lane_(std::move(lane)) {}
  [[nodiscard]] Subgroup agree_on(Making making, int color, int key, int tags) const;
  [[nodiscard]] std::optional<Group> make(Making making, int color, int key) const;
  [[nodiscard]] Buffer allocate(bool shared, std::int64_t bytes) const;
  std::shared_ptr<Lane> lane_;
};

}  // namespace dear
