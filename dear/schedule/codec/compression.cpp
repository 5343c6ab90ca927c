#include "dear/schedule/codec/compression.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace dear {
namespace {

constexpr std::array<SchemeInfo, 8> kSchemes{{
    {.scheme = Scheme::random_k,
     .name = "random-k",
     .amount = "RATIO",
     .summary = "coordinates that are drawn, the same on every rank",
     .source = "Stich, Cordonnier and Jaggi 2018, arXiv 1809.07599"},
    {.scheme = Scheme::random_block,
     .name = "random-block",
     .amount = "RATIO",
     .summary = "one block of neighbouring coordinates at a place that is drawn, the same on every rank",
     .source = "Eghlidi and Jaggi 2020, arXiv 2009.09271"},
    {.scheme = Scheme::top_k,
     .name = "top-k",
     .amount = "RATIO",
     .summary = "the coordinates of largest magnitude, each rank its own",
     .source = "Aji and Heafield 2017, arXiv 1704.05021"},
    {.scheme = Scheme::block_top_k,
     .name = "block-top-k",
     .amount = "RATIO",
     .summary = "the block of largest norm, each rank its own",
     .source = "top-k, of blocks"},
    {.scheme = Scheme::fp16,
     .name = "fp16",
     .amount = "",
     .summary = "every coordinate, in 16 bits: IEEE half precision",
     .source = "Micikevicius et al. 2018, arXiv 1710.03740"},
    {.scheme = Scheme::bf16,
     .name = "bf16",
     .amount = "",
     .summary = "every coordinate, in 16 bits: the range of fp32, 8 bits of precision",
     .source = "Kalamkar et al. 2019, arXiv 1905.12322"},
    {.scheme = Scheme::low_rank,
     .name = "low-rank",
     .amount = "RANK",
     .summary = "two factors of each matrix (PowerSGD)",
     .source = "Vogels, Karimireddy and Jaggi 2019, arXiv 1905.13727"},
    {.scheme = Scheme::sketch,
     .name = "sketch",
     .amount = "",
     .summary = "all that is not zero, lossless: the index of homomorphic compression, then values by key",
     .source = "Li et al. 2024, arXiv 2402.07529"},
}};

// Returns base^(part / whole) for 0 <= part < whole, by square roots and products alone: they are rounded
// alike on every machine, while std::pow() is the work of its library and of the processor.
double power(double base, std::int64_t part, std::int64_t whole) {
  const auto denominator = static_cast<std::uint64_t>(whole);
  auto numerator = static_cast<std::uint64_t>(part);
  double result = 1;
  double root = base;
  for (int bit = 0; bit < 60 && numerator != 0; ++bit) {
    root = std::sqrt(root);
    numerator *= 2;
    if (numerator < denominator) continue;
    numerator -= denominator;
    result *= root;
  }
  return result;
}

bool matches(std::string_view pattern, std::string_view name) {
  std::size_t at = 0;                         // in the pattern
  std::size_t star = std::string_view::npos;  // the last * that was met,
  std::size_t tried = 0;                      // and where what follows it is tried in the name
  for (std::size_t i = 0; i < name.size();) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      tried = i;
    } else if (at < pattern.size() && (pattern[at] == '?' || pattern[at] == name[i])) {
      ++at;
      ++i;
    } else if (star != std::string_view::npos) {
      at = star + 1;
      i = ++tried;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', at) == std::string_view::npos;
}

}  // namespace

std::span<const SchemeInfo> schemes() { return kSchemes; }

std::string_view name_of(Scheme scheme) { return kSchemes[static_cast<std::size_t>(scheme)].name; }

double Compression::ratio_at(std::int64_t step) const {
  if (step >= warm_up_steps) return ratio;
  const double start = std::max(ratio, 0.25);
  return start * power(ratio / start, step, warm_up_steps);
}

bool Compression::gathers() const {
  return scheme == Scheme::top_k || scheme == Scheme::block_top_k ||
         ((scheme == Scheme::random_k || scheme == Scheme::random_block) && own_indices);
}

bool Compression::leaves_dense(std::string_view name, std::int64_t elements) const {
  return elements < dense_below ||
         std::ranges::any_of(dense_names, [&](const std::string& pattern) { return matches(pattern, name); });
}

}  // namespace dear
