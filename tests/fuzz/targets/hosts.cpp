#include "tests/fuzz/target.h"

#include "dear/base/admission/message.h"
#include "dear/base/launch/host_words.h"
#include "dear/base/membership/roster.h"
#include "dear/base/vocabulary/digest.h"
#include "dear/base/vocabulary/printable.h"

namespace dear::fuzz {
namespace {

// A value that was read is told and read alike.
template <typename Read>
void told_again(const launch::Words& words, const Read& read) {
  const auto value = read(words);
  if (!value) return;
  const auto again = read(words_of(*value));
  if (!again || words_of(*again) != words_of(*value)) throw Broken("reads not what it told");
}

void read_roster(std::string_view bytes) {
  const std::string text(bytes.substr(0, bytes.find('|')));
  const auto roster = membership::roster_in(text + "|" + Digest().add(text).hex() + "\n");
  if (!roster) return;
  for (int rank = 0; rank < static_cast<int>(roster->members.size()); ++rank)
    if (roster->local_rank(rank) >= roster->local_size(rank)) throw Broken("has a rank beyond its host");
  const auto again = membership::roster_in(to_text(*roster));
  if (!again || again->members != roster->members || again->hosts != roster->hosts)
    throw Broken("reads not the roster that it wrote");
}

}  // namespace

// What launchers of several hosts tell each other, and the roster of their ranks.
void hosts(std::string_view bytes) {
  Bytes rest(bytes);
  if (rest.byte() % 2 == 0) return read_roster(rest.rest());
  const auto words = admission::parted(rest.rest());
  if (!words || words->empty()) return;
  told_again(*words, launch::introduction_in);
  told_again(*words, launch::job_in);
  told_again(*words, launch::end_in);
  if (const auto host = launch::introduction_in(*words); host && !is_printable(host->name + host->address))
    throw Broken("keeps a name that a terminal obeys");
}

}  // namespace dear::fuzz
