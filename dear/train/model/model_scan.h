#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <torch/types.h>

#include "dear/comm/group/group.h"
#include "dear/train/model/model.h"
#include "dear/train/optim/kept_state.h"
#include "dear/train/optim/optimizer.h"

namespace dear::train {

// A parameter that is trained, once, however many modules share it.
struct TrainedParameter {
  // The first under which the model registers it; "optimiser.1.0" for the first of the tensors in parameter
  // group 1 when no module does.
  std::string name;
  std::string module;  // that of the module which owns it; "" for the root
  torch::Tensor tensor;
  std::uint32_t parameter_group = 0;  // index of its parameter group in the optimiser
  std::vector<std::int64_t> strides;  // as they were found; it keeps them in buckets
};

struct ModelScan {
  Model model;  // that was scanned
  // In order of registration, then what the optimiser alone holds. Without parameters that have no elements.
  std::vector<TrainedParameter> trained;
  std::vector<torch::Tensor> frozen;  // parameters that do not require a gradient
  std::vector<torch::Tensor> gone;    // that the optimiser holds for a model that has them no longer
  std::vector<torch::Tensor> buffers;
  std::vector<std::vector<const c10::TensorImpl*>> held;  // by parameter group of the optimiser: its tensors
};

// ConfigError naming the parameter: trained but in no group of the optimiser; of a dtype or layout that
// buckets do not carry; the result of an operation, so that no gradient arrives at it. `had`: tensors that
// the model had once; those that the optimiser still holds are not trained.
ModelScan scan(const Model& model, const Optimizer& optimizer, const std::vector<torch::Tensor>& had = {});

// [Note: memory of others] What moves into a bucket is lost to whoever holds the parameter's memory
// otherwise: another tensor on it (a view, p.data, an array of NumPy, a buffer of all parameters, a frozen
// parameter), or another process. Such a parameter stays where it is, and so do all: the program updates them
// (Updates::program). Seen are tensors on the same storage, and memory that processes share; not seen is
// memory that no tensor owns, such as that of an array from which a parameter was made.
//
// Returns a sentence about the first trained parameter whose memory something else holds; nothing where
// there is none. `moved`: parameters that lie in buckets.
[[nodiscard]] std::optional<std::string> memory_of_others(const ModelScan& scanned,
                                                          const optim::TensorSet& moved = {});

// Looks the buffers up anew, where the model can say them.
void look_up_buffers(ModelScan& scanned);
// Their names, dtypes and shapes, for messages.
[[nodiscard]] std::string text_of_buffers(const ModelScan& scanned);

// ConfigError for a parameter that a DataParallel trains already.
void require_untrained(const TrainedParameter& parameter);

// Whether the optimiser still holds these tensors, and each is frozen or not as it was in the scan.
[[nodiscard]] bool is_as_scanned(const Optimizer& optimizer, const ModelScan& scanned);

// Looks for changes between the first backward of a step and step(). ConfigError for those that the step
// would not see: a gradient of a tensor that the scan had not as trained, and a trained tensor in another
// group.
void require_no_newcomers(const Group& group, const Optimizer& optimizer, const ModelScan& scanned);

// MismatchError on every rank, naming the first tensor in which a rank's model differs from rank 0's, or what
// differs of their optimisers.
void require_alike(const Group& group, const Model& model, const Optimizer& optimizer,
                   const ModelScan& scanned);

// Returns what the optimiser remembers of each of these tensors, with rank 0's values on every rank; all
// ranks call it together. MismatchError on every rank when they do not remember the same things.
using States = std::vector<std::optional<OptimizerState>>;
States initial_state(const Group& group, const Optimizer& optimizer,
                     const std::vector<torch::Tensor>& tensors);

[[nodiscard]] bool is_frozen(const ModelScan& scanned, const torch::Tensor& tensor);
[[nodiscard]] std::vector<torch::Tensor> tensors_of(const std::vector<TrainedParameter>& parameters);

}  // namespace dear::train
