#pragma once

#include <string>

#include "dear/comm/group/group.h"
#include "dear/systems/pipeline/parameters.h"
#include "dear/train/checkpoint/checkpoint.h"

namespace torch::optim {
class Optimizer;
}

// One file of a pipeline and its optimiser, in the form of checkpoints. See Pipeline::save() and load(). All
// ranks together.
namespace dear::systems::pipeline {

void save(const Group& group, const Parameters& parameters, torch::optim::Optimizer& optimizer,
          const std::string& path, const Position& position);
Position load(const Group& group, const Parameters& parameters, torch::optim::Optimizer& optimizer,
              const std::string& path);

}  // namespace dear::systems::pipeline
