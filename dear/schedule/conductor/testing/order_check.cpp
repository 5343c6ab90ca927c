#include "dear/schedule/conductor/testing/order_check.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/units.h"

namespace dear::conductor {
namespace {

class Check {
 public:
  Check(const Schedule& schedule, const OrderCheck& options) : schedule_(schedule), options_(options) {
    for (const Edge& edge : edges_with_lanes(schedule, options.free)) in_[edge.to].push_back(edge);
  }

  void run(const std::vector<StepSpan>& spans, const std::string& prefix) {
    prefix_ = prefix;
    std::map<Instance, const StepSpan*> span_of;
    for (const StepSpan& span : spans) {
      const std::size_t steps = schedule_.steps().size();
      if (span.which.step >= steps || span.which.iteration < 0) {
        report(fmt::format("step {} of iteration {} is none of the schedule's {} steps", span.which.step,
                           span.which.iteration, steps));
        continue;
      }
      if (!span_of.emplace(span.which, &span).second) report(describe(span.which) + " ran twice");
      if (span.end_seconds < span.begin_seconds)
        report(fmt::format("{} ended {} before it began", describe(span.which),
                           format_seconds(span.begin_seconds - span.end_seconds)));
    }
    for (const auto& [which, span] : span_of) {
      const auto edges = in_.find(which.step);
      if (edges == in_.end()) continue;
      for (const Edge& edge : edges->second) {
        const auto before = span_of.find({edge.from, which.iteration - edge.back});
        if (before == span_of.end()) continue;
        const double early = before->second->end_seconds - span->begin_seconds;
        if (early > options_.tolerance_seconds)
          report(fmt::format("{} began {} before {} ended", describe(which), format_seconds(early),
                             describe(before->first)));
      }
    }
  }

  std::vector<std::string> take() && { return std::move(violations_); }

 private:
  std::string describe(const Instance& which) const {
    return fmt::format("{} of iteration {}", name_of(schedule_.steps()[which.step].work), which.iteration);
  }
  void report(const std::string& sentence) {
    if (violations_.size() < options_.limit) violations_.push_back(prefix_ + sentence);
  }

  const Schedule& schedule_;
  const OrderCheck& options_;
  std::map<StepId, std::vector<Edge>> in_;
  std::string prefix_;
  std::vector<std::string> violations_;
};

}  // namespace

std::vector<std::string> order_violations(const Schedule& schedule, const std::vector<StepSpan>& spans,
                                          const OrderCheck& options) {
  Check check(schedule, options);
  check.run(spans, "");
  return std::move(check).take();
}

std::vector<std::string> order_violations(const Schedule& schedule, const Trace& trace,
                                          const OrderCheck& options) {
  std::map<int, std::vector<StepSpan>> spans_of_rank;
  for (const Span& span : trace.spans)
    if (span.step >= 0)
      spans_of_rank[span.rank].push_back(
          {{static_cast<StepId>(std::min<std::int64_t>(span.step, UINT32_MAX)), span.iteration},
           span.begin_seconds,
           span.end_seconds});
  Check check(schedule, options);
  for (const auto& [rank, spans] : spans_of_rank) check.run(spans, fmt::format("rank {}: ", rank));
  return std::move(check).take();
}

}  // namespace dear::conductor
