#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/half.h"
#include "dear/comm/channels/testing/thread_channels.h"
#include "dear/comm/group/testing/groups.h"
#include "dear/comm/message_programs/program_backend.h"
#include "dear/comm/shm/testing/shm_threads.h"

// The bits of sums over programs, beside those of shared memory.
namespace dear::backends::bits_test {
namespace {

using comm::testing::run_on_threads;
using message_programs::AlgorithmChoice;
using message_programs::Choose;
using message_programs::CollectiveCall;
using message_programs::ProgramOptions;
using ::testing::Each;

std::vector<std::unique_ptr<Backend>> over_threads(int size, const ProgramOptions& options = {}) {
  std::vector<std::unique_ptr<Backend>> backends;
  for (auto& channels : channels::testing::make_thread_channels(size)) {
    backends.push_back(make_program_backend(std::move(channels), options));
  }
  return backends;
}

// Numbers of many magnitudes, as this type stores them.
void fill_at_random(const View& view, int rank) {
  std::mt19937 generator(static_cast<unsigned>(77 + rank));
  std::uniform_real_distribution<float> exponent(-8, 8);
  for (std::int64_t i = 0; i < view.count; ++i) {
    const float value = (generator() % 2 == 0 ? -1.0F : 1.0F) * std::exp2(exponent(generator));
    std::byte* at = view.buffer.data() + view.offset_bytes + i * size_of(view.dtype);
    switch (view.dtype) {
      case DType::f16: {
        const Half narrow = narrow_to_half(value);
        std::memcpy(at, &narrow, sizeof narrow);
        break;
      }
      case DType::bf16: {
        const BFloat16 narrow = narrow_to_bfloat16(value);
        std::memcpy(at, &narrow, sizeof narrow);
        break;
      }
      case DType::i32: {
        const auto whole = static_cast<std::int32_t>(value * 5e6F);
        std::memcpy(at, &whole, sizeof whole);
        break;
      }
      default:
        std::memcpy(at, &value, sizeof value);
    }
  }
}

// What every rank holds after sums and averages of several sizes and types.
std::vector<std::vector<std::byte>> results_of(std::vector<std::unique_ptr<Backend>> backends) {
  std::vector<std::vector<std::byte>> results(backends.size());
  EXPECT_THAT(
      run_on_threads(std::move(backends), {},
                     [&](Group& group) {
                       const Buffer buffer = group.allocate(400'000);
                       std::vector<std::byte>& all = results[static_cast<std::size_t>(group.rank())];
                       for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::i32}) {
                         for (const Reduction reduction : {Reduction::sum, Reduction::average}) {
                           for (const std::int64_t count : {3, 1001, 20'001}) {
                             const View view{.buffer = buffer, .count = count, .dtype = dtype};
                             fill_at_random(view, group.rank());
                             group.all_reduce(view, reduction).wait();
                             all.insert(all.end(), buffer.data(), buffer.data() + count * size_of(dtype));
                             fill_at_random(view, group.rank());
                             group.reduce_scatter(view, reduction).wait();
                             all.insert(all.end(), buffer.data(), buffer.data() + count * size_of(dtype));
                           }
                         }
                       }
                     }),
      Each("ok"));
  return results;
}

TEST(Reproducible, GivesTheBitsOfSharedMemoryWhateverTheChoice) {
  for (const int size : {2, 3, 6}) {
    const auto expected = results_of(testing::make_shm_threads(size));
    EXPECT_TRUE(results_of(over_threads(size, {.reproducible = true})) == expected) << size;
    for (const char* name : {"gather", "direct", "halving-doubling", "double-tree"}) {
      const Choose choose = [&](const CollectiveCall&) {
        return AlgorithmChoice{.algorithm = name, .segment_bytes = 4096};
      };
      const auto only_sums = [&](const CollectiveCall& call) {
        return reduces(call.collective) ? choose(call) : AlgorithmChoice{};
      };
      EXPECT_TRUE(results_of(over_threads(size, {.reproducible = true, .choose = only_sums})) == expected)
          << size << " " << name;
    }
  }
}

TEST(Reproducible, CostsNothingOnTwoRanks) {
  EXPECT_TRUE(results_of(over_threads(2)) == results_of(testing::make_shm_threads(2)));
}

TEST(Programs, GiveTheSameBitsInEveryRun) {
  EXPECT_TRUE(results_of(over_threads(6)) == results_of(over_threads(6)));
}

}  // namespace
}  // namespace dear::backends::bits_test
