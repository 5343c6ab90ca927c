#include "dear/comm/buckets/bucket_codec.h"

#include <cstring>

#include "dear/comm/buckets/layout.h"

namespace dear::buckets {

std::unique_ptr<BucketCodec> make_codec(const CodecOf& of) {
  if (of.compression.scheme == Scheme::low_rank) return make_low_rank(of);
  if (of.compression.scheme == Scheme::sketch) return make_sketched(of);
  return of.compression.gathers() ? make_gathered(of) : make_reduced(of);
}

std::vector<codec::Segment> segments_of(const CodecOf& of) {
  std::vector<codec::Segment> segments;
  if (of.compression.scope != Scope::tensor)
    return {{.range = {0, of.gradients.count}, .key = of.tensors.front().key}};
  for (const EncodedTensor& tensor : of.tensors)
    segments.push_back({.range = tensor.range, .key = tensor.key});
  return segments;
}

std::int64_t padded(std::int64_t elements, DType dtype, int ranks) {
  const std::int64_t unit = unit_of(dtype, ranks);
  return (elements + unit - 1) / unit * unit;
}

void zero_padding(std::byte* payload, DType dtype, std::int64_t used, std::int64_t padded) {
  const std::int64_t size = size_of(dtype);
  std::memset(payload + used * size, 0, static_cast<std::size_t>((padded - used) * size));
}

}  // namespace dear::buckets
