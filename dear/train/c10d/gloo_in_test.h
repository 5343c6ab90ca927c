#pragma once

#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "dear/collective/testing/ranks.h"
#include "dear/train/c10d/process_group.h"

namespace dear::train::testing {

inline ProcessGroup gloo_on(const c10::intrusive_ptr<::c10d::Store>& store, int rank, int size) {
  auto options = ::c10d::ProcessGroupGloo::Options::create(std::chrono::seconds(60));
  options->threads = 1;
  options->devices.push_back(::c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  return c10::make_intrusive<::c10d::ProcessGroupGloo>(store, rank, size, std::move(options));
}

// Process groups of `size` ranks that are threads of this process.
inline std::vector<ProcessGroup> gloo_threads(int size) {
  const auto store = c10::make_intrusive<::c10d::HashStore>();
  std::vector<ProcessGroup> groups(static_cast<std::size_t>(size));
  const auto reports = collective::testing::run_on_threads(
      size, [&](int rank) { groups[static_cast<std::size_t>(rank)] = gloo_on(store, rank, size); });
  for (const std::string& report : reports) {
    if (report != "ok") throw std::runtime_error(report);
  }
  return groups;
}

}  // namespace dear::train::testing
