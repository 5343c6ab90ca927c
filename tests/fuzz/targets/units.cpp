#include "dear/base/vocabulary/units.h"

#include "tests/fuzz/target.h"

#include "dear/base/vocabulary/dtype.h"

namespace dear::fuzz {

void units(std::string_view bytes) {
  refusing([&] { return parse_bytes(bytes); });
  refusing([&] { return parse_seconds(bytes); });
  refusing([&] { return parse_bits_per_second(bytes); });
  refusing([&] { return parse_dtype(bytes); });
}

}  // namespace dear::fuzz
