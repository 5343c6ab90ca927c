#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "dear/base/charts/layout.h"
#include "dear/base/charts/svg.h"
#include "dear/base/vocabulary/counted.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/base/vocabulary/units.h"
#include "dear/predict/sim/collective.h"

namespace dear::sim {
namespace {

constexpr double kLaneRow = 20, kCaption = 22, kBetween = 12;
constexpr double kFieldWidth = 720;
constexpr int kTicks = 6;            // steps, at most
constexpr double kGapOfSpans = 0.4;  // neighbours stay apart

std::vector<const CollectiveRun*> chunked(const std::vector<CollectiveRun>& runs) {
  std::vector<const CollectiveRun*> chunked;
  for (const CollectiveRun& run : runs)
    if (run.chunks > 0 && run.seconds > 0) chunked.push_back(&run);
  if (chunked.empty())
    throw ConfigError(
        "there is nothing to draw: name an algorithm that goes in chunks, and a size above zero");
  return chunked;
}

std::string caption_of(const CollectiveRun& run) {
  return fmt::format("{}, {}: {}, {:.1f} % of all bandwidth", run.algorithm,
                     counted(index_of(run.chunks), "chunk"), format_seconds(run.seconds),
                     100 * run.utilisation);
}

// A span bears the number of its chunk where there is room, because colours come again.
void draw_span(charts::Svg& svg, const cost::ChunkSpan& span, double left, double top, double scale) {
  const std::string_view colour = charts::kColours[index_of(span.phase.chunk) % charts::kColours.size()];
  const double x = left + span.begin_seconds * scale;
  const double width = (span.end_seconds - span.begin_seconds) * scale;
  svg.rectangle(x, top + 2, std::max(width - kGapOfSpans, 0.2), kLaneRow - 4, colour,
                fmt::format("chunk {}, phase {}: {} to {}", span.phase.chunk, span.phase.step,
                            format_seconds(span.begin_seconds), format_seconds(span.end_seconds)));
  const std::string number = std::to_string(span.phase.chunk);
  if (charts::text_width(number, 10) + 2 <= width)
    svg.text(x + width / 2, top + 14, number,
             {.anchor = charts::Anchor::middle, .size = 10, .colour = charts::ink_on(colour)});
}

void draw_run(charts::Svg& svg, const CollectiveRun& run, double left, double top, double scale) {
  svg.text(charts::kMargin, top + 14, caption_of(run));
  top += kCaption;
  for (std::size_t dimension = 0; dimension < run.dimensions.size(); ++dimension) {
    const double y = top + kLaneRow * static_cast<double>(dimension);
    svg.text(left - 8, y + 14, run.dimensions[dimension].name, {.anchor = charts::Anchor::end});
    svg.rectangle(left, y + 2, run.seconds * scale, kLaneRow - 4, charts::kFaintRule);
  }
  for (const cost::ChunkSpan& span : run.spans)
    draw_span(svg, span, left, top + kLaneRow * static_cast<double>(span.dimension), scale);
}

void draw_axis(charts::Svg& svg, double left, double top, double seconds) {
  svg.line(left, top, left + kFieldWidth, top);
  const double step = charts::round_step(seconds / kTicks);
  for (int tick = 0; tick * step <= seconds * (1 + 1e-9); ++tick) {
    const double x = left + kFieldWidth * tick * step / seconds;
    svg.line(x, top, x, top + 5);
    svg.text(x, top + 20, format_seconds(tick * step), {.anchor = charts::Anchor::middle, .size = 12});
  }
}

}  // namespace

std::string utilisation_plot(const Cluster& cluster, const CollectiveOptions& options,
                             const std::vector<CollectiveRun>& runs) {
  const std::vector<const CollectiveRun*> drawn = chunked(runs);
  double longest = 0, names = 40, captions = 0, rows = 0;
  for (const CollectiveRun* const run : drawn) {
    longest = std::max(longest, run->seconds);
    captions = std::max(captions, charts::text_width(caption_of(*run)));
    rows += static_cast<double>(run->dimensions.size());
    for (const DimensionUse& use : run->dimensions) names = std::max(names, charts::text_width(use.name));
  }
  const double left = charts::kMargin + names + 8;
  const double width = std::max(left + kFieldWidth, charts::kMargin + captions) + 40;
  const std::string what =
      fmt::format("{} of {} on {}: what each dimension carries when, and the numbers of chunks",
                  name_of(options.operation), format_bytes(options.bytes), cluster.name);
  const std::vector<std::string> title =
      charts::wrapped(what, charts::kTitleSize, width - 2 * charts::kMargin);
  double top = 30 + charts::kTitleRow * static_cast<double>(title.size());
  const double height =
      top + kLaneRow * rows + (kCaption + kBetween) * static_cast<double>(drawn.size()) + 36;
  charts::Svg svg(width, height, what);
  for (std::size_t i = 0; i < title.size(); ++i)
    svg.text(charts::kMargin, 30 + charts::kTitleRow * static_cast<double>(i), title[i],
             {.size = charts::kTitleSize});
  for (const CollectiveRun* const run : drawn) {
    draw_run(svg, *run, left, top, kFieldWidth / longest);
    top += kCaption + kLaneRow * static_cast<double>(run->dimensions.size()) + kBetween;
  }
  draw_axis(svg, left, top, longest);
  return std::move(svg).finish();
}

}  // namespace dear::sim
