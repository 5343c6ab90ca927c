#include "dear/comm/message_programs/heading.h"

#include "tests/fuzz/target.h"
#include <cstring>

namespace dear::fuzz {

// The heading of a message of a peer, beside one of this rank's own; both are the fuzzer's.
void heading(std::string_view bytes) {
  using message_programs::Heading;
  Heading mine;
  alignas(Heading) std::byte theirs[sizeof(Heading)] = {};
  const std::size_t first = std::min(bytes.size(), sizeof theirs);
  std::memcpy(theirs, bytes.data(), first);
  bytes.remove_prefix(first);
  std::memcpy(&mine, bytes.data(), std::min(bytes.size(), sizeof mine));
  const Heading read = message_programs::read_heading(theirs, mine.sequence);
  static_cast<void>(comm::describe(read));
  try {
    message_programs::throw_on_mismatch(mine, 0, read, 1);
  } catch (const MismatchError&) {
    if (mine == read) throw Broken("equal headings are told apart");
  }
  const auto packed = message_programs::packed(mine);
  if (!packed) return;
  std::memcpy(theirs, &*packed, sizeof *packed);
  const Heading again = message_programs::read_heading(theirs, mine.sequence);
  if (again.count != mine.count || again.label != mine.label || again.sequence != mine.sequence ||
      again.collective != mine.collective)
    throw Broken("a packed heading reads otherwise");
}

}  // namespace dear::fuzz
