#pragma once

#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "dear/methods/pipeline/operators.h"
#include "dear/platform/cluster/pair_cluster.h"

namespace dear::methods::pipeline {

// A chain of alike operators, with parameters.
inline std::vector<Operator> chain_of(std::size_t count, double work, std::int64_t output_bytes) {
  std::vector<Operator> operators;
  for (std::size_t i = 0; i < count; ++i) {
    Operator op{.name = fmt::format("op{}", i),
                .forward_work = work,
                .input_gradient_work = work,
                .weight_gradient_work = work,
                .parameter_bytes = 4,
                .output_bytes = output_bytes,
                .kept_bytes = output_bytes};
    if (i > 0) op.inputs = {static_cast<OperatorId>(i - 1)};
    operators.push_back(op);
  }
  return operators;
}

// Each operator reads one of those before it, and some read a second one.
inline OperatorDag random_dag(std::mt19937& random, std::size_t count) {
  const auto draw = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };
  std::vector<Operator> operators;
  for (std::size_t i = 0; i < count; ++i) {
    Operator op{.name = fmt::format("op{}", i),
                .forward_work = static_cast<double>(draw(0, 9)),
                .input_gradient_work = static_cast<double>(draw(0, 9)),
                .weight_gradient_work = static_cast<double>(draw(0, 9)),
                .parameter_bytes = 4 * draw(0, 20),
                .output_bytes = 8 * draw(1, 20),
                .kept_bytes = 4 * draw(0, 20),
                .dtype = draw(0, 5) == 0 ? DType::i64 : DType::f32};
    const int last = static_cast<int>(i) - 1;
    if (i > 0) op.inputs = {static_cast<OperatorId>(draw(0, 3) == 0 ? draw(0, last) : last)};
    if (i > 1 && draw(0, 2) == 0) {
      const auto second = static_cast<OperatorId>(draw(0, last));
      if (second != op.inputs.front()) op.inputs.push_back(second);
    }
    operators.push_back(op);
  }
  return {"random", std::move(operators)};
}

inline PairCluster random_cluster(std::mt19937& random, std::size_t devices, std::int64_t memory_bytes) {
  std::uniform_real_distribution<double> draw(1, 10);
  PairCluster cluster{.name = "random",
                      .devices = {},
                      .bytes_per_second = PairCluster::Matrix(devices, std::vector<double>(devices)),
                      .latency_seconds = PairCluster::Matrix(devices, std::vector<double>(devices))};
  for (std::size_t i = 0; i < devices; ++i) {
    cluster.devices.push_back(
        {.name = fmt::format("d{}", i), .flops_per_second = draw(random), .memory_bytes = memory_bytes});
    for (std::size_t j = 0; j < devices; ++j) {
      if (i == j) continue;
      cluster.bytes_per_second[i][j] = 10 * draw(random);
      cluster.latency_seconds[i][j] = 0.1 * draw(random);
    }
  }
  return cluster;
}

// Devices of one speed, with one kind of link.
inline PairCluster alike_cluster(std::size_t devices, double flops_per_second, double bytes_per_second,
                                 double latency_seconds = 0) {
  PairCluster cluster{
      .name = "alike",
      .devices = {},
      .bytes_per_second = PairCluster::Matrix(devices, std::vector<double>(devices, bytes_per_second)),
      .latency_seconds = PairCluster::Matrix(devices, std::vector<double>(devices, latency_seconds))};
  for (std::size_t i = 0; i < devices; ++i) {
    cluster.devices.push_back({.name = fmt::format("d{}", i),
                               .flops_per_second = flops_per_second,
                               .memory_bytes = std::int64_t{1} << 40});
    cluster.bytes_per_second[i][i] = cluster.latency_seconds[i][i] = 0;
  }
  return cluster;
}

}  // namespace dear::methods::pipeline
