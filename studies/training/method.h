#pragma once

#include <optional>
#include <string>

#include "dear/schedule/codec/compression.h"

namespace dear::studies::training {

// How gradients travel; nothing: dense. Momentum of the compression is instead of the optimiser's.
using Method = std::optional<Compression>;
std::string name_of(const Method& method);  // "dense", "top-k:0.01,ef"

}  // namespace dear::studies::training
