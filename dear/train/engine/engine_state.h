#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <torch/types.h>

#include "dear/base/vocabulary/range.h"
#include "dear/train/optim/sharded_optimizer.h"

namespace dear::train {

class Engine;

// EngineState reads the state of an engine's optimiser parameter by parameter, although it lies in shards.
// One bucket's vector at a time is whole in memory. While nothing is at work; on the program's thread.
class EngineState {
 public:
  explicit EngineState(Engine& engine) : engine_(engine) {}

  // By parameter, the same on every rank; none for one without state.
  using Outlines = std::vector<std::optional<optim::ShardedOptimizer::Outline>>;
  [[nodiscard]] Outlines outlines();  // all ranks together

  // Shows every vector of `outlines`, in the parameter's shape and valid during the call, on every rank,
  // bucket by bucket. All ranks together; `visit` must not throw on some of them only.
  using Visit =
      std::function<void(std::size_t parameter, const std::string& vector, const torch::Tensor& values)>;
  void visit(const Outlines& outlines, const Visit& visit);

  // Elements of a parameter's vector that this rank is to save: those of all ranks are each element once.
  struct Piece {
    std::size_t parameter;
    std::string vector;
    std::int64_t begin;    // of the parameter's elements, in the order in which they lie in memory
    torch::Tensor values;  // 1-D, shared with the optimiser
  };
  void visit_own(const std::function<void(const Piece&)>& visit);

  // Who has the values that are put back. `spread`: each rank has some elements, and zeros in place of the
  // others'.
  enum class Holder : std::uint8_t { every_rank, rank_0, spread };
  // Returns a vector of a parameter, in its shape and of its type, or fp32 beside a master; valid until the
  // next call.
  using Fetch = std::function<torch::Tensor(std::size_t parameter, const std::string& vector)>;
  struct Values {
    Fetch fetch;  // with Holder::rank_0 it is called on rank 0 alone
    Holder holder = Holder::every_rank;
    // With Holder::spread. Whether this rank has all these elements, in the order in which they lie in
    // memory.
    std::function<bool(std::size_t parameter, const std::string& vector, const Range& elements)> has{};
    // replace() will not fetch the vector again.
    std::function<void(std::size_t parameter, const std::string& vector)> forget{};
  };
  // Replaces the state by that of `outlines`, which are the same on every rank. All ranks together, unless
  // every rank has the values. With Holder::spread nothing travels where each rank has what it updates.
  void replace(const Outlines& outlines, const Values& values);

 private:
  [[nodiscard]] optim::ShardedOptimizer::Outlines by_tensor(const Outlines& outlines) const;
  [[nodiscard]] std::set<std::string> vectors_in(std::uint32_t bucket, const Outlines& outlines) const;
  void fill(torch::Tensor& flat, std::uint32_t bucket, const std::string& vector, const Outlines& outlines,
            const Fetch& fetch);
  [[nodiscard]] bool has_own(const Outlines& outlines, const Values& values) const;

  Engine& engine_;
};

}  // namespace dear::train
