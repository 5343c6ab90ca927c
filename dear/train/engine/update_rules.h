#pragma once

#include <string>
#include <vector>

#include "dear/train/optim/sharded_optimizer.h"

namespace dear::train {

// How parameters are updated: by whom, which of them one rank updates whole, and in which precision.
struct UpdateRules {
  // Why the program's optimiser updates the parameters, where they are, on every rank; "" where updates are
  // of shards. See [Note: updates of the program].
  std::string of_program{};
  // By trained parameter: the cost of its update where one rank makes it whole; 0 where shards may cut it.
  // What the options say, or else for a matrix of m rows and n columns (all dimensions but the first) m n
  // min(m, n), as an orthogonalisation takes, and for a vector its elements.
  std::vector<double> whole_costs{};
  optim::Widening widening{};

  [[nodiscard]] bool by_program() const { return !of_program.empty(); }
};

}  // namespace dear::train
