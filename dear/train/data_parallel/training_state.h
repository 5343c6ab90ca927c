#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "dear/comm/group/group.h"
#include "dear/train/data_parallel/compression_state.h"
#include "dear/train/engine/engine_state.h"
#include "dear/train/model/model.h"
#include "dear/train/model/model_scan.h"
#include "dear/train/optim/optimizer.h"

namespace dear {

class DataParallel;

namespace train {

// What the optimiser remembered when training was saved, to be put into a DataParallel: before its first
// step(), which then takes it over, or later.
struct Restored {
  EngineState::Outlines outlines;  // the same on every rank
  EngineState::Values values;      // may be fetched until the end of the next step()
  std::optional<CompressionStates> compression{};
};

// TrainingState saves a DataParallel and puts it back. For the time of one call between a step() and the next
// backward.
class TrainingState {
 public:
  // All ranks together: waits until parameters are whole. ConfigError, on every rank, where a gradient of the
  // next step has arrived, and in a join, whose ranks without data could not follow; MismatchError on every
  // rank where one makes another call, or after another step.
  explicit TrainingState(DataParallel& parallel);
  // Waits until parameters are whole on this rank alone, which may then tell the others something of a
  // checkpoint; the same errors.
  static void settle(DataParallel& parallel);

  [[nodiscard]] const Group& group() const;
  [[nodiscard]] const Model& model() const;
  [[nodiscard]] const std::vector<TrainedParameter>& trained() const;                 // outlines are by these
  static const std::vector<TrainedParameter>& trained(const DataParallel& parallel);  // at any time
  [[nodiscard]] std::optional<std::size_t> index_of(const torch::Tensor& tensor) const;  // in trained()
  [[nodiscard]] Optimizer& optimizer() const;
  [[nodiscard]] bool fp32_masters() const;
  // Returns the type of the vectors that the optimiser keeps of a parameter of this type.
  [[nodiscard]] at::ScalarType state_type(at::ScalarType parameter) const;

  // See EngineState. Before the first step(), and on a rank that trains alone: of the program's optimiser, or
  // of what was put back.
  [[nodiscard]] EngineState::Outlines outlines();
  void visit(const EngineState::Outlines& outlines, const EngineState::Visit& visit);
  void visit_own(const std::function<void(const EngineState::Piece&)>& visit);
  // None without compression, or before the first step().
  [[nodiscard]] std::optional<CompressionStates> compression();

  // Puts values into the tensors of the model, and into those that only the optimiser holds: `value` returns
  // that of a name, in the tensor's shape, or an undefined tensor, which changes nothing, valid until the
  // next call; rank 0's count, where it alone is called, or every rank's own, or what ranks have together.
  // All ranks together.
  using Value = std::function<torch::Tensor(const std::string& name)>;
  void set_model(const Value& value, EngineState::Holder holder);
  void set_optimizer(Restored restored);

 private:
  class Waiting;
  DataParallel& parallel_;
  std::unordered_map<const c10::TensorImpl*, std::size_t> index_of_;
};

}  // namespace train
}  // namespace dear
