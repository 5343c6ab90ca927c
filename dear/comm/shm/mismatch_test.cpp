#include "dear/comm/shm/mismatch.h"

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/comm/shm/testing/ranks.h"
#include "dear/comm/shm/testing/shm_threads.h"

namespace dear::backends::mismatch_test {
namespace {

using ::testing::ContainsRegex;
using ::testing::Each;

// What one rank asks for and what rank 0 asks for are regular expressions.
auto mismatch(const std::string& collective, const std::string& found, const std::string& expected) {
  return ContainsRegex("^MismatchError: collective " + collective + ".* for " + found +
                       ", ranks? 0[0-9, ]* for " + expected + ": ");
}

struct Case {
  const char* name;
  // Changes what ranks 1 and 2 issue instead of an all-reduce of 1000 fp32, sum (label 3).
  std::function<void(Request&)> change;
  const char* found;
  const char* expected = "all-reduce of 1000 fp32, sum .label 3.";
};
void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

class Mismatch : public ::testing::TestWithParam<Case> {};

TEST_P(Mismatch, IsTheSameSentenceOnEveryRank) {
  const auto reports = comm::testing::run_on_threads(testing::make_shm_threads(4), {}, [](Group& group) {
    const Buffer buffer = group.allocate(8192);
    const Buffer other = group.allocate(8192);
    Request request{
        .collective = Collective::all_reduce, .view = {.buffer = buffer, .count = 1000}, .label = 3};
    request.output = {.buffer = other, .count = 1000};
    if (group.rank() == 1 || group.rank() == 2) {
      GetParam().change(request);
    }
    group.issue(request).wait();
  });
  EXPECT_THAT(reports[0], mismatch("3: ranks 1, 2", GetParam().found, GetParam().expected));
  EXPECT_THAT(reports[0], ::testing::HasSubstr(", ranks 0, 3 for "));
  EXPECT_THAT(reports, Each(reports[0]));
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, Mismatch,
    ::testing::Values(Case{"Operation", [](Request& r) { r.collective = Collective::all_gather; },
                           "all-gather .*"},
                      Case{"Barrier", [](Request& r) { r.collective = Collective::barrier; }, "barrier .*"},
                      Case{"Count", [](Request& r) { r.view.count = 999; }, "all-reduce of 999 .*"},
                      Case{"Type", [](Request& r) { r.view.dtype = DType::i32; }, ".* int32, .*"},
                      Case{"Reduction", [](Request& r) { r.reduction = Reduction::max; }, ".* max .*"},
                      Case{"Label", [](Request& r) { r.label = 4; }, ".* .label 4."},
                      Case{"Offset", [](Request& r) { r.view.offset_bytes = 64; },
                           ".* at byte 64 of buffer 1", ".* at byte 0 of buffer 1"},
                      Case{"Buffer", [](Request& r) { r.view.buffer = r.output.buffer; },
                           ".* at byte 0 of buffer 2", ".* at byte 0 of buffer 1"}),
    [](const auto& test) { return test.param.name; });

TEST(MismatchOf, Roots) {
  const auto reports = comm::testing::run_on_threads(testing::make_shm_threads(3), {}, [](Group& group) {
    const Buffer buffer = group.allocate(64);
    group.broadcast({.buffer = buffer, .count = 1}, group.rank() == 2 ? 1 : 0).wait();
  });
  EXPECT_THAT(reports, Each(mismatch("2: rank 2", ".* from rank 1", ".* from rank 0")));
}

TEST(MismatchOf, Allocations) {
  const auto sizes = comm::testing::run_on_threads(testing::make_shm_threads(2), {}, [](Group& group) {
    static_cast<void>(group.allocate(group.rank() == 0 ? 64 : 128));
  });
  EXPECT_THAT(sizes, Each(mismatch("1: rank 1", "an allocation of 128 bytes", "an allocation of 64 bytes")));
  const auto kinds = comm::testing::run_on_threads(testing::make_shm_threads(2), {}, [](Group& group) {
    if (group.rank() == 0) {
      group.barrier().wait();
    } else {
      static_cast<void>(group.allocate(1));
    }
  });
  EXPECT_THAT(kinds, Each(mismatch("1: rank 1", "an allocation of 1 bytes", "barrier")));
}

TEST(MismatchOf, SharedAndPrivateAllocations) {
  const auto reports = comm::testing::run_on_threads(testing::make_shm_threads(2), {}, [](Group& group) {
    static_cast<void>(group.rank() == 0 ? group.allocate(64) : group.allocate_shared(64));
  });
  EXPECT_THAT(reports,
              Each(mismatch("1: rank 1", "an allocation of 64 bytes .* share", "an allocation of 64 bytes")));
}

TEST(MismatchOf, IrrelevantFieldsIsNone) {
  const auto reports = comm::testing::run_on_threads(testing::make_shm_threads(2), {}, [](Group& group) {
    const Buffer buffer = group.allocate(64);
    group
        .issue({.collective = Collective::all_gather,
                .view = {.buffer = buffer, .count = 16},
                .reduction = group.rank() == 0 ? Reduction::sum : Reduction::max,
                .root = group.rank()})
        .wait();
  });
  EXPECT_THAT(reports, Each("ok"));
}

RequestSummary said() {
  return {.heading = {.sequence = 7,
                      .count = 1000,
                      .label = 3,
                      .collective = static_cast<std::uint8_t>(Collective::all_reduce)},
          .buffer = 2,
          .offset_bytes = 64};
}

struct Change {
  const char* name;
  std::function<void(RequestSummary&)> apply;
};
void PrintTo(const Change& one, std::ostream* out) { *out << one.name; }

class GistDiffersBy : public ::testing::TestWithParam<Change> {};

TEST_P(GistDiffersBy, EachField) {
  RequestSummary changed = said();
  GetParam().apply(changed);
  EXPECT_FALSE(asks_the_same(said(), changed));
  EXPECT_NE(packed(changed).what, 0);
  EXPECT_NE(packed(said()), packed(changed));
}

INSTANTIATE_TEST_SUITE_P(
    Fields, GistDiffersBy,
    ::testing::Values(Change{"Sequence", [](RequestSummary& a) { ++a.heading.sequence; }},
                      Change{"Operation", [](RequestSummary& a) { ++a.heading.collective; }},
                      Change{"Count", [](RequestSummary& a) { ++a.heading.count; }},
                      Change{"Type", [](RequestSummary& a) { ++a.heading.dtype; }},
                      Change{"Reduction", [](RequestSummary& a) { ++a.heading.reduction; }},
                      Change{"Root", [](RequestSummary& a) { ++a.heading.root; }},
                      Change{"Label", [](RequestSummary& a) { ++a.heading.label; }},
                      Change{"NoLabel", [](RequestSummary& a) { a.heading.label = -1; }},
                      Change{"Buffer", [](RequestSummary& a) { ++a.buffer; }},
                      Change{"Offset", [](RequestSummary& a) { ++a.offset_bytes; }}),
    [](const auto& test) { return test.param.name; });

class GistHasNoRoomFor : public ::testing::TestWithParam<Change> {};

TEST_P(GistHasNoRoomFor, IsEmpty) {
  RequestSummary large = said();
  GetParam().apply(large);
  EXPECT_EQ(packed(large).what, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Fields, GistHasNoRoomFor,
    ::testing::Values(
        Change{"Count", [](RequestSummary& a) { a.heading.count = 1 << 20; }},
        Change{"NegativeCount", [](RequestSummary& a) { a.heading.count = -1; }},
        Change{"Label", [](RequestSummary& a) { a.heading.label = (1 << 19) - 1; }},
        Change{"Root", [](RequestSummary& a) { a.heading.root = 128; }},
        Change{"Buffer", [](RequestSummary& a) { a.buffer = 1 << 24; }},
        Change{"Offset", [](RequestSummary& a) { a.offset_bytes = std::int64_t{1} << 40; }},
        Change{"Output", [](RequestSummary& a) { a.output_buffer = 1; }},
        Change{"OutputOffset", [](RequestSummary& a) { a.output_offset_bytes = 1; }},
        Change{"Allocation", [](RequestSummary& a) { a.heading = comm::heading_of_allocation(7, 64); }},
        Change{"SharedAllocation",
               [](RequestSummary& a) { a.heading = comm::heading_of_shared_allocation(7, 64); }}),
    [](const auto& test) { return test.param.name; });

TEST(PackedSummary, IsTheSameForTheSame) {
  RequestSummary later = said();
  later.arrival_nanoseconds = later.asked_nanoseconds = 5;
  EXPECT_EQ(packed(said()), packed(later));
}

// What a packed summary has no room for is compared in full.
TEST(MismatchOf, WhatNoGistHasRoomFor) {
  const auto reports = comm::testing::run_on_threads(testing::make_shm_threads(2), {}, [](Group& group) {
    const Buffer buffer = group.allocate(64);
    const int label = (1 << 20) + 1;
    Request request{
        .collective = Collective::all_gather, .view = {.buffer = buffer, .count = 16}, .label = label};
    group.issue(request).wait();
    request.label = label + group.rank();
    group.issue(request).wait();
  });
  EXPECT_THAT(reports, Each(mismatch("3: rank 1", ".*label 1048578.", ".*label 1048577.")));
}

}  // namespace
}  // namespace dear::backends::mismatch_test
