#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

// The failures of a job, and the one that is called its cause.
namespace dear::liveness {

// Why a job fails. Of causes that are told at about the same time the first of this list explains the others:
// a rank that died makes others lose their connection to it.
enum class Cause : std::uint8_t {
  died,      // its process ended without a word
  failed,    // an error of its own
  left,      // it ended in good order, and others wait for it
  mismatch,  // ranks came to different collectives
  timeout,   // it did not come in time
  lost       // anything else that a rank notices of another
};

// A failure as one rank tells it.
struct Word {
  int culprit = -1;  // the rank that failed; -1 where it is not known
  Cause cause = Cause::lost;
  std::string text;  // a sentence for all ranks
};

// The record of the failure of a job. It is decided once, and every rank throws it.
struct Verdict {
  int epoch = 0;  // restarts of the job before this one
  Word first{};
  std::string place{};        // where the culprit was, "" where it is not known
  std::int64_t realtime = 0;  // nanoseconds since 1970 at which it was decided
};

// Reads the failure out of an error that the group of `rank` threw. None for an error that no peer caused.
std::optional<Word> word_of(const std::exception_ptr& error, int rank);
// Reads a sentence on ranks: "rank 2 (pid 5) died ..." names rank 2 and its death. Where it names nobody
// at its beginning, the culprit is the first rank in it that is not `rank`.
Word read_sentence(const std::string& text, int rank, Cause otherwise);
// A MismatchError, a TimeoutError or a TransportError.
std::exception_ptr error_of(const Verdict& verdict);

std::string to_bytes(const Word& word);
std::optional<Word> word_from(std::string_view bytes);
std::string to_bytes(const Verdict& verdict);
std::optional<Verdict> verdict_from(std::string_view bytes);

}  // namespace dear::liveness
