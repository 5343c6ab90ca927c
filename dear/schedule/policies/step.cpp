#include "dear/schedule/policies/step.h"

#include <string_view>

#include <fmt/format.h>

namespace dear {
namespace {

std::string_view name_of(Payload payload) {
  switch (payload) {
    case Payload::gradients:
      return "gradients";
    case Payload::parameters:
      return "parameters";
    case Payload::parameters_again:
      return "parameters again";
    case Payload::encoded:
      return "encoded part";
    case Payload::decision:
      return "decision";
    case Payload::buffers:
      break;
  }
  return "buffers";
}

std::string_view name_of(ProcessGroup group) {
  switch (group) {
    case ProcessGroup::node:
      return " inside nodes";
    case ProcessGroup::across_nodes:
      return " across nodes";
    case ProcessGroup::all:
      break;
  }
  return "";
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
  switch (kind) {
    case LaneKind::compute:
      return "compute";
    case LaneKind::update:
      return "update";
    case LaneKind::codec:
      return "codec";
    case LaneKind::network:
      break;
  }
  return "network";
}

std::string name_of(const Work& work) { return std::visit(NameOf{}, work); }

}  // namespace dear
