#include "dear/measure/contest.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include <fmt/format.h>

#include "dear/base/error.h"
#include "dear/measure/crew.h"

namespace dear::measure {
namespace {

// Long enough for the clock and the start of all ranks not to count.
constexpr double kLeastRepetitionSeconds = 1e-3;
constexpr double kMostBatch = 1000;
// While ranks compute besides: for the system's time slices not to count either.
constexpr double kLeastComputingSeconds = 0.1;

// One line of the results: a contestant and an operation.
struct Entry {
  std::size_t team;
  MeasuredOperation operation;
  bool computing = false;  // ranks compute meanwhile
  int batch = 1;
  std::vector<double> seconds{};
  std::vector<double> slowdowns{};  // of what they compute
  std::vector<double> waiting_shares{};
  bool verified = false;
  bool refused = false;
};

// The time of one operation in each repetition.
std::vector<double> seconds_of(const std::vector<Reply>& replies, int batch) {
  std::vector<double> seconds;
  for (std::size_t i = 0; i < replies.front().spans.size(); ++i) {
    Span whole = replies.front().spans[i];
    for (const Reply& reply : replies) {
      const Span& span = reply.spans.at(i);
      whole.begin_seconds = std::min(whole.begin_seconds, span.begin_seconds);
      whole.end_seconds = std::max(whole.end_seconds, span.end_seconds);
    }
    seconds.push_back((whole.end_seconds - whole.begin_seconds) / batch);
  }
  return seconds;
}

double mean_slowdown(const std::vector<Reply>& replies) {
  double sum = 0;
  for (const Reply& reply : replies) sum += reply.slowdowns.at(0);
  return sum / static_cast<double>(replies.size());
}

// Of the one repetition in each reply: how long the last rank to come took.
double late_seconds_of(const std::vector<Reply>& replies, int batch) {
  const Span& span = replies.front().spans.at(0);
  return (span.end_seconds - span.begin_seconds) / batch;
}

double greatest_waiting_share(const std::vector<Reply>& replies) {
  double greatest = 0;
  for (std::size_t rank = 1; rank < replies.size(); ++rank)
    greatest = std::max(greatest, replies[rank].processor_shares.at(0));
  return greatest;
}

class Contest {
 public:
  Contest(const ContestSettings& settings, const MakeTeam& make_team) : settings_(settings) {
    for (const Entrant& entrant : settings.entrants) {
      const std::size_t number = teams_.size();
      teams_.push_back(make_team(entrant));
      entries_.push_back({.team = number, .operation = settings.operation});
      // What the pair takes the place of.
      if (entrant.contestant->rival && !entrant.contestant->only_copies &&
          settings.operation == MeasuredOperation::pair) {
        entries_.push_back({.team = number, .operation = MeasuredOperation::all_reduce});
      }
    }
    if (settings.interference) {
      entries_.push_back({.team = 0, .operation = settings.operation, .computing = true});
    }
  }

  ContestOutcome hold(const std::function<void(std::int64_t)>& progress) {
    // One after another: while ranks meet, their engines may keep every core busy.
    for (std::size_t team = 0; team < teams_.size(); ++team) {
      attempt(team,
              [&] { outcome_.descriptions.emplace_back(name_of_team(team), teams_[team]->wait_ready()); });
    }
    for (const std::int64_t bytes : settings_.sizes) {
      progress(bytes);
      measure(bytes);
    }
    for (std::size_t team = 0; team < teams_.size(); ++team) {
      attempt(team, [&] { teams_[team]->dismiss(); });
    }
    return std::move(outcome_);
  }

 private:
  [[nodiscard]] std::string name_of_team(std::size_t team) const {
    return std::string(settings_.entrants[team].contestant->name);
  }

  // Does it unless this team has failed already. False when it has.
  template <typename Do>
  bool attempt(std::size_t team, Do action) {
    if (!teams_[team]) {
      return false;
    }
    try {
      action();
      return true;
    } catch (const Error& error) {
      if (settings_.launched) {
        throw;
      }
      outcome_.failures.push_back(
          {.contestant = name_of_team(team), .reason = error.what(), .output = teams_[team]->output()});
      teams_[team].reset();
      return false;
    }
  }

  void measure(std::int64_t bytes) {
    for (Entry& entry : entries_) {
      entry.seconds.clear();
      entry.slowdowns.clear();
      entry.waiting_shares.clear();
      attempt(entry.team, [&] { prepare(entry, bytes); });
    }
    for (int round = 0; round < settings_.repeat; ++round) {
      for (Entry& entry : entries_) {
        if (!entry.refused) {
          attempt(entry.team, [&] { take_turn(entry, bytes); });
        }
      }
    }
    for (const Entry& entry : entries_) {
      if (!entry.refused && teams_[entry.team]) {
        outcome_.results.push_back({.backend = name_of_team(entry.team),
                                    .operation = entry.operation,
                                    .dtype = settings_.dtype,
                                    .ranks = settings_.ranks,
                                    .bytes = bytes,
                                    .seconds = quantiles_of(entry.seconds),
                                    .verified = entry.verified,
                                    .copies = settings_.entrants[entry.team].contestant->only_copies,
                                    .ahead = ahead_of(entry),
                                    .touched = settings_.touch});
        if (entry.computing)
          outcome_.results.back().computation_slowdown = quantiles_of(entry.slowdowns).median;
        if (settings_.late_seconds > 0)
          outcome_.results.back().waiting_share = quantiles_of(entry.waiting_shares).median;
      }
    }
  }

  void take_turn(Entry& entry, std::int64_t bytes) {
    Command command = order(entry, bytes, {.unmeasured = 1, .repetitions = 1});
    if (settings_.late_seconds > 0) {
      command.unmeasured = 0;  // the wait is long enough to forget what was before
      command.late_seconds = settings_.late_seconds;
      const std::vector<Reply> replies = teams_[entry.team]->ask(command);
      entry.seconds.push_back(late_seconds_of(replies, entry.batch));
      entry.waiting_shares.push_back(greatest_waiting_share(replies));
      return;
    }
    const std::vector<Reply> replies = teams_[entry.team]->ask(command);
    const auto seconds = seconds_of(replies, entry.batch);
    entry.seconds.insert(entry.seconds.end(), seconds.begin(), seconds.end());
    if (entry.computing) entry.slowdowns.push_back(mean_slowdown(replies));
  }

  // Verifies, and finds how many operations make a repetition.
  void prepare(Entry& entry, std::int64_t bytes) {
    if (entry.refused) {
      return;
    }
    Team& team = *teams_[entry.team];
    Command verify = order(entry, bytes, {});
    verify.kind = Command::Kind::verify;
    entry.verified = true;
    const std::vector<Reply> replies = team.ask(verify);
    for (std::size_t rank = 0; rank < replies.size(); ++rank) {
      const Reply& reply = replies[rank];
      if (reply.kind == Reply::Kind::refused) {
        if (!entry.computing)
          outcome_.notes.push_back(fmt::format("{} is not measured at {}: {}", name_of_team(entry.team),
                                               name_of(entry.operation), reply.text));
        entry.refused = true;
        return;
      }
      if (reply.kind == Reply::Kind::wrong && entry.verified) {
        entry.verified = false;
        outcome_.failures.push_back(
            {.contestant = name_of_team(entry.team),
             .reason = fmt::format("the result of {} at {} bytes is wrong: on rank {}, {}",
                                   name_of(entry.operation), bytes, rank, reply.text)});
      }
    }
    entry.batch = batch_of(entry, bytes);
  }

  // In few steps, since a short batch seems longer than it is: ranks start a moment after each other.
  int batch_of(Entry entry, std::int64_t bytes) {
    const int ahead = ahead_of(entry);
    entry.batch = ahead;
    const double least = entry.computing ? kLeastComputingSeconds : kLeastRepetitionSeconds;
    for (int step = 0; step < 4; ++step) {
      const auto seconds = seconds_of(
          teams_[entry.team]->ask(order(entry, bytes, {.unmeasured = 1, .repetitions = 3})), entry.batch);
      const double usual = std::max(quantiles_of(seconds).median, 1e-9);
      if (usual * entry.batch >= least) {
        break;
      }
      entry.batch = static_cast<int>(std::clamp(std::ceil(least / usual), 1.0, kMostBatch));
      entry.batch = (entry.batch + ahead - 1) / ahead * ahead;
    }
    return entry.batch;
  }

  // Rivals wait for each operation.
  [[nodiscard]] int ahead_of(const Entry& entry) const {
    return settings_.entrants[entry.team].contestant->rival ? 1 : settings_.ahead;
  }

  struct Times {
    int unmeasured = 0;
    int repetitions = 0;
  };
  [[nodiscard]] Command order(const Entry& entry, std::int64_t bytes, Times times) const {
    return {.kind = Command::Kind::measure,
            .operation = entry.operation,
            .dtype = settings_.dtype,
            .bytes = bytes,
            .unmeasured = entry.computing ? 0 : times.unmeasured,  // they are long, and follow others
            .repetitions = times.repetitions,
            .batch = entry.batch,
            .computing = entry.computing,
            .touching = settings_.touch};
  }

  const ContestSettings& settings_;
  std::vector<std::unique_ptr<Team>> teams_;  // empty where one has failed
  std::vector<Entry> entries_;
  ContestOutcome outcome_;
};

}  // namespace

ContestOutcome hold_contest_among(const ContestSettings& settings, const MakeTeam& make_team,
                                  const std::function<void(std::int64_t bytes)>& progress) {
  return Contest(settings, make_team).hold(progress);
}

ContestOutcome hold_contest(const ContestSettings& settings, const launch::HeldSignals& signals,
                            const std::function<void(std::int64_t bytes)>& progress) {
  const std::int64_t most = *std::max_element(settings.sizes.begin(), settings.sizes.end());
  const auto make_crew = [&](const Entrant& entrant) {
    return std::make_unique<Crew>(
        *entrant.contestant,
        CrewOptions{.program = settings.program,
                    .ranks = settings.ranks,
                    .bind = settings.bind,
                    .reproducible = settings.reproducible,
                    .ahead = settings.ahead,
                    .prepare_bytes = most,
                    .output_bytes = settings.operation == MeasuredOperation::all_to_all ? most : 0,
                    .timeout = settings.timeout,
                    .launcher = entrant.launcher},
        signals);
  };
  return hold_contest_among(settings, make_crew, progress);
}

}  // namespace dear::measure
