#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

// These functions say which token goes to which expert, and where in its buffer: the arithmetic of gates, of
// a batch or of its parts. Experts have so many places for the tokens of one rank's batch; tokens beyond are
// dropped. When a batch is cut, each part is told how many places those before it took (capacity passing,
// Lancet, arXiv 2404.19429, section 4.1), so that all parts together keep and drop exactly what the batch
// does.
namespace dear::methods::moe {

// Names of gates: "switch", "top2", "batch-prioritized".
const std::vector<std::string>& gates();

// int(factor * ceil(tokens / experts)): places of an expert for the tokens of one rank's whole batch.
// ConfigError for fewer tokens than experts, a factor that is not positive, and for no place at all.
std::int64_t capacity_of(double factor, std::int64_t tokens, std::int64_t experts);
// ConfigError unless all ranks have as many experts.
std::int64_t experts_of_rank(std::int64_t experts, int ranks);

// The tokens of a part of the batch, up to `end`.
struct TokenRange {
  std::int64_t begin = 0, end = 0;
};
// Parts of whole samples, all of a size. ConfigError unless `parts` divides the samples.
std::vector<TokenRange> parts_of_batch(std::int64_t samples, std::int64_t tokens_of_sample, int parts);

inline constexpr std::int64_t kDropped = -1;

// In all of these `experts` has `choices` experts of each token, one token after another, and `slots` as many
// places. ConfigError for an expert that there is not, and spans that do not fit each other.

// Places the tokens of a part in their order, all choices of a token before the next token: Switch (Fedus et
// al. 2022, arXiv 2101.03961) with one choice; with two, top-2. A gate that places all first choices before
// all second ones must not be cut. `used`, by expert: places that the parts before took; those of this part
// are added. `slots`: the number of earlier tokens of this part with the same expert, or kDropped where that
// with used[expert] is the capacity or more. Returns how many tokens of the part each expert keeps: the
// counts of an all-to-all with sizes.
std::vector<std::int64_t> place_in_order(std::span<const std::int32_t> experts, std::int64_t capacity,
                                         std::span<std::int64_t> used, std::span<std::int64_t> slots);

// Batch-prioritised routing (Riquelme et al. 2021, arXiv 2106.05974): places the tokens of a whole batch,
// those with the largest sum of scores first, of equal ones the earlier, each as place_in_order() does.
// `scores` is as long as `experts`. ConfigError for a score that is not a number.
std::vector<std::int64_t> place_by_importance(std::span<const std::int32_t> experts, int choices,
                                              std::span<const float> scores, std::int64_t capacity,
                                              std::int64_t expert_count, std::span<std::int64_t> slots);
// Cuts a part out of a batch that was placed whole: `experts` and `slots` are those of its tokens, and
// `slots` become places among the part's own, in the order of its tokens. Returns counts as place_in_order().
std::vector<std::int64_t> take_part(std::span<const std::int32_t> experts, std::int64_t expert_count,
                                    std::span<std::int64_t> slots);

// `kept` by expert; expert e lies on rank e / (experts of a rank). Rows to each rank.
std::vector<std::int64_t> rows_by_rank(std::span<const std::int64_t> kept, int ranks);
// `counts`: what each rank says that it sends, by rank, then expert of this rank. MismatchError, before a
// byte is written, for a count below 0 or beyond the capacity: it names this rank and the sender.
void check_counts(std::span<const std::int64_t> counts, std::int64_t capacity, int ranks, int rank);

}  // namespace dear::methods::moe
