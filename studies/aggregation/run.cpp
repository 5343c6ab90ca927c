#include "studies/aggregation/run.h"

#include "studies/aggregation/generated.h"
#include "studies/aggregation/sparse_sum.h"
#include <algorithm>
#include <cmath>
#include <exception>

#include <fmt/format.h>

#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/group/exchange.h"

namespace dear::studies::aggregation {
namespace {

constexpr double kTolerance = 1e-5;

void check(const RunOptions& options) {
  if (options.elements < 1 || options.steps < 1)
    throw ConfigError(fmt::format("an aggregation of {} elements in {} steps: both must be at least 1",
                                  options.elements, options.steps));
  if (!(options.density > 0 && options.density <= 1))
    throw ConfigError(fmt::format("density {} must be above 0 and at most 1", options.density));
}

// Returns the largest difference as a part of the largest sum.
double compared(std::span<const float> sums, std::span<const float> wanted, bool exact, int worker,
                std::int64_t step) {
  double largest = 0, difference = 0;
  std::size_t where = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(wanted[i])));
    const double error = std::abs(static_cast<double>(sums[i]) - static_cast<double>(wanted[i]));
    if (error <= difference) continue;
    difference = error;
    where = i;
    if (std::isnan(error)) break;
  }
  if (difference > (exact ? 0 : kTolerance * largest) || std::isnan(difference)) {
    throw Error(
        fmt::format("worker rank {}, step {}: the sketch gives {} as the sum of element {}, and the dense "
                    "exchange {}: this is a bug",
                    worker, step, sums[where], where, wanted[where]));
  }
  return largest > 0 ? difference / largest : 0;
}

// The part of one worker.
class Steps {
 public:
  Steps(Worker& worker, const Group& workers, const RunOptions& options)
      : worker_(worker),
        workers_(workers),
        options_(options),
        sketches_(worker, {.elements = options.elements,
                           .keys = options.density * static_cast<double>(options.elements),
                           .sketch = {.block = 1, .exact = options.exact},
                           .seed = options.seed}),
        values_(static_cast<std::size_t>(options.elements)),
        sums_(values_.size()),
        wanted_(values_.size()) {}

  RunResult run() {
    for (std::int64_t step = 0; step <= options_.steps; ++step) {
      generate({.density = options_.density,
                .workers = worker_.workers(),
                .integers = options_.exact,
                .seed = options_.seed},
               worker_.rank(), step, values_);
      Summed summed;
      measure(result_.sketch, [&] { summed = sketches_.add(values_, sums_); });
      measure(result_.dense, [&] { add_dense(worker_, values_, wanted_); });
      result_.largest_error =
          std::max(result_.largest_error, compared(sums_, wanted_, options_.exact, worker_.rank(), step));
      if (step == 0) {
        result_ = {};
        continue;
      }
      result_.keys = std::max(result_.keys, summed.keys);
      result_.peeling_rounds = std::max(result_.peeling_rounds, summed.rounds);
      if (summed.outcome != Outcome::sketch) ++result_.dense_exchanges;
    }
    return result_;
  }

 private:
  template <typename Function>
  void measure(Way& way, const Function& function) {
    const Traffic before = worker_.traffic();
    workers_.perform({.collective = Collective::barrier});
    const SteadyTime begin = SteadyClock::now();
    function();
    const double mine = std::chrono::duration<double>(SteadyClock::now() - begin).count();
    const std::vector<double> all = comm::all_gather_values(workers_, mine);
    way.seconds.push_back(*std::max_element(all.begin(), all.end()));
    way.traffic.sent += worker_.traffic().sent - before.sent;
    way.traffic.received += worker_.traffic().received - before.received;
  }

  Worker& worker_;
  const Group& workers_;
  const RunOptions options_;
  SparseSum sketches_;
  std::vector<float> values_, sums_, wanted_;
  RunResult result_;
};

}  // namespace

std::optional<RunResult> run(const Group& group, const RunOptions& options) {
  check(options);
  const bool adds = group.rank() == group.size() - 1 && group.size() > 1;
  const std::optional<Group> workers = group.split(adds ? -1 : 0, group.rank());
  if (adds) {
    Aggregator aggregator(group);
    while (aggregator.serve()) {
    }
    return std::nullopt;
  }
  try {
    Worker worker(group);
    RunResult result = Steps(worker, *workers, options).run();
    worker.finish();
    return result;
  } catch (const std::exception& error) {
    group.abort(error.what());
    throw;
  }
}

}  // namespace dear::studies::aggregation
