#pragma once

#include <map>
#include <string>
#include <vector>

#include <torch/types.h>

#include "dear/base/archive/value.h"
#include "dear/comm/group/group.h"
#include "dear/train/checkpoint/checkpoint.h"
#include "dear/train/checkpoint/loading.h"
#include "dear/train/checkpoint/saving.h"

// Parts of a checkpoint (CheckpointPart) are saved beside the model and the optimiser.
namespace dear::checkpoint {

// All ranks together.
PartTensors collect(const std::vector<CheckpointPart>& parts);
// Returns the parts as a value that says where the sink has the tensors.
archive::Value stored_parts(const PartTensors& parts, TensorSink& sink);

// Puts the parts back; all ranks together. What the file does not have is said, and not put back. `source` is
// read by rank 0 alone, or by every rank; see EngineState::Holder.
void restore_parts(const Source* source, train::EngineState::Holder holder, const Group& group,
                   const CheckpointOptions& options);

}  // namespace dear::checkpoint
