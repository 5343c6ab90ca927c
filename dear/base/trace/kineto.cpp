#include "dear/base/trace/kineto.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "dear/base/json/json_field.h"
#include "dear/base/vocabulary/error.h"

namespace dear {
namespace {

constexpr std::string_view kStep = "ProfilerStep#";
constexpr std::string_view kBackward = "autograd::engine::evaluate_function";
constexpr std::string_view kUpdate = "Optimizer.step#";
constexpr std::string_view kForward = "DistributedDataParallel.forward";
constexpr std::array<std::string_view, 4> kBackends{"gloo:", "mpi:", "nccl:", "ucc:"};
// On either side of 1970, until 2041. Two sums of a base and a time differ by less than 2^63 nanoseconds.
constexpr double kMostMicroseconds = 2.25e15;
constexpr std::int64_t kMostBase = 2'250'000'000'000'000'000;  // nanoseconds

struct Event {
  std::string category, name, thread;
  double begin = 0, length = 0;  // microseconds
  [[nodiscard]] double end() const { return begin + length; }
};
using Events = std::vector<const Event*>;

double microseconds(const JsonField& field) {
  const double value = field.number();
  if (!(std::abs(value) < kMostMicroseconds)) field.fail("expected microseconds of some years at most");
  return value;
}

// Complete events with a category.
std::vector<Event> events_of(const JsonField& document, const Json& json) {
  std::vector<Event> events;
  const std::vector<JsonField> fields = document.member("traceEvents").elements();
  const Json& all = json.at("traceEvents");
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const Json& event = all[i];
    if (!event.is_object()) fields[i].fail("expected an object");
    const auto kind = event.find("ph");
    if (kind == event.end() || *kind != "X" || !event.contains("cat") || !event.contains("tid")) continue;
    const Json& thread = event.at("tid");
    const double length = event.contains("dur") ? microseconds(fields[i].member("dur")) : 0;
    if (length < 0) fields[i].member("dur").fail("it is negative");
    events.push_back({.category = fields[i].member("cat").text(),
                      .name = fields[i].member("name").text(),
                      .thread = thread.is_string() ? thread.get<std::string>() : thread.dump(),
                      .begin = microseconds(fields[i].member("ts")),
                      .length = length});
  }
  return events;
}

bool is_device(const Event& event) {
  return event.category == "kernel" || event.category == "gpu_memcpy" || event.category == "gpu_memset";
}
bool is_collective(const Event& event) {
  return event.category == "user_annotation" &&
         std::any_of(kBackends.begin(), kBackends.end(),
                     [&](std::string_view backend) { return event.name.starts_with(backend); });
}

// The steps of the profiler in time: begin, end, number. Those of the GPU where it has kernels.
struct Steps {
  struct Step {
    double begin, end;
    std::int64_t number;
  };
  std::vector<Step> steps;

  Steps(const std::vector<Event>& events, bool of_device) {
    for (const std::string_view category : {"gpu_user_annotation", "user_annotation"}) {
      if (!steps.empty() || (category == "gpu_user_annotation" && !of_device)) continue;
      for (const Event& event : events) {
        if (event.category == category && event.name.starts_with(kStep))
          steps.push_back(
              {event.begin, event.end(), std::strtoll(event.name.c_str() + kStep.size(), nullptr, 10)});
      }
    }
    std::sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) { return a.begin < b.begin; });
  }

  [[nodiscard]] std::int64_t at(double time) const {
    if (steps.empty()) return 0;
    const auto after = std::partition_point(steps.begin(), steps.end(),
                                            [time](const Step& step) { return step.begin <= time; });
    if (after == steps.begin()) return -1;
    return time < std::prev(after)->end ? std::prev(after)->number : -1;
  }
};

// Without those that lie in another of their thread.
Events outermost(Events events) {
  std::stable_sort(events.begin(), events.end(), [](const Event* a, const Event* b) {
    return a->begin != b->begin ? a->begin < b->begin : a->length > b->length;
  });
  std::map<std::string, double> ends;
  Events result;
  for (const Event* event : events) {
    const auto end = ends.find(event->thread);
    if (end != ends.end() && event->begin < end->second) continue;
    ends[event->thread] = event->end();
    result.push_back(event);
  }
  return result;
}

class Spans {
 public:
  Spans(Steps steps, double origin, int rank) : steps_(std::move(steps)), origin_(origin), rank_(rank) {}
  void add(const Event& event, std::string lane, Activity activity) {
    spans_.push_back({.rank = rank_,
                      .lane = std::move(lane),
                      .name = event.name,
                      .activity = activity,
                      .iteration = steps_.at(event.begin),
                      .step = -1,
                      .begin_seconds = (event.begin - origin_) / 1e6,
                      .end_seconds = (event.end() - origin_) / 1e6});
  }
  std::vector<Span> take() && { return std::move(spans_); }

 private:
  Steps steps_;
  double origin_;
  int rank_;
  std::vector<Span> spans_;
};

void add_device(const std::vector<Event>& events, Spans& spans) {
  for (const Event& event : events) {
    if (event.category == "kernel" && event.name.starts_with("nccl")) {
      spans.add(event, "network", Activity::communication);
    } else if (is_device(event)) {
      spans.add(event, event.category == "kernel" ? "compute" : "copies", Activity::other);
    }
  }
}

bool within(const Events& periods, const Event& event) {
  return std::any_of(periods.begin(), periods.end(), [&](const Event* period) {
    return period->thread == event.thread && period->begin <= event.begin && event.begin < period->end();
  });
}

void add_host(const std::vector<Event>& events, Spans& spans) {
  Events operators, updates, forwards;
  std::set<std::string> computing;
  for (const Event& event : events) {
    if (is_collective(event)) spans.add(event, "network", Activity::communication);
    if (event.category == "cpu_op") operators.push_back(&event);
    if (event.category == "user_annotation" && event.name.starts_with(kUpdate)) updates.push_back(&event);
    if (event.category == "user_annotation" && event.name == kForward) forwards.push_back(&event);
    if (event.name.starts_with(kStep) || event.name.starts_with(kBackward)) computing.insert(event.thread);
  }
  operators = outermost(std::move(operators));
  if (computing.empty() && !operators.empty()) computing.insert(operators.front()->thread);
  for (const Event* event : operators) {
    Activity activity = Activity::other;
    if (event->name.starts_with(kBackward)) {
      activity = Activity::backward;
    } else if (within(updates, *event)) {
      activity = Activity::update;
    } else if (within(forwards, *event)) {
      activity = Activity::forward;
    }
    spans.add(*event, computing.contains(event->thread) ? "compute" : "thread " + event->thread, activity);
  }
}

}  // namespace

bool is_kineto(std::string_view text) {
  const auto has = [&](std::string_view words) { return text.find(words) != std::string_view::npos; };
  return has("\"schemaVersion\"") && has("\"traceEvents\"") && !has("\"dear-trace\"");
}

KinetoTrace parse_kineto(std::string_view text, const std::string& source) {
  const Json json = parse_json(text, source);
  const JsonField document(json, source);
  const std::vector<Event> events = events_of(document, json);
  std::int64_t rank = 0;
  if (document.has("distributedInfo") && document.member("distributedInfo").has("rank"))
    rank = document.member("distributedInfo").member("rank").integer(0, 1 << 30);
  const bool of_device = std::any_of(events.begin(), events.end(), is_device);
  double origin = std::numeric_limits<double>::infinity();
  for (const Event& event : events) {
    if (of_device ? is_device(event) : event.category == "cpu_op" || is_collective(event))
      origin = std::min(origin, event.begin);
  }
  if (!std::isfinite(origin))
    document.fail("it has no operator and no kernel: record some steps with torch.profiler");
  Spans spans(Steps(events, of_device), origin, static_cast<int>(rank));
  of_device ? add_device(events, spans) : add_host(events, spans);
  std::int64_t base = 0;
  if (document.has("baseTimeNanoseconds"))
    base = document.member("baseTimeNanoseconds").integer(-kMostBase, kMostBase);
  return {.trace = {.title = of_device ? "torch.profiler, kernels of a GPU"
                                       : "torch.profiler, operators of the host",
                    .network = "",
                    .spans = std::move(spans).take()},
          .origin_nanoseconds = base + std::llround(origin * 1e3)};
}

}  // namespace dear
