#include "tests/fuzz/target.h"

#include "dear/comm/backends/in_grid.h"

namespace dear::fuzz {

void grid(std::string_view bytes) {
  refusing([&] {
    const GridSettings read = parse_grid(bytes);
    validate(read, 4);
  });
}

}  // namespace dear::fuzz
