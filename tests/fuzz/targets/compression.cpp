#include "dear/schedule/codec/compression.h"

#include "tests/fuzz/target.h"

namespace dear::fuzz {

void compression(std::string_view bytes) {
  std::string written;
  try {
    const Compression read = Compression::parse(bytes);
    validate(read);
    written = read.text();
    static_cast<void>(read.ratio_at(3));
    static_cast<void>(read.leaves_dense(bytes, 100));
    if (read != Compression::parse(written)) throw Broken("reads otherwise than it wrote: " + written);
  } catch (const ConfigError& error) {
    if (!written.empty()) throw Broken(written + ": " + error.what());
  }
}

}  // namespace dear::fuzz
