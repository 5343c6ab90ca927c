#include "dear/schedule/codec/compression_options.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

namespace dear::codec {
namespace {

constexpr unsigned kRandom = bit_of(Scheme::random_k) | bit_of(Scheme::random_block);
constexpr unsigned kSparse = kRandom | bit_of(Scheme::top_k) | bit_of(Scheme::block_top_k);
constexpr unsigned kLowRank = bit_of(Scheme::low_rank);
constexpr unsigned kLossy = kSparse | bit_of(Scheme::fp16) | bit_of(Scheme::bf16) | kLowRank;
constexpr unsigned kSketch = bit_of(Scheme::sketch);
constexpr unsigned kAll = kLossy | kSketch;

bool finite_from(double value, double least) { return value >= least && std::isfinite(value); }
bool are_patterns(const std::vector<std::string>& patterns) {
  return std::ranges::all_of(patterns, [](const std::string& pattern) {
    return !pattern.empty() && pattern.find_first_of(",;") == std::string::npos;
  });
}

// The values after the scheme and a colon; `value` is a SchemeInfo's `amount`.
constexpr std::array<OptionRow, 2> kAmounts{{
    {.name = "ratio",
     .value = "RATIO",
     .schemes = kSparse,
     .summary = "of the elements that travel",
     .range = "a number above 0 and at most 1",
     .place = [](Compression& c) -> Place { return &c.ratio; },
     .fits = [](const Compression& c) { return c.ratio > 0 && c.ratio <= 1; }},
    {.name = "rank",
     .value = "RANK",
     .schemes = kLowRank,
     .summary = "columns of each factor",
     .range = "an integer of at least 1",
     .place = [](Compression& c) -> Place { return &c.rank; },
     .fits = [](const Compression& c) { return c.rank >= 1; }},
}};

constexpr std::array<OptionRow, 16> kOptions{{
    {.name = "ef",
     .schemes = kLossy,
     .summary = "error feedback: what did not travel is added to the next gradient",
     .place = [](Compression& c) -> Place { return &c.feedback; }},
    {.name = "own",
     .schemes = kRandom,
     .summary = "each rank draws its own coordinates, and sends their indices too",
     .place = [](Compression& c) -> Place { return &c.own_indices; }},
    {.name = "unbiased",
     .schemes = kRandom,
     .summary = "what travels is scaled by 1/RATIO; not with ef",
     .place = [](Compression& c) -> Place { return &c.unbiased; }},
    {.name = "scope",
     .value = "SCOPE",
     .schemes = kSparse,
     .summary =
         "what RATIO is of: the elements of each tensor (the default), of a bucket or of the whole model",
     .range = "tensor, bucket or model",
     .place = [](Compression& c) -> Place { return &c.scope; }},
    {.name = "warmup",
     .value = "STEPS",
     .schemes = kSparse,
     .summary = "in which the ratio falls from 1/4 to RATIO, exponentially",
     .range = "an integer of at least 0",
     .place = [](Compression& c) -> Place { return &c.warm_up_steps; },
     .fits = [](const Compression& c) { return c.warm_up_steps >= 0; }},
    {.name = "momentum",
     .value = "M",
     .schemes = kLossy,
     .summary = "momentum before the communication, on each rank",
     .range = "a number of at least 0 and below 1",
     .place = [](Compression& c) -> Place { return &c.momentum; },
     .fits = [](const Compression& c) { return c.momentum >= 0 && c.momentum < 1; }},
    {.name = "nesterov",
     .schemes = kLossy,
     .summary = "Nesterov's form of momentum",
     .place = [](Compression& c) -> Place { return &c.nesterov; }},
    {.name = "correction",
     .schemes = kSparse,
     .summary = "momentum, too, is zeroed where coordinates travelled; with momentum and ef",
     .place = [](Compression& c) -> Place { return &c.correction; }},
    {.name = "decay",
     .value = "D",
     .schemes = kLossy,
     .summary = "weight decay before the communication, on each rank",
     .range = "a finite number of at least 0",
     .place = [](Compression& c) -> Place { return &c.weight_decay; },
     .fits = [](const Compression& c) { return finite_from(c.weight_decay, 0); }},
    {.name = "dense-below",
     .value = "ELEMENTS",
     .schemes = kAll,
     .summary = "tensors of fewer elements travel dense (default 1024)",
     .range = "an integer of at least 0",
     .place = [](Compression& c) -> Place { return &c.dense_below; },
     .fits = [](const Compression& c) { return c.dense_below >= 0; }},
    {.name = "dense",
     .value = "PATTERN[;PATTERN...]",
     .schemes = kAll,
     .summary = "tensors whose names match travel dense, where * is any characters and ? is one (default "
                "*bias;*norm*); dense= for none",
     .range = "patterns between semicolons, without commas, and none of them empty",
     .place = [](Compression& c) -> Place { return &c.dense_names; },
     .fits = [](const Compression& c) { return are_patterns(c.dense_names); }},
    {.name = "seed",
     .value = "N",
     .schemes = kRandom | kLowRank | kSketch,
     .summary = "of what is drawn, the same on every rank (default 1)",
     .range = "an integer of at least 0",
     .place = [](Compression& c) -> Place { return &c.seed; }},
    {.name = "block",
     .value = "ELEMENTS",
     .schemes = kSketch,
     .summary = "consecutive elements that share a key (default 0: chosen from the first gradients)",
     .range = "0 or a power of two up to 1024",
     .place = [](Compression& c) -> Place { return &c.sketch.block; },
     .fits =
         [](const Compression& c) {
           const std::int64_t block = c.sketch.block;
           return block == 0 ||
                  (block > 0 && block <= 1024 && std::has_single_bit(static_cast<std::uint64_t>(block)));
         }},
    {.name = "index",
     .value = "INDEX",
     .schemes = kSketch,
     .summary = "how the keys travel: bitmap, bloom or automatic (the default)",
     .range = "automatic, bitmap or bloom",
     .place = [](Compression& c) -> Place { return &c.sketch.index; }},
    {.name = "exact",
     .schemes = kSketch,
     .summary = "sums in fixed point, the same for any order of ranks; dense where it would lose bits",
     .place = [](Compression& c) -> Place { return &c.sketch.exact; }},
    {.name = "most-density",
     .value = "DENSITY",
     .schemes = kSketch,
     .summary = "of elements that are not zero on some rank: above it a bucket travels dense (default 0.25)",
     .range = "a number above 0 and at most 1",
     .place = [](Compression& c) -> Place { return &c.sketch.most_density; },
     .fits = [](const Compression& c) { return c.sketch.most_density > 0 && c.sketch.most_density <= 1; }},
}};

}  // namespace

std::span<const OptionRow> amount_rows() { return kAmounts; }
std::span<const OptionRow> option_rows() { return kOptions; }

}  // namespace dear::codec
