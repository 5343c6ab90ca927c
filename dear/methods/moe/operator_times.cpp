#include "dear/methods/moe/operator_times.h"

#include <cmath>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::methods::moe {

double OperatorTimes::add(const std::string& name, std::vector<zoo::Kernel> kernels) {
  const double seconds = kernels.empty() ? 0 : zoo::seconds(device_, kernels, 1, dtype_);
  kernels_[name] = std::move(kernels);
  return seconds;
}

PartSeconds OperatorTimes::part_seconds() const {
  return [times = std::make_shared<const OperatorTimes>(*this)](const Instruction& instruction, int parts) {
    if (instruction.kind == Kind::all_to_all)
      return times->all_to_all_.seconds((times->bytes_ + parts - 1) / parts);
    const auto found = times->kernels_.find(instruction.name);
    if (found == times->kernels_.end())
      throw ConfigError(fmt::format("nothing is known of the parts of '{}': measure them", instruction.name));
    std::vector<zoo::Kernel> shares = found->second;
    if (shares.empty()) return 0.0;
    const double slower = std::pow(1 + times->inefficiency_, std::log2(parts));
    for (zoo::Kernel& kernel : shares) {
      kernel.flops *= slower / parts;
      kernel.moved *= slower / parts;
    }
    return zoo::seconds(times->device_, shares, 1, times->dtype_);
  };
}

}  // namespace dear::methods::moe
