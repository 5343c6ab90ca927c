#include "dear/comm/group/request.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/group/endings.h"
#include "dear/comm/group/single.h"

namespace dear::request_test {
namespace {

using ::testing::HasSubstr;

class Validate : public ::testing::Test {
 protected:
  Buffer buffer() const { return buffer_; }
  static std::string complaint(const Request& request, int ranks = 2) {
    try {
      validate(request, ranks);
      return "none";
    } catch (const ConfigError& error) {
      return error.what();
    }
  }
  Request all_reduce(std::int64_t offset, std::int64_t count, DType dtype = DType::f32) const {
    return {.collective = Collective::all_reduce,
            .view = {.buffer = buffer_, .offset_bytes = offset, .count = count, .dtype = dtype}};
  }
  Request all_to_all(const View& view, const View& output) const {
    return {.collective = Collective::all_to_all, .view = view, .output = output};
  }

 private:
  std::unique_ptr<Backend> backend_ = comm::make_single();
  Buffer buffer_ = backend_->allocate(1024, Deadline::after(std::chrono::seconds(1)));
};

TEST_F(Validate, AcceptsWhatFits) {
  EXPECT_EQ(complaint({}), "none");
  EXPECT_EQ(complaint(all_reduce(0, 256)), "none");
  EXPECT_EQ(complaint(all_reduce(1020, 1)), "none");
  EXPECT_EQ(complaint(all_reduce(1024, 0)), "none");
  EXPECT_EQ(complaint({.collective = Collective::all_gather}), "none");
}

TEST_F(Validate, RefusesViewsOutsideTheirBuffer) {
  EXPECT_THAT(complaint(all_reduce(0, 257)), HasSubstr("outside its buffer of 1024"));
  EXPECT_THAT(complaint(all_reduce(4, 256)), HasSubstr("ends outside"));
  EXPECT_THAT(complaint(all_reduce(0, std::int64_t{1} << 62)), HasSubstr("ends outside"));
  EXPECT_THAT(complaint(all_reduce(-4, 1)), HasSubstr("negative"));
  EXPECT_THAT(complaint(all_reduce(0, -1)), HasSubstr("negative"));
  EXPECT_THAT(complaint(all_reduce(2, 1)), HasSubstr("no multiple of the element size 4"));
  EXPECT_THAT(complaint({.collective = Collective::all_gather, .view = {.count = 1}}),
              HasSubstr("buffer of 0 bytes"));
}

TEST_F(Validate, RefusesUnknownRootsAndSumsOfBytes) {
  const Request from_two{
      .collective = Collective::broadcast, .view = {.buffer = buffer(), .count = 1}, .root = 2};
  EXPECT_THAT(complaint(from_two), HasSubstr("no such root among 2 ranks"));
  EXPECT_EQ(complaint(from_two, 3), "none");
  EXPECT_THAT(complaint(all_reduce(0, 1, DType::u8)), HasSubstr("bytes are moved"));
}

TEST_F(Validate, CombinesBitsOfIntegersOnly) {
  const auto bits_of = [&](DType dtype) {
    Request request = all_reduce(0, 1, dtype);
    request.reduction = Reduction::bitwise_or;
    return request;
  };
  for (const DType dtype : {DType::u8, DType::i32, DType::i64}) EXPECT_EQ(complaint(bits_of(dtype)), "none");
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    EXPECT_THAT(complaint(bits_of(dtype)), HasSubstr("bitwise or: the bits of floating-point"));
  }
}

TEST_F(Validate, RefusesOwnShardsElsewhereWhereThereAreNone) {
  std::byte place{};
  Request request = all_reduce(0, 1, DType::u8);
  request.reduction = Reduction::bitwise_or;
  request.own = {.from = &place, .to = &place};
  EXPECT_EQ(complaint(request), "none");
  request.own.to = nullptr;
  EXPECT_THAT(complaint(request), HasSubstr("both a source and a destination"));
  request.own.to = &place;
  request.collective = Collective::all_gather;
  EXPECT_THAT(complaint(request), HasSubstr("all-reduce or a reduce-scatter"));
}

TEST_F(Validate, RefusesAllToAllThatDoesNotComeOutEven) {
  const View four{.buffer = buffer(), .count = 4};
  const View behind{.buffer = buffer(), .offset_bytes = 16, .count = 4};
  EXPECT_EQ(complaint(all_to_all(four, behind)), "none");
  EXPECT_THAT(complaint(all_to_all(four, behind), 3), HasSubstr("multiple of the 3 ranks"));
  EXPECT_THAT(complaint(all_to_all(four, four)), HasSubstr("overlaps"));
  EXPECT_THAT(complaint(all_to_all(four, View{.buffer = buffer(), .offset_bytes = 16, .count = 2})),
              HasSubstr("must match the view"));
}

TEST_F(Validate, RefusesRowsThatCannotBe) {
  const View view{.buffer = buffer(), .count = 24};
  const View output{.buffer = buffer(), .offset_bytes = 96, .count = 24};
  std::vector<std::int64_t> sent{0, 3, 1, 2}, received(4);
  const ChunkRows good{.chunks = 2, .width = 2, .sent = sent.data(), .received = received.data()};
  const auto with = [&](const ChunkRows& rows, const View& to) {
    return complaint({.collective = Collective::all_to_all_v, .view = view, .output = to, .rows = rows});
  };
  EXPECT_EQ(with(good, output), "none");
  EXPECT_THAT(with(good, view), HasSubstr("overlaps"));
  ChunkRows bad = good;
  bad.chunks = 0;
  EXPECT_THAT(with(bad, output), HasSubstr("at least one chunk"));
  bad.chunks = 5;
  EXPECT_THAT(with(bad, output), HasSubstr("no whole number of rows for each chunk"));
  bad = good;
  bad.width = 0;
  EXPECT_THAT(with(bad, output), HasSubstr("rows of at least one element"));
  bad.width = 5;
  EXPECT_THAT(with(bad, output), HasSubstr("no whole number of rows for each chunk"));
  bad = good;
  bad.sent = nullptr;
  EXPECT_THAT(with(bad, output), HasSubstr("memory with the counts"));
  bad = good;
  bad.received = nullptr;
  EXPECT_THAT(with(bad, output), HasSubstr("memory with the counts"));
  for (const std::int64_t rows : {-1, 4}) {
    sent[3] = rows;
    EXPECT_THAT(with(good, output), HasSubstr(std::to_string(rows) +
                                              " rows of chunk 1 go to rank 1, and there is room for 0 to 3"));
  }
}

TEST(Describe, SaysWhatMatters) {
  Request request{.collective = Collective::reduce_scatter, .reduction = Reduction::average, .label = 3};
  request.view.count = 1000;
  request.view.dtype = DType::bf16;
  EXPECT_EQ(describe(request), "reduce-scatter of 1000 bf16, average (label 3)");
  EXPECT_EQ(describe({}), "barrier");
  EXPECT_EQ(describe({.label = comm::kEndsWithinAStep}),
            "the end of its DataParallel between a backward pass and step()");
  EXPECT_EQ(describe({.collective = Collective::broadcast, .root = 1}), "broadcast of 0 fp32 from rank 1");
  EXPECT_EQ(describe({.collective = Collective::reduce, .root = 1}), "reduce of 0 fp32, sum to rank 1");
  EXPECT_EQ(describe({.collective = Collective::all_to_all_v, .rows = {.chunks = 2, .width = 8}}),
            "all-to-all-v of 0 fp32 in 2 chunks for each rank, rows of 8");
}

TEST(Endings, WhoRepeatsAFailureHasNotCausedIt) {
  EXPECT_EQ(comm::failure_of(2, "ValueError: poison (a.py:3)"), "rank 2 failed: ValueError: poison (a.py:3)");
  EXPECT_EQ(comm::failure_of(2, "rank 2: no memory"), "rank 2 failed: rank 2: no memory");
  for (const char* const said :
       {"rank 0 failed: poison", "rank 13 (pid 7) died while others wait", "rank 1 left",
        "collective 98: rank 3 asks for barrier, rank 1 for all-gather of 8 fp32: same order"})
    EXPECT_EQ(comm::failure_of(2, said), said);
  EXPECT_EQ(comm::failure_of(2, "rank"), "rank 2 failed: rank");
  EXPECT_EQ(comm::failure_of(2, "collective 98: no memory"), "rank 2 failed: collective 98: no memory");
  EXPECT_EQ(comm::failure_of(2, "rank order is wrong"), "rank 2 failed: rank order is wrong");
}

}  // namespace
}  // namespace dear::request_test
