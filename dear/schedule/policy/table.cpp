#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/error.h"
#include "dear/schedule/policy/policy.h"

namespace dear {
namespace {

double serial_bound(double f, double b, double r) { return f + b + r; }
double wfbp_bound(double f, double b, double r) { return f + std::max(b, r); }
// Half of the all-reduce hides under the backward, half under the next forward.
double decoupled_bound(double f, double b, double r) { return std::max(f, r / 2) + std::max(b, r / 2); }

}  // namespace

const std::vector<Policy>& policies() {
  static const std::vector<Policy> kTable = {
      {.name = "serial",
       .summary = "all-reduce after backward, nothing overlapped",
       .source = "synchronous SGD: Chen et al. 2016, arXiv 1604.00981",
       .make = make_serial,
       .bound = serial_bound},
      {.name = "wfbp",
       .summary = "wait-free backpropagation: all-reduce of each bucket under the rest of backward",
       .source = "Poseidon: Zhang et al., USENIX ATC 2017, arXiv 1706.03292",
       .make = make_wfbp,
       .bound = wfbp_bound},
      {.name = "dear-replicated",
       .summary =
           "reduce-scatter under backward, all-gather of gradients under the next forward, whole update",
       .source = "DeAR: Zhang et al., ICDCS 2023, arXiv 2302.12445",
       .make = make_dear_replicated,
       .bound = decoupled_bound},
      {.name = "dear",
       .summary = "reduce-scatter under backward, update of the shard, all-gather of parameters under the "
                  "next forward",
       .source = "DeAR: Zhang et al., ICDCS 2023, arXiv 2302.12445; ZeRO: Rajbhandari et al. 2020, arXiv "
                 "1910.02054",
       .make = make_dear,
       .bound = decoupled_bound},
  };
  return kTable;
}

const Policy& find_policy(std::string_view name) {
  for (const Policy& policy : policies())
    if (policy.name == name) return policy;
  std::vector<std::string_view> names;
  for (const Policy& policy : policies()) names.push_back(policy.name);
  throw ConfigError(
      fmt::format("no policy is called \"{}\": choose one of {}", name, fmt::join(names, ", ")));
}

}  // namespace dear
