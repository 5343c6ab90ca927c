#include "tests/fuzz/target.h"

#include "dear/methods/edge/paba_file.h"

namespace dear::fuzz {

void groups(std::string_view bytes) { static_cast<void>(methods::edge::parse_groups(bytes, kSource)); }

}  // namespace dear::fuzz
