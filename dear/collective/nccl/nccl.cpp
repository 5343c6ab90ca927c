#include "dear/collective/nccl/nccl.h"

#include <fmt/format.h>

#include "dear/base/error.h"
#include "dear/base/module.h"
#include "dear/collective/exchange.h"

namespace dear::collective {
namespace {

constexpr const char* kModule = "dear_nccl";

}  // namespace

std::function<std::string(const std::string& mine)> exchange_over(const Group& group) {
  return [group](const std::string& mine) { return all_gather_text(group, mine).front(); };
}

std::string nccl_missing() {
  return Module::exists(kModule)
             ? ""
             : "this DeAR was built without NCCL: install the CUDA toolkit and NCCL, and build "
               "again, or choose another backend";
}

std::unique_ptr<DeviceBackend> make_nccl(const NcclOptions& options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    throw ConfigError(fmt::format("there is no rank {} among {} ranks", options.rank, options.size));
  }
  if (options.size > 1 && !options.exchange) {
    throw ConfigError("NCCL needs a way to tell its id to all ranks: give NcclOptions::exchange");
  }
  if (const std::string missing = nccl_missing(); !missing.empty()) throw ConfigError(missing);
  const Module module = Module::open(kModule);
  return std::unique_ptr<DeviceBackend>(
      module.function<DeviceBackend*(const NcclOptions&)>("dear_make_nccl")(options));
}

}  // namespace dear::collective
