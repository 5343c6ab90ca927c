#include "bench/tuning/rivals.h"
#include <cstddef>
#include <numeric>
#include <utility>

#include "dear/predict/tune/draws.h"
#include "dear/predict/tune/observations.h"

namespace dear::bench {
namespace {

using namespace tune;  // NOLINT(google-build-using-namespace): a rival is written as the tuners there

class Random final : public ListedTuner {
 public:
  Random(const Candidates& candidates, const TunerOptions& options) : ListedTuner(candidates, options) {
    std::vector<std::size_t> order(candidates.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    Draws draws(options.seed);
    for (std::size_t left = order.size(); left > 1; --left)
      std::swap(order[left - 1], order[draws.below(left)]);
    set_order(std::move(order));
  }
};

}  // namespace

std::unique_ptr<Tuner> make_random(const Candidates& candidates, const TunerOptions& options) {
  return std::make_unique<Random>(candidates, options);
}

}  // namespace dear::bench
