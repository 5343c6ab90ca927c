#include "dear/comm/shaped/shaped.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/group/single.h"
#include "dear/comm/shm/testing/ranks.h"
#include "dear/comm/shm/testing/shm_threads.h"
#include "dear/platform/cost/ring.h"

namespace dear::backends::shaped_test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

using Nanoseconds = std::chrono::nanoseconds;

// Four ranks in name; its collectives are asked for when the test says and take no time.
class Scripted final : public Backend {
 public:
  struct Script {
    SteadyTime begin{};
    std::string aborted;
  };
  explicit Scripted(std::shared_ptr<Script> script) : script_(std::move(script)) {}
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 4; }
  [[nodiscard]] std::string description() const override { return "scripted"; }
  Buffer allocate(std::int64_t bytes, Deadline deadline) override {
    return comm::make_single()->allocate(bytes, deadline);
  }
  Timing run(const Request& /*request*/, Deadline /*deadline*/) override {
    return {.begin = script_->begin + std::chrono::hours(1), .end = script_->begin, .asked = script_->begin};
  }
  std::unique_ptr<Backend> split(const Subgroup& /*subgroup*/, Deadline /*deadline*/) override {
    return std::make_unique<Scripted>(script_);
  }
  void abort(const std::string& reason) noexcept override { script_->aborted = reason; }

 private:
  std::shared_ptr<Script> script_;
};

class Shaped : public ::testing::Test {
 protected:
  // 1 us a message, 1 ns a byte.
  const Network network_{.name = "slow string",
                         .link = {.alpha_seconds = 1e-6, .beta_seconds_per_byte = 1e-9}};
  std::shared_ptr<Scripted::Script> script_ = std::make_shared<Scripted::Script>();
  std::unique_ptr<Backend> backend_ = make_shaped(std::make_unique<Scripted>(script_), network_);

  static Deadline soon() { return Deadline::after(std::chrono::seconds(60)); }
  static Request of(Collective collective, std::int64_t count = 1000) {
    Request request{.collective = collective};
    request.view.count = count;
    return request;
  }
};

TEST_F(Shaped, TakesTheTimeOfARing) {
  const std::vector<std::pair<Collective, Nanoseconds>> costs{
      {Collective::reduce_scatter, Nanoseconds(6000)},  // 3 messages of 1 us, 3/4 of 4000 bytes
      {Collective::all_gather, Nanoseconds(6000)},     {Collective::all_reduce, Nanoseconds(12000)},
      {Collective::broadcast, Nanoseconds(7000)},      {Collective::all_to_all, Nanoseconds(6000)},
      {Collective::barrier, Nanoseconds(3000)},        {Collective::reduce, Nanoseconds(7000)},
  };
  for (const auto& [collective, cost] : costs) {
    const auto idle = make_shaped(std::make_unique<Scripted>(script_), network_);
    script_->begin = SteadyClock::now();
    const Timing timing = idle->run(of(collective), soon());
    EXPECT_EQ(timing.begin, script_->begin) << name_of(collective);
    EXPECT_LE(std::chrono::abs(timing.end - timing.begin - cost), Nanoseconds(1)) << name_of(collective);
  }
}

TEST_F(Shaped, CarriesOneCollectiveAtATime) {
  script_->begin = SteadyClock::now();
  const Timing first = backend_->run(of(Collective::all_reduce), soon());
  const Timing second = backend_->run(of(Collective::all_gather), soon());
  EXPECT_EQ(second.begin, first.end);
  EXPECT_LE(std::chrono::abs(second.end - second.begin - Nanoseconds(6000)), Nanoseconds(1));
}

TEST_F(Shaped, CarriesCollectivesOfAllItsGroupsOneAtATime) {
  const auto part = backend_->split({.members = {0, 1, 2, 3}, .number = 1}, soon());
  script_->begin = SteadyClock::now();
  const Timing first = backend_->run(of(Collective::all_reduce), soon());
  const Timing second = part->run(of(Collective::all_gather), soon());
  EXPECT_EQ(second.begin, first.end);
}

TEST_F(Shaped, SaysThatTheNetworkIsModelled) {
  EXPECT_EQ(backend_->modelled_network(), "slow string (alpha 1 us, 8 Gbit/s)");
  EXPECT_EQ(backend_->description(), "scripted, over a modelled network: slow string (alpha 1 us, 8 Gbit/s)");
}

TEST_F(Shaped, RefusesWhatTheTimeoutDoesNotAllow) {
  script_->begin = SteadyClock::now();
  const Request hours = of(Collective::all_gather, std::int64_t{1} << 42);
  const std::string report = testing::report_of([&] { backend_->run(hours, soon()); });
  EXPECT_THAT(report, HasSubstr("TimeoutError: all-gather of 4398046511104"));
  EXPECT_THAT(report, HasSubstr("raise the timeout"));
  EXPECT_THAT(script_->aborted, HasSubstr("raise the timeout"));
  EXPECT_EQ(testing::report_of([&] { backend_->run(of(Collective::barrier), soon()); }), report);
}

TEST(ShapedThreads, EndAtTheSameMomentOnAllRanks) {
  auto backends = testing::make_shm_threads(3);
  const Network network{.name = "n", .link = {.alpha_seconds = 2e-6, .beta_seconds_per_byte = 1e-9}};
  for (auto& backend : backends) {
    backend = make_shaped(std::move(backend), network);
  }
  constexpr int kMany = 20;
  std::vector<std::vector<SteadyTime>> begins(3, std::vector<SteadyTime>(kMany));
  const auto reports = comm::testing::run_on_threads(std::move(backends), {}, [&](Group& group) {
    const Buffer buffer = group.allocate(40'000);
    for (int i = 0; i < kMany; ++i) {
      const Timing timing = group.all_reduce({.buffer = buffer, .count = 10'000}, Reduction::sum).wait();
      EXPECT_GE(SteadyClock::now(), timing.end);  // the group delivers when it is due
      begins[static_cast<std::size_t>(group.rank())][static_cast<std::size_t>(i)] = timing.begin;
      EXPECT_GE(timing.end - timing.begin, Nanoseconds(61'000));
    }
  });
  EXPECT_THAT(reports, Each("ok"));
  EXPECT_THAT(begins, Each(begins[0]));
}

}  // namespace
}  // namespace dear::backends::shaped_test
