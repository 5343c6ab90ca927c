#include "dear/predict/sim/network_model.h"

namespace dear::sim {

void ClosedFormNetwork::enter(const Visit& visit, double now_seconds) {
  const auto entered = entered_.try_emplace(visit.which, 0).first;
  if (++entered->second < ranks_) return;
  entered_.erase(entered);
  ends_.push({now_seconds + seconds_.at(visit.which.step), begun_++, visit.which});
}

double ClosedFormNetwork::next_seconds() { return ends_.empty() ? kNever : ends_.top().at_seconds; }

void ClosedFormNetwork::advance(std::vector<Visit>& through) {
  const Instance which = ends_.top().which;
  ends_.pop();
  for (int rank = 0; rank < ranks_; ++rank) through.push_back({which, rank});
}

}  // namespace dear::sim
