#include "dear/comm/group/testing/chunk_rows.h"

#include <algorithm>
#include <cstring>
#include <future>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/group/testing/conformance.h"
#include "dear/comm/group/testing/values.h"

namespace dear::comm::testing {
namespace {

constexpr std::int64_t kBefore = 64;
constexpr std::byte kUntouched{0xA5};

struct Shape {
  int chunks = 1;
  std::int64_t room = 0;
  int width = 1;
};

// Who sends how much to whom.
enum class Pattern : std::uint8_t { random, nothing, everything, all_to_one, one_to_all, only_to_itself };
constexpr Pattern kPatterns[] = {Pattern::random,     Pattern::nothing,    Pattern::everything,
                                 Pattern::all_to_one, Pattern::one_to_all, Pattern::only_to_itself};

// All ranks draw the same: rows[from][to][chunk].
using Rows = std::vector<std::vector<std::vector<std::int64_t>>>;
Rows draw(Pattern pattern, int ranks, const Shape& shape, unsigned seed) {
  std::mt19937 generator(seed);
  Rows rows;
  for (int from = 0; from < ranks; ++from) {
    rows.emplace_back();
    for (int to = 0; to < ranks; ++to) {
      rows.back().emplace_back();
      for (int chunk = 0; chunk < shape.chunks; ++chunk) {
        const bool some = pattern == Pattern::random || pattern == Pattern::everything ||
                          (pattern == Pattern::all_to_one && to == ranks - 1) ||
                          (pattern == Pattern::one_to_all && from == ranks / 2) ||
                          (pattern == Pattern::only_to_itself && from == to);
        const bool drawn = pattern != Pattern::everything && generator() % 4 != 0;
        const auto part = static_cast<std::int64_t>(generator() % static_cast<unsigned>(shape.room + 1));
        rows.back().back().push_back(!some ? 0 : drawn ? part : shape.room);
      }
    }
  }
  return rows;
}

// The view of rank `from` has value_of(from, i) in element i.
void expect_rows(const Group& group, const View& output, const Shape& shape, const Rows& rows) {
  const std::int64_t element = size_of(output.dtype);
  const std::byte* at = output.buffer.data() + output.offset_bytes;
  const int rank = group.rank();
  for (int from = 0; from < group.size(); ++from) {
    for (int chunk = 0; chunk < shape.chunks; ++chunk) {
      const std::int64_t came = rows[static_cast<std::size_t>(from)][static_cast<std::size_t>(rank)]
                                    [static_cast<std::size_t>(chunk)];
      const std::int64_t there = (std::int64_t{rank} * shape.chunks + chunk) * shape.room * shape.width;
      for (std::int64_t i = 0; i < shape.room * shape.width; ++i, at += element) {
        if (i < came * shape.width) {
          ASSERT_EQ(load(output.dtype, at), value_of(from, there + i))
              << "element " << i << " of chunk " << chunk << " from rank " << from << ", "
              << name_of(output.dtype);
        } else {
          for (std::int64_t byte = 0; byte < element; ++byte) ASSERT_EQ(at[byte], kUntouched);
        }
      }
    }
  }
}

void check_one(const Group& group, const View& view, const View& output, const Shape& shape,
               const Rows& rows) {
  const int ranks = group.size();
  const auto mine = static_cast<std::size_t>(group.rank());
  std::vector<std::int64_t> sent, received(static_cast<std::size_t>(ranks * shape.chunks), -1), expected;
  MovedBytes moved{.sent = -1, .received = -1}, wanted;
  const std::int64_t row_bytes = shape.width * size_of(view.dtype);
  for (int peer = 0; peer < ranks; ++peer) {
    for (int chunk = 0; chunk < shape.chunks; ++chunk) {
      const std::int64_t out = rows[mine][static_cast<std::size_t>(peer)][static_cast<std::size_t>(chunk)];
      const std::int64_t in = rows[static_cast<std::size_t>(peer)][mine][static_cast<std::size_t>(chunk)];
      sent.push_back(out);
      expected.push_back(in);
      if (peer == group.rank()) continue;
      wanted.sent += out * row_bytes;
      wanted.received += in * row_bytes;
    }
  }
  fill(view, group.rank());
  const std::size_t bytes = static_cast<std::size_t>(output.count * size_of(output.dtype));
  if (bytes > 0) std::memset(output.buffer.data() + output.offset_bytes, static_cast<int>(kUntouched), bytes);
  const ChunkRows what{.chunks = shape.chunks,
                       .width = shape.width,
                       .sent = sent.data(),
                       .received = received.data(),
                       .moved = &moved};
  group.all_to_all_v(view, output, what).wait();
  EXPECT_EQ(received, expected);
  EXPECT_EQ(moved.sent, wanted.sent);
  EXPECT_EQ(moved.received, wanted.received);
  expect_rows(group, output, shape, rows);
  expect_elements(view, "what is sent", [&](std::int64_t i) { return value_of(group.rank(), i); });
  if (::testing::Test::HasFatalFailure()) return;
  // At once, and without the traffic.
  std::fill(received.begin(), received.end(), -1);
  group.perform(
      {.collective = Collective::all_to_all_v,
       .view = view,
       .output = output,
       .rows = {
           .chunks = shape.chunks, .width = shape.width, .sent = sent.data(), .received = received.data()}});
  EXPECT_EQ(received, expected);
  expect_rows(group, output, shape, rows);
}

}  // namespace

void check_all_to_all_v(const Group& group, const ConformanceOptions& options) {
  const int ranks = group.size();
  // The last but one has more in a chunk than a segment of messages, the last more counts than a note of
  // shared memory has room for, and than go in a head.
  const std::vector<Shape> shapes{{.chunks = 1, .room = 1, .width = 1},
                                  {.chunks = 3, .room = 5, .width = 3},
                                  {.chunks = 2, .room = 0, .width = 4},
                                  {.chunks = 2, .room = 1001, .width = 16},
                                  {.chunks = 1030, .room = 2, .width = 1}};
  std::int64_t most = 0;
  for (const Shape& shape : shapes) most = std::max(most, ranks * shape.chunks * shape.room * shape.width);
  const Buffer in = group.allocate(kBefore + most * 8);
  const Buffer out = group.allocate(kBefore + most * 8);
  unsigned seed = 1;
  for (const DType dtype : options.dtypes) {
    for (const Shape& shape : shapes) {
      const std::int64_t count = ranks * shape.chunks * shape.room * shape.width;
      const View view{.buffer = in, .offset_bytes = kBefore, .count = count, .dtype = dtype};
      const View output{.buffer = out, .offset_bytes = kBefore, .count = count, .dtype = dtype};
      for (const Pattern pattern : kPatterns) {
        // Types differ in their size alone. A sanitizer takes long for many rows.
        const bool again = dtype != options.dtypes.front(), many = shape.room * shape.chunks > 100;
        if (again && (pattern != Pattern::random || many)) continue;
        if (dear::testing::kSanitizer && many && pattern != Pattern::random) continue;
        ++seed;
        check_one(group, view, output, shape, draw(pattern, ranks, shape, seed));
      }
    }
  }
}

namespace {

// Memory for exchanges of fp32 in one shape, and its counts.
struct Exchange {
  Exchange(const Group& group, const Shape& shape)
      : ranks(group.size()),
        what(shape),
        in(group.allocate(ranks * elements_of_rank() * 4)),
        out(group.allocate(ranks * elements_of_rank() * 4)),
        sent(static_cast<std::size_t>(ranks * shape.chunks)),
        received(sent.size()) {}

  [[nodiscard]] std::int64_t elements_of_rank() const { return what.chunks * what.room * what.width; }
  Pending start(const Group& group) {
    const std::int64_t count = ranks * elements_of_rank();
    return group.all_to_all_v(
        {.buffer = in, .count = count}, {.buffer = out, .count = count},
        {.chunks = what.chunks, .width = what.width, .sent = sent.data(), .received = received.data()});
  }

  int ranks;
  Shape what;
  Buffer in, out;
  std::vector<std::int64_t> sent, received;
};

}  // namespace

void exchange_rows(const Group& group, const std::function<void(int round)>& hook) {
  const Shape shape{.chunks = 2, .room = 20'000, .width = 4};
  Exchange exchange(group, shape);
  for (int round = 0;; ++round) {
    const Rows rows = draw(Pattern::random, group.size(), shape, static_cast<unsigned>(round));
    exchange.sent.clear();
    for (const auto& counts : rows[static_cast<std::size_t>(group.rank())])
      exchange.sent.insert(exchange.sent.end(), counts.begin(), counts.end());
    const Pending pending = exchange.start(group);
    hook(round);
    pending.wait();
  }
}

void lie_about_rows(const Group& group, int liar, int to, std::int64_t rows) {
  Exchange exchange(group, {.chunks = 2, .room = 4, .width = 1});
  std::fill(exchange.sent.begin(), exchange.sent.end(), 1);
  const auto bytes = static_cast<std::size_t>(exchange.out.bytes());
  if (bytes > 0) std::memset(exchange.out.data(), static_cast<int>(kUntouched), bytes);
  std::promise<void> issued;
  group.issue({},
              [&]() -> std::optional<Request> {
                issued.get_future().wait();
                if (group.rank() == liar) exchange.sent[static_cast<std::size_t>(2 * to + 1)] = rows;
                return std::nullopt;
              },
              {});
  const Pending pending = exchange.start(group);
  issued.set_value();
  try {
    pending.wait();
    group.barrier().wait();  // who has nothing to do with it may hear of it only here
  } catch (const Error&) {
    if (group.rank() == to) {
      EXPECT_TRUE(std::all_of(exchange.out.data(), exchange.out.data() + bytes,
                              [](std::byte one) { return one == kUntouched; }));
    }
    throw;
  }
}

void cut_up_differently(const Group& group, Differing differing) {
  Shape shape{.chunks = 2, .room = 4, .width = 2};
  if (group.rank() == 1) {
    shape = differing == Differing::chunks ? Shape{.chunks = 4, .room = 2, .width = 2}
                                           : Shape{.chunks = 2, .room = 2, .width = 4};
  }
  Exchange exchange(group, shape);
  exchange.start(group).wait();
  group.barrier().wait();
}

}  // namespace dear::comm::testing
