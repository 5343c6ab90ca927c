#pragma once

#include <optional>
#include <vector>

#include "dear/train/optim/optimizer.h"

namespace dear::optim {

// What the optimiser remembered when training was saved, put back before the first step(), when there is no
// engine yet. For the program's thread; all ranks together.
class RestoredState {
 public:
  RestoredState() = default;
  virtual ~RestoredState() = default;
  RestoredState(const RestoredState&) = delete;
  RestoredState& operator=(const RestoredState&) = delete;
  // Gives the first engine what it is to have, between its making and its first update.
  virtual void give() = 0;
  // Returns the state by parameter, whole on every rank.
  [[nodiscard]] virtual std::vector<std::optional<OptimizerState>> whole() const = 0;
};

}  // namespace dear::optim
