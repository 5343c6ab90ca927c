#include "dear/base/charts/line_plot.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "dear/base/charts/layout.h"
#include "dear/base/charts/svg.h"
#include "dear/base/vocabulary/error.h"

namespace dear::charts {
namespace {

constexpr double kWidth = 380, kHeight = 300, kBelow = 70;
constexpr double kAbove = 28, kPanelTitleRow = 22;
constexpr double kLegendRow = 20, kKey = 36;  // of the legend: a line, then a name
constexpr int kSteps = 8;                     // at most, of a linear scale
constexpr std::size_t kMostMarkers = 12;      // of a curve
constexpr double kRoundingOfTicks = 1e-9;

// A scale of values, maybe by their logarithm, on so many points from `begin`.
class Scale {
 public:
  Scale(bool logarithmic, double begin, double length)
      : logarithmic_(logarithmic), begin_(begin), length_(length) {}
  // Whether the value has a place: on a logarithmic scale one above 0.
  [[nodiscard]] bool has(double value) const { return std::isfinite(place(value)); }
  void include(double value) {
    if (!has(value)) return;
    least_ = std::min(least_, place(value));
    most_ = std::max(most_, place(value));
  }
  void move(double distance) { begin_ += distance; }
  [[nodiscard]] bool empty() const { return least_ > most_; }
  [[nodiscard]] double at(double value) const {
    if (!has(value)) return begin_;
    return begin_ + (most_ > least_ ? (place(value) - least_) / (most_ - least_) : 0.5) * length_;
  }
  [[nodiscard]] std::vector<double> ticks() const { return logarithmic_ ? powers() : multiples(); }

 private:
  [[nodiscard]] double place(double value) const { return logarithmic_ ? std::log10(value) : value; }

  [[nodiscard]] std::vector<double> multiples() const {
    const double step = round_step((most_ - least_) / kSteps);
    if (step == 0 || !std::isfinite(step)) return {least_};
    const double first = std::ceil(least_ / step - kRoundingOfTicks);
    std::vector<double> ticks;  // a count: values so close that a step does not change them would never end
    for (int i = 0; i <= kSteps + 1 && (first + i) * step <= most_ + kRoundingOfTicks * step; ++i)
      ticks.push_back((first + i) * step + 0.0);  // no -0
    return ticks;
  }

  // Powers of ten, and what lies between them where they would be fewer than three.
  [[nodiscard]] std::vector<double> powers() const {
    if (!(most_ > least_)) return {std::pow(10, least_)};
    std::vector<double> ticks;
    for (const std::vector<double>& digits :
         {std::vector<double>{1}, {1, 2, 5}, {1, 2, 3, 4, 5, 6, 7, 8, 9}}) {
      ticks.clear();
      for (double power = std::floor(least_); power <= most_; ++power)
        for (const double digit : digits)
          if (const double tick = power + std::log10(digit);
              tick >= least_ - kRoundingOfTicks && tick <= most_ + kRoundingOfTicks)
            ticks.push_back(digit * std::pow(10, power));
      if (ticks.size() >= 3) break;
    }
    return ticks;
  }

  bool logarithmic_;
  double begin_, length_;
  double least_ = std::numeric_limits<double>::infinity(), most_ = -least_;
};

struct Panel {
  const PlotPanel* content;
  std::size_t row, column;
  Scale x, y;  // y from the top of the panel
};

bool shares(const Panel& a, const Panel& b, const PlotText& text) {
  return a.content->across == b.content->across && (text.columns == 0 || a.row == b.row);
}

void include(const PlotPanel& panel, Scale* x, Scale* y) {
  for (const Curve& curve : panel.curves) {
    for (const auto& [across, upwards] : curve.points) {
      if (x != nullptr) x->include(across);
      if (y != nullptr) y->include(upwards);
    }
    if (y == nullptr) continue;
    for (const auto& [low, high] : curve.intervals) y->include(low), y->include(high);
  }
}

std::vector<Panel> panels_of(const std::vector<PlotPanel>& contents, const PlotText& text) {
  std::vector<Panel> panels;
  const std::size_t columns = text.columns == 0 ? std::max<std::size_t>(contents.size(), 1) : text.columns;
  for (std::size_t i = 0; i < contents.size(); ++i)
    panels.push_back({.content = &contents[i],
                      .row = i / columns,
                      .column = i % columns,
                      .x = Scale(text.logarithmic_x, 0, kWidth),
                      .y = Scale(text.logarithmic, kHeight, -kHeight)});
  for (Panel& panel : panels)
    for (const Panel& other : panels) {
      if (shares(panel, other, text)) include(*other.content, &panel.x, nullptr);
      if (panel.row == other.row) include(*other.content, nullptr, &panel.y);
    }
  std::erase_if(panels, [](const Panel& panel) { return panel.x.empty() || panel.y.empty(); });
  if (panels.empty()) throw ConfigError("a plot of no points: give some, above 0 on a logarithmic scale");
  return panels;
}

// The widest number at the vertical axis.
double width_of_numbers(const Scale& y, const PlotText& text) {
  double width = 0;
  for (const double tick : y.ticks()) width = std::max(width, text_width(text.format_y(tick), 11));
  return width;
}

const std::string& across_of(const Panel& panel, const PlotText& text) {
  return panel.content->across.empty() ? text.across : panel.content->across;
}

void draw_frame(Svg& svg, double left, double top, const Panel& panel, const PlotText& text) {
  const double bottom = top + kHeight;
  double free = -kWidth;  // where the next number may begin
  for (const double tick : panel.x.ticks()) {
    const double x = left + panel.x.at(tick);
    svg.line(x, top, x, bottom, kRule);
    const std::string number = text.format_x(tick);
    const double half = text_width(number, 11) / 2;
    if (x - left - half < free) continue;
    free = x - left + half + 4;
    svg.text(x, bottom + 16, number, {.anchor = Anchor::middle, .size = 11});
  }
  for (const double tick : panel.y.ticks()) {
    const double y = top + panel.y.at(tick);
    svg.line(left, y, left + kWidth, y, kRule);
    svg.text(left - 8, y + 4, text.format_y(tick), {.anchor = Anchor::end, .size = 11});
  }
  svg.line(left, top, left, bottom).line(left, bottom, left + kWidth, bottom);
  svg.text(left + kWidth / 2, bottom + 38, across_of(panel, text), {.anchor = Anchor::middle});
  svg.text(left - width_of_numbers(panel.y, text) - 18, top + kHeight / 2, text.upwards,
           {.anchor = Anchor::middle, .upwards = true});
}

void draw_curve(Svg& svg, std::size_t series, const Curve& curve,
                const std::vector<std::pair<double, double>>& points) {
  const std::string_view colour = kColours[series % kColours.size()];
  svg.polyline(points, colour, curve.dashed);
  if (!curve.marked) return;
  const std::size_t each = (points.size() + kMostMarkers - 1) / kMostMarkers;
  // Curves that run on each other have their markers at different points.
  for (std::size_t i = each > 1 ? series * each / 4 % each : 0; i < points.size();
       i += std::max<std::size_t>(each, 1))
    svg.marker(series, points[i].first, points[i].second, 3, colour);
}

// The first curve of each name, in order.
std::vector<const Curve*> named(const std::vector<Panel>& panels) {
  std::vector<const Curve*> first;
  for (const Panel& panel : panels)
    for (const Curve& curve : panel.content->curves)
      if (std::none_of(first.begin(), first.end(),
                       [&](const Curve* known) { return known->name == curve.name; }))
        first.push_back(&curve);
  return first;
}

std::size_t series_of(const Curve& curve, const std::vector<const Curve*>& names) {
  const auto found =
      std::find_if(names.begin(), names.end(), [&](const Curve* known) { return known->name == curve.name; });
  return static_cast<std::size_t>(found - names.begin());
}

void draw_panel(Svg& svg, double left, double top, const Panel& panel, const std::vector<const Curve*>& names,
                const PlotText& text) {
  svg.text(left, top - 14, panel.content->title, {.size = 14});
  draw_frame(svg, left, top, panel, text);
  for (const Curve& curve : panel.content->curves) {
    const std::size_t series = series_of(curve, names);
    std::vector<std::pair<double, double>> points;
    for (std::size_t i = 0; i < curve.points.size(); ++i) {
      const auto& [across, upwards] = curve.points[i];
      if (!panel.x.has(across) || !panel.y.has(upwards)) continue;
      const double x = left + panel.x.at(across);
      points.emplace_back(x, top + panel.y.at(upwards));
      if (i >= curve.intervals.size()) continue;
      if (const auto& [low, high] = curve.intervals[i]; low < high)
        svg.interval(x, top + panel.y.at(low), x, top + panel.y.at(high), kColours[series % kColours.size()]);
    }
    draw_curve(svg, series, curve, points);
  }
}

struct Entry {
  std::size_t series = 0;
  const Curve* curve = nullptr;  // none: an interval
  std::string words;
};

std::vector<Entry> legend_of(const std::vector<Panel>& panels, const std::vector<const Curve*>& names,
                             const PlotText& text) {
  std::vector<Entry> entries;
  for (std::size_t i = 0; i < names.size(); ++i) entries.push_back({i, names[i], names[i]->name});
  const bool intervals = std::any_of(panels.begin(), panels.end(), [](const Panel& panel) {
    return std::any_of(panel.content->curves.begin(), panel.content->curves.end(),
                       [](const Curve& curve) { return !curve.intervals.empty(); });
  });
  if (intervals) entries.push_back({0, nullptr, text.intervals});
  return entries;
}

void draw_entry(Svg& svg, const Entry& entry, double left, double at) {
  if (entry.curve == nullptr)
    svg.interval(left + 14, at - 7, left + 14, at + 7);
  else
    draw_curve(svg, entry.series, *entry.curve, {{left, at}, {left + 28, at}});
  svg.text(left + kKey, at + 4, entry.words);
}

}  // namespace

std::string line_plot(const std::vector<PlotPanel>& contents, const PlotText& text) {
  const std::vector<Panel> panels = panels_of(contents, text);
  const std::vector<const Curve*> names = named(panels);
  const std::vector<Entry> entries = legend_of(panels, names, text);
  double words = 0, numbers = 0, above = kAbove;
  std::size_t columns = 0, rows = 0;
  for (const Panel& panel : panels) {
    words = std::max({words, text_width(panel.content->title, 14), text_width(across_of(panel, text))});
    numbers = std::max(numbers, width_of_numbers(panel.y, text));
    if (!panel.content->title.empty()) above = kAbove + kPanelTitleRow;
    columns = std::max(columns, panel.column + 1);
    rows = std::max(rows, panel.row + 1);
  }
  const double beside = numbers + 40;  // numbers and name of the vertical axis
  const double panel_width = beside + std::max(kWidth, words) + kMargin;
  double widest = 0;
  for (const Entry& entry : entries) widest = std::max(widest, kKey + text_width(entry.words) + 24);
  const double width = std::max({panel_width * static_cast<double>(columns), 480.0, widest + 2 * kMargin});
  const std::vector<std::string> title = wrapped(text.title, kTitleSize, width - 2 * kMargin);
  // Is as wide as the widest, so that names stand below each other.
  const Flow legend = flow(std::vector<double>(entries.size(), widest), width - 2 * kMargin, kLegendRow);
  const double higher = std::max(0.0, text_width(text.upwards) - kHeight) / 2;  // of the name of y
  const double head = kTitleRow * static_cast<double>(title.size());
  const double panel_height = above + kHeight + kBelow + 2 * higher;
  const double legend_top = head + panel_height * static_cast<double>(rows);
  Svg svg(width, legend_top + legend.height + 10, text.title);
  for (std::size_t i = 0; i < title.size(); ++i)
    svg.text(kMargin, 26 + kTitleRow * static_cast<double>(i), title[i], {.size = kTitleSize});
  for (const Panel& panel : panels)
    draw_panel(svg, beside + panel_width * static_cast<double>(panel.column),
               head + above + higher + panel_height * static_cast<double>(panel.row), panel, names, text);
  for (std::size_t i = 0; i < entries.size(); ++i)
    draw_entry(svg, entries[i], kMargin + legend.places[i].first, legend_top + legend.places[i].second);
  return std::move(svg).finish();
}

}  // namespace dear::charts
