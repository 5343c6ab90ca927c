#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "dear/base/vocabulary/dtype.h"
#include "dear/methods/moe/all_to_all_times.h"
#include "dear/methods/moe/partition.h"
#include "dear/workload/zoo/device.h"

namespace dear::methods::moe {

// How long operators of a model take, whole and in parts: kernels of a whole batch by a device's roofline,
// and all-to-alls of one size. A part has its share of operations and of activations, moves all weights, and
// is launched by itself; with each halving of the batch its kernels are so much slower than their share.
class OperatorTimes {
 public:
  OperatorTimes(const zoo::Device& device, DType dtype, AllToAllTimes all_to_all,
                std::int64_t all_to_all_bytes, double part_inefficiency)
      : device_(device),
        dtype_(dtype),
        all_to_all_(std::move(all_to_all)),
        bytes_(all_to_all_bytes),
        inefficiency_(part_inefficiency) {}

  // Seconds of the instruction of this name. ConfigError for a dtype that the device does not train in.
  double add(const std::string& name, std::vector<zoo::Kernel> kernels);
  [[nodiscard]] double all_to_all_seconds() const { return all_to_all_.seconds(bytes_); }
  [[nodiscard]] PartSeconds part_seconds() const;  // ConfigError for a name that was not added

 private:
  zoo::Device device_;
  DType dtype_;
  AllToAllTimes all_to_all_;
  std::int64_t bytes_;
  double inefficiency_;
  std::map<std::string, std::vector<zoo::Kernel>> kernels_;
};

}  // namespace dear::methods::moe
