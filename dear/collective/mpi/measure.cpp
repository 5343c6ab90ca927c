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
#include "dear/collective/programs/programs.h"

namespace dear::collective {
namespace {

constexpr std::array<std::int64_t, 4> kSegments = {8 * kKiB, 32 * kKiB, 128 * kKiB, kMiB};
// Size classes in the order in which they are worth knowing: where time runs out, the others go as the
// nearest.
constexpr std::array kOrder = {8, 6, 4, 5, 7, 9, 3, 2, 1, 0, 10};
static_assert(kOrder.size() == kSizeClasses);
// All contributions in full cost less than a second round up to here.
constexpr std::int64_t kMostGathered = 4 * kKiB;
// The first look at a way may meet memory and connections that are cold.
constexpr int kLooks = 4;
// A way that is slower than the fastest by this is not looked at again.
constexpr double kHopeless = 1.5;
constexpr double kWorthIt = 0.95;
// On a wire times differ more from look to look than ways do from each other.
constexpr double kWorthItAcrossHosts = 0.85;
// So often in a row that the clock does not count.
constexpr double kLongEnough = 100e-6;
constexpr int kMostInARow = 20;

// The first is what the others have to beat: across hosts neighbours in a ring, in segments that are reduced
// or passed on while the next are on the wire.
std::vector<Way> candidates(const Errand& errand, bool across_hosts) {
  const std::int64_t part = errand.bytes / errand.ranks;
  std::vector<Way> all;
  for (const Way& way : ways(errand)) {
    // Between two ranks there is one way to take, whatever its name; and what is large is not sent twice.
    if (errand.operation == Operation::all_gather && errand.ranks == 2 && way.algorithm != "pairwise") {
      continue;
    }
    if (way.algorithm == "gather" && errand.bytes > kMostGathered) {
      continue;
    }
    for (const std::int64_t segment : kSegments) {
      const bool too_many = segment * 64 < part;
      const bool no_cut = segment / 4 >= part && segment != kSegments.front();
      if (!too_many && !no_cut) {
        all.push_back({.algorithm = way.algorithm, .segment_bytes = segment});
      }
    }
  }
  if (across_hosts) {
    std::stable_partition(all.begin(), all.end(), [](const Way& way) {
      return way.algorithm == "ring" && way.segment_bytes == kSegments[1];
    });
  }
  return all;
}

// An all-reduce is the one after the other, or, small, all contributions on every rank.
Way all_reduce_of(const Way& reduce_scatter, const Way& all_gather, std::int64_t bytes) {
  if (bytes <= kMostGathered) {
    return {.algorithm = "gather"};
  }
  if (reduce_scatter.algorithm == kMpisOwn && all_gather.algorithm == kMpisOwn) {
    return {.algorithm = kMpisOwn};
  }
  const Way& cut = reduce_scatter.algorithm == kMpisOwn ? all_gather : reduce_scatter;
  return {.algorithm = "direct",
          .then = all_gather.algorithm == kMpisOwn ? "ring" : all_gather.algorithm,
          .segment_bytes = cut.segment_bytes};
}

// One way to carry a collective, as it will be carried.
class Trial {
 public:
  Trial(transport::Mpi& mpi, Way way) : way_(std::move(way)), own_(mpi) {
    if (way_.algorithm != kMpisOwn) {
      programs_ =
          make_program_backend(std::make_unique<BorrowedChannels>(mpi),
                               {.reproducible = true, .choose = [this](const Errand&) { return way_; }});
    }
  }
  void run(const Request& request, Deadline deadline) {
    if (programs_) {
      programs_->run(request, deadline);
    } else {
      own_.run(
          request, [] { return "measure MPI's own collectives"; }, deadline);
    }
  }
  [[nodiscard]] const Way& way() const { return way_; }

  std::vector<double> seconds;
  bool hopeless = false;

 private:
  Way way_;
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
    std::array<std::optional<Pair>, kSizeClasses> found;
    for (const int size_class : kOrder) {
      const std::int64_t line = 64 * mpi_.size();
      const std::int64_t bytes = std::max(line, largest_of(size_class) / line * line);
      const View view{.buffer = vector, .count = bytes / 4};
      if (bytes > vector.bytes() || (size_class != kOrder.front() && out_of_time())) {
        continue;
      }
      found[static_cast<std::size_t>(size_class)] = {
          .reduce_scatter = best({.operation = Operation::reduce_scatter, .view = view}),
          .all_gather = best({.operation = Operation::all_gather, .view = view})};
    }
    Choices choices;
    for (int size_class = 0; size_class < kSizeClasses; ++size_class) {
      const Pair& pair = nearest(found, size_class);
      choices.set(Operation::reduce_scatter, size_class, pair.reduce_scatter);
      choices.set(Operation::all_gather, size_class, pair.all_gather);
      choices.set(Operation::all_reduce, size_class,
                  all_reduce_of(pair.reduce_scatter, pair.all_gather, largest_of(size_class)));
    }
    return choices;
  }

 private:
  static constexpr std::int64_t kMostNumbers = 256;

  struct Pair {
    Way reduce_scatter;
    Way all_gather;
  };
  static const Pair& nearest(const std::array<std::optional<Pair>, kSizeClasses>& found, int size_class) {
    for (int distance = 0;; ++distance) {
      for (const int at : {size_class + distance, size_class - distance}) {
        if (at >= 0 && at < kSizeClasses && found[static_cast<std::size_t>(at)]) {
          return *found[static_cast<std::size_t>(at)];
        }
      }
    }
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

  bool out_of_time() { return greatest({now_seconds() - begin_}).front() > options_.budget.count(); }

  void look(Trial& trial, const Request& request, int times) {
    bench_->run({.operation = Operation::barrier}, options_.deadline);
    const double begin = now_seconds();
    for (int i = 0; i < times; ++i) {
      trial.run(request, options_.deadline);
    }
    trial.seconds.push_back((now_seconds() - begin) / times);
  }

  Way best(const Request& request) {
    std::vector<std::unique_ptr<Trial>> trials;
    const Errand errand{.operation = request.operation,
                        .bytes = request.view.count * size_of(request.view.dtype),
                        .ranks = mpi_.size(),
                        .exact = true};
    for (Way& way : candidates(errand, across_hosts_)) {
      trials.push_back(std::make_unique<Trial>(mpi_, std::move(way)));
    }
    if (MpisOwn(mpi_).can(request)) {
      trials.push_back(std::make_unique<Trial>(mpi_, Way{.algorithm = kMpisOwn}));
    }
    std::vector<double> slowest;
    int times = 1;
    for (int round = 0; round < kLooks; ++round) {
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
      times = static_cast<int>(std::clamp(kLongEnough / fastest, 1.0, static_cast<double>(kMostInARow)));
      if (spent > options_.budget.count()) {
        break;
      }
      for (std::size_t i = 0; i < trials.size(); ++i) {
        trials[i]->hopeless = round > 0 && slowest[i] > kHopeless * fastest;
      }
    }
    std::size_t best = 0;
    for (std::size_t i = 1; i < trials.size(); ++i) {
      if (slowest[i] < (across_hosts_ ? kWorthItAcrossHosts : kWorthIt) * slowest[best]) {
        best = i;
      }
    }
    return trials[best]->way();
  }

  transport::Mpi& mpi_;
  MeasureOptions options_;
  bool across_hosts_ = *std::max_element(mpi_.hosts().begin(), mpi_.hosts().end()) > 0;
  std::unique_ptr<Backend> bench_;
  Buffer numbers_;
  double begin_ = now_seconds();
};

}  // namespace

Choices measure(transport::Mpi& mpi, const MeasureOptions& options) {
  return Measurement(mpi, options).run();
}

}  // namespace dear::collective
