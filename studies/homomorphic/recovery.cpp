#include "studies/homomorphic/recovery.h"

#include "studies/training/threads.h"
#include <cmath>
#include <cstddef>
#include <numeric>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/codec/kernels.h"
#include "dear/schedule/codec/peel.h"

namespace dear::studies::homomorphic {
namespace {

constexpr std::int64_t kMostRows = 1 << 16;  // of a group

void measure(RecoveryRate& rate, int trials) {
  const auto count = static_cast<std::size_t>(rate.keys);
  const auto range =
      static_cast<std::uint32_t>(std::llround(rate.rows_per_key * static_cast<double>(rate.keys) / 3));
  std::vector<std::uint32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0U);
  std::vector<codec::PackedRows> keys(count);
  std::vector<std::int32_t> rows(std::size_t{3} * range), values(count);
  codec::PeelingMemory memory;
  int whole = 0;
  double left = 0, rounds = 0;
  for (int trial = 0; trial < trials; ++trial) {
    const codec::KeyHash hash(static_cast<std::uint64_t>(1 + trial));
    codec::kernels().rows(hash, numbers.data(), rate.keys, range, keys.data());
    const codec::PeeledGroup peeled =
        codec::peel_group<1>(keys, rows.size(), 1, rows.data(), values.data(), memory);
    left += 1 - static_cast<double>(peeled.peeled) / static_cast<double>(rate.keys);
    if (peeled.peeled != rate.keys) continue;
    ++whole;
    rounds += peeled.rounds;
  }
  rate.whole = static_cast<double>(whole) / trials;
  rate.left = left / trials;
  rate.rounds = whole > 0 ? rounds / whole : 0;
}

}  // namespace

std::vector<RecoveryRate> recovery_rates(const RecoveryOptions& options, const studies::Progress& progress) {
  if (options.trials < 1)
    throw ConfigError(fmt::format("{} trials tell no rate: one at least", options.trials));
  std::vector<RecoveryRate> rates;
  for (const std::int64_t keys : options.keys) {
    for (const double rows_per_key : options.rows_per_key) {
      if (keys < 1 || rows_per_key * static_cast<double>(keys) > kMostRows - 2)
        throw ConfigError(
            fmt::format("{} keys with {} rows each are no group: one key at least, and at most {} rows", keys,
                        rows_per_key, kMostRows));
      rates.push_back({.keys = keys, .rows_per_key = rows_per_key});
    }
  }
  training::for_each_in_threads(
      rates.size(), [&](std::size_t i) { measure(rates[i], options.trials); }, "recovery", progress);
  return rates;
}

}  // namespace dear::studies::homomorphic
