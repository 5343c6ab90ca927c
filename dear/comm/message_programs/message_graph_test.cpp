#include "dear/comm/message_programs/message_graph.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/testing/ranks.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/channels/testing/thread_channels.h"
#include "dear/comm/message_programs/executor.h"
#include "dear/comm/message_programs/numbers_in_test.h"
#include "dear/platform/algorithm/algorithms.h"

// Message graphs and their executors where programs alone do not show what they do: direct reduce-scatters,
// heads, sums in passing, staging memory.
namespace dear::message_programs::message_graph_test {
namespace {

using algorithm::Program;
using os::testing::run_on_threads;
using testing::Case;
using ::testing::Each;
using testing::even_blocks;
using testing::kCases;
using testing::kElement;
using testing::sum_of;
using testing::value_of;

ExecutionArguments on(std::vector<float>& numbers) {
  return {.data = reinterpret_cast<std::byte*>(numbers.data()), .combine = testing::add_up};
}

// Channels, and what receives are posted on them.
class Watched final : public channels::Channels {
 public:
  explicit Watched(std::unique_ptr<channels::Channels> channels) : channels_(std::move(channels)) {}

  [[nodiscard]] int rank() const override { return channels_->rank(); }
  [[nodiscard]] int size() const override { return channels_->size(); }
  [[nodiscard]] std::string description() const override { return channels_->description(); }
  void start(channels::Transfer& transfer) override {
    channels_->start(transfer);
    if (transfer.direction == channels::Transfer::Direction::receive) {
      ahead_ += transfer.bytes;
      posted_.push_back(&transfer);
      most_at_once = std::max(most_at_once, posted_.size());
      if (posted_.size() > 1) most_bytes_ahead = std::max(most_bytes_ahead, ahead_);
    }
  }
  bool progress() override { return channels_->progress(); }
  void wait_until(const Describe& what, Deadline deadline, Deadline until) override {
    channels_->wait_until(what, deadline, until);
    std::erase_if(posted_, [this](const channels::Transfer* one) {
      ahead_ -= one->done ? one->bytes : 0;
      return one->done;
    });
  }
  void abort(const std::string& reason) noexcept override { channels_->abort(reason); }

  std::int64_t most_bytes_ahead = 0;  // of several receives
  std::size_t most_at_once = 0;

 private:
  std::unique_ptr<channels::Channels> channels_;
  std::vector<const channels::Transfer*> posted_;
  std::int64_t ahead_ = 0;
};

TEST(MessageGraphs, ReceivesArePostedAsFarAheadAsIsAsked) {
  constexpr int kRanks = 4;
  constexpr std::int64_t kElements = 40'000;
  constexpr std::int64_t kSegment = 4096;
  const Program program =
      make_program(algorithm::find_algorithm("ring"), Collective::all_reduce, {.ranks = kRanks});
  for (const std::int64_t most : {std::int64_t{1}, 2 * kSegment, std::numeric_limits<std::int64_t>::max()}) {
    auto channels = channels::testing::make_thread_channels(kRanks);
    const auto reports = run_on_threads(kRanks, [&](int rank) {
      Watched mine(std::move(channels[static_cast<std::size_t>(rank)]));
      StagingMemory stage;
      Executor executor(MessageGraphBuilder({.rank = rank,
                                             .element_bytes = kElement,
                                             .segment_bytes = kSegment,
                                             .heads_first = false,
                                             .most_ahead_bytes = most})
                            .add(program, even_blocks(kRanks, kElements))
                            .finish());
      std::vector<float> numbers(static_cast<std::size_t>(kElements));
      for (std::int64_t i = 0; i < kElements; ++i) {
        numbers[static_cast<std::size_t>(i)] = value_of(rank, i);
      }
      executor.execute(
          on(numbers), mine, stage, [] { return "wait in a test"; },
          Deadline::after(std::chrono::seconds(60)));
      for (std::int64_t i = 0; i < kElements; ++i) {
        ASSERT_EQ(numbers[static_cast<std::size_t>(i)], sum_of(kRanks, i));
      }
      EXPECT_LE(mine.most_bytes_ahead, most);
      EXPECT_EQ(mine.most_at_once, most == 1 ? 1U : most == 2 * kSegment ? 2U : 8U);
    });
    EXPECT_THAT(reports, Each("ok"));
  }
}

TEST(MessageGraphs, DirectReduceScatterThenAnAllGatherWithHeads) {
  for (const int ranks : {1, 2, 3, 4, 7}) {
    auto channels = channels::testing::make_thread_channels(ranks);
    const Program gather =
        make_program(algorithm::find_algorithm("ring"), Collective::all_gather, {.ranks = ranks});
    const auto reports = run_on_threads(ranks, [&](int rank) {
      const auto mine = std::move(channels[static_cast<std::size_t>(rank)]);
      StagingMemory stage;
      for (const Case& one : kCases) {
        const std::vector<Range> blocks = even_blocks(ranks, one.elements);
        for (const bool whole : {false, true}) {
          MessageGraphBuilder builder({.rank = rank,
                                       .element_bytes = kElement,
                                       .segment_bytes = one.segment_bytes,
                                       .head_bytes = 8,
                                       .heads_first = whole == (one.segment_bytes == 4096),
                                       .most_ahead_bytes = whole ? 1 : one.segment_bytes * 2});
          builder.add_direct_reduce_scatter(blocks);
          if (whole) {
            builder.add(gather, blocks);
          }
          Executor executor(builder.finish());
          for (std::int64_t time = 0; time < 3; ++time) {
            std::vector<float> numbers(static_cast<std::size_t>(one.elements));
            for (std::int64_t i = 0; i < one.elements; ++i) {
              numbers[static_cast<std::size_t>(i)] = value_of(rank, i);
            }
            const std::int64_t head = time * 100 + rank;
            int heads = 0;
            ExecutionArguments arguments = on(numbers);
            arguments.head = reinterpret_cast<const std::byte*>(&head);
            arguments.compare = [&](int peer, const std::byte* theirs) {
              std::int64_t told = 0;
              std::memcpy(&told, theirs, sizeof told);
              EXPECT_EQ(told, time * 100 + peer);
              ++heads;
            };
            executor.execute(
                arguments, *mine, stage, [] { return "wait in a test"; },
                Deadline::after(std::chrono::seconds(60)));
            EXPECT_EQ(heads, ranks - 1);
            for (std::int64_t i = 0; i < one.elements; ++i) {
              const Range& own = blocks[static_cast<std::size_t>(rank)];
              const bool summed = whole || (own.contains(i * kElement));
              ASSERT_EQ(numbers[static_cast<std::size_t>(i)], summed ? sum_of(ranks, i) : value_of(rank, i));
            }
          }
        }
      }
    });
    EXPECT_THAT(reports, Each("ok"));
  }
}

TEST(MessageGraphs, SumsInPassingLeaveContributionsAsTheyWere) {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    auto channels = channels::testing::make_thread_channels(ranks);
    const Program scatter =
        make_program(algorithm::find_algorithm("ring"), Collective::reduce_scatter, {.ranks = ranks});
    const auto reports = run_on_threads(ranks, [&](int rank) {
      const auto mine = std::move(channels[static_cast<std::size_t>(rank)]);
      StagingMemory stage;
      for (const Case& one : kCases) {
        const std::vector<Range> blocks = even_blocks(ranks, one.elements);
        const Range& own = blocks[static_cast<std::size_t>(rank)];
        for (const std::int64_t head_bytes : {0, 8}) {
          MessageGraph graph = MessageGraphBuilder({.rank = rank,
                                                    .element_bytes = kElement,
                                                    .segment_bytes = one.segment_bytes,
                                                    .head_bytes = head_bytes,
                                                    .adds_in_passing = true})
                                   .add(scatter, blocks)
                                   .finish();
          EXPECT_TRUE(graph.writes_only(own));
          Executor executor(std::move(graph));
          for (int time = 0; time < 2; ++time) {
            std::vector<float> numbers(static_cast<std::size_t>(one.elements));
            for (std::int64_t i = 0; i < one.elements; ++i) {
              numbers[static_cast<std::size_t>(i)] = value_of(rank, i);
            }
            const std::int64_t head = 7;
            ExecutionArguments arguments = on(numbers);
            arguments.head = reinterpret_cast<const std::byte*>(&head);
            arguments.compare = [](int, const std::byte*) {};
            executor.execute(
                arguments, *mine, stage, [] { return "wait in a test"; },
                Deadline::after(std::chrono::seconds(60)));
            for (std::int64_t i = 0; i < one.elements; ++i) {
              const bool is_own = own.contains(i * kElement);
              ASSERT_EQ(numbers[static_cast<std::size_t>(i)], is_own ? sum_of(ranks, i) : value_of(rank, i));
            }
          }
        }
      }
    });
    EXPECT_THAT(reports, Each("ok"));
  }
}

TEST(MessageGraphs, OfSumsInMemoryWriteMoreThanTheShard) {
  const auto plan_of = [](const char* algorithm, bool in_passing) {
    return MessageGraphBuilder({.rank = 1, .element_bytes = kElement, .adds_in_passing = in_passing})
        .add(make_program(algorithm::find_algorithm(algorithm), Collective::reduce_scatter, {.ranks = 4}),
             even_blocks(4, 1000))
        .finish();
  };
  const Range own = even_blocks(4, 1000)[1];
  EXPECT_FALSE(plan_of("ring", false).writes_only(own));
  EXPECT_TRUE(plan_of("ring", true).writes_only(own));
  EXPECT_FALSE(plan_of("halving-doubling", true).writes_only(own));
}

TEST(MessageGraphs, StagingMemoryDoesNotGrowWithTheVector) {
  const Program program =
      make_program(algorithm::find_algorithm("ring"), Collective::all_reduce, {.ranks = 4});
  const auto plan_of = [&](std::int64_t elements) {
    return MessageGraphBuilder({.rank = 1, .element_bytes = kElement, .segment_bytes = 4096})
        .add(program, even_blocks(4, elements))
        .finish();
  };
  const MessageGraph small = plan_of(100'000);
  const MessageGraph large = plan_of(1'000'000);
  EXPECT_EQ(large.slots, small.slots);
  EXPECT_EQ(large.most_staged, small.most_staged);
  EXPECT_EQ(large.most_packed, 0);
}

TEST(MessageGraphs, RefuseWhatDoesNotFit) {
  const Program program =
      make_program(algorithm::find_algorithm("ring"), Collective::all_gather, {.ranks = 3});
  EXPECT_THROW(MessageGraphBuilder({.rank = 0}).add(program, even_blocks(2, 10)), ConfigError);
  EXPECT_THROW(MessageGraphBuilder({.rank = 3}).add(program, even_blocks(3, 10)), ConfigError);
  EXPECT_THROW(MessageGraphBuilder({.rank = 0, .segment_bytes = 0}), ConfigError);
}

}  // namespace
}  // namespace dear::message_programs::message_graph_test
