#include "dear/train/data_parallel/stragglers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <unistd.h>
#include <utility>

#include "dear/base/recorder/recorder.h"
#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/say.h"
#include "dear/comm/group/exchange.h"
#include "dear/train/data_parallel/trainer.h"

namespace dear::train {
namespace {

constexpr std::int64_t kNumbers = 3;  // of a rank: seconds forward and backward a step, and of the window

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

}  // namespace

double Stragglers::exposed() const { return own_.reports.exposed_seconds(); }

void Stragglers::backward_began() {
  if (backward_began_ || own_.on_streams()) return;
  backward_began_ = now_seconds();
  exposed_in_forward_ = exposed() - exposed_then_;
}

void Stragglers::step_ended() {
  if (own_.on_streams() || own_.group_.size() == 1) return;
  const double now = now_seconds(), waited = exposed(), began = std::exchange(step_began_, now);
  const double exposed = waited - std::exchange(exposed_then_, waited);
  const auto backward = std::exchange(backward_began_, std::nullopt);
  ++steps_;
  if (began > 0) {
    recorder::note_step(steps_, now - began, exposed);
    const double forward = backward ? std::max(0.0, *backward - began - *exposed_in_forward_) : 0;
    computed_.forward += forward;
    computed_.backward += std::max(0.0, now - began - exposed - forward);
    ++steps_in_window_;
  }
  if (!own_.options_.slow_ranks || own_.participation_.joined()) return;
  if (pending_) hear();
  if (steps_ >= std::max(next_, own_.options_.slow_ranks->first_step)) send();
}

// Each rank says its numbers in places of its own, and a maximum leaves them as they are.
void Stragglers::send() {
  const int ranks = own_.group_.size();
  if (!group_) {
    own_.waits.wait_for_all();  // collectives of the step are issued by other threads
    group_ = own_.group_.duplicate();
    slow_.emplace(all_gather_text(*group_, host_name()), *own_.options_.slow_ranks);
    numbers_ = group_->allocate(kNumbers * ranks * size_of(DType::f64));
  }
  const double now = now_seconds();
  auto* const numbers = reinterpret_cast<double*>(numbers_.data());
  std::fill_n(numbers, kNumbers * ranks, 0.0);
  double* const mine = numbers + kNumbers * own_.group_.rank();
  const auto steps = static_cast<double>(std::max<std::int64_t>(steps_in_window_, 1));
  mine[0] = computed_.forward / steps;
  mine[1] = computed_.backward / steps;
  mine[2] = window_began_ > 0 ? now - window_began_ : 0;
  window_began_ = now;
  pending_ = group_->all_reduce({.buffer = numbers_, .count = kNumbers * ranks, .dtype = DType::f64},
                                Reduction::max);
  computed_ = {};
  sent_steps_ = std::exchange(steps_in_window_, 0);
}

void Stragglers::hear() {
  std::exchange(pending_, std::nullopt)->wait();
  const auto* const numbers = reinterpret_cast<const double*>(numbers_.data());
  std::vector<ComputeSeconds> ranks;
  double window = 0;
  for (int rank = 0; rank < own_.group_.size(); ++rank) {
    const double* const its = numbers + kNumbers * rank;
    ranks.push_back({.forward = its[0], .backward = its[1]});
    window = std::max(window, its[2]);
  }
  // The first window is of the steps that make buckets and warm caches.
  if (window > 0) {
    for (const std::string& sentence : slow_->window_ended(ranks, window))
      if (own_.group_.rank() == 0) tell(own_.options_.say, sentence);
  }
  double step = window / static_cast<double>(std::max<std::int64_t>(sent_steps_, 1));
  for (const ComputeSeconds& one : ranks) step = std::max(step, one.sum());
  next_ = steps_ +
          std::llround(std::clamp(own_.options_.slow_ranks->window_seconds / std::max(step, 1e-6), 1.0, 1e7));
}

}  // namespace dear::train
