#include "dear/schedule/graph/critical_cycle.h"

#include <algorithm>
#include <map>

#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/policies/policy.h"
#include "dear/schedule/policies/testing/random_job.h"

namespace dear::critical_cycle_test {
namespace {

using testing::Random;

// The largest ratio of all elementary cycles, each found from its smallest step.
class BruteForce {
 public:
  BruteForce(const Schedule& schedule, const std::vector<double>& seconds)
      : seconds_(seconds), on_path_(seconds.size()) {
    for (const Edge& edge : edges_with_lanes(schedule)) {
      const auto [at, fresh] = back_.emplace(std::pair{edge.from, edge.to}, edge.back);
      if (!fresh) at->second = std::min(at->second, edge.back);
    }
    out_.resize(seconds.size());
    for (const auto& [ends, back] : back_) out_[ends.first].push_back(ends.second);
    for (root_ = 0; root_ < seconds.size(); ++root_) walk(root_, 0, 0);
  }
  double best() const { return best_; }
  std::uint32_t back(StepId from, StepId to) const { return back_.at({from, to}); }

 private:
  void walk(StepId step, double sum, std::uint32_t crossed) {
    on_path_[step] = true;
    sum += seconds_[step];
    for (const StepId next : out_[step]) {
      const std::uint32_t total = crossed + back_.at({step, next});
      if (next == root_) best_ = std::max(best_, sum / total);
      if (next > root_ && !on_path_[next]) walk(next, sum, total);
    }
    on_path_[step] = false;
  }

  const std::vector<double>& seconds_;
  std::map<std::pair<StepId, StepId>, std::uint32_t> back_;
  std::vector<std::vector<StepId>> out_;
  std::vector<bool> on_path_;
  StepId root_ = 0;
  double best_ = 0;
};

TEST(CriticalCycle, EqualsBruteForceOnRandomSchedules) {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const Workload workload = testing::random_workload(random, 3);
    const Grouping grouping = testing::random_grouping(random, workload);
    const Policy& policy = policies()[random.below(policies().size())];
    const Schedule schedule = testing::with_random_edges(random, make_schedule(policy, workload, grouping),
                                                         workload, grouping, random.below(6));
    // Small whole numbers make ties frequent.
    const bool ties = random.below(2) == 0;
    std::vector<double> seconds;
    for (std::size_t i = 0; i < schedule.steps().size(); ++i)
      seconds.push_back(ties ? static_cast<double>(random.below(4)) : random.unit());

    const BruteForce expected(schedule, seconds);
    const CriticalCycle found = critical_cycle(schedule.graph(), seconds);
    EXPECT_NEAR(found.seconds, expected.best(), 1e-12 * (1 + expected.best()));
    ASSERT_FALSE(found.steps.empty());
    double sum = 0;
    std::uint32_t crossed = 0;
    for (std::size_t i = 0; i < found.steps.size(); ++i) {
      sum += seconds[found.steps[i]];
      crossed += expected.back(found.steps[i], found.steps[(i + 1) % found.steps.size()]);
    }
    EXPECT_NEAR(sum / crossed, found.seconds, 1e-12 * (1 + found.seconds));
  }
}

TEST(CriticalCycle, NamesTheLaneThatIsNeverIdle) {
  const Workload workload{.name = "one layer",
                          .tensors = {{.name = "w", .elements = 1}},
                          .layers = {{.name = "only", .tensors = {0}}}};
  const Schedule schedule = make_wfbp(workload, group(workload, AllInOne{}));
  // forward, backward, commit, all-reduce, update: one chain that the next iteration repeats.
  const CriticalCycle cycle = critical_cycle(schedule.graph(), {1, 2, 0, 4, 8});
  EXPECT_DOUBLE_EQ(cycle.seconds, 15);
  EXPECT_EQ(critical_cycle(schedule.graph(), {1, 2, 0, 0, 8}).seconds, 11);
}

TEST(CriticalCycle, OfNoTimeIsNone) {
  const Workload workload{.name = "one layer",
                          .tensors = {{.name = "w", .elements = 1}},
                          .layers = {{.name = "only", .tensors = {0}}}};
  const Schedule schedule = make_dear(workload, group(workload, AllInOne{}));
  const CriticalCycle cycle =
      critical_cycle(schedule.graph(), std::vector<double>(schedule.steps().size(), 0.0));
  EXPECT_EQ(cycle.seconds, 0);
  EXPECT_FALSE(cycle.steps.empty());
  EXPECT_THROW(critical_cycle(schedule.graph(), {1, 2}), ScheduleError);
}

}  // namespace
}  // namespace dear::critical_cycle_test
