#include "dear/comm/mpi/measure.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "dear/comm/message_programs/program_backend.h"
#include "dear/comm/mpi/borrowed_channels.h"
#include "dear/comm/mpi/candidates.h"
#include "dear/comm/mpi/own.h"
#include "dear/comm/mpi/ranking.h"
#include "dear/comm/mpi/small.h"

namespace dear::backends {
namespace {

// Size classes in the order in which they are worth measuring: when time runs out, the rest take the choice
// of the nearest class. On a wire large sizes say little about small ones; but they take longest, so the
// classes of which training has most come first.
using Order = std::array<int, kSizeClasses>;
constexpr Order kOrder = {8, 6, 4, 5, 7, 9, 3, 2, 1, 0, 10};
constexpr Order kOrderAcrossHosts = {7, 9, 6, 8, 4, 5, 3, 2, 1, 0, 10};
// The number of calls in a row from which on the cost of the clock does not count.
constexpr int kMostInARow = 20;

// How much is measured, in seconds. A look with fewer calls in a row than take `long_enough` would measure
// the clock, and across hosts what idle wires and queues take at once.
struct Effort {
  std::size_t looks = 0;  // beside the first, which may meet memory and connections that are cold
  double budget = 0;
  double long_enough = 0;
};
constexpr Effort kToMeasure = {.looks = 5, .budget = 1, .long_enough = 100e-6};
constexpr Effort kToMeasureAcrossHosts = {.looks = 7, .budget = 8, .long_enough = 40e-3};
constexpr Effort kToCheck = {.looks = kLeastLooks, .budget = 0.1, .long_enough = 100e-6};
constexpr Effort kToCheckAcrossHosts = {.looks = kLeastLooks, .budget = 2, .long_enough = 15e-3};
// The number of further looks at an algorithm that seems slower or overtaken, before it is believed.
constexpr std::size_t kLooksInDoubt = 4;

// An algorithm under measurement, set up as it will carry collectives.
class Trial {
 public:
  Trial(channels::Mpi& mpi, message_programs::AlgorithmChoice choice)
      : choice_(std::move(choice)), small_(mpi), own_(mpi) {
    if (is_program(choice_)) {
      programs_ = message_programs::make_program_backend(
          std::make_unique<BorrowedChannels>(mpi),
          {.reproducible = choice_.algorithm != kAround,
           .choose = [this](const message_programs::CollectiveCall&) { return choice_; }});
    }
  }
  void run(const Request& request, Deadline deadline) {
    const auto what = [] { return "measure MPI's own collectives"; };
    if (!programs_ && small_.can_compare()) {  // which is a part of it
      small_.compare(request, ++sequence_, what, deadline);
    }
    programs_ ? static_cast<void>(programs_->run(request, deadline)) : own_.run(request, what, deadline);
  }
  [[nodiscard]] const message_programs::AlgorithmChoice& choice() const { return choice_; }

  bool hopeless = false;

 private:
  message_programs::AlgorithmChoice choice_;
  SmallCollectives small_;
  std::uint64_t sequence_ = 0;
  MpisOwn own_;
  std::unique_ptr<Backend> programs_;
};
using Trials = std::vector<std::unique_ptr<Trial>>;

class Measurement {
 public:
  Measurement(channels::Mpi& mpi, const MeasureOptions& options, const Effort& effort)
      : mpi_(mpi),
        options_(options),
        effort_(effort),
        bench_(message_programs::make_program_backend(std::make_unique<BorrowedChannels>(mpi),
                                                      {.reproducible = true})),
        numbers_(
            bench_->allocate(kMostNumbers * static_cast<std::int64_t>(sizeof(double)), options.deadline)) {}

  Measurements measure(const std::vector<Case>& cases, Measurements known) {
    take_memory(cases);
    for (const Case& one : cases) {
      known.forget(one.collective, one.size_class);
    }
    for (std::size_t i = 0; i < cases.size(); ++i) {
      if (i == 0 || spent_seconds() <= effort_.budget) {
        if (auto measurement = best_of(request_of(cases[i]), i == 0)) {
          known.set(cases[i].collective, cases[i].size_class, std::move(*measurement));
        }
      }
    }
    return known;
  }

  Checked check(const std::vector<Case>& cases, const Measurements& measurements) {
    Checked checked{.measurements = measurements};
    std::vector<Case> known;
    std::copy_if(cases.begin(), cases.end(), std::back_inserter(known), [&](const Case& one) {
      return measurements.find(one.collective, one.size_class) != nullptr;
    });
    take_memory(known);
    for (std::size_t i = 0; i < known.size(); ++i) {
      const Case& one = known[i];
      MeasuredChoice measurement = *measurements.find(one.collective, one.size_class);
      switch (standing_of(measurement, request_of(one), i == 0)) {
        case Standing::holds:
          break;
        case Standing::faster:
          checked.measurements.set(one.collective, one.size_class, std::move(measurement));
          ++checked.faster;
          break;
        case Standing::slower:
        case Standing::overtaken:
          checked.again.push_back(one);
          break;
      }
    }
    return checked;
  }

 private:
  static constexpr std::int64_t kMostNumbers = 256;

  [[nodiscard]] std::int64_t bytes_of(const Case& one) const {
    const std::int64_t line = 64 * mpi_.size();
    return std::max(line, largest_of(one.size_class) / line * line);
  }
  [[nodiscard]] Request request_of(const Case& one) const {
    return {.collective = one.collective, .view = {.buffer = vector_, .count = bytes_of(one) / 4}};
  }
  void take_memory(const std::vector<Case>& cases) {
    std::int64_t most = 0;
    for (const Case& one : cases) {
      most = std::max(most, bytes_of(one));
    }
    vector_ = bench_->allocate(most, options_.deadline);
  }

  // The greatest of what the ranks measured, element by element, so that all of them decide alike.
  std::vector<double> greatest(const std::vector<double>& mine) {
    const auto bytes = mine.size() * sizeof(double);
    std::memcpy(numbers_.data(), mine.data(), bytes);
    bench_->run(
        {.collective = Collective::all_reduce,
         .view = {.buffer = numbers_, .count = static_cast<std::int64_t>(mine.size()), .dtype = DType::f64},
         .reduction = Reduction::max},
        options_.deadline);
    std::vector<double> all(mine.size());
    std::memcpy(all.data(), numbers_.data(), bytes);
    return all;
  }

  // Seconds since the measurement began; the same on all ranks.
  double spent_seconds() { return greatest({now_seconds() - begin_}).front(); }

  double look(Trial& trial, const Request& request, int times) {
    bench_->run({.collective = Collective::barrier}, options_.deadline);
    const double begin = now_seconds();
    for (int i = 0; i < times; ++i) {
      trial.run(request, options_.deadline);
    }
    return (now_seconds() - begin) / times;
  }

  // Takes one look at each algorithm that is not hopeless. Returns the seconds of the slowest rank, 0 for
  // hopeless ones, and behind them the seconds spent.
  std::vector<double> round(const Trials& trials, const Request& request, int times) {
    std::vector<double> seconds;
    for (const auto& trial : trials) {
      seconds.push_back(trial->hopeless ? 0 : look(*trial, request, times));
    }
    seconds.push_back(now_seconds() - begin_);
    return greatest(seconds);
  }

  [[nodiscard]] int times_for(double seconds) const {
    return static_cast<int>(std::clamp(effort_.long_enough / seconds, 1.0, static_cast<double>(kMostInARow)));
  }

  // Rounds of looks at these, by trial, until there are `most` or the time has come; none where there is no
  // time for kLeastLooks, unless they are necessary.
  std::vector<Looks> looks_at(const Trials& trials, const Request& request, std::size_t most, double until,
                              bool necessary) {
    for (const auto& trial : trials) {
      trial->hopeless = false;
    }
    const double before = spent_seconds();
    std::vector<double> seconds = round(trials, request, 1);
    double spent = seconds.back();
    const double a_round = spent - before;
    seconds.pop_back();
    if (!necessary && spent + static_cast<double>(kLeastLooks) * a_round > until) {
      return {};
    }
    const int times = times_for(*std::min_element(seconds.begin(), seconds.end()));
    std::vector<Looks> looks(trials.size());
    for (std::size_t count = 0; count < most && (count < kLeastLooks || spent < until); ++count) {
      seconds = round(trials, request, times);
      spent = seconds.back();
      std::size_t fastest = 0;
      for (std::size_t i = 0; i < trials.size(); ++i) {
        if (!trials[i]->hopeless) looks[i].push_back(seconds[i]);
        if (usual_seconds(looks[i]) < usual_seconds(looks[fastest])) fastest = i;
      }
      for (std::size_t i = 0; i < trials.size(); ++i) {
        trials[i]->hopeless = trials[i]->hopeless || is_hopeless(looks[i], looks[fastest]);
      }
    }
    return looks;
  }

  // Spends at most half of the time that is left, except for a necessary look.
  std::optional<MeasuredChoice> best_of(const Request& request, bool necessary) {
    const double before = spent_seconds();
    Trials trials;
    const message_programs::CollectiveCall call{.collective = request.collective,
                                                .bytes = request.view.count * size_of(request.view.dtype),
                                                .ranks = mpi_.size(),
                                                .exact = true};
    for (message_programs::AlgorithmChoice& choice : candidates(
             call,
             {.across_hosts = !channels::on_one_host(mpi_), .sums_go_around = options_.sums_go_around})) {
      trials.push_back(std::make_unique<Trial>(mpi_, std::move(choice)));
    }
    if (MpisOwn(mpi_).can(request)) {
      trials.push_back(
          std::make_unique<Trial>(mpi_, message_programs::AlgorithmChoice{.algorithm = kMpisOwn}));
    }
    const std::vector<Looks> looks =
        looks_at(trials, request, effort_.looks, before + (effort_.budget - before) / 2, necessary);
    if (looks.empty()) {
      return std::nullopt;
    }
    const Ranking ranking = rank_choices(looks);
    MeasuredChoice measurement{.choice = trials[ranking.best]->choice(),
                               .seconds = usual_seconds(looks[ranking.best])};
    if (ranking.second) measurement.second = trials[*ranking.second]->choice();
    return measurement;
  }

  // Compares a remembered measurement with today, and gives it today's time where that is faster.
  Standing standing_of(MeasuredChoice& measurement, const Request& request, bool necessary) {
    Trials trials;
    trials.push_back(std::make_unique<Trial>(mpi_, measurement.choice));
    if (measurement.second) trials.push_back(std::make_unique<Trial>(mpi_, *measurement.second));
    std::vector<Looks> looks = looks_at(trials, request, effort_.looks, effort_.budget, necessary);
    if (looks.empty()) {
      return Standing::holds;
    }
    looks.resize(2);
    Standing found = standing(measurement.seconds, looks[0], looks[1]);
    if (found == Standing::slower || found == Standing::overtaken) {
      std::vector<Looks> more = looks_at(trials, request, kLooksInDoubt, effort_.budget, true);
      more.resize(2);
      found = standing(measurement.seconds, more[0], more[1]);
    }
    if (found == Standing::faster) measurement.seconds = usual_seconds(looks[0]);
    return found;
  }

  channels::Mpi& mpi_;
  MeasureOptions options_;
  Effort effort_;
  std::unique_ptr<Backend> bench_;
  Buffer numbers_;
  Buffer vector_;
  double begin_ = now_seconds();
};

}  // namespace

std::vector<Case> all_cases(bool across_hosts) {
  std::vector<Case> cases;
  for (const int size_class : across_hosts ? kOrderAcrossHosts : kOrder) {
    cases.push_back({.collective = Collective::reduce_scatter, .size_class = size_class});
    cases.push_back({.collective = Collective::all_gather, .size_class = size_class});
  }
  return cases;
}

Measurements measure(channels::Mpi& mpi, const std::vector<Case>& cases, Measurements known,
                     const MeasureOptions& options) {
  return Measurement(mpi, options, channels::on_one_host(mpi) ? kToMeasure : kToMeasureAcrossHosts)
      .measure(cases, std::move(known));
}

Checked check(channels::Mpi& mpi, const Measurements& measurements, const MeasureOptions& options) {
  const bool one_host = channels::on_one_host(mpi);
  return Measurement(mpi, options, one_host ? kToCheck : kToCheckAcrossHosts)
      .check(all_cases(!one_host), measurements);
}

}  // namespace dear::backends
