#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "dear/platform/algorithm/algorithms.h"
#include "dear/platform/algorithm/grid.h"
#include "dear/platform/algorithm/pair_bytes.h"
#include "dear/platform/algorithm/program.h"

namespace dear::fabric {

// One message as one of its two ends sees it.
struct Message {
  int peer = 0;
  double share = 0;  // of the vector's bytes
  friend bool operator==(const Message&, const Message&) = default;
};

// What one rank does in a round.
struct Exchange {
  std::vector<Message> sends;
  std::vector<Message> receives;  // added or not
};

// A collective as its messages: what a network has to know of a program. Each message stands at both of its
// ends in the same round, and messages between two ranks in one round match in their order.
class Rounds {
 public:
  virtual ~Rounds() = default;
  [[nodiscard]] virtual int ranks() const = 0;
  [[nodiscard]] virtual int rounds() const = 0;
  virtual void exchange(int round, int rank, Exchange& into) const = 0;  // keeps the memory of `into`

 protected:
  Rounds() = default;
  Rounds(const Rounds&) = default;
  Rounds& operator=(const Rounds&) = default;
};

// Keeps what it needs of the program.
std::shared_ptr<const Rounds> rounds_of(const algorithm::Program& program);

// Everyone sends an equal share in each round, on a ring to the next rank, in round k of a pairwise exchange
// to the one k + 1 further on: P - 1 rounds, twice for an all-reduce. Nothing is stored: as programs they
// have P^2 messages.
std::shared_ptr<const Rounds> ring_rounds(Collective collective, int ranks);
std::shared_ptr<const Rounds> pairwise_rounds(Collective collective, int ranks);

// An all-to-all-v by pairwise exchange, as cost::all_to_all_v_seconds() has it: P - 1 rounds of counts,
// unless there are none, then P - 1 of what they count, in which what has no bytes does not travel. Shares
// are of pairs.total(). ConfigError for pairs that are none.
std::shared_ptr<const Rounds> all_to_all_v_rounds(algorithm::PairBytes pairs);

// The algorithm "direct" of line_algorithms(): everyone sends an equal share to all others in one round.
// Nothing is stored.
std::shared_ptr<const Rounds> direct_rounds(int ranks);

// The messages of line_program(algorithm, collective, members), not stored where it can be helped.
// ConfigError likewise.
std::shared_ptr<const Rounds> line_rounds(std::string_view algorithm, Collective collective, int members);

// The messages of a reduce-scatter, all-gather or all-reduce over a grid, see [Note: dimension by dimension];
// `algorithms` names one for each dimension. Memory grows with the sizes of dimensions, not with the ranks.
// ConfigError likewise, and for an order that is none.
std::shared_ptr<const Rounds> grid_rounds(const algorithm::Grid& grid, const std::vector<int>& order,
                                          const std::vector<std::string_view>& algorithms,
                                          Collective collective);

// Those of make_program(algorithm, collective, shape), not stored where it can be helped. ConfigError
// likewise.
std::shared_ptr<const Rounds> make_rounds(const algorithm::Algorithm& algorithm, Collective collective,
                                          const algorithm::Shape& shape);

}  // namespace dear::fabric
