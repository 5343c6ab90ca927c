#include "dear/study/line_plot.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string_view>

#include "dear/base/error.h"
#include "dear/drawing/layout.h"
#include "dear/drawing/svg.h"

namespace dear::study {
namespace {

constexpr double kWidth = 380, kHeight = 300, kFoot = 70, kMargin = 30;
constexpr double kTitleRow = 20, kLegendRow = 20, kKey = 36;  // of the legend: a line, then a name
constexpr int kTitleSize = 16;
constexpr int kSteps = 8;  // at most, of a linear scale
constexpr double kSlack = 1e-9;

// A scale of values, maybe by their logarithm, on so many points from `begin`.
class Scale {
 public:
  Scale(bool logarithmic, double begin, double length)
      : logarithmic_(logarithmic), begin_(begin), length_(length) {}
  void include(double value) {
    least_ = std::min(least_, place(value));
    most_ = std::max(most_, place(value));
  }
  void move(double distance) { begin_ += distance; }
  [[nodiscard]] bool empty() const { return least_ > most_; }
  [[nodiscard]] double at(double value) const {
    return begin_ + (most_ > least_ ? (place(value) - least_) / (most_ - least_) : 0.5) * length_;
  }
  [[nodiscard]] std::vector<double> ticks() const {
    std::vector<double> ticks;
    if (logarithmic_) {
      for (double power = std::ceil(least_ - kSlack); power <= most_ + kSlack; ++power)
        ticks.push_back(std::pow(10, power));
    } else {
      const double step = drawing::round_step((most_ - least_) / kSteps);
      if (step == 0) return {least_};
      for (double i = std::ceil(least_ / step - kSlack); i * step <= most_ + kSlack * step; ++i)
        ticks.push_back(i * step + 0.0);  // no -0
    }
    return ticks;
  }

 private:
  [[nodiscard]] double place(double value) const { return logarithmic_ ? std::log10(value) : value; }
  bool logarithmic_;
  double begin_, length_;
  double least_ = std::numeric_limits<double>::infinity(), most_ = -least_;
};

// The widest number at the vertical axis.
double width_of_numbers(const Scale& y, const PlotText& text) {
  double width = 0;
  for (const double tick : y.ticks()) width = std::max(width, drawing::text_width(text.format_y(tick), 11));
  return width;
}

void draw_frame(drawing::Svg& svg, double left, double top, const Scale& x, const Scale& y,
                const PlotText& text) {
  const double bottom = top + kHeight;
  double free = -kWidth;  // where the next number may begin
  for (const double tick : x.ticks()) {
    svg.line(left + x.at(tick), top, left + x.at(tick), bottom, "#dddddd");
    const std::string number = text.format_x(tick);
    const double half = drawing::text_width(number, 11) / 2;
    if (x.at(tick) - half < free) continue;
    free = x.at(tick) + half + 4;
    svg.text(left + x.at(tick), bottom + 16, number, {.anchor = drawing::Anchor::middle, .size = 11});
  }
  for (const double tick : y.ticks()) {
    svg.line(left, y.at(tick), left + kWidth, y.at(tick), "#dddddd");
    svg.text(left - 8, y.at(tick) + 4, text.format_y(tick), {.anchor = drawing::Anchor::end, .size = 11});
  }
  svg.line(left, top, left, bottom).line(left, bottom, left + kWidth, bottom);
  svg.text(left + kWidth / 2, bottom + 38, text.across, {.anchor = drawing::Anchor::middle});
  svg.text(left - width_of_numbers(y, text) - 18, top + kHeight / 2, text.upwards,
           {.anchor = drawing::Anchor::middle, .upwards = true});
}

void draw_curve(drawing::Svg& svg, std::size_t series, bool dashed,
                const std::vector<std::pair<double, double>>& points) {
  const std::string_view colour = drawing::kColours[series % drawing::kColours.size()];
  svg.polyline(points, colour, dashed);
  for (const auto& [x, y] : points) svg.marker(series, x, y, 3, colour);
}

}  // namespace

std::string line_plot(const std::vector<PlotPanel>& panels, const PlotText& text) {
  Scale x(text.logarithmic_x, 0, kWidth);
  Scale y(text.logarithmic, kHeight, -kHeight);
  for (const PlotPanel& panel : panels)
    for (const Curve& curve : panel.curves)
      for (const auto& [across, upwards] : curve.points) x.include(across), y.include(upwards);
  if (x.empty()) throw ConfigError("a plot of no points: give some");
  const std::vector<Curve>& curves = panels.front().curves;
  double words = drawing::text_width(text.across);
  for (const PlotPanel& panel : panels) words = std::max(words, drawing::text_width(panel.title, 14));
  const double beside = width_of_numbers(y, text) + 40;  // numbers and name of the vertical axis
  const double panel_width = beside + std::max(kWidth, words) + kMargin;
  std::vector<double> names;
  for (const Curve& curve : curves) names.push_back(kKey + drawing::text_width(curve.name) + 24);
  const double widest = names.empty() ? 0 : *std::max_element(names.begin(), names.end());
  const double width =
      std::max({panel_width * static_cast<double>(panels.size()), 640.0, widest + 2 * kMargin});
  const std::vector<std::string> title = drawing::wrapped(text.title, kTitleSize, width - 2 * kMargin);
  const double legend_width = width - 2 * kMargin;
  // As wide as the widest, so that names stand below each other.
  const drawing::Flow legend =
      drawing::flow(std::vector<double>(names.size(), widest), legend_width, kLegendRow);
  const double higher = std::max(0.0, drawing::text_width(text.upwards) - kHeight) / 2;  // of the name of y
  const double top = 50 + kTitleRow * static_cast<double>(title.size()) + higher;
  const double legend_top = top + kHeight + kFoot + higher;
  drawing::Svg svg(width, legend_top + legend.height + 10, text.title);
  for (std::size_t i = 0; i < title.size(); ++i)
    svg.text(kMargin, 26 + kTitleRow * static_cast<double>(i), title[i], {.size = kTitleSize});
  for (std::size_t i = 0; i < panels.size(); ++i) {
    const double left = beside + panel_width * static_cast<double>(i);
    svg.text(left, top - 14, panels[i].title, {.size = 14});
    Scale y_here = y;
    y_here.move(top);
    draw_frame(svg, left, top, x, y_here, text);
    for (std::size_t j = 0; j < panels[i].curves.size(); ++j) {
      const Curve& curve = panels[i].curves[j];
      std::vector<std::pair<double, double>> points;
      for (const auto& [across, upwards] : curve.points)
        points.emplace_back(left + x.at(across), y_here.at(upwards));
      draw_curve(svg, j, curve.dashed, points);
    }
  }
  for (std::size_t j = 0; j < curves.size(); ++j) {
    const double left = kMargin + legend.places[j].first;
    const double at = legend_top + legend.places[j].second;
    draw_curve(svg, j, curves[j].dashed, {{left, at}, {left + 28, at}});
    svg.text(left + kKey, at + 4, curves[j].name);
  }
  return std::move(svg).finish();
}

}  // namespace dear::study
