#include "dear/train/optim/stochastic_rounding.h"

#include <bit>
#include <cmath>

namespace dear::optim {
namespace {

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014, doi 10.1145/2660193.2660195), which mixes all bits.
std::uint64_t mixed(std::uint64_t bits) {
  bits += 0x9e3779b97f4a7c15;
  bits = (bits ^ (bits >> 30U)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27U)) * 0x94d049bb133111eb;
  return bits ^ (bits >> 31U);
}

}  // namespace

void round_stochastically(const float* from, at::BFloat16* to, std::int64_t count, const RoundingKey& key,
                          TensorId tensor, std::int64_t offset) {
  const std::uint64_t stream =
      mixed(mixed(mixed(key.seed) + static_cast<std::uint64_t>(key.update)) + tensor);
  constexpr std::int64_t kOfWord = 4;  // elements for which one word has 16 random bits each
  for (std::int64_t i = 0; i < count;) {
    const std::int64_t place = offset + i;
    std::uint64_t random =
        mixed(stream + static_cast<std::uint64_t>(place / kOfWord)) >> (16 * (place % kOfWord));
    for (std::int64_t k = place % kOfWord; k < kOfWord && i < count; ++k, ++i, random >>= 16U) {
      const auto bits = std::bit_cast<std::uint32_t>(from[i]);
      const auto moved =
          static_cast<std::uint16_t>((bits + static_cast<std::uint32_t>(random & 0xffffU)) >> 16U);
      to[i] = std::isnan(from[i]) ? at::BFloat16(from[i]) : at::BFloat16(moved, at::BFloat16::from_bits());
    }
  }
}

}  // namespace dear::optim
