#include "dear/schedule/codec/codec.h"

#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/codec/block_top_k.h"
#include "dear/schedule/codec/half_precision.h"
#include "dear/schedule/codec/kept.h"
#include "dear/schedule/codec/random_block.h"
#include "dear/schedule/codec/random_k.h"
#include "dear/schedule/codec/top_k.h"

namespace dear::codec {
namespace {

template <class Codec>
struct Row {
  Scheme scheme;
  std::unique_ptr<Codec> (*make)(KeptSegments kept, int rank);
};

template <class Kind, class Codec>
std::unique_ptr<Kind> made(KeptSegments kept, [[maybe_unused]] int rank) {
  if constexpr (std::is_constructible_v<Codec, KeptSegments, int>)
    return std::make_unique<Codec>(std::move(kept), rank);
  else
    return std::make_unique<Codec>(std::move(kept));
}
template <DType dtype>
std::unique_ptr<Reducible> made_half(KeptSegments kept, int /*rank*/) {
  return std::make_unique<HalfPrecision>(dtype, kept);
}

constexpr Row<Reducible> kReducible[] = {
    {Scheme::random_k, made<Reducible, RandomK>},
    {Scheme::random_block, made<Reducible, RandomBlock>},
    {Scheme::fp16, made_half<DType::f16>},
    {Scheme::bf16, made_half<DType::bf16>},
};

constexpr Row<Gatherable> kGatherable[] = {
    {Scheme::random_k, made<Gatherable, OwnRandomK>},
    {Scheme::random_block, made<Gatherable, OwnRandomBlock>},
    {Scheme::top_k, made<Gatherable, TopK>},
    {Scheme::block_top_k, made<Gatherable, BlockTopK>},
};

template <class Codec, std::size_t kRows>
std::unique_ptr<Codec> make(const Row<Codec> (&rows)[kRows], bool gathers, const Compression& compression,
                            std::vector<Segment> segments, int rank) {
  for (const Row<Codec>& row : rows) {
    if (row.scheme == compression.scheme && compression.gathers() == gathers) {
      return row.make(KeptSegments(compression, std::move(segments)), rank);
    }
  }
  throw ConfigError(fmt::format(
      "payloads of {}{} {}: use the codec of another kind", name_of(compression.scheme),
      compression.own_indices ? " with own indices" : "", gathers ? "are not gathered" : "do not add up"));
}

}  // namespace

std::unique_ptr<Reducible> make_reducible(const Compression& compression, std::vector<Segment> segments) {
  return make(kReducible, false, compression, std::move(segments), 0);
}

std::unique_ptr<Gatherable> make_gatherable(const Compression& compression, std::vector<Segment> segments,
                                            int rank) {
  return make(kGatherable, true, compression, std::move(segments), rank);
}

}  // namespace dear::codec
