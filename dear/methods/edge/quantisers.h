#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "dear/schedule/codec/codec.h"
#include "dear/schedule/codec/draw.h"

// A device sends its update so over a digital link. QSGD: Alistarh et al. 2017, arXiv 1610.02132;
// TernGrad: Wen et al. 2017, arXiv 1705.07878; signs: Bernstein et al. 2018, arXiv 1802.04434.
namespace dear::methods::edge {

struct QuantiserOptions {
  int levels = 4;       // of qsgd
  double ratio = 0.05;  // of top-k: elements that travel
};

struct Quantiser {
  std::string_view name, summary;
  bool unbiased = true;
  bool votes = false;  // the server takes the majority of signs, not the mean
  // Writes what arrives.
  void (*apply)(std::span<const double> values, const QuantiserOptions& options, codec::Draw& draw,
                std::span<double> out);
  double (*bits)(std::int64_t elements, const QuantiserOptions& options);
};
const std::vector<Quantiser>& quantisers();
// ConfigError with the names there are, for less than one level and a ratio that is not in (0, 1].
const Quantiser& find_quantiser(std::string_view name, const QuantiserOptions& options);
// Error for a value that is not finite. Zeros arrive as zeros.
void quantise(const Quantiser& quantiser, std::span<const double> values, const QuantiserOptions& options,
              codec::Draw& draw, std::span<double> out);

// E |Q(v) - v|^2 of qsgd is at most this times |v|^2: min(d / s^2, sqrt(d) / s).
double qsgd_variance_bound(std::int64_t elements, int levels);

// Keeps what did not arrive and adds it to the next update: sum sent + memory = sum of updates.
class ErrorMemory {
 public:
  void add_to(std::span<double> update);
  void keep(std::span<const double> wanted, std::span<const double> sent);
  [[nodiscard]] const std::vector<double>& kept() const { return kept_; }

 private:
  std::vector<double> kept_;
};

}  // namespace dear::methods::edge
