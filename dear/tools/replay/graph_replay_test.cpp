#include "dear/tools/replay/graph_replay.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/tools/replay/testing/two_ranks.h"

namespace dear::graph_replay_test {
namespace {

using dear::testing::on_two_ranks;
using ::testing::Each;
using ::testing::HasSubstr;

// A step of computation, an all-reduce after it, a broadcast from rank 1, a reduce to rank 0 every second
// iteration, and the commit, which waits for all of them.
struct Job {
  Job() {
    const LaneId compute = graph.add_lane(), network = graph.add_lane();
    const StepId work = graph.add_step(compute);
    const StepId sum = graph.add_step(network), sent = graph.add_step(network);
    const StepId reduced = graph.add_step(network, {.period = 2});
    commit = graph.add_step(compute);
    graph.add_edge({work, sum});
    for (const StepId step : {sum, sent, reduced}) graph.add_edge({step, commit});
  }
  GraphReplay replay(std::uint64_t digest) const {
    return {.graph = graph,
            .commit = commit,
            .seconds = [this](Instance which) { return which.step == commit ? 5e-4 : 1e-3; },
            .carried = {std::nullopt, GraphReplay::Carried{.elements = 1000},
                        GraphReplay::Carried{.collective = Collective::broadcast, .elements = 77, .root = 1},
                        GraphReplay::Carried{.collective = Collective::reduce, .elements = 5, .root = 0},
                        std::nullopt},
            .name = "test",
            .digest = digest,
            .name_of = [](StepId step) { return fmt::format("step {}", step); }};
  }
  Graph graph;
  StepId commit = 0;
};

TEST(GraphReplay, RunsEveryStepInOrder) {
  const Job job;
  std::vector<Replayed> runs(2);
  const std::vector<std::string> errors =
      on_two_ranks([&](int rank, Group& group) { runs[rank] = replay(job.replay(1), 6, group); });
  EXPECT_THAT(errors, Each("ok"));
  for (const Replayed& run : runs) {
    EXPECT_EQ(run.iteration_seconds.size(), 5U);
    std::vector<int> count(5);
    for (const conductor::StepSpan& span : run.spans) {
      ++count[span.which.step];
      EXPECT_LE(span.begin_seconds, span.end_seconds);
    }
    EXPECT_THAT(count, ::testing::ElementsAre(6, 6, 6, 3, 6)) << "the reduce rests in every second iteration";
    for (const double seconds : run.iteration_seconds) EXPECT_GE(seconds, 1.5e-3);
  }
}

TEST(GraphReplay, RefusesRanksThatReplayOtherThings) {
  const Job job;
  const std::vector<std::string> errors = on_two_ranks(
      [&](int rank, Group& group) { replay(job.replay(static_cast<std::uint64_t>(rank)), 4, group); });
  EXPECT_THAT(errors, Each(HasSubstr("replay")));
  EXPECT_EQ(errors[0], errors[1]);
  EXPECT_THAT(on_two_ranks([&](int, Group& group) { replay(job.replay(1), 1, group); }),
              Each(HasSubstr("iterations")));
}

}  // namespace
}  // namespace dear::graph_replay_test
