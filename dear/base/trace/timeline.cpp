#include "dear/base/trace/timeline.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "dear/base/charts/layout.h"
#include "dear/base/charts/svg.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/units.h"

namespace dear {
namespace {

using charts::Anchor;
using charts::kColours;
using charts::Pattern;
using charts::Svg;

constexpr double kMargin = 16;
constexpr double kTitleRow = 20;
constexpr double kHead = 30;     // legend
constexpr double kLabels = 110;  // at least
constexpr double kField = 820;
constexpr double kRow = 26;
constexpr double kFoot = 30;      // scale
constexpr double kPatterned = 2;  // the least length of a span on which a pattern shows

struct Kind {
  std::string_view name;
  std::string_view colour;
  Pattern pattern;
};

// By Activity.
constexpr std::array<Kind, 7> kKinds{{{"forward", kColours[0], Pattern::solid},
                                      {"backward", kColours[2], Pattern::falling},
                                      {"update", kColours[3], Pattern::dotted},
                                      {"codec", kColours[5], Pattern::crossed},
                                      {"communication", kColours[4], Pattern::rising},
                                      {"wait", charts::kIdle, Pattern::solid},
                                      {"other", kColours[7], Pattern::level}}};

const Kind& kind_of(const Span& span) { return kKinds[static_cast<std::size_t>(span.activity)]; }

std::vector<const Span*> chosen(const Trace& trace, const TimelineOptions& options) {
  const std::int64_t end = options.iterations > 0 ? options.first_iteration + options.iterations
                                                  : std::numeric_limits<std::int64_t>::max();
  std::vector<const Span*> spans;
  for (const Span& span : trace.spans) {
    if (span.iteration >= std::max<std::int64_t>(options.first_iteration, 0) && span.iteration < end)
      spans.push_back(&span);
  }
  if (spans.empty())
    throw ConfigError(fmt::format("there is nothing to draw of iteration {} and those after it in '{}'",
                                  options.first_iteration, trace.title));
  return spans;
}

using Rows = std::map<std::pair<int, std::string>, double>;  // the top of each rank's lanes

// Ranks one below the other, their lanes in the order in which they first do something.
Rows rows_of(const std::vector<const Span*>& spans, double head) {
  std::map<int, std::vector<const Span*>> lanes;
  for (const Span* span : spans) {
    std::vector<const Span*>& known = lanes[span->rank];
    const auto same = [span](const Span* other) { return other->lane == span->lane; };
    if (const auto found = std::find_if(known.begin(), known.end(), same); found == known.end()) {
      known.push_back(span);
    } else if (span->begin_seconds < (*found)->begin_seconds) {
      *found = span;
    }
  }
  Rows rows;
  for (auto& [rank, known] : lanes) {
    std::sort(known.begin(), known.end(),
              [](const Span* a, const Span* b) { return a->begin_seconds < b->begin_seconds; });
    for (const Span* span : known) {
      const double top = head + kRow * static_cast<double>(rows.size());
      rows[{rank, span->lane}] = top;
    }
  }
  return rows;
}

void draw_legend(const std::vector<const Span*>& spans, double top, Svg& svg) {
  double x = kMargin;
  for (const Kind& kind : kKinds) {
    const auto is = [&kind](const Span* span) { return &kind_of(*span) == &kind; };
    if (std::none_of(spans.begin(), spans.end(), is)) continue;
    svg.rectangle(x, top, 18, 13, kind.colour, "", kind.pattern);
    svg.text(x + 24, top + 11, kind.name);
    x += 48 + charts::text_width(kind.name);
  }
}

// A round length of time that is about a sixth of the whole.
double tick_of(double seconds) {
  const double rough = std::max(seconds, 1e-9) / 6;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double digit : {1.0, 2.0, 5.0})
    if (digit * power >= rough) return digit * power;
  return 10 * power;
}

}  // namespace

std::string timeline(const Trace& trace, const TimelineOptions& options) {
  const std::vector<const Span*> spans = chosen(trace, options);
  double begin = spans.front()->begin_seconds;
  double end = spans.front()->end_seconds;
  for (const Span* span : spans) {
    begin = std::min(begin, span->begin_seconds);
    end = std::max(end, span->end_seconds);
  }
  const std::vector<std::string> title = charts::wrapped(trace.title, 15, kLabels + kField);
  const std::vector<std::string> network = charts::wrapped(trace.network, 12, kLabels + kField);
  const double legend = 16 + kTitleRow * static_cast<double>(title.size() + network.size());
  const Rows rows = rows_of(spans, legend + kHead);
  const double bottom = legend + kHead + kRow * static_cast<double>(rows.size());
  const bool several = rows.begin()->first.first != rows.rbegin()->first.first;
  const auto label_of = [several](const Rows::value_type& row) {
    return several ? fmt::format("{} {}", row.first.first, row.first.second) : row.first.second;
  };
  double labels = kLabels;
  for (const auto& row : rows) labels = std::max(labels, charts::text_width(label_of(row), 12) + 8);
  const double left = kMargin + labels;
  const double scale = end > begin ? kField / (end - begin) : 0;
  Svg svg(left + kField + 2 * kMargin, bottom + kFoot, trace.title);
  double line = 26;
  for (const std::string& words : title) svg.text(kMargin, line, words, {.size = 15}), line += kTitleRow;
  for (const std::string& words : network)
    svg.text(kMargin, line, words, {.size = 12, .colour = charts::kMuted}), line += kTitleRow;
  draw_legend(spans, legend, svg);
  for (const auto& row : rows)
    svg.text(left - 8, row.second + 16, label_of(row), {.anchor = Anchor::end, .size = 12});
  for (const Span* span : spans) {
    const double length = (span->end_seconds - span->begin_seconds) * scale;
    svg.rectangle(left + (span->begin_seconds - begin) * scale, rows.at({span->rank, span->lane}) + 3,
                  std::max(length - 0.3, 0.2), kRow - 6, kind_of(*span).colour,  // neighbours stay apart
                  fmt::format("{}, iteration {}: {}", span->name, span->iteration,
                              format_seconds(span->end_seconds - span->begin_seconds)),
                  length < kPatterned ? Pattern::solid : kind_of(*span).pattern);
  }
  svg.line(left, bottom, left + kField, bottom, charts::kFrame);
  const double tick = tick_of(end - begin);
  for (int i = 0; i * tick * scale <= kField && scale > 0; ++i) {
    const double x = left + i * tick * scale;
    svg.line(x, bottom, x, bottom + 4, charts::kFrame);
    svg.text(x, bottom + 18, format_seconds(i * tick), {.anchor = Anchor::middle, .size = 12});
  }
  return std::move(svg).finish();
}

}  // namespace dear
