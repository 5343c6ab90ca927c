#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dear/methods/edge/over_the_air.h"
#include "dear/schedule/codec/draw.h"

// Sparse updates over the air, A-DSGD (Amiri and Gündüz 2020, arXiv 1901.00844): a device sends fewer symbols
// than its update has elements, s random projections of its largest elements, and the server recovers the sum
// of the sparse updates by approximate message passing (Donoho, Maleki and Montanari 2009, arXiv 0907.3574).
// ConfigError in one sentence.
namespace dear::methods::edge {

// s x d numbers of a normal distribution with variance 1 / s, which devices and server draw from one seed.
class Projection {
 public:
  static constexpr std::int64_t kMostNumbers = 25'000'000;
  // ConfigError for a share that is not in (0, 1], and for more than kMostNumbers.
  [[nodiscard]] static std::int64_t symbols_of(std::int64_t elements, double share);
  // ConfigErrors as of symbols_of().
  Projection(std::int64_t elements, double share, std::uint64_t seed);

  [[nodiscard]] std::int64_t symbols() const { return symbols_; }
  [[nodiscard]] std::int64_t elements() const { return elements_; }
  [[nodiscard]] std::vector<double> apply(std::span<const double> elements) const;
  [[nodiscard]] std::vector<double> transpose(std::span<const double> symbols) const;
  // The sparse vector whose projections these are, as far as noise allows: soft thresholds of `cut` standard
  // deviations of what a pass leaves over.
  [[nodiscard]] std::vector<double> recover(std::span<const double> symbols, int passes = 40,
                                            double cut = 1.4) const;

 private:
  std::int64_t elements_, symbols_;
  std::vector<double> rows_;
};

// Devices whose channels are at least the threshold invert them to a received power of
// received_power(settings) a symbol, and each sends its projections at the amplitude that this allows, with
// one more symbol that says the amplitude. Writes the mean of the updates, weighted by amplitudes, as the
// server recovers it; zeros where nobody sends, and where noise drowns the symbol of amplitudes. `sparse`: by
// device, of Projection::elements(). `fading` and `noise`: see sum_over_the_air().
Received sum_projected(const OverTheAir& settings, const Projection& projection,
                       const std::vector<std::vector<double>>& sparse, std::span<const double> fading,
                       codec::Draw& noise, std::span<double> out);

}  // namespace dear::methods::edge
