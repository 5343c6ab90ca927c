#include "dear/platform/fabric/rounds.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::fabric {
namespace {

// All messages one after another; a rank's part in a round is a stretch of them, first what it sends.
class StoredRounds final : public Rounds {
 public:
  explicit StoredRounds(const algorithm::Program& program)
      : ranks_(program.ranks), rounds_(static_cast<int>(program.rounds.size())) {
    const auto add = [&](const std::vector<algorithm::BlockMessage>& messages) {
      for (const algorithm::BlockMessage& message : messages) {
        int blocks = 0;
        for (const Range& range : message.blocks) blocks += range.size();
        messages_.push_back({.peer = message.peer, .share = static_cast<double>(blocks) / program.blocks});
      }
    };
    for (const std::vector<algorithm::Part>& round : program.rounds) {
      for (const algorithm::Part& part : round) {
        begins_.push_back(messages_.size());
        add(part.sends);
        begins_.push_back(messages_.size());
        add(part.receives);
        add(part.reduces);
      }
    }
    begins_.push_back(messages_.size());
  }

  [[nodiscard]] int ranks() const override { return ranks_; }
  [[nodiscard]] int rounds() const override { return rounds_; }
  void exchange(int round, int rank, Exchange& into) const override {
    const std::size_t part = 2 * (static_cast<std::size_t>(round) * static_cast<std::size_t>(ranks_) +
                                  static_cast<std::size_t>(rank));
    const Message* const all = messages_.data();
    into.sends.assign(all + begins_[part], all + begins_[part + 1]);
    into.receives.assign(all + begins_[part + 1], all + begins_[part + 2]);
  }

 private:
  int ranks_;
  int rounds_;
  std::vector<Message> messages_;
  std::vector<std::size_t> begins_;
};

class ShiftedRounds final : public Rounds {
 public:
  enum class Shift : std::uint8_t { by_one, further_each_round };
  ShiftedRounds(Shift shift, Collective collective, int ranks)
      : shift_(shift), ranks_(ranks), rounds_((ranks - 1) * (collective == Collective::all_reduce ? 2 : 1)) {}

  [[nodiscard]] int ranks() const override { return ranks_; }
  [[nodiscard]] int rounds() const override { return rounds_; }
  void exchange(int round, int rank, Exchange& into) const override {
    const int shift = shift_ == Shift::by_one ? 1 : round % (ranks_ - 1) + 1;
    into.sends.assign(1, {.peer = (rank + shift) % ranks_, .share = 1.0 / ranks_});
    into.receives.assign(1, {.peer = (rank + ranks_ - shift) % ranks_, .share = 1.0 / ranks_});
  }

 private:
  Shift shift_;
  int ranks_;
  int rounds_;
};

class AllToAllVRounds final : public Rounds {
 public:
  explicit AllToAllVRounds(algorithm::PairBytes pairs)
      : pairs_(std::move(pairs)), total_(static_cast<double>(pairs_.total())) {}

  [[nodiscard]] int ranks() const override { return pairs_.ranks; }
  [[nodiscard]] int rounds() const override { return (pairs_.ranks - 1) * (pairs_.chunks > 0 ? 2 : 1); }
  void exchange(int round, int rank, Exchange& into) const override {
    const int ranks = pairs_.ranks;
    const int shift = round % (ranks - 1) + 1;
    const bool counts = pairs_.chunks > 0 && round < ranks - 1;
    const auto message = [&](int peer, std::int64_t bytes, std::vector<Message>& messages) {
      messages.clear();
      if (bytes > 0) messages.push_back({.peer = peer, .share = static_cast<double>(bytes) / total_});
    };
    const int to = (rank + shift) % ranks;
    const int from = (rank + ranks - shift) % ranks;
    message(to, counts ? pairs_.counts_bytes() : pairs_.at(rank, to), into.sends);
    message(from, counts ? pairs_.counts_bytes() : pairs_.at(from, rank), into.receives);
  }

 private:
  algorithm::PairBytes pairs_;
  double total_;
};

class DirectRounds final : public Rounds {
 public:
  explicit DirectRounds(int ranks) : ranks_(ranks) {}

  [[nodiscard]] int ranks() const override { return ranks_; }
  [[nodiscard]] int rounds() const override { return ranks_ > 1 ? 1 : 0; }
  void exchange(int, int rank, Exchange& into) const override {
    into.sends.clear();
    for (int ahead = 1; ahead < ranks_; ++ahead)
      into.sends.push_back({.peer = (rank + ahead) % ranks_, .share = 1.0 / ranks_});
    into.receives.assign(into.sends.rbegin(), into.sends.rend());
  }

 private:
  int ranks_;
};

// Rounds along lines of one dimension after the other; a line's messages are those of its program, whatever
// the line.
class GridRounds final : public Rounds {
 public:
  explicit GridRounds(algorithm::Grid grid) : grid_(std::move(grid)), ranks_(grid_.ranks()) {}

  // `part` of the vector's bytes are what each line reduces, or has gathered at the end.
  void add(int dimension, std::shared_ptr<const Rounds> line, double part) {
    const int begin = rounds();
    stages_.push_back({.end = begin + line->rounds(),
                       .stride = grid_.stride(dimension),
                       .part = part,
                       .line = std::move(line)});
  }

  [[nodiscard]] int ranks() const override { return ranks_; }
  [[nodiscard]] int rounds() const override { return stages_.empty() ? 0 : stages_.back().end; }
  void exchange(int round, int rank, Exchange& into) const override {
    const auto stage = std::upper_bound(stages_.begin(), stages_.end(), round,
                                        [](int wanted, const Stage& other) { return wanted < other.end; });
    const int begin = stage->end - stage->line->rounds();
    const int member = rank / stage->stride % stage->line->ranks();
    stage->line->exchange(round - begin, member, into);
    for (std::vector<Message>* const messages : {&into.sends, &into.receives}) {
      for (Message& message : *messages) {
        message.peer = rank + (message.peer - member) * stage->stride;
        message.share *= stage->part;
      }
    }
  }

 private:
  struct Stage {
    int end = 0;  // its last round is the one before
    int stride = 1;
    double part = 1;
    std::shared_ptr<const Rounds> line;
  };

  algorithm::Grid grid_;
  int ranks_;
  std::vector<Stage> stages_;
};

bool is_of_shards(Collective collective) {
  return collective == Collective::reduce_scatter || collective == Collective::all_gather ||
         collective == Collective::all_reduce;
}

}  // namespace

std::shared_ptr<const Rounds> rounds_of(const algorithm::Program& program) {
  return std::make_shared<StoredRounds>(program);
}

std::shared_ptr<const Rounds> ring_rounds(Collective collective, int ranks) {
  return std::make_shared<ShiftedRounds>(ShiftedRounds::Shift::by_one, collective, ranks);
}

std::shared_ptr<const Rounds> pairwise_rounds(Collective collective, int ranks) {
  return std::make_shared<ShiftedRounds>(ShiftedRounds::Shift::further_each_round, collective, ranks);
}

std::shared_ptr<const Rounds> all_to_all_v_rounds(algorithm::PairBytes pairs) {
  algorithm::validate(pairs);
  return std::make_shared<AllToAllVRounds>(std::move(pairs));
}

std::shared_ptr<const Rounds> direct_rounds(int ranks) { return std::make_shared<DirectRounds>(ranks); }

std::shared_ptr<const Rounds> line_rounds(std::string_view algorithm, Collective collective, int members) {
  const bool can_be =
      members >= 1 && (collective == Collective::reduce_scatter || collective == Collective::all_gather);
  if (can_be && algorithm == "ring") return ring_rounds(collective, members);
  if (can_be && algorithm == "direct") return direct_rounds(members);
  return rounds_of(algorithm::line_program(algorithm, collective, members));
}

std::shared_ptr<const Rounds> grid_rounds(const algorithm::Grid& grid, const std::vector<int>& order,
                                          const std::vector<std::string_view>& algorithms,
                                          Collective collective) {
  algorithm::validate(grid);
  algorithm::validate_order(grid, order);
  if (algorithms.size() != grid.sizes.size() || !is_of_shards(collective))
    throw ConfigError(fmt::format(
        "{} algorithms for {} dimensions make no {} dimension by dimension: give one for each, and "
        "a reduce-scatter, an all-gather or an all-reduce",
        algorithms.size(), grid.sizes.size(), name_of(collective)));
  auto rounds = std::make_shared<GridRounds>(grid);
  std::vector<double> parts;  // by place in the order
  double part = 1;
  for (const int dimension : order) {
    parts.push_back(part);
    part /= grid.sizes[static_cast<std::size_t>(dimension)];
  }
  const auto add = [&](std::size_t place, Collective half) {
    const auto dimension = static_cast<std::size_t>(order[place]);
    rounds->add(order[place], line_rounds(algorithms[dimension], half, grid.sizes[dimension]), parts[place]);
  };
  if (collective != Collective::all_gather) {
    for (std::size_t place = 0; place < order.size(); ++place) add(place, Collective::reduce_scatter);
  }
  if (collective != Collective::reduce_scatter) {
    for (std::size_t place = order.size(); place-- > 0;) add(place, Collective::all_gather);
  }
  return rounds;
}

std::shared_ptr<const Rounds> make_rounds(const algorithm::Algorithm& algorithm, Collective collective,
                                          const algorithm::Shape& shape) {
  const bool can_be = algorithm::has(algorithm, collective) && shape.ranks >= 1 && shape.blocks >= 1 &&
                      shape.root >= 0 && shape.root < shape.ranks;
  if (can_be && algorithm.name == "ring" && is_of_shards(collective))
    return ring_rounds(collective, shape.ranks);
  if (can_be && algorithm.name == "pairwise" && collective != Collective::all_to_all_v)
    return pairwise_rounds(collective, shape.ranks);
  return rounds_of(algorithm::make_program(algorithm, collective, shape));
}

}  // namespace dear::fabric
