#include "dear/base/diagnosis/diagnosis.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/diagnosis/visits.h"
#include "dear/base/liveness/verdict.h"
#include "dear/base/recorder/record.h"
#include "dear/base/vocabulary/named_rank.h"

namespace dear::diagnose {
namespace {

using recorder::Event;
using recorder::Kind;
using Cause = Diagnosis::Cause;

std::string seconds_text(double seconds) {
  return seconds < 10 ? fmt::format("{:.1f} s", seconds) : fmt::format("{:.0f} s", seconds);
}

class Diagnoser {
 public:
  explicit Diagnoser(const JobRecords& job) : job_(job) {
    found_.ranks.resize(job.seen.size());
    for (const RankSeen& seen : job.seen) {
      visits_.push_back(seen.record ? visits_of(*seen.record) : Visits());
      standings_.push_back(seen.record ? standing_of(*seen.record) : Standing());
      if (!seen.record) continue;
      now_ = std::max(now_, seen.record->realtime(standings_.back().last));
      if (!seen.record->failure || seen.record->failure->own) continue;
      const int rank = seen.record->rank;
      const liveness::Word word =
          liveness::read_sentence(seen.record->failure->text, rank, liveness::Cause::lost);
      if (word.culprit >= 0 && word.culprit != rank && std::cmp_less(word.culprit, job.seen.size()))
        words_.push_back(word);
    }
  }

  Diagnosis diagnose() {
    found_.notes = job_.unread;
    describe_ranks();
    find_difference();
    find_slowest();
    find_not_finite();
    if (by_verdict() || by_failure() || by_death() || by_early_end() || by_mismatch() || by_difference() ||
        by_departure() || by_words() || by_wait())
      return found_;
    found_.what = "nothing is wrong in these records";
    return found_;
  }

 private:
  void describe_ranks() {
    for (std::size_t rank = 0; rank < job_.seen.size(); ++rank) {
      const RankSeen& seen = job_.seen[rank];
      Diagnosis::OfRank& of_rank = found_.ranks[rank];
      if (!seen.record) {
        of_rank.doing = "nowhere: it left no record";
      } else {
        const Standing& standing = standings_[rank];
        const auto since = [&](std::int64_t then) {
          return seconds_text(static_cast<double>(now_ - seen.record->realtime(then)) / 1e9);
        };
        if (standing.in != nullptr)
          of_rank.doing =
              fmt::format("in collective {} of group {}, {}, for {}", standing.in->number, standing.in->group,
                          describe(*standing.in), since(standing.in->nanoseconds));
        else if (standing.files != nullptr)
          of_rank.doing = fmt::format("at the files of a checkpoint {} for {}", text_of(*standing.files),
                                      since(standing.files->nanoseconds));
        else
          of_rank.doing = fmt::format("computing, or in the program's own code; last seen {} before the end",
                                      since(standing.last));
        if (seen.record->failure)
          of_rank.doing += fmt::format("; it failed {} before the end: {}",
                                       since(seen.record->failure->nanoseconds), seen.record->failure->text);
        of_rank.steps = seen.record->steps;
        if (seen.record->steps > 0) {
          const auto steps = static_cast<double>(seen.record->steps);
          of_rank.step_seconds = static_cast<double>(seen.record->step_nanoseconds) / steps / 1e9;
          of_rank.compute_seconds =
              *of_rank.step_seconds - static_cast<double>(seen.record->exposed_nanoseconds) / steps / 1e9;
        }
      }
      if (seen.ended)
        of_rank.doing += seen.signal != 0 ? fmt::format("; killed by signal {}", signal_text(seen.signal))
                                          : fmt::format("; exited with code {}", seen.code);
      else if (seen.state == 'T' || seen.state == 't')
        of_rank.doing += "; its process is stopped (state T)";
      else if (seen.state == 'D')
        of_rank.doing += "; its process waits for a disk or a file system (state D)";
    }
    count_waits();
  }

  static std::string signal_text(int signal) {
    const char* const name = ::sigabbrev_np(signal);
    return name == nullptr ? std::to_string(signal) : fmt::format("{} (SIG{})", signal, name);
  }

  // For each collective that ranks came to: how long before the last of them.
  void count_waits() {
    std::map<Visits::key_type, std::vector<std::pair<std::size_t, std::int64_t>>> all;
    for (std::size_t rank = 0; rank < visits_.size(); ++rank)
      for (const auto& [key, visit] : visits_[rank])
        all[key].emplace_back(rank, job_.seen[rank].record->realtime(visit.begun->nanoseconds));
    for (const auto& [key, comings] : all) {
      if (comings.size() < 2) continue;
      std::int64_t last = 0;
      for (const auto& [rank, time] : comings) last = std::max(last, time);
      for (const auto& [rank, time] : comings) {
        auto& waited = found_.ranks[rank].waited_seconds;
        waited = waited.value_or(0) + static_cast<double>(last - time) / 1e9;
      }
    }
  }

  void find_difference() {
    std::map<Visits::key_type, std::vector<std::pair<std::size_t, std::string>>> all;
    for (std::size_t rank = 0; rank < visits_.size(); ++rank)
      for (const auto& [key, visit] : visits_[rank]) all[key].emplace_back(rank, describe(*visit.begun));
    for (const auto& [key, descriptions] : all) {
      const bool alike = std::all_of(descriptions.begin(), descriptions.end(), [&](const auto& one) {
        return one.second == descriptions.front().second;
      });
      if (alike) continue;
      found_.difference = Diagnosis::Difference{.number = key.second, .by_rank = {}};
      found_.difference->by_rank.resize(job_.seen.size());
      for (const auto& [rank, text] : descriptions) found_.difference->by_rank[rank] = text;
      return;
    }
  }

  void find_slowest() {
    std::vector<double> times;
    for (const Diagnosis::OfRank& one : found_.ranks)
      if (one.compute_seconds) times.push_back(*one.compute_seconds);
    if (times.size() < 2) return;
    std::sort(times.begin(), times.end());
    const double median = times[(times.size() - 1) / 2];
    for (std::size_t rank = 0; rank < found_.ranks.size(); ++rank)
      if (found_.ranks[rank].compute_seconds == times.back()) found_.slowest = static_cast<int>(rank);
    found_.slowest_share = median > 0 ? times.back() / median - 1 : 0;
  }

  void find_not_finite() {
    std::int64_t first = 0;
    for (const RankSeen& seen : job_.seen) {
      if (!seen.record) continue;
      for (const Event& event : seen.record->events) {
        if (event.kind != Kind::not_finite) continue;
        const std::int64_t time = seen.record->realtime(event.nanoseconds);
        if (!found_.first_not_finite.empty() && time >= first) continue;
        first = time;
        found_.first_not_finite =
            fmt::format("rank {}, step {}: {}", seen.record->rank, event.number, text_of(event));
      }
    }
  }

  bool found(Cause cause, std::vector<int> culprits, std::string what) {
    found_.cause = cause;
    found_.culprits = std::move(culprits);
    found_.what = std::move(what);
    return true;
  }

  bool by_verdict() {
    if (!job_.verdict) return false;
    return found(Cause::failed, {job_.verdict->rank},
                 fmt::format("rank {} failed first: {}", job_.verdict->rank, job_.verdict->cause));
  }

  bool by_failure() {
    const RankSeen* first = nullptr;
    for (const RankSeen& seen : job_.seen) {
      if (!seen.record || !seen.record->failure || !seen.record->failure->own) continue;
      if (first == nullptr || seen.record->realtime(seen.record->failure->nanoseconds) <
                                  first->record->realtime(first->record->failure->nanoseconds))
        first = &seen;
    }
    if (first == nullptr) return false;
    return found(Cause::failed, {first->record->rank}, first->record->failure->text);
  }

  // Whether others failed because of this rank, or say nothing of why they failed.
  [[nodiscard]] bool may_be_blamed(int rank) const {
    const auto differs = [](const RankSeen& seen) {
      return seen.record && seen.record->failure && !sides_in(seen.record->failure->text).empty();
    };
    if (std::any_of(job_.seen.begin(), job_.seen.end(), differs)) return false;
    return words_.empty() || std::any_of(words_.begin(), words_.end(),
                                         [rank](const liveness::Word& word) { return word.culprit == rank; });
  }

  bool by_death() {
    std::vector<int> killed, exited;
    for (std::size_t rank = 0; rank < job_.seen.size(); ++rank) {
      const RankSeen& seen = job_.seen[rank];
      if (!seen.ended || seen.told_to_end) continue;
      if (seen.signal != 0) killed.push_back(static_cast<int>(rank));
      // A rank whose failure is of the group says so and exits: it is no culprit. Where it left no record, it
      // may have: others say whom they waited for.
      else if (seen.code != 0 && !(seen.record && seen.record->failure) &&
               (seen.record || may_be_blamed(static_cast<int>(rank))))
        exited.push_back(static_cast<int>(rank));
    }
    if (!killed.empty()) {
      const int signal = job_.seen[static_cast<std::size_t>(killed.front())].signal;
      return found(
          Cause::killed, killed,
          fmt::format("rank {} was killed by signal {}{}", fmt::join(killed, ", "), signal_text(signal),
                      signal == SIGKILL ? ": by a user or, where memory was short, by the system" : ""));
    }
    if (exited.empty()) return false;
    return found(Cause::exited, exited,
                 fmt::format("rank {} exited with code {} and said nothing", fmt::join(exited, ", "),
                             job_.seen[static_cast<std::size_t>(exited.front())].code));
  }

  bool by_early_end() {
    if (!found_.difference) return false;
    std::vector<int> ended;
    for (std::size_t rank = 0; rank < visits_.size(); ++rank)
      for (const auto& [key, visit] : visits_[rank])
        if (key.second == found_.difference->number && visit.begun->second == recorder::kEndsWithinAStep)
          ended.push_back(static_cast<int>(rank));
    if (ended.empty()) return false;
    return found(Cause::left, ended,
                 fmt::format("rank {} ended its training within a step, where others waited for it",
                             fmt::join(ended, ", ")));
  }

  bool by_difference() {
    if (!found_.difference) return false;
    std::map<std::string, std::vector<int>> sides;
    for (std::size_t rank = 0; rank < found_.difference->by_rank.size(); ++rank)
      if (!found_.difference->by_rank[rank].empty())
        sides[found_.difference->by_rank[rank]].push_back(static_cast<int>(rank));
    std::vector<std::vector<int>> ranks;
    std::vector<std::string> texts;
    for (const auto& [text, of_side] : sides) {
      ranks.push_back(of_side);
      texts.push_back(fmt::format("rank {}: {}", fmt::join(of_side, ", "), text));
    }
    return found(Cause::mismatch, fewest_of(ranks),
                 fmt::format("ranks came to different collectives as number {}: {}",
                             found_.difference->number, fmt::join(texts, "; ")));
  }

  // "collective 98: ranks 1, 2 ask for a barrier, rank 0 for an all-gather": what ranks said of each other.
  bool by_mismatch() {
    for (const RankSeen& seen : job_.seen) {
      if (!seen.record || !seen.record->failure) continue;
      const std::string& text = seen.record->failure->text;
      if (const std::vector<int> ended = ended_in(text); !ended.empty())
        return found(Cause::left, ended, text);
      if (auto sides = sides_in(text); sides.size() > 1) {
        add_others(sides, standings_);
        return found(Cause::mismatch, fewest_of(sides), text);
      }
    }
    return false;
  }

  // Others wait, or failed, while one ended well.
  bool by_departure() {
    std::vector<int> left;
    bool others = false;
    for (std::size_t rank = 0; rank < job_.seen.size(); ++rank) {
      const RankSeen& seen = job_.seen[rank];
      if (seen.ended && seen.signal == 0 && seen.code == 0)
        left.push_back(static_cast<int>(rank));
      else
        others = others || standings_[rank].in != nullptr || (seen.record && seen.record->failure);
    }
    if (left.empty() || !others) return false;
    return found(Cause::left, left,
                 fmt::format("rank {} ended while others waited for it", fmt::join(left, ", ")));
  }

  // A rank left, as others say, that has no record, or waits for nobody and says nothing: the launcher may
  // have ended it on its way out.
  bool by_words() {
    for (const liveness::Word& word : words_) {
      const auto place = static_cast<std::size_t>(word.culprit);
      const auto& record = job_.seen[place].record;
      if (word.cause == liveness::Cause::left &&
          (!record || (!record->failure && standings_[place].in == nullptr)))
        return found(Cause::left, {word.culprit}, word.text);
    }
    return false;
  }

  bool by_wait() {
    std::vector<int> waiting, others, stopped, at_files, unseen;
    for (std::size_t place = 0; place < job_.seen.size(); ++place) {
      const RankSeen& seen = job_.seen[place];
      const int rank = static_cast<int>(place);
      // All ranks are given the same verdict: the one that it names waited for nobody.
      const bool failed =
          seen.record && seen.record->failure && rank_named_first(seen.record->failure->text) != rank;
      if (seen.state == 'T' || seen.state == 't' || seen.state == 'D')
        stopped.push_back(rank);
      else if (!seen.record)
        unseen.push_back(rank);
      else if (standings_[place].in != nullptr || failed)
        waiting.push_back(rank);
      else if (standings_[place].files != nullptr)
        at_files.push_back(rank);
      else
        others.push_back(rank);
    }
    if (waiting.empty() && stopped.empty()) return false;
    const bool at_work = job_.live && !is_stuck();
    const auto wait_text = fmt::format("rank {} waits", fmt::join(waiting, ", "));
    if (!stopped.empty())
      return found(
          Cause::stopped, stopped,
          fmt::format("rank {} is stopped (kill -CONT), or waits for a disk", fmt::join(stopped, ", ")));
    if (at_work) return false;
    if (!at_files.empty() && others.empty())
      return found(
          Cause::files, at_files,
          fmt::format("rank {} is at the files of a checkpoint; {}", fmt::join(at_files, ", "), wait_text));
    if (!others.empty())
      return found(Cause::late, others,
                   fmt::format("rank {} computes, or is in the program's own code, and did not come to the "
                               "collective in which {}",
                               fmt::join(others, ", "), wait_text));
    if (const std::vector<int> behind = fewest_collectives(waiting); !behind.empty())
      return found(
          Cause::late, behind,
          fmt::format("rank {} is in an earlier collective than the others", fmt::join(behind, ", ")));
    if (!unseen.empty())
      return found(Cause::late, unseen,
                   fmt::format("{}; rank {} left no record", wait_text, fmt::join(unseen, ", ")));
    return found(Cause::waiting, waiting, "all ranks wait in the same collective: look at the network");
  }

  // Whether nothing has happened on any rank for a while.
  [[nodiscard]] bool is_stuck() const {
    constexpr double kStuck = 5;  // seconds in one collective
    for (std::size_t rank = 0; rank < job_.seen.size(); ++rank) {
      const Event* const in = standings_[rank].in;
      if (in == nullptr || !job_.seen[rank].record) continue;
      const std::int64_t begun = job_.seen[rank].record->realtime(in->nanoseconds);
      timespec time{};
      ::clock_gettime(CLOCK_REALTIME, &time);
      if (static_cast<double>(time.tv_sec) - static_cast<double>(begun) / 1e9 > kStuck) return true;
    }
    return false;
  }

  // The ranks that came to fewer collectives of the same group than others; none where they are equally far.
  [[nodiscard]] std::vector<int> fewest_collectives(const std::vector<int>& ranks) const {
    std::map<std::uint16_t, std::map<std::int64_t, std::vector<int>>> by_group;
    for (const int rank : ranks) {
      const Event* const in = standings_[static_cast<std::size_t>(rank)].in;
      if (in != nullptr) by_group[in->group][in->number].push_back(rank);
    }
    for (const auto& [group, by_number] : by_group)
      if (by_number.size() > 1) return by_number.begin()->second;
    return {};
  }

  const JobRecords& job_;
  Diagnosis found_;
  std::vector<Visits> visits_;
  std::vector<Standing> standings_;
  std::vector<liveness::Word> words_;  // on whom ranks failed for
  std::int64_t now_ = 0;               // the time of the last event of all ranks
};

}  // namespace

Diagnosis diagnose(const JobRecords& job) { return Diagnoser(job).diagnose(); }

std::string_view name_of(Cause cause) {
  constexpr std::string_view kNames[] = {"none",     "failed",  "killed", "exited", "left",
                                         "mismatch", "stopped", "files",  "late",   "waiting"};
  return kNames[static_cast<std::size_t>(cause)];
}

}  // namespace dear::diagnose
