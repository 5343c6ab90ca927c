#pragma once

#include <string>

namespace dear::studies {

// How long a study takes on 2 cores: what it does once, and what it does for each task that it trains on.
struct Duration {
  double once_seconds = 0;
  double task_seconds = 0;

  // "seconds" below a minute, "about 20 minutes on 2 cores", "about 3 hours on 2 cores".
  [[nodiscard]] std::string text(int tasks) const;
};

}  // namespace dear::studies
