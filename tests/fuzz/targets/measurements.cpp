#include "dear/comm/mpi/measurements.h"

#include "tests/fuzz/target.h"

namespace dear::fuzz {

// What a file says of MPI's collectives; nothing where it cannot be used.
void measurements(std::string_view bytes) {
  const std::string key = "this machine";
  const auto read = backends::Measurements::parse(std::string(bytes), key);
  if (!read) return;
  const std::string written = read->format(key);
  const auto again = backends::Measurements::parse(written, key);
  if (!again || again->format(key) != written) throw Broken("reads not what it wrote: " + written);
}

}  // namespace dear::fuzz
