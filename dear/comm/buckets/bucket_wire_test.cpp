#include "dear/comm/buckets/bucket_wire.h"

#include <array>
#include <future>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/shm/testing/shm_threads.h"
#include "dear/schedule/policies/policy.h"

namespace dear::buckets::bucket_wire_test {
namespace {

constexpr std::int64_t kCount = 100;

float* floats(const View& view) { return reinterpret_cast<float*>(view.buffer.data()); }

// One rank's wire, whose collectives a test awaits one by one.
struct Rank {
  explicit Rank(std::unique_ptr<Backend> backend)
      : group(std::move(backend), {}),
        flat{.parameters = {group.allocate(kCount * 4), 0, kCount, DType::f32},
             .gradients = {group.allocate(kCount * 4), 0, kCount, DType::f32},
             .bucket_bytes = kCount * 4},
        decision{.buffer = group.allocate(kDecisionBytes), .count = kDecisionBytes, .dtype = DType::u8},
        wire(group, {flat}, [this](const conductor::StepEnd& end) { ended.set_value(end); },
             {.decision = decision}) {}

  conductor::StepEnd run(Collective op, Payload payload, Range chunk = kWholeBucket) {
    ended = {};
    auto result = ended.get_future();
    wire.start({.step = 7, .iteration = 3}, {.work = Communicate{op, payload, 0, chunk}, .lane = 0});
    return result.get();
  }

  Group group;
  BucketWire::Flat flat;
  View decision;
  std::promise<conductor::StepEnd> ended;
  BucketWire wire;
};

void on_two_ranks(const std::function<void(int, Rank&)>& program) {
  auto backends = backends::testing::make_shm_threads(2);
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      Rank rank(std::move(backends[r]));
      program(r, rank);
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(BucketWire, CarriesOutAheadOfTheStepOnce) {
  const Workload workload{.name = "one", .tensors = {{"weight", kCount}}, .layers = {{"layer", {0}}}};
  const Schedule schedule = make_schedule(find_policy("serial"), workload, group(workload, AllInOne{}));
  StepId reduction = 0;
  while (!std::holds_alternative<Communicate>(schedule.steps()[reduction].work)) ++reduction;
  on_two_ranks([&](int r, Rank& rank) {
    const auto run = [&] {
      rank.ended = {};
      auto result = rank.ended.get_future();
      rank.wire.start({.step = reduction, .iteration = 0}, schedule.steps()[reduction]);
      return result.get();
    };
    float& last = floats(rank.flat.gradients)[kCount - 1];
    last = r == 0 ? 1.0F : 3.0F;
    rank.wire.carry_out(schedule, {reduction});
    EXPECT_EQ(last, 2.0F);
    if (r == 0) rank.wire.carry_out(schedule, {reduction});  // nothing is left to do
    last = r == 0 ? 1.0F : 3.0F;
    EXPECT_FALSE(run().error);
    EXPECT_EQ(last, r == 0 ? 1.0F : 3.0F);
    EXPECT_FALSE(run().error);
    EXPECT_EQ(last, 2.0F);
  });
}

TEST(BucketWire, AveragesGradientsAndGathersParameters) {
  on_two_ranks([](int r, Rank& rank) {
    const Range own = shard_of(kCount, DType::f32, 2, r);
    for (std::int64_t i = 0; i < kCount; ++i) {
      floats(rank.flat.gradients)[i] = static_cast<float>(r == 0 ? i : 3 * i);
    }
    const conductor::StepEnd reduced = rank.run(Collective::reduce_scatter, Payload::gradients);
    EXPECT_EQ(reduced.span.which, (Instance{.step = 7, .iteration = 3}));
    EXPECT_FALSE(reduced.error);
    for (std::int64_t i = own.begin; i < own.end; ++i) {
      EXPECT_EQ(floats(rank.flat.gradients)[i], 2.0F * static_cast<float>(i));
      floats(rank.flat.parameters)[i] = static_cast<float>(i) + 0.5F;
    }
    EXPECT_FALSE(rank.run(Collective::all_gather, Payload::parameters).error);
    for (std::int64_t i = 0; i < kCount; ++i) {
      EXPECT_EQ(floats(rank.flat.parameters)[i], static_cast<float>(i) + 0.5F);
    }
    EXPECT_FALSE(rank.run(Collective::all_gather, Payload::gradients).error);
    for (std::int64_t i = 0; i < kCount; ++i) {
      EXPECT_EQ(floats(rank.flat.gradients)[i], 2.0F * static_cast<float>(i));
    }
    EXPECT_FALSE(rank.run(Collective::all_reduce, Payload::gradients).error);
    EXPECT_EQ(floats(rank.flat.gradients)[kCount - 1], 2.0F * (kCount - 1));
  });
}

// 100 elements, cut at byte 200: at the border of two lines of 64 bytes before it, element 32.
TEST(BucketWire, MovesPiecesByThemselves) {
  on_two_ranks([](int r, Rank& rank) {
    const std::array<Range, 2> parts = {Range{0, 32}, Range{32, kCount}};
    const std::array<Range, 2> chunks = {Range{0, 200}, Range{200, kWholeBucket.end}};
    float* const gradients = floats(rank.flat.gradients);
    float* const parameters = floats(rank.flat.parameters);
    for (std::int64_t i = 0; i < kCount; ++i) gradients[i] = static_cast<float>(r == 0 ? i : 3 * i);
    for (const std::size_t at : {1U, 0U}) {
      SCOPED_TRACE(at);
      const Range& part = parts.at(at);
      EXPECT_FALSE(rank.run(Collective::reduce_scatter, Payload::gradients, chunks.at(at)).error);
      const Range own = shard_of(part.size(), DType::f32, 2, r);
      for (std::int64_t i = part.begin + own.begin; i < part.begin + own.end; ++i) {
        EXPECT_EQ(gradients[i], 2.0F * static_cast<float>(i));
        parameters[i] = static_cast<float>(i) + 0.5F;
      }
      if (at == 1U) {
        EXPECT_EQ(gradients[31], r == 0 ? 31.0F : 93.0F);  // of the other chunk: as it was
      }
      EXPECT_FALSE(rank.run(Collective::all_gather, Payload::parameters, chunks.at(at)).error);
      for (std::int64_t i = part.begin; i < part.end; ++i)
        EXPECT_EQ(parameters[i], static_cast<float>(i) + 0.5F);
    }
  });
}

TEST(BucketWire, AFailedCollectiveIsReported) {
  on_two_ranks([](int r, Rank& rank) {
    const auto op = r == 0 ? Collective::all_gather : Collective::all_reduce;
    const conductor::StepEnd ended = rank.run(op, Payload::gradients);
    ASSERT_TRUE(ended.error);
    EXPECT_THROW(std::rethrow_exception(ended.error), MismatchError);
    EXPECT_THROW(rank.wire.start({.step = 7, .iteration = 0},
                                 {.work = Communicate{op, Payload::gradients, 0}, .lane = 0}),
                 Error);
  });
}

TEST(BucketWire, CarriesTheDecisionOfRank0) {
  on_two_ranks([](int r, Rank& rank) {
    rank.decision.buffer.data()[kDecisionBytes - 1] = static_cast<std::byte>(r == 0 ? 17 : 0);
    EXPECT_FALSE(rank.run(Collective::broadcast, Payload::decision).error);
    EXPECT_EQ(rank.decision.buffer.data()[kDecisionBytes - 1], static_cast<std::byte>(17));
    BucketWire without(rank.group, {rank.flat}, [](const conductor::StepEnd&) {}, {});
    EXPECT_THROW(
        without.start({}, {.work = Communicate{Collective::broadcast, Payload::decision}, .lane = 0}),
        ScheduleError);
  });
}

TEST(BucketWire, RefusesWhatIsNotOfABucketOrNotOfAllRanks) {
  on_two_ranks([](int, Rank& rank) {
    for (const Communicate& work : {Communicate{Collective::broadcast, Payload::buffers},
                                    Communicate{Collective::all_reduce, Payload::gradients, 0, kWholeBucket,
                                                ProcessGroup::across_nodes}})
      EXPECT_THROW(rank.wire.start({.step = 7, .iteration = 0}, {.work = work, .lane = 0}), ScheduleError);
  });
}

}  // namespace
}  // namespace dear::buckets::bucket_wire_test
