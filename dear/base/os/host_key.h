#pragma once

#include <string>

namespace dear::os {

// Returns the same text in processes that can share memory and watch each other: of one boot of one kernel,
// one user, and one set of namespaces (network, process numbers, IPC). Containers and network namespaces on
// one machine count as hosts of their own.
std::string host_key();

}  // namespace dear::os
