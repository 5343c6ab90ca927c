#pragma once

#include <string_view>

// What c10d_backends() calls its backends; of use where libtorch is not.
namespace dear::train {

inline constexpr std::string_view kGlooBackend = "c10d-gloo";
inline constexpr std::string_view kGlooBackendSummary = "ranks on any hosts, over libtorch's Gloo (TCP)";

}  // namespace dear::train
