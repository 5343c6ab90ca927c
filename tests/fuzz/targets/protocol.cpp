#include "dear/tools/bench_collectives/protocol.h"

#include "tests/fuzz/target.h"

namespace dear::fuzz {
namespace {

template <typename Parse>
void read(const Parse& parse, std::string_view bytes) {
  std::string written;
  try {
    const auto message = parse(bytes);
    written = to_text(message);
    if (parse(written) != message) throw Broken("reads otherwise than it wrote: " + written);
  } catch (const TransportError& error) {
    if (!written.empty()) throw Broken(written + ": " + error.what());
  }
}

}  // namespace

// Messages between a benchmark and its ranks.
void protocol(std::string_view bytes) {
  read(bench_collectives::parse_command, bytes);
  read(bench_collectives::parse_reply, bytes);
}

}  // namespace dear::fuzz
