#include "dear/schedule/step.h"

#include <fmt/format.h>

namespace dear {
namespace {

struct NameOf {
  std::string operator()(const Forward& work) const { return fmt::format("forward {}", work.layer); }
  std::string operator()(const Backward& work) const { return fmt::format("backward {}", work.layer); }
  std::string operator()(const Commit&) const { return "commit"; }
  std::string operator()(const Communicate& work) const {
    return fmt::format("{} of {}, bucket {}", name_of(work.op),
                       work.payload == Payload::gradients ? "gradients" : "parameters", work.bucket);
  }
  std::string operator()(const Update& work) const {
    return fmt::format("update of {}, bucket {}", work.scope == UpdateScope::shard ? "shard" : "whole",
                       work.bucket);
  }
};

}  // namespace

std::string name_of(CollectiveOp op) {
  switch (op) {
    case CollectiveOp::reduce_scatter:
      return "reduce-scatter";
    case CollectiveOp::all_gather:
      return "all-gather";
    case CollectiveOp::all_reduce:
      break;
  }
  return "all-reduce";
}

std::string name_of(const Work& work) { return std::visit(NameOf{}, work); }

}  // namespace dear
