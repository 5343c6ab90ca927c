#include "dear/systems/edge/partel.h"

#include <numeric>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/testing/ranks.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/channels/testing/thread_channels.h"
#include "dear/comm/message_programs/program_backend.h"
#include "dear/comm/shaped/pair_links.h"
#include "dear/methods/edge/drawn_groups.h"

namespace dear::systems::edge::partel_test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

PartelJob job_of(std::string_view model, int groups, int workers, std::string_view scheme = "joint") {
  PartelJob job{.problem = {},
                .plan = {},
                .task = {.model = model,
                         .units = model == "network" ? 24 : 300,
                         .parts = workers,
                         .samples = 60,
                         .features = 5},
                .iterations = 6};
  job.problem = methods::edge::draw_groups(
      {.groups = groups, .workers = workers, .parameters = job.task.units, .bits_per_parameter = 64});
  job.plan = methods::edge::solve_paba(job.problem, scheme);
  return job;
}

std::vector<Group> groups_over(const PairCluster* links, int ranks, std::chrono::duration<double> timeout) {
  std::vector<Group> groups;
  for (auto& channels : channels::testing::make_thread_channels(ranks))
    groups.emplace_back(links == nullptr ? message_programs::make_program_backend(std::move(channels))
                                         : backends::make_shaped(std::move(channels), *links),
                        Group::Options{.timeout = timeout});
  return groups;
}

// On threads; what the server has, and the reports.
std::pair<PartelTrained, std::vector<std::string>> train(const PartelJob& job, bool over_links = false,
                                                         int ranks = 0) {
  PartelTrained trained;
  const PairCluster links = channels_of(job);
  std::vector<Group> groups =
      groups_over(over_links ? &links : nullptr, ranks > 0 ? ranks : job.ranks(), std::chrono::seconds(30));
  const int size = static_cast<int>(groups.size());
  const auto reports = os::testing::run_on_threads(size, [&](int rank) {
    const Group group = std::move(groups[static_cast<std::size_t>(rank)]);
    PartelTrained mine = train_partel(job, group);
    if (rank == 0) trained = std::move(mine);
  });
  return {trained, reports};
}

class Partel : public ::testing::TestWithParam<std::string_view> {};

TEST_P(Partel, IsGradientDescentWhateverThePlan) {
  for (const std::string_view scheme : {"equal", "joint"}) {
    const PartelJob job = job_of(GetParam(), 3, 2, scheme);
    const auto [trained, reports] = train(job);
    EXPECT_THAT(reports, Each("ok"));
    EXPECT_LE(trained.difference, 1e-10);
    // As one process descends, by the loss alone.
    const BlockTask task(job.task);
    std::vector<double> model = task.start();
    ASSERT_EQ(trained.losses.size(), 7U);
    for (const double loss : trained.losses) {
      EXPECT_NEAR(loss, task.loss(model), 1e-12);
      const std::vector<double> gradient = task.whole_gradient(model);
      for (std::size_t i = 0; i < model.size(); ++i) model[i] -= job.step_size * gradient[i];
    }
    EXPECT_LT(trained.losses.back(), trained.losses.front());
  }
}
INSTANTIATE_TEST_SUITE_P(Of, Partel, ::testing::Values("logistic", "network"),
                         [](const auto& test) { return std::string(test.param); });

// Nothing is sooner than links and processors allow; how near it comes is measured (bench).
TEST(PartelOverChannels, TakesNoLessThanThePlan) {
  PartelJob job = job_of("logistic", 3, 1);
  const auto [trained, reports] = train(job, true);
  EXPECT_THAT(reports, Each("ok"));
  EXPECT_LE(trained.difference, 1e-10);
  for (const double seconds : trained.seconds) EXPECT_GE(seconds, 0.999 * job.plan.whole_seconds);
}

TEST(PartelOverChannels, TakeABlockAsLongAsItsBandDoes) {
  const PartelJob job = job_of("logistic", 3, 2);
  const PairCluster links = channels_of(job);
  validate(links);
  ASSERT_EQ(links.devices.size(), 7U);
  for (int rank = 1; rank < 7; ++rank) {
    const int group = (rank - 1) / 2, worker = (rank - 1) % 2;
    const auto block = static_cast<double>(job.plan.whole[static_cast<std::size_t>(group)]);
    if (block == 0) continue;
    const methods::edge::Worker& of =
        job.problem.groups[static_cast<std::size_t>(group)][static_cast<std::size_t>(worker)];
    const double compute = of.cycles_per_parameter * block / of.frequency_hz;
    const double sum = links.transfer_seconds(0, rank, 8 * (block + 30)) +
                       links.latency_seconds[0][static_cast<std::size_t>(rank)] + compute +
                       links.transfer_seconds(rank, 0, 8 * block);
    const double planned = methods::edge::seconds_of(
        of, job.problem, block,
        job.plan.bandwidth[static_cast<std::size_t>(group)][static_cast<std::size_t>(worker)]);
    EXPECT_NEAR(sum, planned, 1e-9 * planned);
  }
}

TEST(Partel, IsRefusedOnOtherRanksAndForOtherBlocks) {
  const PartelJob job = job_of("logistic", 3, 1);
  EXPECT_THAT(train(job, false, 3).second, Each(HasSubstr("start 4")));
  PartelJob other = job;
  --other.plan.whole[0];
  EXPECT_THAT(train(other).second, Each(HasSubstr("300 units")));
}

}  // namespace
}  // namespace dear::systems::edge::partel_test
