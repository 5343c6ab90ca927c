// Other buckets between two steps: DataParallel::regroup(), and those that are planned.

#include <algorithm>
#include <array>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/error.h"
#include "dear/collective/exchange.h"
#include "dear/cost/collective_times.h"
#include "dear/cost/fit.h"
#include "dear/cost/ring.h"
#include "dear/fusion/planned.h"
#include "dear/schedule/policy/policy.h"
#include "dear/train/data_parallel_impl.h"

namespace dear {
namespace {

// Reduce-scatter and all-gather of a few sizes, as they are here and now. All ranks together; none may fail
// where others go on, so times that no link explains are taken as bandwidth alone.
Link measure_link(Group& group) {
  constexpr std::array<std::int64_t, 3> kElements{4'096, 65'536, 524'288};
  constexpr int kRepetitions = 3;
  const Buffer buffer = group.allocate(kElements.back() * size_of(DType::f32));
  std::vector<cost::Sample> samples;
  for (const std::int64_t elements : kElements) {
    const View view{.buffer = buffer, .count = elements, .dtype = DType::f32};
    std::vector<double> seconds;
    for (int i = 0; i < kRepetitions; ++i) {
      group.barrier().wait();
      const double begin = now_seconds();
      group.reduce_scatter(view, Reduction::sum).wait();
      group.all_gather(view).wait();
      seconds.push_back(now_seconds() - begin);
    }
    std::nth_element(seconds.begin(), seconds.begin() + kRepetitions / 2, seconds.end());
    const auto pair = [&](const Link& link) {
      return cost::ring_all_reduce_seconds(link, group.size(), elements * size_of(DType::f32));
    };
    samples.push_back(cost::make_sample(pair, seconds[kRepetitions / 2]));
  }
  try {
    const Link link = cost::fit_link(samples).link;
    if (link.beta_seconds_per_byte > 0) return link;  // else a small one was late, and no bandwidth was seen
  } catch (const ConfigError&) {
    // No link takes such times.
  }
  return {.alpha_seconds = 0, .beta_seconds_per_byte = samples.back().seconds / samples.back().bytes};
}

// Rank 0's, to the bit: what is made from it must be the same everywhere.
train::Engine::Profile profile_of_rank_0(const Group& group, const Workload& workload, const Link& link) {
  std::vector<double> numbers{workload.update_seconds, link.alpha_seconds, link.beta_seconds_per_byte};
  for (const Layer& layer : workload.layers) {
    numbers.push_back(layer.forward_seconds);
    numbers.push_back(layer.backward_seconds);
  }
  const std::string mine = group.rank() == 0 ? fmt::format("{:a}", fmt::join(numbers, " ")) : "";
  std::istringstream words(all_gather_text(group, mine).front());
  for (double& number : numbers) {
    std::string word;
    words >> word;
    number = std::strtod(word.c_str(), nullptr);
  }
  train::Engine::Profile profile{.forward_seconds = {},
                                 .backward_seconds = {},
                                 .update_seconds = numbers[0],
                                 .link = {.alpha_seconds = numbers[1], .beta_seconds_per_byte = numbers[2]}};
  for (std::size_t i = 3; i < numbers.size(); i += 2) {
    profile.forward_seconds.push_back(numbers[i]);
    profile.backward_seconds.push_back(numbers[i + 1]);
  }
  return profile;
}

}  // namespace

// [Note: regrouping] Everything that a step leaves behind is in three places: parameters, which synchronize()
// makes whole; gradients, which are zero; and the optimiser's state, of which each rank has its shards. So a
// new engine that adopts the parameters, and is given the state by tensor, goes on as the old one would have:
// neither the order in which contributions are added nor an elementwise update depends on buckets.
void DataParallel::Impl::regroup(Fusion fusion) {
  throw_if_failed();
  if (!engine_) {
    fusion_ = std::move(fusion);
    end_tuning();
    return;
  }
  if (last_arrived_)
    throw ConfigError(fmt::format(
        "rank {}: a gradient of the next step is there already: regroup between step() and the next backward",
        group_.rank()));
  static_cast<void>(fusion(engine_->workload()));  // refused here, nothing has changed
  engine_->conductor().synchronize();
  const std::string text = fusion.text();
  replace_engine(std::move(fusion), "regroup: fusion " + text);
  end_tuning();
}

void DataParallel::Impl::end_tuning() {
  if (!tuning_) return;
  tuning_.reset();
  plans_ = find_policy(options_.policy).overlap == Overlap::eager && !profile_;
}

void DataParallel::Impl::replace_engine(Fusion fusion, const std::string& why, const View& decision) {
  // With one copy nothing is written between two steps: the new engine adopts what was replaced.
  options_.one_copy ? engine_->require_usable_parameters() : take_over_replaced();
  const train::Unobserved unobserved;
  const double begin = now_seconds();
  const train::Engine::OptimizerState state = engine_->optimizer_state();
  if (options_.record_trace) earlier_spans_ = recorded().spans;
  std::swap(fusion_, fusion);
  std::unique_ptr<train::Engine> next;
  try {
    next = make_engine(decision);
  } catch (...) {
    std::swap(fusion_, fusion);
    throw;
  }
  next->take_over(state);
  if (options_.record_trace) add_measurements(earlier_measurements_);
  earlier_ = totals();
  // Operators of any thread look into the engine, those of another rank's program too.
  observation_.retreat();
  observed_engine_.store(next.get(), std::memory_order_release);
  engine_ = std::move(next);
  if (recording_) observation_.enable();  // else the new one is idle, and step() or a backward enables it
  clock_.forget_spans();
  if (!options_.record_trace) return;
  for (Span& span : earlier_spans_) span.step = -1;  // of another schedule
  earlier_spans_.push_back({.rank = group_.rank(),
                            .lane = "compute",
                            .name = fmt::format("{}, {} buckets", why, engine_->grouping().size()),
                            .activity = Activity::other,
                            .iteration = earlier_.iterations,
                            .step = -1,
                            .begin_seconds = begin,
                            .end_seconds = now_seconds()});
}

void DataParallel::Impl::plan() {
  engine_->conductor().synchronize();
  profile_ = profile_of_rank_0(group_, measured(), measure_link(group_));
  plans_ = false;
  recording_ = options_.record_trace;
  Workload timed = engine_->workload();
  train::Engine::add_times(*profile_, timed);
  if (tuning_) {
    const double begin = now_seconds();
    change_to(tuning_->begin(timed, profile_->link, engine_->grouping()), begin);
    return;
  }
  Fusion fusion = fusion_;
  if (options_.planned) {
    const cost::CollectiveTimes times = cost::ring_times(profile_->link, group_.size());
    const Grouping grouping = group_planned(timed, times, find_policy(options_.policy).overlap);
    ByName names = names_in(timed, grouping);
    names.source = "planned";
    fusion = Fusion(std::move(names));
  }
  replace_engine(std::move(fusion), "plan");
}

void DataParallel::Impl::tune() {
  const double now = now_seconds();
  engine_->conductor().wait_decision();
  const auto wanted = tuning_->iteration_ended(now);
  if (!wanted.fusion && !wanted.measured_network) return;
  const double begin = now_seconds();
  engine_->conductor().synchronize();
  if (wanted.measured_network) {
    Workload timed = engine_->workload();
    train::Engine::add_times(*profile_, timed);
    profile_ = profile_of_rank_0(group_, timed, measure_link(group_));
    tuning_->network_measured(timed, profile_->link, begin, now_seconds());
  }
  if (wanted.fusion) change_to(*wanted.fusion, begin);
}

void DataParallel::Impl::change_to(const Fusion& fusion, double begin_seconds) {
  replace_engine(fusion, "tune: fusion " + fusion.text(), tuning_->decision());
  tuning_->changed(begin_seconds, now_seconds());
}

}  // namespace dear
