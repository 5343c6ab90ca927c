#include "dear/base/liveness/verdict.h"

#include <charconv>
#include <vector>

#include "dear/base/admission/message.h"
#include "dear/base/vocabulary/error.h"

namespace dear::liveness {
namespace {

constexpr std::size_t kLongestText = 3000;
constexpr std::string_view kRank = "rank ";

template <typename Number>
std::optional<Number> number_in(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The number behind "rank " at this place, and where it ends.
std::optional<std::pair<int, std::size_t>> rank_at(const std::string& text, std::size_t at) {
  if (text.compare(at, kRank.size(), kRank) != 0) return std::nullopt;
  const std::size_t begin = at + kRank.size(),
                    end = std::min(text.find_first_not_of("0123456789", begin), text.size());
  const auto rank = number_in<int>(std::string_view(text).substr(begin, end - begin));
  if (!rank) return std::nullopt;
  return std::pair(*rank, end);
}

std::optional<Cause> cause_in(std::string_view number) {
  const auto cause = number_in<int>(number);
  if (!cause || *cause < 0 || *cause > static_cast<int>(Cause::lost)) return std::nullopt;
  return static_cast<Cause>(*cause);
}

}  // namespace

Word read_sentence(const std::string& text, int rank, Cause otherwise) {
  Word word{.cause = otherwise, .text = text.substr(0, kLongestText)};
  int speaker = rank;  // who is accused by it is another
  for (std::size_t at = text.find(kRank); at != std::string::npos; at = text.find(kRank, at + 1)) {
    const auto found = rank_at(text, at);
    if (!found || (at > 0 && found->first == speaker)) continue;
    if (word.culprit < 0 || word.culprit == speaker) word.culprit = found->first;
    if (at > 0) break;
    // "rank 2 (pid 5 on host b) died"
    std::string_view rest = std::string_view(text).substr(found->second);
    if (rest.starts_with(" (pid ")) rest.remove_prefix(std::min(rest.find(')') + 1, rest.size()));
    if (rest.starts_with(" died")) word.cause = Cause::died;
    if (rest.starts_with(" failed: ")) word.cause = Cause::failed;
    if (rest.starts_with(" left ")) word.cause = Cause::left;
    // "rank 2 gave up its wait in collective 7: no sign of life from rank 0" accuses rank 0.
    if (rest.starts_with(" gave up its wait")) {
      word.cause = Cause::timeout;
      speaker = found->first;
      continue;
    }
    if (word.cause != otherwise || found->first != rank) break;
  }
  return word;
}

std::optional<Word> word_of(const std::exception_ptr& error, int rank) {
  try {
    std::rethrow_exception(error);
  } catch (const MismatchError& mismatch) {
    return read_sentence(mismatch.what(), rank, Cause::mismatch);
  } catch (const TimeoutError& late) {
    return read_sentence(late.what(), rank, Cause::timeout);
  } catch (const TransportError& lost) {
    return read_sentence(lost.what(), rank, Cause::lost);
  } catch (...) {
    return std::nullopt;
  }
}

std::exception_ptr error_of(const Verdict& verdict) {
  switch (verdict.first.cause) {
    case Cause::mismatch:
      return std::make_exception_ptr(MismatchError(verdict.first.text));
    case Cause::timeout:
      return std::make_exception_ptr(TimeoutError(verdict.first.text));
    default:
      return std::make_exception_ptr(TransportError(verdict.first.text));
  }
}

std::string to_bytes(const Word& word) {
  return admission::joined({std::to_string(word.culprit), std::to_string(static_cast<int>(word.cause)),
                            word.text.substr(0, kLongestText)});
}

std::optional<Word> word_from(std::string_view bytes) {
  const auto parts = admission::parted(bytes);
  if (!parts || parts->size() != 3) return std::nullopt;
  const auto culprit = number_in<int>((*parts)[0]);
  const auto cause = cause_in((*parts)[1]);
  if (!culprit || !cause) return std::nullopt;
  return Word{.culprit = *culprit, .cause = *cause, .text = (*parts)[2]};
}

std::string to_bytes(const Verdict& verdict) {
  return admission::joined({std::to_string(verdict.epoch), to_bytes(verdict.first),
                            verdict.place.substr(0, 500), std::to_string(verdict.realtime)});
}

std::optional<Verdict> verdict_from(std::string_view bytes) {
  const auto parts = admission::parted(bytes);
  if (!parts || parts->size() != 4) return std::nullopt;
  const auto epoch = number_in<int>((*parts)[0]);
  const auto first = word_from((*parts)[1]);
  const auto realtime = number_in<std::int64_t>((*parts)[3]);
  if (!epoch || !first || !realtime) return std::nullopt;
  return Verdict{.epoch = *epoch, .first = *first, .place = (*parts)[2], .realtime = *realtime};
}

}  // namespace dear::liveness
