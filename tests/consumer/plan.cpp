// Simulates a job of two layers under two policies, and reduces a vector in a group of one.
#include <cstdio>
#include <dear/comm/backends/init.h>
#include <dear/predict/sim/simulate.h>
#include <dear/schedule/fusion/grouping.h>
#include <dear/schedule/policies/policy.h>

int main() {
  dear::Workload workload;
  workload.name = "two layers";
  for (const char* name : {"first", "second"}) {
    const auto tensor = static_cast<dear::TensorId>(workload.tensors.size());
    workload.tensors.push_back({.name = name, .elements = 1 << 20});
    workload.layers.push_back(
        {.name = name, .tensors = {tensor}, .forward_seconds = 0.01, .backward_seconds = 0.02});
  }
  const dear::Network network = dear::parse_network("1gbit");
  const dear::Grouping grouping = dear::group(workload, dear::PerLayer{});
  const auto iteration = [&](const char* policy) {
    const dear::Schedule schedule = dear::make_schedule(dear::find_policy(policy), workload, grouping);
    return dear::sim::simulate(schedule, workload, grouping, network.link, {.ranks = 4}).iteration_seconds;
  };
  const double serial = iteration("serial");
  const double overlapped = iteration("dear");
  std::printf("serial %.3f s, dear %.3f s\n", serial, overlapped);

  dear::Group group = dear::init();
  const dear::Buffer buffer = group.allocate(sizeof(float));
  auto* const value = reinterpret_cast<float*>(buffer.data());
  *value = 3;
  group.all_reduce({.buffer = buffer, .count = 1, .dtype = dear::DType::f32}, dear::Reduction::sum).wait();
  return overlapped < serial && group.size() == 1 && *value == 3 ? 0 : 1;
}
