#pragma once

#include <torch/nn/module.h>

namespace dear::stub_device {

// Moves parameters and buffers of a module, which Module::to() of C++ refuses for devices of PrivateUse1. In
// place: every tensor stays the object that layers and optimisers hold, so call it before the first backward
// pass.
void move(torch::nn::Module& module, c10::Device to);

}  // namespace dear::stub_device
