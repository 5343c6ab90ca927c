#include "dear/schedule/codec/measure_codec.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

#include "dear/schedule/codec/codec.h"
#include "dear/schedule/codec/feedback.h"
#include "dear/schedule/codec/kernels.h"
#include "dear/schedule/codec/key_index.h"
#include "dear/schedule/codec/low_rank.h"
#include "dear/schedule/codec/sketch.h"

namespace dear::codec {
namespace {

constexpr std::int64_t kElements = std::int64_t{4} << 20;
constexpr double kBytes = 4.0 * kElements;
constexpr std::int64_t kRows = 1024;  // of a matrix

std::vector<float> made_up(double density) {
  std::minstd_rand random(1);
  const auto uniform = [&] {
    return static_cast<float>(random() - std::minstd_rand::min()) /
           static_cast<float>(std::minstd_rand::max() - std::minstd_rand::min());
  };
  std::vector<float> values(kElements);
  for (float& value : values) {
    const bool is_zero = uniform() >= static_cast<float>(density);
    value = uniform() + uniform() + uniform() - 1.5F;  // more small ones than large ones
    if (is_zero) value = 0;
  }
  return values;
}

// One rank's step on a bucket that is one tensor.
class Bench {
 public:
  Bench(const Compression& compression, double density, const Timer& timer)
      : compression_(compression),
        timer_(timer),
        gradients_(made_up(density)),
        values_(kElements),
        parameters_(compression.weight_decay > 0 ? kElements : 0),
        feedback_(compression, kElements) {}

  // `encode` writes the payload of values(), `take_out` takes out of a vector what it carries.
  double encode_seconds(const Action& encode, const Feedback::TakeOut& take_out) {
    return timer_([&] { std::ranges::copy(gradients_, values_.begin()); },
                  [&] {
                    feedback_.prepare(values_, parameters_);
                    encode();
                    if (compression_.feedback) take_out(values_);
                    feedback_.keep(values_, take_out);
                  });
  }
  double decode_seconds(const Action& decode) {
    return seconds([&] {
      std::ranges::fill(values_, 0.0F);
      decode();
      [[maybe_unused]] volatile bool finite = all_finite(values_);  // as training looks at each mean
    });
  }
  double seconds(const Action& work) {
    return timer_([] {}, work);
  }
  double seconds(const Action& before, const Action& work) { return timer_(before, work); }
  std::span<float> values() { return values_; }

 private:
  Compression compression_;
  const Timer& timer_;
  std::vector<float> gradients_, values_, parameters_;
  Feedback feedback_;
};

struct Seconds {
  double encode = 0, second_encode = 0, decode = 0;
};

Seconds of_reducible(const Compression& compression, Bench& bench) {
  const std::unique_ptr<Reducible> codec = make_reducible(compression, {{.range = {0, kElements}}});
  const std::int64_t step = compression.warm_up_steps;
  std::vector<std::byte> payload(static_cast<std::size_t>(codec->elements(step) * size_of(codec->dtype())));
  return {.encode = bench.encode_seconds(
              [&] { codec->encode(bench.values(), step, payload.data()); },
              [&](std::span<float> values) { codec->take_out(payload.data(), step, values); }),
          .decode = bench.decode_seconds([&] { codec->decode(payload.data(), step, bench.values()); })};
}

Seconds of_gatherable(const Compression& compression, int ranks, Bench& bench) {
  const std::unique_ptr<Gatherable> codec = make_gatherable(compression, {{.range = {0, kElements}}}, 0);
  const std::int64_t step = compression.warm_up_steps;
  std::vector<std::byte> payload(static_cast<std::size_t>(codec->bytes(step)));
  const double encode =
      bench.encode_seconds([&] { codec->encode(bench.values(), step, payload.data()); },
                           [&](std::span<float> values) { codec->take_out(payload.data(), step, values); });
  const double zeros = bench.decode_seconds([] {});
  const double one = bench.decode_seconds([&] { codec->add(payload.data(), step, 1, bench.values()); });
  return {.encode = encode, .decode = zeros + ranks * std::max(0.0, one - zeros)};
}

Seconds of_low_rank(const Compression& compression, Bench& bench) {
  LowRank codec(compression.rank, compression.seed, {{.range = {0, kElements}, .rows = kRows}});
  std::vector<float> p(static_cast<std::size_t>(codec.p_elements()));
  std::vector<float> q(static_cast<std::size_t>(codec.q_elements()));
  Seconds seconds{.encode = bench.encode_seconds(
                      [&] { codec.encode_p(bench.values(), p); },
                      [](std::span<float>) { /* waits for the second round: it counts as decoding */ }),
                  .second_encode = bench.seconds([&] { codec.encode_q(bench.values(), p, q); }),
                  .decode = bench.decode_seconds([&] { codec.decode(p, q, bench.values()); })};
  if (compression.feedback) seconds.decode += bench.seconds([&] { codec.take_out(p, q, bench.values()); });
  return seconds;
}

Seconds of_values_by_key(const Compression& compression, int ranks, double density, Bench& bench) {
  SketchSpec spec = compression.sketch;
  spec.block = std::max<std::int64_t>(1, spec.block);
  const double keys = density * static_cast<double>(kElements) / static_cast<double>(spec.block);
  KeyIndex codec(shape_for(spec, kElements, ranks, std::max(1.0, 1.05 * keys), compression.seed));
  std::vector<std::uint64_t> index(static_cast<std::size_t>(codec.shape().index_words()));
  Met met;
  Seconds seconds{.encode =
                      bench.encode_seconds([&] { met = codec.encode(bench.values(), index); },
                                           [](std::span<float> values) { std::ranges::fill(values, 0.0F); })};
  write_header(index, ranks, 0, met);
  const int scale = largest_scale(DType::i64, codec.read(index).exponent, ranks);
  std::vector<float> by_key(codec.keys().size() * static_cast<std::size_t>(spec.block));
  std::vector<std::int64_t> integers(spec.exact ? by_key.size() : 0);
  seconds.second_encode = bench.seconds([&] {
    codec.read(index);
    codec.gather(bench.values(), by_key);
    if (spec.exact) hold(by_key, scale, integers);
  });
  seconds.decode = bench.decode_seconds([&] {
    if (spec.exact) unscale(std::span<const std::int64_t>(integers), scale, by_key);
    codec.spread(by_key, bench.values());
  });
  return seconds;
}

// With T the type of rows. Of many owners a few are measured: all peel alike.
template <typename T>
Seconds of_sketch(const Compression& compression, int ranks, double density, Bench& bench) {
  const int owners = std::min(ranks, 8);
  SketchSpec spec = compression.sketch;
  spec.block = std::max<std::int64_t>(1, spec.block);
  const double keys = density * static_cast<double>(kElements) / static_cast<double>(spec.block);
  Sketch codec(shape_for(spec, kElements, owners, std::max(1.0, 1.05 * keys), compression.seed));
  const SketchShape& shape = codec.shape();
  const int scale = std::is_same_v<T, float> ? 0 : scale_for(DType::i64, 1, ranks);
  std::vector<std::uint64_t> index(static_cast<std::size_t>(shape.index_words()));
  std::vector<T> rows(static_cast<std::size_t>(shape.values())), consumed = rows;
  Seconds seconds{.encode =
                      bench.encode_seconds([&] { codec.encode<T>(bench.values(), 0, scale, index, rows); },
                                           [](std::span<float> values) { std::ranges::fill(values, 0.0F); })};
  codec.read(index);
  const auto part = static_cast<std::size_t>(shape.values_per_owner());
  std::vector<std::vector<float>> peeled;
  std::vector<std::span<const float>> by_owner;
  for (int owner = 0; owner < owners; ++owner) {
    const std::span<T> own = std::span(consumed).subspan(static_cast<std::size_t>(owner) * part, part);
    std::vector<T> sums(static_cast<std::size_t>(codec.keys_of(owner) * shape.block));
    const double peel = bench.seconds(
        [&] { std::copy_n(rows.begin() + owner * shape.values_per_owner(), part, own.begin()); },
        [&] { codec.peel<T>(owner, own, sums); });
    if (owner == 0) seconds.second_encode = peel * owners / ranks;
    peeled.emplace_back(sums.begin(), sums.end());
  }
  for (const std::vector<float>& values : peeled) by_owner.emplace_back(values);
  seconds.decode = bench.decode_seconds([&] {
    codec.read(index);
    codec.spread(by_owner, bench.values());
  });
  return seconds;
}

Seconds seconds_of(const Compression& compression, int ranks, double density, Bench& bench) {
  switch (compression.scheme) {
    case Scheme::low_rank:
      return of_low_rank(compression, bench);
    case Scheme::sketch:
      if (compression.sketch.room == 0) return of_values_by_key(compression, ranks, density, bench);
      return compression.sketch.exact ? of_sketch<std::int64_t>(compression, ranks, density, bench)
                                      : of_sketch<float>(compression, ranks, density, bench);
    default:
      return compression.gathers() ? of_gatherable(compression, ranks, bench)
                                   : of_reducible(compression, bench);
  }
}

}  // namespace

double median_seconds(const Action& before, const Action& work) {
  using Clock = std::chrono::steady_clock;
  before();
  work();
  std::array<double, 5> seconds{};
  for (double& one : seconds) {
    before();
    const auto begin = Clock::now();
    work();
    one = std::chrono::duration<double>(Clock::now() - begin).count();
  }
  std::nth_element(seconds.begin(), seconds.begin() + 2, seconds.end());
  return seconds[2];
}

CodecTimes measure_codec(const Compression& compression, int ranks, double union_density,
                         const Timer& timer) {
  validate(compression);
  const double density = compression.scheme == Scheme::sketch ? union_density : 1;
  Bench bench(compression, density, timer);
  const auto [encode, second_encode, decode] = seconds_of(compression, ranks, density, bench);
  return {.encode_seconds_per_byte = encode / kBytes,
          .second_encode_seconds_per_byte = second_encode / kBytes,
          .decode_seconds_per_byte = decode / kBytes};
}

}  // namespace dear::codec
