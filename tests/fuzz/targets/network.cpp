#include "dear/platform/cluster/network.h"

#include "tests/fuzz/target.h"

namespace dear::fuzz {

void network(std::string_view bytes) {
  refusing([&] { return parse_network(bytes); });
}

}  // namespace dear::fuzz
