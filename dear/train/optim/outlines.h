#pragma once

#include <set>
#include <string>
#include <string_view>

#include "dear/train/optim/sharded_optimizer.h"

namespace dear::optim {

// Outlines tell other ranks which state of the optimiser a rank has, in an encoding of our own.
using Outlines = ShardedOptimizer::Outlines;
[[nodiscard]] std::string encoded(const Outlines& outlines);
// Sets those of the tensors that the text has. Of what encoded() returned.
void decode(std::string_view text, Outlines& outlines);
// The names of all vectors.
[[nodiscard]] std::set<std::string> vectors_of(const Outlines& outlines);

}  // namespace dear::optim
