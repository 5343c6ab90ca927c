#include "dear/systems/moe/expert_group.h"

#include <exception>

#include <fmt/format.h>

#include "dear/base/vocabulary/deadline.h"

namespace dear {

ExpertGroup::ExpertGroup(const Group& group) : group_(group.size() == 1 ? group : group.duplicate()) {}

ExpertGroup::~ExpertGroup() {
  if (std::uncaught_exceptions() > unwinding_) group_.abort("the training program ended with an error");
}

std::shared_ptr<ExpertGroup::UnderWay> ExpertGroup::launch(std::string what, const Shape& shape,
                                                           std::vector<std::int64_t> sends,
                                                           const std::function<void(std::byte* rows)>& fill) {
  auto under_way = std::make_shared<UnderWay>();
  UnderWay& one = *under_way;
  one.what_ = std::move(what);
  one.shape_ = shape;
  one.counts_ = std::make_shared<UnderWay::Counts>();
  UnderWay::Counts& counts = *one.counts_;
  counts.received.resize(sends.size());
  counts.sends = std::move(sends);
  const std::int64_t count = group_.size() * shape.chunks * shape.room * shape.width;
  std::vector<std::pair<Buffer, Buffer>>& free = free_[shape];
  if (free.empty()) {
    const std::int64_t bytes = count * size_of(shape.dtype);
    one.buffers_.first = group_.allocate(bytes);
    one.buffers_.second = group_.allocate(bytes);
  } else {
    one.buffers_ = std::move(free.back());
    free.pop_back();
  }
  fill(one.sent());
  const Request request{.collective = Collective::all_to_all_v,
                        .view = {.buffer = one.buffers_.first, .count = count, .dtype = shape.dtype},
                        .output = {.buffer = one.buffers_.second, .count = count, .dtype = shape.dtype},
                        .rows = {.chunks = static_cast<int>(shape.chunks),
                                 .width = static_cast<int>(shape.width),
                                 .sent = counts.sends.data(),
                                 .received = counts.received.data(),
                                 .moved = &counts.moved}};
  one.pending_ = group_.issue(request, [kept = one.counts_](const CollectiveResult&) {});
  return under_way;
}

void ExpertGroup::wait(UnderWay& under_way) {
  if (std::exchange(under_way.waited_, true)) return;
  const double begin = now_seconds();
  const Timing timing = under_way.pending_.wait();
  const double end = now_seconds();
  ++statistics_.count;
  statistics_.seconds += seconds_of(timing.end) - seconds_of(timing.begin);
  statistics_.waited_seconds += end - begin;
  statistics_.sent_bytes += under_way.counts_->moved.sent;
  if (!records_) return;
  const auto add = [&](const char* lane, std::string name, Activity activity, double from, double to) {
    spans_.push_back({.rank = rank(),
                      .lane = lane,
                      .name = std::move(name),
                      .activity = activity,
                      .iteration = iteration_,
                      .begin_seconds = from,
                      .end_seconds = to});
  };
  add("network of experts", fmt::format("all-to-all of {}", under_way.what_), Activity::communication,
      seconds_of(timing.begin), seconds_of(timing.end));
  add("compute", fmt::format("wait for {}", under_way.what_), Activity::wait, begin, end);
}

void ExpertGroup::done(std::shared_ptr<UnderWay> under_way) {
  free_[under_way->shape_].push_back(std::move(under_way->buffers_));
}

}  // namespace dear
