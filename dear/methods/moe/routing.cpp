#include "dear/methods/moe/routing.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::methods::moe {
namespace {

void check_size(std::size_t size, std::size_t expected, const char* what) {
  if (size != expected)
    throw ConfigError(
        fmt::format("{} {} do not fit {} choices of tokens: give one for each", size, what, expected));
}

std::size_t checked(std::int32_t expert, std::size_t experts) {
  if (expert < 0 || std::cmp_greater_equal(expert, experts))
    throw ConfigError(fmt::format(
        "a token chose expert {}, but there are {}: choose one from 0 on and below that", expert, experts));
  return static_cast<std::size_t>(expert);
}

void check_capacity(std::int64_t capacity) {
  if (capacity < 1)
    throw ConfigError(
        fmt::format("experts with {} places take no token: give them a larger capacity", capacity));
}

}  // namespace

const std::vector<std::string>& gates() {
  static const std::vector<std::string> kNames{"switch", "top2", "batch-prioritized"};
  return kNames;
}

std::int64_t capacity_of(double factor, std::int64_t tokens, std::int64_t experts) {
  if (experts < 1 || tokens < experts)
    throw ConfigError(fmt::format(
        "{} tokens are too few for {} experts: give each rank a batch with a token for each, or fewer "
        "experts, at least 1",
        tokens, experts));
  if (!std::isfinite(factor) || factor <= 0)
    throw ConfigError(fmt::format("a capacity factor of {} cannot be: give one above 0", factor));
  const std::int64_t share = (tokens + experts - 1) / experts;
  const double capacity = factor * static_cast<double>(share);
  if (capacity < 1)
    throw ConfigError(
        fmt::format("a capacity factor of {} leaves experts no place for {} tokens of a rank: give at "
                    "least {}",
                    factor, tokens, 1.0 / static_cast<double>(share)));
  // More than all choices of all tokens fill no place.
  return capacity < 0x1p62 ? static_cast<std::int64_t>(capacity) : std::int64_t{1} << 62;
}

std::int64_t experts_of_rank(std::int64_t experts, int ranks) {
  if (ranks < 1 || experts < 1 || experts % ranks != 0)
    throw ConfigError(fmt::format(
        "{} experts cannot be dealt to {} ranks alike: give a multiple of the ranks", experts, ranks));
  return experts / ranks;
}

std::vector<TokenRange> parts_of_batch(std::int64_t samples, std::int64_t tokens_of_sample, int parts) {
  if (parts < 1 || parts > samples)
    throw ConfigError(
        fmt::format("a batch of {} cannot be cut into {} parts: choose from 1 to the batch", samples, parts));
  if (samples % parts != 0 || tokens_of_sample < 1)
    throw ConfigError(
        fmt::format("{} parts do not divide a batch of {} samples of {} tokens: choose a divisor of the "
                    "batch, and samples with a token",
                    parts, samples, tokens_of_sample));
  const std::int64_t tokens = samples / parts * tokens_of_sample;
  std::vector<TokenRange> ranges;
  for (int part = 0; part < parts; ++part) ranges.push_back({part * tokens, (part + 1) * tokens});
  return ranges;
}

std::vector<std::int64_t> place_in_order(std::span<const std::int32_t> experts, std::int64_t capacity,
                                         std::span<std::int64_t> used, std::span<std::int64_t> slots) {
  check_capacity(capacity);
  check_size(slots.size(), experts.size(), "slots");
  for (const std::int64_t places : used)
    if (places < 0 || places > capacity)
      throw ConfigError(
          fmt::format("the parts before took {} of {} places of an expert: hand on what the part before "
                      "left there, at first 0",
                      places, capacity));
  std::vector<std::int64_t> kept(used.size());
  for (std::size_t i = 0; i < experts.size(); ++i) {
    const std::size_t expert = checked(experts[i], used.size());
    const bool keeps = kept[expert] < capacity - used[expert];
    slots[i] = keeps ? kept[expert]++ : kDropped;
  }
  for (std::size_t expert = 0; expert < used.size(); ++expert) used[expert] += kept[expert];
  return kept;
}

std::vector<std::int64_t> place_by_importance(std::span<const std::int32_t> experts, int choices,
                                              std::span<const float> scores, std::int64_t capacity,
                                              std::int64_t expert_count, std::span<std::int64_t> slots) {
  check_capacity(capacity);
  check_size(slots.size(), experts.size(), "slots");
  check_size(scores.size(), experts.size(), "scores");
  if (choices < 1 || expert_count < 1 || experts.size() % static_cast<std::size_t>(choices) != 0)
    throw ConfigError(
        fmt::format("{} choices among {} experts are not {} of each token: give at least 1 of each, and "
                    "as many of every token",
                    experts.size(), expert_count, choices));
  const auto width = static_cast<std::size_t>(choices);
  std::vector<double> importance(experts.size() / width);
  for (std::size_t i = 0; i < scores.size(); ++i) importance[i / width] += static_cast<double>(scores[i]);
  for (std::size_t token = 0; token < importance.size(); ++token)
    if (std::isnan(importance[token]))
      throw ConfigError(
          fmt::format("the scores of token {} are not numbers, so nothing says how important it is: "
                      "look for the first loss that is not finite",
                      token));
  std::vector<std::size_t> order(importance.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return importance[a] > importance[b]; });
  std::vector<std::int64_t> kept(static_cast<std::size_t>(expert_count));
  for (const std::size_t token : order)
    for (std::size_t i = token * width; i < (token + 1) * width; ++i) {
      const std::size_t expert = checked(experts[i], kept.size());
      slots[i] = kept[expert] < capacity ? kept[expert]++ : kDropped;
    }
  return kept;
}

std::vector<std::int64_t> take_part(std::span<const std::int32_t> experts, std::int64_t expert_count,
                                    std::span<std::int64_t> slots) {
  check_size(slots.size(), experts.size(), "slots");
  std::vector<std::int64_t> kept(static_cast<std::size_t>(std::max<std::int64_t>(expert_count, 0)));
  for (std::size_t i = 0; i < experts.size(); ++i)
    if (slots[i] != kDropped) slots[i] = kept[checked(experts[i], kept.size())]++;
  return kept;
}

std::vector<std::int64_t> rows_by_rank(std::span<const std::int64_t> kept, int ranks) {
  const std::int64_t own = experts_of_rank(static_cast<std::int64_t>(kept.size()), ranks);
  std::vector<std::int64_t> rows;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto first = kept.begin() + rank * own;
    rows.push_back(std::accumulate(first, first + own, std::int64_t{0}));
  }
  return rows;
}

void check_counts(std::span<const std::int64_t> counts, std::int64_t capacity, int ranks, int rank) {
  const std::int64_t own = experts_of_rank(static_cast<std::int64_t>(counts.size()), ranks);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] >= 0 && counts[i] <= capacity) continue;
    throw MismatchError(
        fmt::format("rank {}: rank {} says that it sends {} tokens to expert {}, which has {} places for "
                    "them: give all ranks the same capacity",
                    rank, static_cast<std::int64_t>(i) / own, counts[i],
                    rank * own + static_cast<std::int64_t>(i) % own, capacity));
  }
}

}  // namespace dear::methods::moe
