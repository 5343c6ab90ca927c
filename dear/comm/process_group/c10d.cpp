#include "dear/comm/process_group/c10d.h"

#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/awaited/awaited.h"
#include "dear/comm/process_group/channels/point_to_point.h"

namespace dear {
namespace {

c10::intrusive_ptr<::c10d::Backend> backend_for_cpu(
    const c10::intrusive_ptr<::c10d::ProcessGroup>& process_group) {
  if (!process_group) throw ConfigError("there is no process group to make a group on: it is null");
  try {
    return process_group->getBackend(c10::DeviceType::CPU);
  } catch (const std::exception& error) {
    const std::string why = error.what();
    throw ConfigError(
        fmt::format("the process group {} has no backend that carries memory of the host ({}): make it with "
                    "\"cpu:gloo,cuda:nccl\"",
                    process_group->getBackendName(), why.substr(0, why.find('\n'))));
  }
}

}  // namespace

std::unique_ptr<Backend> make_c10d(c10::intrusive_ptr<::c10d::Backend> backend, const C10dOptions& options) {
  if (!backend) throw ConfigError("there is no backend of a process group to make a group on: it is null");
  if (backend->getBackendName() == "nccl") {
    throw ConfigError(
        "a process group of NCCL carries only memory of GPUs: make one of Gloo, for memory of the host");
  }
  return backends::make_awaited(channels::make_point_to_point(std::move(backend)),
                                {.reproducible = options.reproducible, .link = options.link});
}

std::unique_ptr<Backend> make_c10d(const c10::intrusive_ptr<::c10d::ProcessGroup>& process_group,
                                   const C10dOptions& options) {
  return make_c10d(backend_for_cpu(process_group), options);
}

Group group_on(c10::intrusive_ptr<::c10d::Backend> backend, const C10dOptions& options) {
  return Group(make_c10d(std::move(backend), options), {.timeout = options.timeout});
}

Group group_on(const c10::intrusive_ptr<::c10d::ProcessGroup>& process_group, const C10dOptions& options) {
  return Group(make_c10d(process_group, options), {.timeout = options.timeout});
}

}  // namespace dear
