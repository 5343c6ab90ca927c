#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/custom_class.h>
#include <torch/types.h>

#include "dear/systems/moe/expert_group.h"

// Which rows of one part of a batch go where, and their two all-to-alls: to experts and back. In the backward
// pass two more go the other way.
namespace dear::systems::moe {

// The choices of a part's tokens, one token after another: choice c of token t is t * choices + c.
struct Placed {
  std::vector<std::int32_t> experts;  // by choice
  std::vector<std::int64_t> slots;    // by choice: its place at the expert; methods::moe::kDropped for none
  std::vector<std::int64_t> counts;   // by expert
};

// The rows that a part of all ranks' batches brings to the experts of this rank: one expert's after
// another's, of each by rank, filled up (weights.h).
class Arriving {
 public:
  Arriving(std::vector<std::int64_t> counts, std::int64_t experts_here);  // [rank][expert here]

  [[nodiscard]] std::int64_t ranks() const { return std::ssize(counts_) / here_; }
  [[nodiscard]] std::int64_t experts() const { return here_; }
  [[nodiscard]] const std::vector<std::int64_t>& counts() const { return counts_; }
  [[nodiscard]] std::int64_t count(std::int64_t rank, std::int64_t expert) const {
    return counts_[static_cast<std::size_t>(rank * here_ + expert)];
  }
  [[nodiscard]] std::int64_t begin_of(std::int64_t expert) const {
    return begins_[static_cast<std::size_t>(expert)];
  }
  [[nodiscard]] std::int64_t rows() const { return begins_.back(); }
  // Where the rows of an expert from a rank begin.
  [[nodiscard]] std::int64_t begin_of(std::int64_t rank, std::int64_t expert) const;

 private:
  std::vector<std::int64_t> counts_;
  std::int64_t here_;
  std::vector<std::int64_t> begins_;  // by expert; and their end
};

// The all-to-alls of a part. Between a launch and the take of the same rows nothing else of this part is
// launched.
class Exchange : public torch::CustomClassHolder {
 public:
  struct Options {
    std::shared_ptr<ExpertGroup> group;
    std::string name;       // of the mixture and part, for traces
    std::int64_t room = 1;  // rows of an expert from this part of a rank, at most
    int choices = 1;        // of a token
    bool at_once = false;   // wait where it is launched
  };
  Exchange(Options options, Placed placed);

  [[nodiscard]] int choices() const { return options_.choices; }
  [[nodiscard]] const Placed& placed() const { return placed_; }
  // What arrived: after the first take_at_experts().
  [[nodiscard]] const std::shared_ptr<const Arriving>& arriving() const { return arriving_; }

  // To the experts: rows by token, each for all its choices, or by choice.
  void launch_to_experts(const char* what, const torch::Tensor& rows);
  [[nodiscard]] torch::Tensor take_at_experts();  // [rows of Arriving, width], zeros where filled up
  // Back: rows as take_at_experts() returns them.
  void launch_back(const char* what, const torch::Tensor& rows);
  [[nodiscard]] torch::Tensor take_back();  // [tokens, choices, width], zeros where dropped

 private:
  void launch(const char* what, const torch::Tensor& rows, const std::vector<std::int64_t>& sends,
              const std::function<void(std::byte* to, const std::byte* from)>& fill);
  torch::Tensor take(std::int64_t rows,
                     const std::function<void(std::byte* to, const std::byte* from)>& copy);
  [[nodiscard]] std::int64_t row_of(std::size_t choice) const {
    return placed_.experts[choice] * options_.room + placed_.slots[choice];
  }

  Options options_;
  Placed placed_;
  std::shared_ptr<const Arriving> arriving_;
  std::shared_ptr<ExpertGroup::UnderWay> under_way_;
  ExpertGroup::Shape shape_;
  torch::TensorOptions type_;
};

}  // namespace dear::systems::moe
