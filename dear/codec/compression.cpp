#include "dear/codec/compression.h"

namespace dear {

std::string_view name_of(Scheme scheme) {
  switch (scheme) {
    case Scheme::random_k:
      return "random-k";
    case Scheme::random_block:
      return "random-block";
    case Scheme::top_k:
      return "top-k";
    case Scheme::block_top_k:
      return "block-top-k";
    case Scheme::fp16:
      return "fp16";
    case Scheme::bf16:
      return "bf16";
    case Scheme::low_rank:
      return "low-rank";
    case Scheme::sketch:
      break;
  }
  return "sketch";
}

bool Compression::gathers() const {
  return scheme == Scheme::top_k || scheme == Scheme::block_top_k ||
         ((scheme == Scheme::random_k || scheme == Scheme::random_block) && own_indices);
}

}  // namespace dear
