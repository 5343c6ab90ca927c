// A module of Python that tests groups of DeAR on a process group of torch.distributed. Each function is
// called on all ranks at once, and returns "ok" or what the rank met with ("TransportError: ...").

#include <csignal>
#include <string>

#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/utils/pybind.h>

#include "dear/comm/group/exchange.h"
#include "dear/comm/group/testing/conformance.h"
#include "dear/comm/process_group/c10d.h"
#include "dear/comm/shm/testing/ranks.h"

namespace dear::process_group_test {
namespace {

namespace py = pybind11;

using ProcessGroup = c10::intrusive_ptr<::c10d::ProcessGroup>;
using TheBackend = c10::intrusive_ptr<::c10d::Backend>;
using comm::testing::check_group;
using comm::testing::Order;
using os::testing::report_of;

template <typename Body>
std::string reported(const Body& body) {
  const py::gil_scoped_release others_run;
  const std::string report = report_of(body);
  return report == "ok" && ::testing::Test::HasFailure() ? "failed: see standard output" : report;
}

View whole(const Buffer& buffer) { return {.buffer = buffer, .count = buffer.bytes() / 4}; }

std::string check_collectives(const ProcessGroup& process_group) {
  return reported([&] {
    Group group = group_on(process_group);
    EXPECT_NE(group.description().find("c10d gloo"), std::string::npos) << group.description();
    check_group(group, {.dtypes = {DType::f32, DType::bf16}, .counts = {17, 300'001}, .order = Order::fixed});
    EXPECT_EQ(all_gather_text(group, std::to_string(group.rank())).back(), std::to_string(group.size() - 1));
  });
}

// By the backend alone, in the order of ranks.
std::string check_reproducible_sums(const TheBackend& backend) {
  return reported([&] {
    Group group = group_on(backend, {.reproducible = true});
    check_group(group, {.dtypes = {DType::f32}, .counts = {17, 20'011}, .order = Order::ranks});
  });
}

// The ranks do not wait for each other as they go.
std::string leave_first(const ProcessGroup& process_group, bool first) {
  return reported([&] {
    Group group = group_on(process_group);
    const Buffer buffer = group.allocate(1 << 20);
    const Pending last = group.all_gather(whole(buffer));
    if (!first) last.wait();
  });
}

// All-reduces until something ends it: this rank, in the midst of number `dies_in` (-1: never).
std::string reduce_until_killed(const ProcessGroup& process_group, int dies_in) {
  return reported([&] {
    Group group = group_on(process_group);
    const Buffer buffer = group.allocate(2 << 20);
    for (int i = 0;; ++i) {
      const Pending pending = group.all_reduce(whole(buffer), Reduction::sum);
      if (i == dies_in) raise(SIGKILL);
      pending.wait();
    }
  });
}

std::string wait_for_stopped(const ProcessGroup& process_group, bool stops) {
  return reported([&] {
    Group group = group_on(process_group, {.timeout = std::chrono::seconds(2)});
    const Buffer buffer = group.allocate(16 << 20);
    group.barrier().wait();
    if (stops) raise(SIGSTOP);
    group.all_reduce(whole(buffer), Reduction::sum).wait();
  });
}

std::string ask_for_different_counts(const ProcessGroup& process_group) {
  return reported([&] {
    Group group = group_on(process_group);
    const Buffer buffer = group.allocate(1 << 20);
    const std::int64_t count = group.rank() == 1 ? 100'000 : 100'001;
    group.all_reduce({.buffer = buffer, .count = count}, Reduction::sum).wait();
    group.barrier().wait();
  });
}

std::string take(const ProcessGroup& process_group) {
  return reported([&] { make_c10d(process_group); });
}

}  // namespace
}  // namespace dear::process_group_test

PYBIND11_MODULE(process_group_in_test, module) {
  using namespace dear::process_group_test;
  module.def("check_collectives", check_collectives);
  module.def("check_reproducible_sums", check_reproducible_sums);
  module.def("leave_first", leave_first);
  module.def("reduce_until_killed", reduce_until_killed);
  module.def("wait_for_stopped", wait_for_stopped);
  module.def("ask_for_different_counts", ask_for_different_counts);
  module.def("take", take);
}
