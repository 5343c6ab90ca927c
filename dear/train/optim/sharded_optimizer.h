#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <torch/types.h>

#include "dear/base/vocabulary/ids.h"
#include "dear/base/vocabulary/range.h"
#include "dear/train/optim/optimizer.h"
#include "dear/train/optim/stochastic_rounding.h"

namespace dear::optim {

// [Note: master parameters] Steps that are small beside a parameter are lost when it has 8 or 11 bits of
// precision. With masters the flat optimiser updates fp32 copies of what this rank updates, with gradients
// widened to fp32 and state in fp32; then the bucket gets the rounded values. Where the bucket does not hold
// what was rounded last, the program wrote there, and its value becomes the master. Masters travel with the
// optimiser's state, as one more vector of it (kMaster).
// With stochastic rounding and no masters, the copies are made for each update, from the bucket.
enum class Masters : std::uint8_t { none, fp32 };
inline constexpr const char* kMaster = "master_parameter";

// Widening says in which precision parameters of 16 bits are updated, and how the results get there.
struct Widening {
  Masters masters = Masters::none;
  std::optional<RoundingKey> rounding{};  // of bf16; see [Note: stochastic rounding]

  // Whether parameters of this type are updated in fp32; state is in fp32 then.
  [[nodiscard]] bool widens(at::ScalarType type) const {
    return (masters == Masters::fp32 && (type == at::kHalf || type == at::kBFloat16)) ||
           (rounding && type == at::kBFloat16);
  }
};

// The program's optimiser on the parts of buckets that this rank updates. An elementwise update of a flat
// vector is, element for element, the update of the tensors in it, so a rank may update any part of a bucket
// by itself. A FlatOptimizer computes; this class knows which tensors lie in which vector.
class ShardedOptimizer {
 public:
  // The part of a run that belongs to one tensor: [begin, end), its own elements first, then padding.
  struct Stretch {
    TensorId tensor;
    std::int64_t begin, end, elements;
    std::int64_t offset = 0;  // in the tensor, of its first element
  };
  // A part of a bucket that one parameter group updates, 1-D, and its gradient; or a whole tensor, in its
  // shape. Stretches cover it, ascending.
  struct FlatRun {
    std::uint32_t parameter_group;
    torch::Tensor parameters;
    torch::Tensor gradients;
    std::vector<Stretch> stretches;
  };

  // Adds to the sums over this rank's parts of tensors those of the other ranks. Called in each update of a
  // part, on every rank, also where it has no runs.
  using SumsOfTensors = std::map<TensorId, std::vector<ExactSum>>;
  using SumOverRanks = std::function<void(std::size_t part, SumsOfTensors& sums)>;

  // Parts are what is updated at a time: buckets, or chunks of them. `norms`: that an update takes
  // (Optimizer::norms()); with them the stretches of a run are of one tensor.
  ShardedOptimizer(std::unique_ptr<FlatOptimizer> flat_optimizer, std::size_t parameter_groups,
                   std::vector<std::vector<FlatRun>> runs_by_part, const Widening& widening,
                   std::size_t norms = 0, SumOverRanks sum_over_ranks = {});

  // See FlatOptimizer.
  void capture_options() { flat_optimizer_->capture_options(); }
  [[nodiscard]] bool has_current_options() const { return flat_optimizer_->has_current_options(); }
  [[nodiscard]] std::vector<torch::Tensor> option_tensors() const {
    return flat_optimizer_->option_tensors();
  }
  // Updates so far, in this object and, as its rounding says, before it. Between two iterations.
  [[nodiscard]] std::int64_t updates() const { return updates_.empty() ? 0 : updates_.front(); }
  // Leaves out tensors whose gradient is marked as unused: see [Note: unused parameters]. Of a device, whose
  // memory the host does not read, those that leave_out() has named.
  void update(std::size_t part);

  // Leaves tensors, by TensorId, out of updates: on a device those that no rank has a gradient for. Between
  // two iterations.
  void leave_out(std::vector<bool> tensors) { left_out_ = std::move(tensors); }

  // [Note: steps that a device gives up] Whether a step is taken may be known to the device alone: whether
  // gradients of a scaled loss overflowed, which a GradScaler finds out there. The host enqueues the step
  // then, and it changes nothing where the flag on the device says so. What a first step does is different,
  // as it makes the state; so the first step of these runs is one that the host knows to be taken.
  [[nodiscard]] bool skips_on_device() const;
  // Until it is undefined again, updates change nothing where `found` is 1 (FlatOptimizer::step_unless()).
  // Where skips_on_device(). Between two iterations.
  void skip_where(torch::Tensor found) { found_ = std::move(found); }

  // Bytes of the flat optimiser's vectors, and of masters. Not during an update.
  struct Memory {
    std::int64_t state = 0, masters = 0;
  };
  [[nodiscard]] Memory memory() const;

  // An Outline holds what the flat optimiser remembers of a tensor, without the values of its vectors.
  struct Outline {
    std::set<std::string> vectors;
    std::string scalars;
    friend bool operator==(const Outline&, const Outline&) = default;
  };
  using Outlines = std::vector<std::optional<Outline>>;  // by tensor; none for a tensor without state
  // Sets those of the tensors of which this rank has runs in the part.
  void read_outlines(std::size_t part, Outlines& outlines) const;
  // `flat` is a vector over the whole bucket of the part, of which the values of this rank's runs are
  // written. Not during an update.
  void read_state(std::size_t part, const std::string& vector, torch::Tensor& flat) const;
  // The values of one vector of a tensor's elements that this rank has: 1-D, shared; padding is not among
  // them.
  struct StretchOfState {
    TensorId tensor;
    const std::string& vector;
    std::int64_t begin;  // in the bucket's flat vector
    torch::Tensor values;
  };
  void visit_state(std::size_t part, const std::function<void(const StretchOfState&)>& visit) const;
  // Replaces the state of this rank's runs in the part. `flat` has, by name, vectors over the whole bucket.
  void write_state(std::size_t part, const Outlines& outlines,
                   const std::map<std::string, torch::Tensor>& flat);

 private:
  // Tensors with one history: updated together as often as each of them was. [Note: unused parameters]
  struct Run {
    torch::Tensor parameters;  // that the flat optimiser updates: those of the bucket, or their masters
    torch::Tensor in_bucket, gradients;
    std::vector<Stretch> stretches;
    std::uint32_t group = 0;
    [[nodiscard]] bool is_wide() const { return parameters.scalar_type() != in_bucket.scalar_type(); }
  };
  using Runs = std::vector<Run>;
  [[nodiscard]] Runs cut(const Run& run, const std::vector<std::size_t>& borders);
  // What the flat optimiser remembers, and the master; empty where there is nothing.
  [[nodiscard]] std::optional<OptimizerState> state_of(const Run& run) const;
  // Cuts runs between neighbours that are not alike.
  void separate(Runs& runs, const std::function<bool(const Run&, const Stretch&, const Stretch&)>& alike);

  // Before an update of a run that is wide, and after it.
  void widen(Run& run) const;
  void narrow(Run& run, std::int64_t update) const;
  // Both halves of a step, with norms of whole tensors in between. `tensors`: those that `updated` are of.
  void step_with_norms(std::size_t part, const std::vector<std::vector<torch::Tensor>>& updated,
                       const std::vector<TensorId>& tensors);

  std::unique_ptr<FlatOptimizer> flat_optimizer_;
  std::vector<std::vector<Runs>> runs_;  // by part, then by parameter group
  std::vector<std::int64_t> updates_;    // by part
  std::vector<bool> begun_;              // by part: updated, since state was last given
  std::vector<bool> left_out_;           // by tensor; empty for none
  torch::Tensor found_;                  // see [Note: steps that a device gives up]
  Widening widening_;
  std::size_t norms_;
  SumOverRanks sum_over_ranks_;
};

// make_idle() returns the flat optimiser of a rank without runs: where the program's optimiser updates the
// parameters.
[[nodiscard]] std::unique_ptr<FlatOptimizer> make_idle();

// [Note: unused parameters] A parameter that no rank used in an iteration is not updated, as in plain
// libtorch, where its gradient is undefined: its state and its step count stay as they were. Ranks tell each
// other by the gradient itself. Buckets hold +0.0 before a backward pass adds to them, and a sum that begins
// with +0.0 is never -0.0. So a rank fills the gradient of a parameter that it did not use with -0.0: a sum
// over ranks is -0.0 in all elements only where each rank wrote it. That costs no message, and no look at
// gradients but at the first element of each tensor. A program that makes -0.0 of a gradient that
// is zero in all elements, as neg_() does, says the same.

// Marks these elements of a flat vector of gradients, unless one of them is not +0.0.
void mark_unused(torch::Tensor& gradients, const Range& elements);
[[nodiscard]] bool is_marked_unused(const torch::Tensor& gradients, const Range& elements);  // of one tensor

}  // namespace dear::optim
