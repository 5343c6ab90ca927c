#include "dear/schedule/codec/codec.h"

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

constexpr Row<Reducible> kReducible[] = {
    {Scheme::random_k,
     [](KeptSegments kept, int) -> std::unique_ptr<Reducible> {
       return std::make_unique<RandomK>(std::move(kept));
     }},
    {Scheme::random_block,
     [](KeptSegments kept, int) -> std::unique_ptr<Reducible> {
       return std::make_unique<RandomBlock>(std::move(kept));
     }},
    {Scheme::fp16,
     [](KeptSegments kept, int) -> std::unique_ptr<Reducible> {
       return std::make_unique<HalfPrecision>(DType::f16, kept);
     }},
    {Scheme::bf16,
     [](KeptSegments kept, int) -> std::unique_ptr<Reducible> {
       return std::make_unique<HalfPrecision>(DType::bf16, kept);
     }},
};

constexpr Row<Gatherable> kGatherable[] = {
    {Scheme::random_k,
     [](KeptSegments kept, int rank) -> std::unique_ptr<Gatherable> {
       return std::make_unique<OwnRandomK>(std::move(kept), rank);
     }},
    {Scheme::random_block,
     [](KeptSegments kept, int rank) -> std::unique_ptr<Gatherable> {
       return std::make_unique<OwnRandomBlock>(std::move(kept), rank);
     }},
    {Scheme::top_k,
     [](KeptSegments kept, int) -> std::unique_ptr<Gatherable> {
       return std::make_unique<TopK>(std::move(kept));
     }},
    {Scheme::block_top_k,
     [](KeptSegments kept, int) -> std::unique_ptr<Gatherable> {
       return std::make_unique<BlockTopK>(std::move(kept));
     }},
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
