#include "dear/schedule/policies/step.h"

#include <array>
#include <string_view>

#include <fmt/format.h>

namespace dear {
namespace {

std::string_view name_of(Payload payload) {
  constexpr std::array<std::string_view, 6> kNames{"gradients",    "parameters", "parameters again",
                                                   "encoded part", "buffers",    "decision"};
  return kNames.at(static_cast<std::size_t>(payload));
}

std::string_view name_of(ProcessGroup group) {
  constexpr std::array<std::string_view, 3> kNames{"", " inside nodes", " across nodes"};
  return kNames.at(static_cast<std::size_t>(group));
}

std::string name_of(const Range& chunk) {
  if (chunk == kWholeBucket) return "";
  if (chunk.end == kWholeBucket.end) return fmt::format(", bytes from {}", chunk.begin);
  return fmt::format(", bytes {} to {}", chunk.begin, chunk.end);
}

struct NameOf {
  std::string operator()(const Forward& work) const { return fmt::format("forward {}", work.layer); }
  std::string operator()(const Backward& work) const { return fmt::format("backward {}", work.layer); }
  std::string operator()(const Commit&) const { return "commit"; }
  std::string operator()(const Communicate& work) const {
    if (!is_of_bucket(work.payload))
      return fmt::format("{} of {}", name_of(work.collective), name_of(work.payload));
    if (work.payload == Payload::encoded)
      return fmt::format("{} of {} {}, bucket {}", name_of(work.collective), name_of(work.payload), work.part,
                         work.bucket);
    return fmt::format("{} of {}{}, bucket {}{}", name_of(work.collective), name_of(work.payload),
                       name_of(work.group), work.bucket, name_of(work.chunk));
  }
  std::string operator()(const Update& work) const {
    return fmt::format("update of {}, bucket {}{}", work.scope == UpdateScope::shard ? "shard" : "whole",
                       work.bucket, name_of(work.chunk));
  }
  std::string operator()(const Encode& work) const {
    if (work.round == 0) return fmt::format("encode, bucket {}", work.bucket);
    return fmt::format("encode round {}, bucket {}", work.round, work.bucket);
  }
  std::string operator()(const Decode& work) const { return fmt::format("decode, bucket {}", work.bucket); }
};

}  // namespace

std::string_view name_of(LaneKind kind) {
  constexpr std::array<std::string_view, 4> kNames{"compute", "update", "network", "codec"};
  return kNames.at(static_cast<std::size_t>(kind));
}

std::string name_of(const Work& work) { return std::visit(NameOf{}, work); }

}  // namespace dear
