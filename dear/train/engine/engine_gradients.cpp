// The means that an engine has after its reductions: where they lie on this rank.

#include <algorithm>
#include <variant>
#include <vector>

#include "dear/train/engine/engine.h"

namespace dear::train {

// Elements of a tensor that lie in `range` of its bucket's flat buffer.
template <typename Add>
void for_each_tensor_in(const buckets::BucketLayout& layout, const Range& range, Add add) {
  for (const buckets::TensorPlacement& placement : layout.placements) {
    const std::int64_t begin = std::max(range.begin, placement.offset);
    const std::int64_t end = std::min(range.end, placement.offset + placement.elements);
    if (begin < end) add(begin, end - begin);
  }
}

std::vector<Engine::Place> Engine::held_places() const {
  std::vector<Place> places;
  for (const BucketUpdates::Part& part : updates_->parts())
    places.push_back({part.bucket, updates_->own_range(part)});
  return places;
}

std::vector<Engine::Place> Engine::counted_places() const {
  std::vector<Place> places;
  for (const Step& step : schedule_.steps()) {
    const auto* work = std::get_if<Communicate>(&step.work);
    if (work == nullptr || work->payload != Payload::gradients || work->collective == Collective::all_gather)
      continue;
    const buckets::BucketLayout& layout = model_.buckets()[work->bucket].layout();
    const Range reduced = buckets::part_of(work->chunk, grouping_.buckets()[work->bucket].bytes,
                                           layout.elements, layout.dtype, group_.size());
    places.push_back({work->bucket, updates_->own_shard(reduced, layout.dtype)});
  }
  return places;
}

optim::ReducedGradients Engine::find_reduced_gradients() const {
  optim::ReducedGradients found;
  const auto add = [&](const Place& place, auto method) {
    const View view = model_.buckets()[place.bucket].flat().gradients;
    const auto span = [&](std::int64_t begin, std::int64_t count) {
      (found.*method)(view.buffer.data() + begin * size_of(view.dtype), count, view.dtype);
    };
    for_each_tensor_in(model_.buckets()[place.bucket].layout(), place.elements, span);
  };
  for (const Place& place : held_places()) add(place, &optim::ReducedGradients::add_held);
  for (const Place& place : counted_places()) add(place, &optim::ReducedGradients::add_counted);
  return found;
}

optim::ReducedGradients& Engine::reduce_gradients() {
  conductor_->quiesce();
  wire_->carry_out(schedule_, conductor_->reductions_to_come());
  if (streams_) return reduced_.emplace();
  if (!reduced_) reduced_ = find_reduced_gradients();
  return *reduced_;
}

void Engine::gather_gradients() { wire_->gather_reduced(schedule_); }

streams::GradientsOnStream Engine::gradients_on_stream() {
  const autograd::Unobserved unobserved;
  const auto vectors = [this](const std::vector<Place>& places) {
    std::vector<streams::GradientsOnStream::Vector> all;
    for (const auto& [bucket, elements] : places)
      all.push_back(
          {bucket, model_.buckets()[bucket].gradients().narrow(0, elements.begin, elements.size())});
    return all;
  };
  return {queue_->collectives(), *streams_, vectors(counted_places()), vectors(held_places())};
}

}  // namespace dear::train
