#include "dear/collective/mpi/measure.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "dear/base/units.h"
#include "dear/collective/mpi/borrowed_channels.h"
#include "dear/collective/mpi/own.h"
#include "dear/collective/mpi/small.h"
#include "dear/collective/programs/programs.h"

namespace dear::collective {
namespace {

constexpr std::array<std::int64_t, 4> kSegments = {8 * kKiB, 32 * kKiB, 128 * kKiB, kMiB};
// Size classes in the order in which they are worth knowing: where time runs out, the others go as the
// nearest. On a wire little can be told of what is large from what is small; but it takes longest, so those
// come first which training has most of.
using Order = std::array<int, kSizeClasses>;
constexpr Order kOrder = {8, 6, 4, 5, 7, 9, 3, 2, 1, 0, 10};
constexpr Order kOrderAcrossHosts = {7, 6, 9, 4, 8, 5, 3, 2, 1, 0, 10};
// All contributions in full cost less than a second round up to here.
constexpr std::int64_t kMostGathered = 4 * kKiB;
// The first look at a way may meet memory and connections that are cold.
constexpr int kLooks = 4;
// A way that is slower than the fastest by this is not looked at again.
constexpr double kHopeless = 1.5;
constexpr double kWorthIt = 0.95;
constexpr double kBudgetSeconds = 1;
constexpr int kLooksAcrossHosts = 7;
constexpr double kBudgetSecondsAcrossHosts = 10;
constexpr std::int64_t kLeastSegmentAcrossHosts = 32 * kKiB;
// So often in a row that the clock does not count; and across hosts, that what idle wires and queues take at
// once does not.
constexpr double kLongEnough = 100e-6;
constexpr double kLongEnoughAcrossHosts = 50e-3;
constexpr int kMostInARow = 20;

std::vector<Way> candidates(const Errand& errand, bool across_hosts, bool sums_go_around) {
  const std::int64_t part = errand.bytes / errand.ranks;
  // What neighbours do is the best that a wire offers; the others would only take time that looks need.
  const bool around = errand.bytes > kLargestSumInOrder &&
                      (errand.operation == Operation::reduce_scatter ? sums_go_around : across_hosts);
  std::vector<Way> all;
  for (const Way& way : around ? std::vector<Way>{{.algorithm = kAround}} : ways(errand)) {
    // Between two ranks there is one way to take, whatever its name; and what is large is not sent twice.
    if (errand.operation == Operation::all_gather && errand.ranks == 2 && way.algorithm != "pairwise") {
      continue;
    }
    if (way.algorithm == "gather" && errand.bytes > kMostGathered) {
      continue;
    }
    for (const std::int64_t segment : kSegments) {
      const bool too_many =
          across_hosts ? segment < std::min(kLeastSegmentAcrossHosts, part) : segment * 64 < part;
      const bool no_cut = segment / 4 >= part && segment != kSegments.front();
      if (!too_many && !no_cut) {
        all.push_back({.algorithm = way.algorithm, .segment_bytes = segment});
      }
    }
  }
  return all;
}

// An all-reduce is the one after the other, or, small, all contributions on every rank.
Way all_reduce_of(const Way& reduce_scatter, const Way& all_gather, std::int64_t bytes) {
  if (bytes <= kMostGathered) {
    return {.algorithm = "gather"};
  }
  if (reduce_scatter.algorithm == all_gather.algorithm && !is_program(all_gather)) {
    return all_gather;
  }
  const Way& cut = is_program(reduce_scatter) ? reduce_scatter : all_gather;
  return {.algorithm = "direct",
          .then = is_program(all_gather) ? all_gather.algorithm : "ring",
          .segment_bytes = cut.segment_bytes};
}

// One way to carry a collective, as it will be carried.
class Trial {
 public:
  Trial(transport::Mpi& mpi, Way way) : way_(std::move(way)), letters_(mpi), own_(mpi) {
    if (is_program(way_)) {
      programs_ = make_program_backend(
          std::make_unique<BorrowedChannels>(mpi),
          {.reproducible = way_.algorithm != kAround, .choose = [this](const Errand&) { return way_; }});
    }
  }
  void run(const Request& request, Deadline deadline) {
    const auto what = [] { return "measure MPI's own collectives"; };
    if (!programs_ && letters_.can_compare()) {  // which is a part of it
      letters_.compare(request, ++sequence_, what, deadline);
    }
    programs_ ? static_cast<void>(programs_->run(request, deadline)) : own_.run(request, what, deadline);
  }
  [[nodiscard]] const Way& way() const { return way_; }

  std::vector<double> seconds;
  bool hopeless = false;

 private:
  Way way_;
  SmallCollectives letters_;
  std::uint64_t sequence_ = 0;
  MpisOwn own_;
  std::unique_ptr<Backend> programs_;
};

class Measurement {
 public:
  Measurement(transport::Mpi& mpi, const MeasureOptions& options)
      : mpi_(mpi),
        options_(options),
        bench_(make_program_backend(std::make_unique<BorrowedChannels>(mpi), {.reproducible = true})),
        numbers_(
            bench_->allocate(kMostNumbers * static_cast<std::int64_t>(sizeof(double)), options.deadline)) {}

  Choices run() {
    Buffer vector = bench_->allocate(largest_of(kSizeClasses - 1), options_.deadline);
    Found reduce_scatters;
    Found all_gathers;
    const Order& order = across_hosts_ ? kOrderAcrossHosts : kOrder;
    for (const int size_class : order) {
      const std::int64_t line = 64 * mpi_.size();
      const std::int64_t bytes = std::max(line, largest_of(size_class) / line * line);
      const View view{.buffer = vector, .count = bytes / 4};
      if (bytes > vector.bytes() || (size_class != order.front() && spent_seconds() > budget_seconds_)) {
        continue;
      }
      const auto at = static_cast<std::size_t>(size_class);
      reduce_scatters[at] = best({.operation = Operation::reduce_scatter, .view = view});
      all_gathers[at] = best({.operation = Operation::all_gather, .view = view});
    }
    const int split = options_.sums_go_around ? size_class_of(kLargestSumInOrder) + 1 : 0;
    Choices choices;
    for (int size_class = 0; size_class < kSizeClasses; ++size_class) {
      const bool large = size_class >= split;
      const Way reduce_scatter =
          nearest(reduce_scatters, size_class, large ? split : 0, large ? kSizeClasses : split);
      const Way all_gather = nearest(all_gathers, size_class, 0, kSizeClasses);
      choices.set(Operation::reduce_scatter, size_class, reduce_scatter);
      choices.set(Operation::all_gather, size_class, all_gather);
      choices.set(Operation::all_reduce, size_class,
                  all_reduce_of(reduce_scatter, all_gather, largest_of(size_class)));
    }
    return choices;
  }

 private:
  static constexpr std::int64_t kMostNumbers = 256;

  using Found = std::array<std::optional<Way>, kSizeClasses>;
  // Of the size classes from `begin` to before `end`; where none was measured, what needs no measurement.
  static Way nearest(const Found& found, int size_class, int begin, int end) {
    for (int distance = 0; distance < kSizeClasses; ++distance) {
      for (const int at : {size_class + distance, size_class - distance}) {
        if (at >= begin && at < end && found[static_cast<std::size_t>(at)]) {
          return *found[static_cast<std::size_t>(at)];
        }
      }
    }
    return {.algorithm = "direct"};
  }

  // What the ranks measured, the greatest of each; so all of them go on alike.
  std::vector<double> greatest(const std::vector<double>& mine) {
    const auto bytes = mine.size() * sizeof(double);
    std::memcpy(numbers_.data(), mine.data(), bytes);
    bench_->run(
        {.operation = Operation::all_reduce,
         .view = {.buffer = numbers_, .count = static_cast<std::int64_t>(mine.size()), .dtype = DType::f64},
         .reduction = Reduction::max},
        options_.deadline);
    std::vector<double> all(mine.size());
    std::memcpy(all.data(), numbers_.data(), bytes);
    return all;
  }

  // The same on all ranks.
  double spent_seconds() { return greatest({now_seconds() - begin_}).front(); }

  void look(Trial& trial, const Request& request, int times) {
    bench_->run({.operation = Operation::barrier}, options_.deadline);
    const double begin = now_seconds();
    for (int i = 0; i < times; ++i) {
      trial.run(request, options_.deadline);
    }
    trial.seconds.push_back((now_seconds() - begin) / times);
  }

  // Spends half of the time that is left, at most, but for one look at each.
  Way best(const Request& request) {
    const double before = spent_seconds();
    const double until = before + (budget_seconds_ - before) / 2;
    std::vector<std::unique_ptr<Trial>> trials;
    const Errand errand{.operation = request.operation,
                        .bytes = request.view.count * size_of(request.view.dtype),
                        .ranks = mpi_.size(),
                        .exact = true};
    const auto add = [&](Way way) { trials.push_back(std::make_unique<Trial>(mpi_, std::move(way))); };
    for (Way& way : candidates(errand, across_hosts_, options_.sums_go_around)) {
      add(std::move(way));
    }
    if (MpisOwn(mpi_).can(request)) {
      add({.algorithm = kMpisOwn});
    }
    std::vector<double> slowest;
    int times = 1;
    for (int round = 0; round < looks_; ++round) {
      std::vector<double> mine;
      for (auto& trial : trials) {
        if (!trial->hopeless) {
          look(*trial, request, times);
        }
        std::vector<double>& seconds = trial->seconds;
        if (round == 1) {
          seconds.erase(seconds.begin());
        }
        std::vector<double> sorted = seconds;
        std::sort(sorted.begin(), sorted.end());
        mine.push_back(sorted[sorted.size() / 2]);
      }
      mine.push_back(now_seconds() - begin_);
      slowest = greatest(mine);
      const double spent = slowest.back();
      slowest.pop_back();
      const double fastest = *std::min_element(slowest.begin(), slowest.end());
      times = static_cast<int>(std::clamp(long_enough_ / fastest, 1.0, static_cast<double>(kMostInARow)));
      if (spent > until) {
        break;
      }
      for (std::size_t i = 0; i < trials.size(); ++i) {
        trials[i]->hopeless = round > 0 && slowest[i] > kHopeless * fastest;
      }
    }
    std::size_t best = 0;
    for (std::size_t i = 1; i < trials.size(); ++i) {
      if (slowest[i] < kWorthIt * slowest[best]) {
        best = i;
      }
    }
    return trials[best]->way();
  }

  transport::Mpi& mpi_;
  MeasureOptions options_;
  const bool across_hosts_ = !transport::on_one_host(mpi_);
  const int looks_ = across_hosts_ ? kLooksAcrossHosts : kLooks;
  const double budget_seconds_ = across_hosts_ ? kBudgetSecondsAcrossHosts : kBudgetSeconds;
  const double long_enough_ = across_hosts_ ? kLongEnoughAcrossHosts : kLongEnough;
  std::unique_ptr<Backend> bench_;
  Buffer numbers_;
  double begin_ = now_seconds();
};

}  // namespace

Choices measure(transport::Mpi& mpi, const MeasureOptions& options) {
  return Measurement(mpi, options).run();
}

}  // namespace dear::collective
