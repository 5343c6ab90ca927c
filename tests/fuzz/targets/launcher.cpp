#include "tests/fuzz/target.h"
#include <chrono>
#include <fcntl.h>
#include <unistd.h>

#include "dear/base/launch/causes.h"
#include "dear/base/launch/failure_lines.h"
#include "dear/base/launch/rank_output.h"
#include "dear/base/os/file_descriptor.h"
#include "dear/base/vocabulary/printable.h"

namespace dear::fuzz {
namespace {

void say_causes(std::string_view bytes) {
  launch::Causes causes;
  const os::FileDescriptor rank(::open(causes.path().c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
  for (Bytes rest(bytes); !rest.empty();) {
    const std::string_view part = rest.take(1 + rest.byte() * 16);
    static_cast<void>(!::write(rank.get(), part.data(), part.size()));
    causes.read();
  }
  if (!causes.first()) return;
  if (!is_printable(causes.first()->why)) throw Broken("keeps a cause that a terminal obeys");
  if (causes.first()->rank < 0) throw Broken("keeps a cause of no rank");
}

void fail(std::string_view bytes) {
  launch::FailureLines failures("dear train");
  std::size_t taken = 0;
  for (Bytes rest(bytes); !rest.empty();) taken += failures.take(rest.line()) ? 1U : 0U;
  const std::size_t said = failures.said_once().size();
  if (said > taken || (said == 0 && taken > 0)) throw Broken("says other lines than came");
}

void write(std::string_view bytes) {
  const SteadyTime now{};
  launch::RankOutput output({"[0] ", "[1] "});
  for (Bytes rest(bytes); !rest.empty();) {
    const unsigned char what = rest.byte();
    output.feed(what % 2, rest.take(what / 4), now);
    if (what % 4 >= 2) output.show_held_back(now + std::chrono::seconds(1));
    output.written(output.pending().size() / 2);
  }
  output.finish();
  const std::string_view pending = output.pending();
  if (!pending.empty() && !pending.ends_with('\n')) throw Broken("leaves a line without its end");
}

}  // namespace

// What ranks say to their launcher: causes through its pipe, lines of failure, and output.
void launcher(std::string_view bytes) {
  Bytes rest(bytes);
  switch (rest.byte() % 3) {
    case 0:
      return say_causes(rest.rest());
    case 1:
      return fail(rest.rest());
    default:
      return write(rest.rest());
  }
}

}  // namespace dear::fuzz
