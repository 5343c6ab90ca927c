#include "dear/collective/mpi/measure.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "dear/collective/mpi/borrowed_channels.h"
#include "dear/collective/mpi/own.h"
#include "dear/collective/programs/programs.h"

namespace dear::collective {
namespace {

constexpr std::array kOperations = {Operation::all_gather, Operation::reduce_scatter, Operation::all_reduce};
constexpr std::array<std::int64_t, 4> kSegments = {8 * 1024, 32 * 1024, 128 * 1024, 1024 * 1024};
// The first look at a way may meet memory and connections that are cold.
constexpr int kLooks = 4;
// A way that is slower than the fastest by this is not looked at again.
constexpr double kHopeless = 1.5;
constexpr double kWorthIt = 0.95;
// So often in a row that the clock does not count.
constexpr double kLongEnough = 100e-6;
constexpr int kMostInARow = 20;

std::vector<Way> candidates(const Errand& errand) {
  std::vector<Way> all;
  for (const Way& way : ways(errand)) {
    // Between two ranks there is one way to take, whatever its name.
    const std::string& gather = errand.operation == Operation::all_gather ? way.algorithm : way.then;
    if (errand.ranks == 2 && !gather.empty() && gather != "pairwise") {
      continue;
    }
    for (const std::int64_t segment : kSegments) {
      if (segment == kSegments.front() || segment / 4 < errand.bytes / errand.ranks) {
        all.push_back({.algorithm = way.algorithm, .then = way.then, .segment_bytes = segment});
      }
    }
  }
  return all;
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
    for (int size_class = 0; size_class < kSizeClasses; ++size_class) {
      const std::int64_t bytes = largest_of(size_class) / (64 * mpi_.size()) * 64 * mpi_.size();
      for (const Operation operation : kOperations) {
        const Request request{.operation = operation,
                              .view = {.buffer = vector, .count = std::max<std::int64_t>(bytes, 64) / 4}};
        const Way* const before =
            size_class > 0 ? choices_.find(operation, largest_of(size_class - 1)) : nullptr;
        if (before != nullptr && out_of_time()) {
          choices_.set(operation, size_class, Way(*before));
        } else {
          choices_.set(operation, size_class, best(request));
        }
      }
    }
    return std::move(choices_);
  }

 private:
  static constexpr std::int64_t kMostNumbers = 256;

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
    for (Way& way : candidates(errand)) {
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
      if (slowest[i] < kWorthIt * slowest[best]) {
        best = i;
      }
    }
    return trials[best]->way();
  }

  transport::Mpi& mpi_;
  MeasureOptions options_;
  std::unique_ptr<Backend> bench_;
  Buffer numbers_;
  Choices choices_;
  double begin_ = now_seconds();
};

}  // namespace

Choices measure(transport::Mpi& mpi, const MeasureOptions& options) {
  return Measurement(mpi, options).run();
}

}  // namespace dear::collective
