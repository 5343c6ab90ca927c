#pragma once

#include <string_view>

#include "dear/collective/backends.h"

// The backends of c10d, for who has no libtorch to compile with.
namespace dear::train {

inline constexpr std::string_view kGlooBackend = "c10d-gloo";
inline constexpr std::string_view kGlooBackendSummary = "ranks on any hosts, over libtorch's Gloo (TCP)";

// For dear::init({.backend = "c10d-gloo", .more_backends = c10d_backends()}): Gloo between the ranks of the
// launcher, which meet at MASTER_ADDR and MASTER_PORT.
const BackendTable& c10d_backends();

}  // namespace dear::train
