#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "dear/base/vocabulary/range.h"
#include "dear/comm/group/group.h"
#include "dear/methods/rounds/mask.h"
#include "dear/methods/rounds/round.h"

namespace dear::methods::rounds {

// The traffic of the ranks is counted where it is sent.
struct Traffic {
  std::int64_t reals = 0;       // that clients sent, also to the owners on their own rank
  std::int64_t sent_bytes = 0;  // by this rank to others, of the reduce-scatters
  std::int64_t received_bytes = 0;
  std::int64_t gathered_bytes = 0;  // of others, that all-gathers brought to this rank
};

// The mean of vectors of clients that are spread over the ranks of a group, in two halves: reduce() sends
// each client's coordinates to the ranks that own them (shard_of()), which add them up in the order of
// clients, and gather() sends the sums to all. Only coordinates that the mask gives to a client travel,
// without indices. The result is the same bits on any number of ranks. All ranks call the same, each on one
// thread.
class Exchange {
 public:
  Exchange(Group group, int clients, std::uint64_t seed);

  // Clients of a rank: as many on each, in order.
  [[nodiscard]] Range clients_of(int rank) const;
  [[nodiscard]] Range own_clients() const { return clients_of(group_.rank()); }

  // The vector of one of this rank's clients, as long as the mask's dimension.
  using Vector = std::function<std::span<const double>(int client)>;
  // Returns when this rank's shard of the mean is complete. MismatchError where ranks are in other rounds or
  // have other seeds; Error for a value that is not finite, which names its client.
  void reduce(const Round& round, const Mask& mask, const Vector& vector_of);
  // The mean, on every rank, until the next call of reduce().
  std::span<const double> gather();

  [[nodiscard]] const Traffic& traffic() const { return traffic_; }
  [[nodiscard]] const Group& group() const { return group_; }

 private:
  [[nodiscard]] Range shard(std::int64_t dimension, int rank) const;
  [[nodiscard]] std::vector<Sender> senders_on(const Round& round, int rank) const;
  [[nodiscard]] std::int64_t room_for(const Round& round, const Mask& mask) const;
  void make_room(std::int64_t room, std::int64_t dimension);
  [[noreturn]] void refuse(const Sender& sender, const Round& round) const;
  void pack(const Round& round, const Mask& mask, const Vector& vector_of);
  void add_up(const Round& round, const Mask& mask);

  Group group_;
  int clients_;
  std::uint64_t seed_;
  std::int64_t room_ = 0;  // reals from one rank for another
  std::int64_t dimension_ = 0;
  Buffer sent_, received_, mean_;
  std::vector<std::int64_t> counts_, received_counts_;
  Traffic traffic_;
};

}  // namespace dear::methods::rounds
