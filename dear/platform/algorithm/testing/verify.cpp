#include "dear/platform/algorithm/testing/verify.h"

#include <bitset>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::algorithm::testing {
namespace {

// The blocks of rank r where each has its own: [r, r + 1) · blocks / ranks.
Range own_blocks(const Program& program, int rank) {
  const int each = program.blocks / program.ranks;
  return {.begin = rank * each, .end = (rank + 1) * each};
}

using Contributions = std::bitset<kMostVerifiedRanks>;

struct Value {
  int block = -1;  // of which these are contributions; -1 while there are none
  Contributions from;
  friend bool operator==(const Value&, const Value&) = default;
};

std::vector<int> listed(const std::vector<Range>& blocks) {
  std::vector<int> all;
  for (const Range& range : blocks) {
    for (int block = range.begin; block < range.end; ++block) {
      all.push_back(block);
    }
  }
  return all;
}

class Play {
 public:
  explicit Play(const Program& program)
      : program_(program), places_(has_output(program.collective) ? 2 * program.blocks : program.blocks) {
    if (program.ranks < 1 || program.ranks > kMostVerifiedRanks) {
      fail(fmt::format("has {} ranks; 1 to {} can be verified", program.ranks, kMostVerifiedRanks));
    }
    if (program.root < 0 || program.root >= program.ranks) {
      fail(fmt::format("has the root {}, which does not exist", program.root));
    }
    if (shared_out() && program.blocks % program.ranks != 0) {
      fail(fmt::format("shares {} blocks among {} ranks, which does not come out even", program.blocks,
                       program.ranks));
    }
    values_.resize(static_cast<std::size_t>(program.ranks));
    for (int rank = 0; rank < program.ranks; ++rank) {
      values_[static_cast<std::size_t>(rank)].resize(static_cast<std::size_t>(places_));
      for (int block = 0; block < program.blocks; ++block) {
        if (begins_with(rank, block)) {
          value(rank, block) = {.block = block, .from = only(rank)};
        }
      }
    }
  }

  void run() {
    for (std::size_t rank = 0; rank < program_.copies.size(); ++rank) {
      for (const Copy& copy : program_.copies[rank]) {
        where_ = fmt::format("before the first round: rank {}", rank);
        check_block(copy.from);
        check_block(copy.to);
        value(static_cast<int>(rank), copy.to) = value(static_cast<int>(rank), copy.from);
      }
    }
    for (std::size_t round = 0; round < program_.rounds.size(); ++round) {
      if (static_cast<int>(program_.rounds[round].size()) != program_.ranks) {
        fail(fmt::format("has a part for {} ranks in round {}", program_.rounds[round].size(), round));
      }
      play(round);
    }
    where_ = "at the end: rank ";
    for (int rank = 0; rank < program_.ranks; ++rank) {
      check_end(rank);
    }
  }

 private:
  // Sent blocks by sender and receiver, in order.
  using Wires = std::map<std::pair<int, int>, std::vector<std::vector<Value>>>;

  void play(std::size_t round) {
    const std::vector<Part>& parts = program_.rounds[round];
    Wires wires;
    std::vector<std::vector<bool>> sent(parts.size(), std::vector<bool>(static_cast<std::size_t>(places_)));
    for (int rank = 0; rank < program_.ranks; ++rank) {
      where_ = fmt::format("in round {}: rank {}", round, rank);
      for (const BlockMessage& message : parts[static_cast<std::size_t>(rank)].sends) {
        check_peer(rank, message.peer);
        std::vector<Value>& values = wires[{rank, message.peer}].emplace_back();
        for (const int block : listed(message.blocks)) {
          check_block(block);
          if (value(rank, block).block < 0) {
            fail_here(fmt::format("sends block {} to rank {} before it holds anything", block, message.peer));
          }
          sent[static_cast<std::size_t>(rank)][static_cast<std::size_t>(block)] = true;
          values.push_back(value(rank, block));
        }
      }
    }
    // By rank, whose counts it has before this round.
    std::vector<std::vector<bool>> counted(parts.size());
    for (int rank = 0; rank < program_.ranks && is_v(); ++rank) {
      for (int from = 0; from < program_.ranks; ++from)
        counted[static_cast<std::size_t>(rank)].push_back(value(rank, program_.blocks + from).block >= 0);
    }
    for (int rank = 0; rank < program_.ranks; ++rank) {
      where_ = fmt::format("in round {}: rank {}", round, rank);
      const Part& part = parts[static_cast<std::size_t>(rank)];
      std::vector<bool>& busy = sent[static_cast<std::size_t>(rank)];
      std::map<int, std::size_t> taken;
      for (const BlockMessage& message : part.receives) {
        const std::vector<Value> values = take(rank, message, taken, wires);
        const std::vector<int> blocks = listed(message.blocks);
        for (std::size_t i = 0; i < blocks.size(); ++i) {
          check_free(blocks[i], busy);
          busy[static_cast<std::size_t>(blocks[i])] = true;
          check_chunk(rank, blocks[i], values[i], counted[static_cast<std::size_t>(rank)]);
          value(rank, blocks[i]) = values[i];
        }
      }
      // Several may be added to one block, but to none that is sent or replaced.
      for (const BlockMessage& message : part.reduces) {
        const std::vector<Value> values = take(rank, message, taken, wires);
        const std::vector<int> blocks = listed(message.blocks);
        for (std::size_t i = 0; i < blocks.size(); ++i) {
          check_free(blocks[i], busy);
          add(rank, blocks[i], values[i], message.peer);
        }
      }
      for (const auto& [ends, messages] : wires) {
        if (ends.second == rank && taken[ends.first] != messages.size()) {
          fail_here(fmt::format("is sent {} messages by rank {} and receives {}", messages.size(), ends.first,
                                taken[ends.first]));
        }
      }
    }
  }

  std::vector<Value> take(int rank, const BlockMessage& message, std::map<int, std::size_t>& taken,
                          Wires& wires) {
    check_peer(rank, message.peer);
    const auto& messages = wires[{message.peer, rank}];
    const std::size_t number = taken[message.peer]++;
    if (number >= messages.size()) {
      fail_here(fmt::format("expects message {} of rank {}, which sends {}", number + 1, message.peer,
                            messages.size()));
    }
    const std::vector<Value>& values = messages[number];
    const std::vector<int> blocks = listed(message.blocks);
    if (blocks.size() != values.size()) {
      fail_here(fmt::format("expects {} blocks of rank {}, which sends {}", blocks.size(), message.peer,
                            values.size()));
    }
    for (const int block : blocks) {
      check_block(block);
    }
    return values;
  }

  void check_free(int block, const std::vector<bool>& busy) const {
    if (busy[static_cast<std::size_t>(block)]) {
      fail_here(fmt::format("receives into block {}, which it also sends or receives", block));
    }
  }

  // What place `place` of the output of `rank` is for.
  [[nodiscard]] Value wanted_at(int rank, int place) const {
    const int block = place - program_.blocks;
    const int counts = is_v() ? program_.ranks : 0;  // blocks of them, which come first
    if (block < counts) return {.block = rank, .from = only(block)};
    const int each = (program_.blocks - counts) / program_.ranks;
    return {.block = counts + rank * each + (block - counts) % each, .from = only((block - counts) / each)};
  }

  void check_chunk(int rank, int place, const Value& come, const std::vector<bool>& counted) const {
    if (!is_v()) return;
    if (place < program_.blocks || come != wanted_at(rank, place)) {
      fail_here(fmt::format("takes block {} into block {}, whose size may be another", come.block, place));
    }
    const int chunk = place - program_.blocks - program_.ranks;
    const int from = chunk / ((program_.blocks - program_.ranks) / program_.ranks);
    if (chunk >= 0 && !counted[static_cast<std::size_t>(from)]) {
      fail_here(fmt::format("receives chunks of rank {} before its counts", from));
    }
  }

  void add(int rank, int block, const Value& more, int peer) {
    Value& sum = value(rank, block);
    if (sum.block != more.block) {
      fail_here(
          fmt::format("adds what belongs to block {} to block {}, from rank {}", more.block, block, peer));
    }
    if ((sum.from & more.from).any()) {
      fail_here(fmt::format("adds a contribution to block {} again, from rank {}", block, peer));
    }
    sum.from |= more.from;
  }

  [[nodiscard]] bool shared_out() const {
    return program_.collective == Collective::reduce_scatter ||
           program_.collective == Collective::all_gather || has_output(program_.collective);
  }
  [[nodiscard]] bool is_v() const { return program_.collective == Collective::all_to_all_v; }
  [[nodiscard]] bool owns(int rank, int block) const {
    const Range own = own_blocks(program_, rank);
    return own.contains(block);
  }
  [[nodiscard]] bool begins_with(int rank, int block) const {
    switch (program_.collective) {
      case Collective::all_gather:
        return owns(rank, block);
      case Collective::broadcast:
        return rank == program_.root;
      default:
        return true;
    }
  }
  Contributions only(int rank) const { return Contributions().set(static_cast<std::size_t>(rank)); }
  Contributions all() const {
    Contributions every;
    for (int rank = 0; rank < program_.ranks; ++rank) {
      every.set(static_cast<std::size_t>(rank));
    }
    return every;
  }
  [[nodiscard]] int owner_of(int block) const { return block / (program_.blocks / program_.ranks); }

  void check_end(int rank) const {
    for (int block = 0; block < program_.blocks; ++block) {
      Value wanted{.block = block, .from = all()};
      int place = block;
      switch (program_.collective) {
        case Collective::reduce_scatter:
          if (!owns(rank, block)) continue;
          break;
        case Collective::reduce:
          if (rank != program_.root) continue;
          break;
        case Collective::all_reduce:
        case Collective::barrier:
          break;
        case Collective::all_gather:
          wanted.from = only(owner_of(block));
          break;
        case Collective::broadcast:
          wanted.from = only(program_.root);
          break;
        case Collective::all_to_all:
        case Collective::all_to_all_v:
          place = program_.blocks + block;
          wanted = wanted_at(rank, place);
          break;
      }
      const Value& found = values_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(place)];
      if (found != wanted) {
        fail(fmt::format("ends with {} of {} contributions to block {} on rank {}",
                         found.block == wanted.block ? (found.from & wanted.from).count() : 0,
                         wanted.from.count(), wanted.block, rank));
      }
    }
  }

  void check_peer(int rank, int peer) const {
    if (peer < 0 || peer >= program_.ranks || peer == rank) {
      fail_here(fmt::format("exchanges with rank {}", peer));
    }
  }
  void check_block(int block) const {
    if (block < 0 || block >= places_) {
      fail_here(fmt::format("uses block {} of {}", block, places_));
    }
  }
  [[noreturn]] void fail_here(const std::string& what) const { fail(fmt::format("{} {}", where_, what)); }
  [[noreturn]] void fail(const std::string& what) const {
    throw ScheduleError(fmt::format("{} of {} ranks: {}", program_.name, program_.ranks, what));
  }

  Value& value(int rank, int block) {
    return values_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(block)];
  }

  const Program& program_;
  int places_;
  std::vector<std::vector<Value>> values_;  // [rank][place]
  std::string where_;
};

}  // namespace

void verify(const Program& program) { Play(program).run(); }

}  // namespace dear::algorithm::testing
