#include "dear/comm/message_programs/executor.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/testing/ranks.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/channels/testing/thread_channels.h"
#include "dear/comm/message_programs/numbers_in_test.h"
#include "dear/platform/algorithm/algorithms.h"

// Programs on real numbers.
namespace dear::message_programs::executor_test {
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

// A program, and what it needs to become a collective on memory.
struct ProgramOnMemory {
  const Program* program = nullptr;
  std::vector<Range> blocks;  // by block; of an all-to-all those from program->blocks on, in the output
  std::int64_t element_bytes = 1;
  std::int64_t segment_bytes = 64 * 1024;
  ExecutionArguments arguments;
};

// Executes this rank's part.
void execute(const ProgramOnMemory& work, channels::Channels& channels) {
  StagingMemory stage;
  Executor executor(
      MessageGraphBuilder(
          {.rank = channels.rank(), .element_bytes = work.element_bytes, .segment_bytes = work.segment_bytes})
          .add(*work.program, work.blocks)
          .finish());
  executor.execute(
      work.arguments, channels, stage, [] { return "wait in a test"; },
      Deadline::after(std::chrono::seconds(60)));
}

class Execution {
 public:
  Execution(channels::Channels& channels, const Program& program, const Case& with)
      : channels_(channels),
        program_(program),
        blocks_(even_blocks(program.blocks, with.elements)),
        mine_(static_cast<std::size_t>(with.elements)) {
    for (std::int64_t i = 0; i < with.elements; ++i) {
      mine_[static_cast<std::size_t>(i)] = value_of(channels.rank(), i);
    }
    work_ = {.program = &program,
             .blocks = blocks_,
             .element_bytes = kElement,
             .segment_bytes = with.segment_bytes,
             .arguments = {.data = reinterpret_cast<std::byte*>(mine_.data()), .combine = testing::add_up}};
  }

  void execute() { executor_test::execute(work_, channels_); }

  void expect_result() {
    const int rank = channels_.rank();
    const int ranks = channels_.size();
    for (int block = 0; block < program_.blocks; ++block) {
      const int owner = block * ranks / program_.blocks;
      switch (program_.collective) {
        case Collective::reduce_scatter:
          if (owner == rank) {
            expect_block(block, [&](std::int64_t i) { return sum_of(ranks, i); });
          }
          break;
        case Collective::all_gather:
          expect_block(block, [&](std::int64_t i) { return value_of(owner, i); });
          break;
        case Collective::broadcast:
          expect_block(block, [&](std::int64_t i) { return value_of(program_.root, i); });
          break;
        case Collective::reduce:
          if (rank != program_.root) {
            break;
          }
          [[fallthrough]];
        case Collective::all_reduce:
          expect_block(block, [&](std::int64_t i) { return sum_of(ranks, i); });
          break;
        case Collective::all_to_all:
        case Collective::all_to_all_v:
        case Collective::barrier:
          break;
      }
    }
  }

  template <typename Expected>
  void expect_block(int block, const Expected& expected) {
    const Range& range = blocks_[static_cast<std::size_t>(block)];
    for (std::int64_t i = range.begin / kElement; i < range.end / kElement; ++i) {
      ASSERT_EQ(mine_[static_cast<std::size_t>(i)], expected(i))
          << program_.name << " of " << mine_.size() << ", rank " << channels_.rank() << " of "
          << program_.ranks << ", block " << block << ", element " << i;
    }
  }

 private:
  channels::Channels& channels_;
  const Program& program_;
  std::vector<Range> blocks_;
  std::vector<float> mine_;
  ProgramOnMemory work_;
};

// Each of the programs one after another over the same channels.
void expect_all(int ranks, const std::vector<Program>& programs) {
  auto channels = channels::testing::make_thread_channels(ranks);
  const auto reports = run_on_threads(ranks, [&](int rank) {
    const auto mine = std::move(channels[static_cast<std::size_t>(rank)]);
    for (const Program& program : programs) {
      for (const Case& one : kCases) {
        Execution execution(*mine, program, one);
        execution.execute();
        execution.expect_result();
      }
    }
  });
  EXPECT_THAT(reports, Each("ok"));
}

class Programs : public ::testing::TestWithParam<int> {};

TEST_P(Programs, OfEveryAlgorithmGiveThePlainSum) {
  const int ranks = GetParam();
  std::vector<Program> programs;
  for (const algorithm::Algorithm& algorithm : algorithm::algorithms()) {
    for (const Collective collective : {Collective::reduce_scatter, Collective::all_gather,
                                        Collective::all_reduce, Collective::broadcast, Collective::reduce}) {
      if (algorithm::has(algorithm, collective)) {
        programs.push_back(make_program(
            algorithm, collective,
            {.ranks = ranks, .root = collective == Collective::all_reduce ? 0 : ranks / 2, .blocks = 5}));
      }
    }
  }
  expect_all(ranks, programs);
}

TEST_P(Programs, OfTwoLevelsGiveThePlainSum) {
  const int ranks = GetParam();
  std::vector<Program> programs;
  for (int nodes = 1; nodes <= ranks; ++nodes) {
    if (ranks % nodes == 0) {
      for (const Collective collective :
           {Collective::reduce_scatter, Collective::all_gather, Collective::all_reduce}) {
        programs.push_back(hierarchical(algorithm::find_algorithm("ring"),
                                        algorithm::find_algorithm("halving-doubling"), collective, nodes,
                                        ranks / nodes));
      }
    }
  }
  expect_all(ranks, programs);
}

// What a rank gets is where it belongs, and its own input is as it was.
TEST_P(Programs, AllToAllGoesIntoItsOutput) {
  const int ranks = GetParam();
  const Program program =
      make_program(algorithm::find_algorithm("pairwise"), Collective::all_to_all, {.ranks = ranks});
  auto channels = channels::testing::make_thread_channels(ranks);
  const auto reports = run_on_threads(ranks, [&](int rank) {
    const auto mine = std::move(channels[static_cast<std::size_t>(rank)]);
    for (const std::int64_t each : {0, 1, 3, 5000}) {
      std::vector<float> input(static_cast<std::size_t>(each * ranks));
      std::vector<float> output(input.size(), -1);
      for (std::size_t i = 0; i < input.size(); ++i) {
        input[i] = value_of(rank, static_cast<std::int64_t>(i));
      }
      const std::vector<float> before = input;
      std::vector<Range> blocks = even_blocks(ranks, each * ranks);
      blocks.insert(blocks.end(), blocks.begin(), blocks.begin() + ranks);
      execute({.program = &program,
               .blocks = blocks,
               .element_bytes = kElement,
               .segment_bytes = 4096,
               .arguments = {.data = reinterpret_cast<std::byte*>(input.data()),
                             .output = reinterpret_cast<std::byte*>(output.data())}},
              *mine);
      EXPECT_EQ(input, before);
      for (std::int64_t i = 0; i < each * ranks; ++i) {
        ASSERT_EQ(output[static_cast<std::size_t>(i)],
                  value_of(static_cast<int>(i / each), rank * each + i % each));
      }
    }
  });
  EXPECT_THAT(reports, Each("ok"));
}

INSTANTIATE_TEST_SUITE_P(Ranks, Programs, ::testing::Range(1, 10));

// Blocks broadcast along random trees, some of them in the same rounds, in messages of several blocks; and
// backwards, as sums.
Program random_broadcast(int ranks, int blocks, std::mt19937& generator) {
  Program program = algorithm::empty_program("random broadcast", Collective::broadcast, ranks, blocks);
  std::vector<std::vector<bool>> has(static_cast<std::size_t>(ranks),
                                     std::vector<bool>(static_cast<std::size_t>(blocks)));
  has[0].assign(static_cast<std::size_t>(blocks), true);
  const auto lacks = [&](const std::vector<bool>& one) {
    return std::find(one.begin(), one.end(), false) != one.end();
  };
  while (std::any_of(has.begin(), has.end(), lacks)) {
    program.add_round();
    const auto before = has;
    for (int message = 0; message < 2 * ranks; ++message) {
      const auto from = generator() % static_cast<unsigned>(ranks);
      const auto to = generator() % static_cast<unsigned>(ranks);
      std::vector<Range> sent;
      for (int block = 0; block < blocks; ++block) {
        const auto at = static_cast<std::size_t>(block);
        if (from != to && before[from][at] && !has[to][at] && generator() % 2 == 0) {
          has[to][at] = true;
          sent.push_back({.begin = block, .end = block + 1});
        }
      }
      std::shuffle(sent.begin(), sent.end(), generator);
      if (!sent.empty()) {
        program.send(static_cast<int>(program.rounds.size()) - 1, static_cast<int>(from),
                     static_cast<int>(to), sent);
      }
    }
  }
  return program;
}

TEST(Executor, RandomPrograms) {
  std::mt19937 generator(11);
  for (int round = 0; round < 12; ++round) {
    const int ranks = 2 + round % 4;
    const Program forward = random_broadcast(ranks, 1 + round, generator);
    const Program backward = reversed(forward, "random reduce");
    expect_all(ranks, {forward, backward, concatenated(backward, forward, "random all-reduce")});
  }
}

}  // namespace
}  // namespace dear::message_programs::executor_test
