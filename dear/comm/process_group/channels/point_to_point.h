#pragma once

#include <memory>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "dear/comm/awaited/channels/point_to_point.h"

namespace dear::channels {

// Sends and receives of one backend of a c10d process group, in memory of the host. The process group must
// carry nothing else meanwhile with tags of 0 and more.
std::unique_ptr<PointToPoint> make_point_to_point(c10::intrusive_ptr<::c10d::Backend> backend);

}  // namespace dear::channels
