// bench_codec_speed [MIB] [ROUNDS]: the time of encoding and decoding a buffer of gradients (64 MiB) in one
// thread beside that of one memcpy of the buffer, in turns; medians, and their ratios. Each codec works on
// one segment, keeps 1 % of it where it keeps a part, and decodes into a buffer that is zero. Each result is
// verified: what was decoded is what the definition of the scheme says. Sketches are of another buffer, of
// whose blocks 5 % are not zero, at random places: an index and values by key; or rows, where one of four
// ranks encodes, peels its own part and spreads all parts, or one rank alone does all.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <fmt/format.h>

#include "dear/base/vocabulary/half.h"
#include "dear/schedule/codec/codec.h"
#include "dear/schedule/codec/key_index.h"
#include "dear/schedule/codec/low_rank.h"
#include "dear/schedule/codec/sketch.h"

namespace {

using dear::Compression;
using dear::Scheme;
using dear::codec::Gatherable;
using dear::codec::Reducible;
using Values = std::vector<float>;

// One of the things whose times are compared.
struct Rival {
  std::string name;
  std::function<void(const Values& gradients, Values& decoded, std::int64_t step)> encode_and_decode;
  std::function<bool(const Values& gradients, const Values& decoded)> right;
  std::vector<double> seconds{};
};

Rival memcpy_rival() {
  return {.name = "memcpy",
          .encode_and_decode =
              [](const Values& from, Values& to, std::int64_t) {
                std::memcpy(to.data(), from.data(), from.size() * sizeof(float));
              },
          .right = [](const Values& from, const Values& to) { return from == to; }};
}

std::int64_t kept(std::size_t elements, double ratio) {
  return std::max<std::int64_t>(1,
                                static_cast<std::int64_t>(std::floor(ratio * static_cast<double>(elements))));
}

// So many coordinates arrived as they were, and nothing else did.
bool sparse(const Values& gradients, const Values& decoded, std::int64_t count) {
  std::int64_t found = 0;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (decoded[i] != 0 && decoded[i] != gradients[i]) return false;
    found += static_cast<std::int64_t>(decoded[i] != 0);
  }
  return found == count;
}

// No coordinate that stayed is larger than one that arrived.
bool largest(const Values& gradients, const Values& decoded) {
  float stayed = 0, arrived = INFINITY;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    float& bound = decoded[i] != 0 ? arrived : stayed;
    bound =
        decoded[i] != 0 ? std::min(bound, std::abs(gradients[i])) : std::max(bound, std::abs(gradients[i]));
  }
  return stayed <= arrived;
}

struct Made {
  std::unique_ptr<Reducible> reducible;
  std::unique_ptr<Gatherable> gatherable;
  std::vector<std::byte> payload;
};

Rival codec_rival(const std::string& text, std::size_t elements,
                  const std::function<bool(const Values&, const Values&)>& right) {
  const Compression compression = Compression::parse(text);
  const std::vector<dear::codec::Segment> segments = {
      {.range = {0, static_cast<std::int64_t>(elements)}, .key = 1}};
  const auto made = std::make_shared<Made>();
  if (compression.gathers()) {
    made->gatherable = dear::codec::make_gatherable(compression, segments, 0);
    made->payload.resize(static_cast<std::size_t>(made->gatherable->most_bytes()));
  } else {
    made->reducible = dear::codec::make_reducible(compression, segments);
    made->payload.resize(
        static_cast<std::size_t>(made->reducible->most_elements() * dear::size_of(made->reducible->dtype())));
  }
  return {.name = text,
          .encode_and_decode =
              [made](const Values& gradients, Values& decoded, std::int64_t step) {
                if (made->gatherable) {
                  made->gatherable->encode(gradients, step, made->payload.data());
                  made->gatherable->add(made->payload.data(), step, 1, decoded);
                } else {
                  made->reducible->encode(gradients, step, made->payload.data());
                  made->reducible->decode(made->payload.data(), step, decoded);
                }
              },
          .right = right};
}

// What was decoded is the part of the gradients in directions that are orthogonal to what is left: its square
// and that of the rest are that of the whole.
bool projected(const Values& gradients, const Values& decoded) {
  double whole = 0, part = 0, rest = 0;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const double left = double{gradients[i]} - double{decoded[i]};
    whole += double{gradients[i]} * double{gradients[i]};
    part += double{decoded[i]} * double{decoded[i]};
    rest += left * left;
  }
  return part > 0 && std::abs(part + rest - whole) <= 1e-6 * whole;
}

// Both rounds of one rank, on a square matrix.
Rival low_rank_rival(int rank, std::size_t elements) {
  const auto side = static_cast<std::int64_t>(std::sqrt(elements));
  const auto codec = std::make_shared<dear::codec::LowRank>(
      rank, 1, std::vector<dear::codec::Matrix>{{.range = {0, side * side}, .rows = side}});
  const auto p = std::make_shared<Values>(static_cast<std::size_t>(codec->p_elements()));
  const auto q = std::make_shared<Values>(static_cast<std::size_t>(codec->q_elements()));
  return {.name = fmt::format("low-rank:{}", rank),
          .encode_and_decode =
              [codec, p, q](const Values& gradients, Values& decoded, std::int64_t) {
                codec->encode_p(gradients, *p);
                codec->encode_q(gradients, *p, *q);
                codec->decode(*p, *q, decoded);
              },
          .right = projected};
}

constexpr int kScale = 40;
constexpr double kSketchDensity = 0.05;

Values sparse_gradients(std::size_t elements, std::int64_t block) {
  Values values(elements);
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::bernoulli_distribution some(kSketchDensity);
  for (std::size_t i = 0; i < elements; i += static_cast<std::size_t>(block)) {
    if (!some(random)) continue;
    for (std::size_t j = i; j < std::min(elements, i + static_cast<std::size_t>(block)); ++j) {
      values[j] = normal(random);
    }
  }
  return values;
}

template <typename T>
struct SketchWork {
  Values gradients;
  dear::codec::Sketch sketch;
  std::vector<std::uint64_t> index;
  std::vector<T> rows;
  std::vector<std::vector<T>> parts;  // by owner
  std::vector<Values> values;

  void peel(int owner) {
    const auto size = static_cast<std::size_t>(sketch.shape().values_per_owner());
    const auto at = static_cast<std::size_t>(owner);
    parts[at].resize(static_cast<std::size_t>(sketch.keys_of(owner) * sketch.shape().block));
    values[at].resize(parts[at].size());
    if (sketch.peel<T>(owner, std::span(rows).subspan(at * size, size), parts[at]).unpeeled > 0) {
      fmt::print("some keys were not recovered\n");
    }
    if constexpr (std::is_integral_v<T>) {
      dear::codec::unscale(std::span<const T>(parts[at]), kScale, values[at]);
    } else {
      values[at] = parts[at];
    }
  }
};

// Parts of the owners after the first are peeled once, before the first round.
template <typename T>
Rival sketch_rival(const std::string& name, std::size_t elements, const dear::SketchSpec& spec, int ranks) {
  const double keys = kSketchDensity * static_cast<double>(elements) / static_cast<double>(spec.block);
  const auto work = std::make_shared<SketchWork<T>>(
      SketchWork<T>{.gradients = sparse_gradients(elements, spec.block),
                    .sketch = dear::codec::Sketch(
                        dear::codec::shape_for(spec, static_cast<std::int64_t>(elements), ranks, keys, 1)),
                    .parts = std::vector<std::vector<T>>(static_cast<std::size_t>(ranks)),
                    .values = std::vector<Values>(static_cast<std::size_t>(ranks))});
  work->index.resize(static_cast<std::size_t>(work->sketch.shape().index_words()));
  work->rows.resize(static_cast<std::size_t>(work->sketch.shape().values()));
  return {.name = name,
          .encode_and_decode =
              [work, ranks](const Values&, Values& decoded, std::int64_t step) {
                work->sketch.template encode<T>(work->gradients, 0, kScale, work->index, work->rows);
                work->sketch.read(work->index);
                for (int owner = 0; owner < (step == 0 ? ranks : 1); ++owner) work->peel(owner);
                const std::vector<std::span<const float>> parts(work->values.begin(), work->values.end());
                work->sketch.spread(parts, decoded);
              },
          .right =
              [work](const Values&, const Values& decoded) {
                return std::equal(decoded.begin(), decoded.end(), work->gradients.begin(),
                                  [](float a, float b) { return std::abs(a - b) <= 1e-4F; });
              }};
}

// This is what training sends: an index, then values by key.
Rival by_key_rival(const std::string& name, std::size_t elements, std::int64_t block) {
  const double keys = kSketchDensity * static_cast<double>(elements) / static_cast<double>(block);
  struct Work {
    Values gradients;
    dear::codec::KeyIndex keys;
    std::vector<std::uint64_t> index;
    Values by_key;
  };
  const auto work = std::make_shared<Work>(
      Work{.gradients = sparse_gradients(elements, block),
           .keys = dear::codec::KeyIndex(dear::codec::shape_for(
               {.room = 0, .block = block}, static_cast<std::int64_t>(elements), 4, keys, 1))});
  work->index.resize(static_cast<std::size_t>(work->keys.shape().index_words()));
  return {.name = name,
          .encode_and_decode =
              [work, block](const Values&, Values& decoded, std::int64_t) {
                dear::codec::write_header(work->index, 4, 0, work->keys.encode(work->gradients, work->index));
                work->keys.read(work->index);
                work->by_key.resize(work->keys.keys().size() * static_cast<std::size_t>(block));
                work->keys.gather(work->gradients, work->by_key);
                work->keys.spread(work->by_key, decoded);
              },
          .right = [work](const Values&, const Values& decoded) { return decoded == work->gradients; }};
}

double median(std::vector<double> times) {
  std::nth_element(times.begin(), times.begin() + std::ssize(times) / 2, times.end());
  return times[times.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t elements =
      static_cast<std::size_t>(argc > 1 ? std::atoll(argv[1]) : 64) * (1 << 20) / sizeof(float);
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 15;
  Values gradients(elements);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (float& value : gradients) {
    do value = normal(random);
    while (value == 0);
  }
  const std::int64_t count = kept(elements, 0.01);
  const auto some = [count](const Values& from, const Values& to) { return sparse(from, to, count); };
  const auto most = [count](const Values& from, const Values& to) {
    return sparse(from, to, count) && largest(from, to);
  };
  const auto rounded = [](auto narrow) {
    return [narrow](const Values& from, const Values& to) {
      return std::equal(from.begin(), from.end(), to.begin(),
                        [narrow](float a, float b) { return dear::widen(narrow(a)) == b; });
    };
  };
  std::vector<Rival> rivals = {
      memcpy_rival(),
      codec_rival("random-block:0.01", elements, some),
      codec_rival("random-block:0.01,own", elements, some),
      codec_rival("random-k:0.01", elements, some),
      codec_rival("random-k:0.01,own", elements, some),
      codec_rival("block-top-k:0.01", elements, some),
      codec_rival("top-k:0.01", elements, most),
      codec_rival("fp16", elements, rounded(dear::narrow_to_half)),
      codec_rival("bf16", elements, rounded(dear::narrow_to_bfloat16)),
      low_rank_rival(4, elements),
      by_key_rival("sketch", elements, 1),
      by_key_rival("sketch, block 16", elements, 16),
      sketch_rival<float>("rows, peeled by 4 ranks", elements, {.block = 1}, 4),
      sketch_rival<float>("rows, peeled by one", elements, {.block = 1}, 1),
      sketch_rival<std::int64_t>("rows of int64, by 4", elements, {.block = 1, .exact = true}, 4),
      sketch_rival<float>("rows, block 16, by 4", elements, {.block = 16}, 4)};

  std::vector<Values> decoded(rivals.size(), Values(elements));
  bool right = true;
  for (int round = 0; round <= rounds; ++round) {
    for (std::size_t i = 0; i < rivals.size(); ++i) {
      Rival& rival = rivals[i];
      const auto begin = std::chrono::steady_clock::now();
      rival.encode_and_decode(gradients, decoded[i], round);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      if (round > 0) {  // the first one makes room
        rival.seconds.push_back(took.count());
      }
      if (!rival.right(gradients, decoded[i])) {
        fmt::print("WRONG: {}\n", rival.name);
        right = false;
      }
      std::fill(decoded[i].begin(), decoded[i].end(), 0.0F);
    }
  }
  const double memcpy_seconds = median(rivals.front().seconds);
  fmt::print("{:<24} {:>10} {:>8}   {} MiB, medians of {} rounds\n", "encode + decode", "ms", "memcpys",
             elements * sizeof(float) >> 20, rounds);
  for (const Rival& rival : rivals) {
    fmt::print("{:<24} {:>10.3f} {:>8.3f}\n", rival.name, median(rival.seconds) * 1e3,
               median(rival.seconds) / memcpy_seconds);
  }
  return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
