#include "dear/fabric/rounds.h"

#include "dear/algorithm/grid.h"

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

std::shared_ptr<const Rounds> direct_rounds(int ranks) { return std::make_shared<DirectRounds>(ranks); }

std::shared_ptr<const Rounds> line_rounds(std::string_view algorithm, Collective collective, int members) {
  const bool can_be =
      members >= 1 && (collective == Collective::reduce_scatter || collective == Collective::all_gather);
  if (can_be && algorithm == "ring") return ring_rounds(collective, members);
  if (can_be && algorithm == "direct") return direct_rounds(members);
  return rounds_of(algorithm::line_program(algorithm, collective, members));
}

std::shared_ptr<const Rounds> make_rounds(const algorithm::Algorithm& algorithm, Collective collective,
                                          const algorithm::Shape& shape) {
  const bool can_be = algorithm::has(algorithm, collective) && shape.ranks >= 1 && shape.blocks >= 1 &&
                      shape.root >= 0 && shape.root < shape.ranks;
  if (can_be && algorithm.name == "ring" && is_of_shards(collective))
    return ring_rounds(collective, shape.ranks);
  if (can_be && algorithm.name == "pairwise") return pairwise_rounds(collective, shape.ranks);
  return rounds_of(algorithm::make_program(algorithm, collective, shape));
}

}  // namespace dear::fabric
