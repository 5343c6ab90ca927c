#include "dear/comm/message_programs/program_backend.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/channels/testing/channels.h"
#include "dear/comm/channels/testing/thread_channels.h"
#include "dear/comm/group/testing/conformance.h"
#include "dear/comm/group/testing/groups.h"
#include "dear/comm/message_programs/heading.h"
#include "dear/platform/algorithm/algorithms.h"

namespace dear::message_programs::program_backend_test {
namespace {

using comm::testing::run_on_threads;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<std::unique_ptr<Backend>> over_threads(int size, const ProgramOptions& options = {}) {
  std::vector<std::unique_ptr<Backend>> backends;
  for (auto& channels : channels::testing::make_thread_channels(size)) {
    backends.push_back(make_program_backend(std::move(channels), options));
  }
  return backends;
}

// ---- Every way that there is.

class Ways : public ::testing::TestWithParam<int> {};

TEST_P(Ways, GiveTheSameValues) {
  const int size = GetParam();
  const comm::testing::ConformanceOptions options{.dtypes = {DType::f32, DType::bf16, DType::i64},
                                                  .reductions = {Reduction::sum, Reduction::average},
                                                  .counts = {17, 1000},
                                                  .order = comm::testing::Order::fixed};
  std::vector<std::string> names = {"direct", "gather"};
  for (const algorithm::Algorithm& one : algorithm::algorithms()) {
    names.emplace_back(one.name);
  }
  for (const std::string& name : names) {
    // Where an algorithm lacks a collective, the model decides.
    const Choose choose = [&](const CollectiveCall& call) {
      for (AlgorithmChoice& choice : algorithm_choices(call)) {
        if (choice.algorithm == name || (choice.algorithm == "direct" && choice.then == name)) {
          choice.segment_bytes = 512;
          return choice;
        }
      }
      return AlgorithmChoice{};
    };
    EXPECT_THAT(run_on_threads(over_threads(size, {.choose = choose}), {},
                               [&](Group& group) { comm::testing::check_group(group, options); }),
                Each("ok"))
        << name;
  }
}
INSTANTIATE_TEST_SUITE_P(Ranks, Ways, ::testing::Values(1, 2, 3, 4, 7));

// ---- The choice.

TEST(Choice, FollowsTheModel) {
  const Link slow_start{.alpha_seconds = 1e-4, .beta_seconds_per_byte = 1e-10};
  const auto name = [&](Collective collective, std::int64_t bytes, int ranks, bool exact) {
    return choose_by_model({.collective = collective, .bytes = bytes, .ranks = ranks, .exact = exact},
                           slow_start)
        .algorithm;
  };
  EXPECT_EQ(name(Collective::all_reduce, 8, 8, false), "gather");
  EXPECT_EQ(name(Collective::all_reduce, 1 << 16, 8, false), "gather");
  EXPECT_EQ(name(Collective::all_reduce, 1 << 20, 8, false), "halving-doubling");
  EXPECT_EQ(name(Collective::all_reduce, 1 << 20, 8, true), "direct");
  EXPECT_EQ(name(Collective::all_reduce, std::int64_t{1} << 34, 8, false), "direct");
  EXPECT_EQ(name(Collective::reduce_scatter, 1 << 28, 8, false), "direct");
  EXPECT_EQ(name(Collective::all_gather, 100, 8, false), "halving-doubling");
  EXPECT_EQ(name(Collective::all_gather, 100, 7, false), "bruck");
  EXPECT_EQ(name(Collective::all_gather, std::int64_t{1} << 34, 7, false), "ring");
  EXPECT_EQ(name(Collective::broadcast, 1 << 28, 4, false), "ring");
}

TEST(Choice, OfSomethingUnknownIsAnErrorThatListsWhatThereIs) {
  const auto reports = run_on_threads(
      over_threads(3, {.choose =
                           [](const CollectiveCall& call) {
                             return AlgorithmChoice{
                                 .algorithm = call.collective == Collective::all_gather ? "star" : ""};
                           }}),
      {}, [](Group& group) {
        const Buffer buffer = group.allocate(100);
        group.all_gather({.buffer = buffer, .count = 25}).wait();
      });
  EXPECT_THAT(reports, Each(HasSubstr("'star'")));
}

// ---- Ranks that ask for different things.

TEST(Mismatches, AreNamedAlikeOnBothSides) {
  Request reduce{.collective = Collective::all_reduce, .label = 3};
  reduce.view.count = 100;
  Request longer = reduce;
  longer.view.count = 101;
  const auto report = [&](int mine, int theirs) {
    return os::testing::report_of([&] {
      throw_on_mismatch(comm::heading_of(5, mine == 0 ? reduce : longer), mine,
                        comm::heading_of(5, theirs == 0 ? reduce : longer), theirs);
    });
  };
  EXPECT_THAT(report(0, 2),
              ContainsRegex("^MismatchError: collective 5: rank 2 .* 101 fp32.*rank 0 .* 100 fp32"));
  EXPECT_EQ(report(2, 0), report(0, 2));
  EXPECT_THAT(os::testing::report_of(
                  [&] { throw_on_mismatch(comm::heading_of(5, reduce), 1, comm::heading_of(6, reduce), 0); }),
              ContainsRegex("^MismatchError: rank 1 .* as collective 5, rank 0 .* as collective 6"));
  EXPECT_EQ(os::testing::report_of(
                [&] { throw_on_mismatch(comm::heading_of(5, reduce), 1, comm::heading_of(5, reduce), 0); }),
            "ok");
}

// Whatever of these fits is read as it was written, with the sequence that the sender had, ahead or behind.
TEST(PackedHeadings, SayAllThatWholeOnesDo) {
  int fits = 0;
  for (const Collective collective :
       {Collective::barrier, Collective::reduce_scatter, Collective::all_to_all}) {
    for (const std::int64_t count : {0L, 1L, 77L, (1L << 22) - 1, 1L << 22}) {
      for (const std::int64_t label :
           {-1L, 0L, (1L << 17) - 2, (1L << 17) - 1, 1L << 40, std::numeric_limits<std::int64_t>::max()}) {
        for (const std::uint64_t sequence : {0UL, 1UL, 65'535UL, 65'536UL, 123'456'789'012UL}) {
          Request request{.collective = collective, .reduction = Reduction::min, .label = label};
          request.view = {.count = count, .dtype = DType::u8};
          const Heading heading = comm::heading_of(sequence, request);
          std::array<std::byte, sizeof heading> message{};
          const std::optional<std::uint64_t> bits = packed(heading);
          const bool has_room = heading.count < 1 << 22 && label < (1 << 17) - 1;
          ASSERT_EQ(bits.has_value(), has_room) << describe(request);
          if (bits) {
            std::memcpy(message.data(), &*bits, sizeof *bits);
            ++fits;
          } else {
            std::memcpy(message.data(), &heading, sizeof heading);
          }
          for (const std::int64_t away : {0, 1, -1, 32'767, -32'767}) {
            EXPECT_EQ(read_heading(message.data(), sequence + static_cast<std::uint64_t>(away)), heading)
                << describe(request) << ", " << away;
          }
        }
      }
    }
  }
  EXPECT_GT(fits, 100);
}

struct Slip {
  std::string name;
  std::function<void(Group&, const Buffer&)> instead;
};
void PrintTo(const Slip& slip, std::ostream* out) { *out << slip.name; }

class Slips : public ::testing::TestWithParam<Slip> {};

// One rank asks for something else than the others: all fail at once, nobody hangs.
TEST_P(Slips, AreFoundOnEveryRank) {
  for (const int size : {2, 3, 4}) {
    for (int culprit = 0; culprit < size; ++culprit) {
      const auto reports = run_on_threads(over_threads(size), {}, [&](Group& group) {
        const Buffer buffer = group.allocate(400'000);
        const Buffer output = group.allocate(400'000);
        for (int round = 0; round < 3; ++round) {
          if (group.rank() == culprit && round == 1) {
            GetParam().instead(group, buffer);
          } else {
            group.all_reduce({.buffer = buffer, .count = 60'000}, Reduction::sum).wait();
          }
        }
        for (int round = 0; round < 3; ++round) {
          group.barrier().wait();
        }
      });
      EXPECT_THAT(reports, Each(HasSubstr("same order")));
      // Whoever sees it first has not caused it.
      EXPECT_THAT(reports, Each(::testing::Not(HasSubstr(" failed: "))));
      EXPECT_THAT(reports, ::testing::Contains(StartsWith("MismatchError: ")));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    OfOneRank, Slips,
    ::testing::Values(
        Slip{"Nothing", [](Group&, const Buffer&) {}},
        Slip{"Shorter",
             [](Group& group, const Buffer& buffer) {
               group.all_reduce({.buffer = buffer, .count = 100}, Reduction::sum).wait();
             }},
        Slip{"Empty",
             [](Group& group, const Buffer& buffer) {
               group.all_reduce({.buffer = buffer, .count = 0}, Reduction::sum).wait();
             }},
        Slip{"OtherReduction",
             [](Group& group, const Buffer& buffer) {
               group.all_reduce({.buffer = buffer, .count = 60'000}, Reduction::max).wait();
             }},
        Slip{"OtherType",
             [](Group& group, const Buffer& buffer) {
               group.all_reduce({.buffer = buffer, .count = 60'000, .dtype = DType::i32}, Reduction::sum)
                   .wait();
             }},
        Slip{"Barrier", [](Group& group, const Buffer&) { group.barrier().wait(); }},
        Slip{"Gather",
             [](Group& group, const Buffer& buffer) {
               group.all_gather({.buffer = buffer, .count = 60'000}).wait();
             }},
        Slip{"Allocation", [](Group& group, const Buffer&) { static_cast<void>(group.allocate(8)); }}),
    [](const auto& test) { return test.param.name; });

TEST(Programs, AnAbortReachesThePeersInItsOwnWords) {
  const auto reports = run_on_threads(over_threads(3), {}, [](Group& group) {
    group.barrier().wait();
    if (group.rank() == 2) {
      group.abort("the disk is full");
    }
    group.barrier().wait();
  });
  EXPECT_THAT(reports, Each(ContainsRegex("^TransportError: rank 2 .*disk")));
}

TEST(Programs, NameARankThatLeavesEarly) {
  for (int victim = 0; victim < 4; ++victim) {
    const auto reports = run_on_threads(over_threads(4), {}, [&](Group& group) {
      const Buffer buffer = group.allocate(1'000'000);
      for (int round = 0; round < (group.rank() == victim ? 2 : 3); ++round) {
        group.all_reduce({.buffer = buffer, .count = 250'000}, Reduction::sum).wait();
        group.barrier().wait();
      }
    });
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_THAT(reports[static_cast<std::size_t>(rank)],
                  rank == victim ? ::testing::Matcher<std::string>("ok")
                                 : AllOf(StartsWith(fmt::format("TransportError: rank {} left", victim)),
                                         HasSubstr("while others wait in collective")));
    }
  }
}

TEST(Programs, NameARankThatDoesNotComeInTime) {
  std::atomic<int> waiting = 2;
  const auto reports =
      run_on_threads(over_threads(3), {.timeout = std::chrono::milliseconds(300)}, [&](Group& group) {
        if (group.rank() == 1) {
          while (waiting > 0) std::this_thread::yield();
          return;
        }
        const std::string report = os::testing::report_of([&] { group.barrier().wait(); });
        --waiting;
        throw TimeoutError(report);
      });
  for (const int rank : {0, 2}) {
    EXPECT_THAT(reports[static_cast<std::size_t>(rank)],
                AllOf(HasSubstr("TimeoutError: rank"), HasSubstr("did not come within")));
  }
}

TEST(Programs, OpenChannelsBesideTheirCollectives) {
  constexpr int kTags = 8;
  EXPECT_THAT(run_on_threads(over_threads(3), {},
                             [](Group& group) {
                               const auto one = group.open_channels(kTags),
                                          other = group.open_channels(kTags);
                               const Group part = group.duplicate();
                               channels::testing::check_lengths(*one);
                               const Pending beside = part.barrier();
                               channels::testing::check_early_and_late(*other);
                               beside.wait();
                               channels::testing::check_early_and_late(*one);
                               group.barrier().wait();
                             }),
              Each("ok"));
}

TEST(Programs, RefuseOtherNumbersOfTagsAndMoreThanThereAre) {
  EXPECT_THAT(run_on_threads(over_threads(2), {},
                             [](Group& group) { static_cast<void>(group.open_channels(1 + group.rank())); }),
              Each(HasSubstr("MismatchError: rank 1 opens channels with 2 tags, and rank 0 with 1")));
  EXPECT_THAT(run_on_threads(over_threads(2), {},
                             [](Group& group) { static_cast<void>(group.open_channels(1 << 20)); }),
              Each(HasSubstr("a job can make 32000 groups")));
}

TEST(Programs, AnImpossibleAllocationFailsOnAllRanks) {
  const auto reports = run_on_threads(over_threads(3), {}, [](Group& group) {
    static_cast<void>(group.allocate(group.rank() == 1 ? std::int64_t{1} << 50 : 100));
  });
  EXPECT_THAT(reports, Each(HasSubstr("cannot allocate")));
}

}  // namespace
}  // namespace dear::message_programs::program_backend_test
