#include "dear/base/charts/bar_chart.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "dear/base/charts/layout.h"
#include "dear/base/charts/svg.h"
#include "dear/base/vocabulary/error.h"

namespace dear::charts {
namespace {

constexpr double kField = 210;
constexpr double kRow = 18;
constexpr double kPanelTitle = 30;
constexpr double kFoot = 34;     // numbers of the axis
constexpr double kSquashed = 5;  // times as long as another panel's longest bar
constexpr int kTicks = 4;        // steps, at most
constexpr std::string_view kSecondColour = kColours[4];
constexpr Pattern kSecondPattern = Pattern::rising;

double end_of(const Bar& bar) { return std::max(bar.first + bar.second + bar.half_width, bar.mark); }

double longest(const BarPanel& panel) {
  double most = 0;
  for (const Bar& bar : panel.bars) most = std::max(most, end_of(bar));
  return most;
}

bool has_interval(const BarPanel& panel) {
  return std::any_of(panel.bars.begin(), panel.bars.end(), [](const Bar& bar) { return bar.half_width > 0; });
}

std::string value_of(const Bar& bar, const BarChartText& text) {
  const std::string value = text.format(bar.first + bar.second);
  return bar.half_width > 0 ? fmt::format("{} ± {}", value, text.format(bar.half_width)) : value;
}

struct Layout {
  double labels = 0;  // width of the names of bars
  double panel = 0;   // width of a panel
  double height = 0;  // likewise
  std::size_t columns = 0;
  std::vector<double> ends;  // of each panel's axis
};

// One scale for all panels; one for each row of them where it would squeeze a panel.
std::vector<double> ends_of(const std::vector<BarPanel>& panels, std::size_t columns) {
  double most = 0, least = std::numeric_limits<double>::infinity();
  for (const BarPanel& panel : panels) {
    if (longest(panel) <= 0) continue;
    most = std::max(most, longest(panel));
    least = std::min(least, longest(panel));
  }
  const std::size_t together = most > kSquashed * least ? columns : panels.size();
  std::vector<double> ends;
  for (std::size_t begin = 0; begin < panels.size(); begin += together) {
    const std::size_t end = std::min(begin + together, panels.size());
    std::vector<double> values;
    for (std::size_t i = begin; i < end; ++i)
      for (const Bar& bar : panels[i].bars) values.push_back(end_of(bar));
    ends.resize(end, end_of_axis(std::move(values)));
  }
  return ends;
}

Layout layout_of(const std::vector<BarPanel>& panels, const BarChartText& text) {
  Layout layout{
      .labels = 60, .columns = std::min<std::size_t>(panels.size(), panels.size() == 4 ? 2 : 3), .ends = {}};
  double values = 40, titles = 0;
  std::size_t rows = 0;
  for (const BarPanel& panel : panels) {
    rows = std::max(rows, panel.bars.size());
    titles = std::max(titles, text_width(panel.title, 14));
    for (const Bar& bar : panel.bars) {
      layout.labels = std::max(layout.labels, text_width(bar.label, 12));
      values = std::max(values, text_width(value_of(bar, text), 12));
    }
  }
  if (rows == 0) throw ConfigError("there is nothing to draw bars of");
  layout.panel = std::max(layout.labels + 8 + kField + values + 10, titles) + kMargin;
  layout.height = kPanelTitle + kRow * static_cast<double>(rows) + kFoot;
  layout.ends = ends_of(panels, layout.columns);
  return layout;
}

void draw_axis(double begin, double top, double bottom, double end, const BarChartText& text, Svg& svg) {
  const double step = round_step(end / kTicks);
  for (int i = 0; step > 0 && i * step <= end * (1 + 1e-9); ++i) {
    const double x = begin + i * step * kField / end;
    svg.line(x, top, x, bottom + 4, kRule);
    svg.text(x, bottom + 16, text.format(i * step), {.anchor = Anchor::middle, .size = 11});
  }
}

void draw(const BarPanel& panel, const BarChartText& text, const Layout& layout, double most, double left,
          double top, Svg& svg) {
  const double begin = left + layout.labels + 8;
  const auto at = [&](double value) { return begin + (most > 0 ? std::min(value / most, 1.0) * kField : 0); };
  svg.text(left, top + 16, panel.title, {.size = 14});
  double y = top + kPanelTitle;
  draw_axis(begin, y - 2, y + kRow * static_cast<double>(panel.bars.size()), most, text, svg);
  for (const Bar& bar : panel.bars) {
    const double total = bar.first + bar.second;
    const double middle = at(bar.first);
    const double end = at(total);
    svg.text(begin - 8, y + 12, bar.label, {.anchor = Anchor::end, .size = 12});
    svg.rectangle(begin, y + 2, middle - begin, kRow - 5, kColours[0],
                  fmt::format("{}: {}", text.first, text.format(bar.first)));
    if (!text.second.empty())
      svg.rectangle(middle, y + 2, end - middle, kRow - 5, kSecondColour,
                    fmt::format("{}: {}", text.second, text.format(bar.second)), kSecondPattern);
    if (total > most)  // a gap, near the end
      svg.polygon({{end - 12, y + kRow - 1}, {end - 6, y}, {end - 2, y}, {end - 8, y + kRow - 1}}, "white");
    if (bar.mark > 0) svg.line(at(bar.mark), y, at(bar.mark), y + kRow - 1, "black", 2);
    if (bar.half_width > 0 && total <= most) {
      const double centre = y + kRow / 2 - 0.5;
      svg.interval(at(std::max(total - bar.half_width, 0.0)), centre, at(total + bar.half_width), centre);
    }
    svg.text(at(end_of(bar)) + 6, y + 12, value_of(bar, text), {.size = 12});
    y += kRow;
  }
  svg.line(begin, top + kPanelTitle - 2, begin, y, kFrame);
}

enum class Sign : std::uint8_t { first, second, mark, interval, none };

struct Key {
  Sign sign;
  std::string words;
};

constexpr double kSign = 18;  // the width of a sign

// Says what colours and lines are, and how scales were chosen.
std::vector<Key> legend_of(const std::vector<BarPanel>& panels, const BarChartText& text,
                           const Layout& layout) {
  std::vector<Key> keys{{Sign::first, text.first}};
  if (!text.second.empty()) keys.push_back({Sign::second, text.second});
  if (!text.mark.empty()) keys.push_back({Sign::mark, text.mark});
  if (std::any_of(panels.begin(), panels.end(), has_interval))
    keys.push_back({Sign::interval, text.interval});
  bool cut = false;
  for (std::size_t i = 0; i < panels.size(); ++i) cut = cut || longest(panels[i]) > layout.ends[i];
  if (cut) keys.push_back({Sign::none, "bars with a gap are longer than their axis"});
  if (layout.ends.front() != layout.ends.back())
    keys.push_back({Sign::none, "panels beside each other have one scale"});
  return keys;
}

double width_of(const Key& key) {
  return key.sign == Sign::none ? 0 : key.sign == Sign::mark ? 8 : kSign + 6;
}

void draw(const Key& key, double x, double y, Svg& svg) {
  switch (key.sign) {
    case Sign::first:
      svg.rectangle(x, y, kSign, 13, kColours[0]);
      break;
    case Sign::second:
      svg.rectangle(x, y, kSign, 13, kSecondColour, "", kSecondPattern);
      break;
    case Sign::mark:
      svg.line(x + 1, y - 1, x + 1, y + 14, "black", 2);
      break;
    case Sign::interval:
      svg.interval(x, y + 6.5, x + kSign, y + 6.5);
      break;
    case Sign::none:
      break;
  }
  svg.text(x + width_of(key), y + 11, key.words);
}

}  // namespace

std::string bar_chart(const std::vector<BarPanel>& panels, const BarChartText& text) {
  const Layout layout = layout_of(panels, text);
  const double width = kMargin + layout.panel * static_cast<double>(layout.columns);
  const std::vector<std::string> title = wrapped(text.title, kTitleSize, width - 2 * kMargin);
  const std::vector<Key> keys = legend_of(panels, text, layout);
  std::vector<double> widths;
  for (const Key& key : keys) widths.push_back(width_of(key) + 24 + text_width(key.words));
  const Flow legend = flow(widths, width - 2 * kMargin, 20);
  const double legend_top = 26 + kTitleRow * static_cast<double>(title.size());
  const double head = legend_top + legend.height + 10;
  const std::size_t lines = (panels.size() + layout.columns - 1) / layout.columns;
  Svg svg(std::max(width, *std::max_element(widths.begin(), widths.end()) + 2 * kMargin),
          head + layout.height * static_cast<double>(lines) + kMargin, text.title);
  for (std::size_t i = 0; i < title.size(); ++i)
    svg.text(kMargin, 30 + kTitleRow * static_cast<double>(i), title[i], {.size = kTitleSize});
  for (std::size_t i = 0; i < keys.size(); ++i)
    draw(keys[i], kMargin + legend.places[i].first, legend_top + legend.places[i].second, svg);
  for (std::size_t i = 0; i < panels.size(); ++i)
    draw(panels[i], text, layout, layout.ends[i],
         kMargin + layout.panel * static_cast<double>(i % layout.columns),
         head + layout.height * static_cast<double>(i / layout.columns), svg);
  return std::move(svg).finish();
}

}  // namespace dear::charts
