#pragma once

#include <cstdint>
#include <string>

#include "dear/workload/layers/workload.h"

// Workloads that tests of many folders describe.
namespace dear::testing {

// Layers l0, l1, ... of one tensor each, t0, t1, ..., all alike; seconds are those of a layer.
struct LayersAlike {
  LayerId layers = 1;
  std::int64_t elements = 1;
  double forward_seconds = 0, backward_seconds = 0;
};
inline Workload workload_of(const LayersAlike& alike) {
  Workload workload{.name = "alike", .tensors = {}, .layers = {}};
  for (LayerId layer = 0; layer < alike.layers; ++layer) {
    workload.tensors.push_back({.name = "t" + std::to_string(layer), .elements = alike.elements});
    workload.layers.push_back({.name = "l" + std::to_string(layer),
                               .tensors = {layer},
                               .forward_seconds = alike.forward_seconds,
                               .backward_seconds = alike.backward_seconds});
  }
  return workload;
}

// Layers "first" and "second", a second forward and two backward each, of the tensors "a" and "b".
inline Workload two_layers(std::int64_t elements = 2) {
  return {.name = "two",
          .tensors = {{.name = "a", .elements = elements}, {.name = "b", .elements = elements}},
          .layers = {{.name = "first", .tensors = {0}, .forward_seconds = 1, .backward_seconds = 2},
                     {.name = "second", .tensors = {1}, .forward_seconds = 1, .backward_seconds = 2}}};
}

}  // namespace dear::testing
