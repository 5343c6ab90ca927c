#include <cmath>
#include <cstddef>

#include "dear/predict/tune/observations.h"
#include "dear/predict/tune/ways.h"

namespace dear::tune {
namespace {

class Grid final : public ListedTuner {
 public:
  Grid(const Candidates& candidates, const TunerOptions& options) : ListedTuner(candidates, options) {
    const std::size_t dimensions = candidates.front().position.size();
    const auto trials = static_cast<std::size_t>(options.trials);
    std::size_t steps = 1;
    const auto points = [&] { return std::pow(static_cast<double>(steps), static_cast<double>(dimensions)); };
    while (points() < static_cast<double>(trials)) ++steps;
    std::vector<std::vector<double>> positions;
    for (std::size_t point = 0; positions.size() < trials; ++point) {
      std::vector<double> position;
      for (std::size_t d = 0, rest = point; d < dimensions; ++d, rest /= steps)
        position.push_back((static_cast<double>(rest % steps) + 0.5) / static_cast<double>(steps));
      positions.push_back(position);
    }
    set_order(nearest_candidates(candidates, positions));
  }
};

}  // namespace

std::unique_ptr<Tuner> make_grid(const Candidates& candidates, const TunerOptions& options) {
  return std::make_unique<Grid>(candidates, options);
}

}  // namespace dear::tune
