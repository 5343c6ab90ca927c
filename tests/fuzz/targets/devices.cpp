#include "tests/fuzz/target.h"

#include "dear/methods/edge/edge_run.h"

namespace dear::fuzz {

void devices(std::string_view bytes) { static_cast<void>(methods::edge::parse_devices(bytes, kSource)); }

}  // namespace dear::fuzz
