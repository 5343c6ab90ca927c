#include "dear/tools/cases/pipeline_picture.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "dear/base/charts/layout.h"
#include "dear/base/charts/svg.h"
#include "dear/base/trace/timeline.h"
#include "dear/base/vocabulary/counted.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/base/vocabulary/printable.h"
#include "dear/base/vocabulary/units.h"
#include "dear/tools/cases/pipeline_plan.h"

namespace dear::cases {
namespace {

using charts::kColours;
using charts::Pattern;
using charts::Svg;

constexpr double kStageRow = 24, kLinkRow = 30, kGap = 16;
constexpr double kMemory = 90, kField = 300, kBarLabel = 190;
constexpr std::string_view kComputes = kColours[0], kThere = kColours[4], kBack = kColours[1];

std::string holding(const PipelineCase& one, std::size_t stage) {
  const Range& operators = one.plan.stages[stage].operators;
  const auto& first = one.job->dag[static_cast<methods::pipeline::OperatorId>(operators.begin)];
  return fmt::format("{} from {}, {}", counted(static_cast<std::size_t>(operators.size()), "operator"),
                     printable(shortened(first.name, 40)), format_bytes(parameter_bytes_of(one, stage)));
}

std::string carrying(const Carried& carried) {
  const std::string ratio = carried.ratio > 1 ? fmt::format(", ratio {:.3g}", carried.ratio) : "";
  return fmt::format("{}{}, {}", format_bytes(carried.bytes), ratio,
                     format_seconds(carried.transfer.busy_seconds));
}

class Picture {
 public:
  explicit Picture(const PipelineCase& one) : one_(one) {
    const PipelineJob& job = *one.job;
    for (std::size_t s = 0; s < one.plan.stages.size(); ++s) {
      const std::size_t device = index_of(one.plan.stages[s].device);
      sites_ = std::max(sites_, charts::text_width(site_of(device), 12));
      devices_ = std::max(devices_, charts::text_width(printable(job.cluster.devices[device].name), 12));
      stages_ = std::max(stages_, charts::text_width(holding(one, s), 12));
      longest_ = std::max(longest_, one.times.stages[s].all());
      if (s > 0)
        longest_ = std::max(
            {longest_, one.times.activations[s - 1].busy_seconds, one.times.gradients[s - 1].busy_seconds});
    }
    devices_at_ = charts::kMargin + sites_ + kGap;
    stages_at_ = devices_at_ + devices_ + kGap;
    memory_at_ = stages_at_ + stages_ + kGap;
    field_at_ = memory_at_ + kMemory + kGap + charts::text_width("88.8 GiB of 88 GiB", 11);
  }

  std::string draw() && {
    const double width = field_at_ + kField + kBarLabel + charts::kMargin;
    const std::vector<std::string> title = charts::wrapped(
        fmt::format("{} on {}: {}, {}, compression {}", one_.job->dag.name(), one_.job->cluster.name,
                    one_.planner, name_of(one_.plan.schedule), one_.compression),
        charts::kTitleSize, width - 2 * charts::kMargin);
    const double head = charts::kMargin + charts::kTitleRow * static_cast<double>(title.size()) + 62;
    const std::size_t count = one_.plan.stages.size();
    const double height = head + kStageRow * static_cast<double>(count) +
                          kLinkRow * static_cast<double>(count - 1) +
                          20 * static_cast<double>(one_.times.exchanges.size()) + charts::kMargin;
    Svg svg(width, height, title.front());
    double y = charts::kMargin + 12;
    for (const std::string& line : title) {
      svg.text(charts::kMargin, y, line, {.size = charts::kTitleSize});
      y += charts::kTitleRow;
    }
    svg.text(charts::kMargin, y,
             fmt::format("An iteration of {} takes {}. Times below are of one micro-batch.",
                         micro_batches_text(one_.plan.micro_batches), format_seconds(one_.seconds())),
             {.size = 12, .colour = charts::kMuted});
    draw_heads(svg, head - 12);
    double top = head;
    for (std::size_t s = 0; s < count; ++s) {
      draw_stage(svg, s, top);
      top += kStageRow;
      if (s + 1 == count) continue;
      draw_link(svg, s, top);
      top += kLinkRow;
    }
    for (const auto& exchange : one_.times.exchanges) {
      top += 20;
      svg.text(charts::kMargin, top,
               fmt::format("Once an iteration {} and {} exchange the gradients of tied parameters: {}.",
                           device(exchange.stages[0]), device(exchange.stages[1]),
                           format_seconds(std::max(exchange.there.seconds(), exchange.back.seconds()))),
               {.size = 12});
    }
    return std::move(svg).finish();
  }

 private:
  [[nodiscard]] std::string site_of(std::size_t device) const {
    return printable(shortened(one_.job->sites[device], 20));
  }
  [[nodiscard]] std::string device(int stage) const {
    return printable(one_.job->device(one_.plan.stages[index_of(stage)].device));
  }
  [[nodiscard]] double length(double seconds) const {
    return longest_ > 0 ? std::max(0.5, seconds / longest_ * kField) : 0;
  }

  void draw_heads(Svg& svg, double y) const {
    const charts::TextStyle style{.size = 12, .colour = charts::kMuted};
    svg.text(charts::kMargin, y, "site", style)
        .text(devices_at_, y, "device", style)
        .text(stages_at_, y, "stage holds", style);
    svg.text(memory_at_, y, "memory at most", style);
    double x = field_at_;
    const auto legend = [&](std::string_view words, std::string_view colour, Pattern pattern) {
      svg.rectangle(x, y - 10, 14, 11, colour, "", pattern).text(x + 19, y, words, {.size = 12});
      x += 36 + charts::text_width(words, 12);
    };
    legend("computes", kComputes, Pattern::solid);
    legend("activations to the next", kThere, Pattern::rising);
    legend("gradients back", kBack, Pattern::falling);
  }

  void draw_stage(Svg& svg, std::size_t s, double top) const {
    const std::size_t number = index_of(one_.plan.stages[s].device);
    const std::string site = site_of(number);
    const double line = top + 16;
    if (s == 0 || site != site_of(index_of(one_.plan.stages[s - 1].device))) {
      if (s > 0)
        svg.line(charts::kMargin, top - kLinkRow / 2, field_at_ - kGap, top - kLinkRow / 2, charts::kRule);
      svg.text(charts::kMargin, line, site, {.size = 12});
    }
    svg.text(devices_at_, line, device(static_cast<int>(s)), {.size = 12});
    svg.text(stages_at_, line, holding(one_, s), {.size = 12});
    const std::size_t place = index_of(one_.times.shape.place_of(static_cast<int>(s)));
    const auto has = static_cast<double>(one_.job->cluster.devices[number].memory_bytes);
    const double used = one_.peak_bytes[place];
    svg.rectangle(memory_at_, top + 6, kMemory, 12, charts::kFaintRule);
    svg.rectangle(memory_at_, top + 6, std::max(0.5, kMemory * used / has), 12, kColours[7]);
    svg.text(memory_at_ + kMemory + 5, line - 1,
             fmt::format("{} of {}", format_bytes(static_cast<std::int64_t>(used)),
                         format_bytes(static_cast<std::int64_t>(has))),
             {.size = 11, .colour = charts::kMuted});
    const double seconds = one_.times.stages[s].all();
    svg.rectangle(field_at_, top + 4, length(seconds), 16, kComputes, format_seconds(seconds));
    svg.text(field_at_ + length(seconds) + 6, line, format_seconds(seconds), {.size = 12});
  }

  void draw_link(Svg& svg, std::size_t cut, double top) const {
    if (one_.plan.stages[cut].device == one_.plan.stages[cut + 1].device) return;
    const double x = devices_at_ + 8;
    svg.line(x, top + 1, x, top + kLinkRow - 6, charts::kFrame);
    svg.polygon({{x - 4, top + kLinkRow - 8}, {x + 4, top + kLinkRow - 8}, {x, top + kLinkRow - 1}},
                charts::kFrame);
    double y = top + 2;
    for (const bool forwards : {true, false}) {
      const Carried carried = forwards ? activations_over(one_, cut) : gradients_over(one_, cut);
      const double busy = length(carried.transfer.busy_seconds);
      svg.rectangle(field_at_, y, busy, 10, forwards ? kThere : kBack, carrying(carried),
                    busy < 3   ? Pattern::solid
                    : forwards ? Pattern::rising
                               : Pattern::falling);
      svg.text(field_at_ + busy + 6, y + 10, carrying(carried), {.size = 11});
      y += 13;
    }
  }

  const PipelineCase& one_;
  double sites_ = charts::text_width("site", 12), devices_ = charts::text_width("device", 12), stages_ = 0,
         longest_ = 0;  // widths, and the longest time
  double devices_at_ = 0, stages_at_ = 0, memory_at_ = 0, field_at_ = 0;
};

}  // namespace

std::string picture_of(const PipelineCase& one) { return Picture(one).draw(); }

std::string timeline_of(const PipelineCase& one) {
  Trace trace = trace_of(one);
  for (Span& span : trace.spans) {
    const std::string& device = one.device_of(span.rank);
    span.lane = span.lane == "compute" ? device : fmt::format("{} {}", device, span.lane);
  }
  return timeline(trace);
}

}  // namespace dear::cases
