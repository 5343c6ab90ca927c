#include "dear/study/line_plot.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "dear/base/error.h"
#include "dear/drawing/svg.h"

namespace dear::study {
namespace {

constexpr double kLeft = 80, kWidth = 380, kGap = 80, kTop = 70, kHeight = 300, kFoot = 70;
constexpr double kLegendRow = 20, kLegendColumn = 230;
constexpr std::size_t kLegendColumns = 2;
constexpr int kSteps = 8;  // at most, of a linear scale
constexpr double kSlack = 1e-9;

// The least of 1, 2, 2.5, 5 times a power of ten that is not below `step`; 0 of 0.
double round_step(double step) {
  if (step <= 0) return 0;
  const double power = std::pow(10, std::floor(std::log10(step)));
  for (const double times : {1.0, 2.0, 2.5, 5.0})
    if (times * power >= step * (1 - kSlack)) return times * power;
  return 10 * power;
}

// A scale of values, maybe by their logarithm, on so many points from `begin`.
class Scale {
 public:
  Scale(bool logarithmic, double begin, double length)
      : logarithmic_(logarithmic), begin_(begin), length_(length) {}
  void include(double value) {
    least_ = std::min(least_, place(value));
    most_ = std::max(most_, place(value));
  }
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
      const double step = round_step((most_ - least_) / kSteps);
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

void draw_frame(drawing::Svg& svg, double left, const Scale& x, const Scale& y, const PlotText& text) {
  const double bottom = kTop + kHeight;
  for (const double tick : x.ticks()) {
    svg.line(left + x.at(tick), kTop, left + x.at(tick), bottom, "#dddddd");
    svg.text(left + x.at(tick), bottom + 16, text.format_x(tick),
             {.anchor = drawing::Anchor::middle, .size = 11});
  }
  for (const double tick : y.ticks()) {
    svg.line(left, y.at(tick), left + kWidth, y.at(tick), "#dddddd");
    svg.text(left - 8, y.at(tick) + 4, text.format_y(tick), {.anchor = drawing::Anchor::end, .size = 11});
  }
  svg.line(left, kTop, left, bottom).line(left, bottom, left + kWidth, bottom);
  svg.text(left + kWidth / 2, bottom + 38, text.across, {.anchor = drawing::Anchor::middle});
  svg.text(left - 56, kTop + kHeight / 2, text.upwards, {.anchor = drawing::Anchor::middle, .upwards = true});
}

}  // namespace

std::string line_plot(const std::vector<PlotPanel>& panels, const PlotText& text) {
  Scale x(text.logarithmic_x, 0, kWidth);
  Scale y(text.logarithmic, kTop + kHeight, -kHeight);
  for (const PlotPanel& panel : panels)
    for (const Curve& curve : panel.curves)
      for (const auto& [across, upwards] : curve.points) x.include(across), y.include(upwards);
  if (x.empty()) throw ConfigError("a plot of no points: give some");
  const std::vector<Curve>& curves = panels.front().curves;
  const auto count = static_cast<double>(panels.size());
  const double legend = kTop + kHeight + kFoot;
  const std::size_t rows = (curves.size() + kLegendColumns - 1) / kLegendColumns;
  drawing::Svg svg(
      std::max(kLeft + count * kWidth + (count - 1) * kGap + 30, kLeft + kLegendColumns * kLegendColumn),
      legend + kLegendRow * static_cast<double>(rows) + 10, text.title);
  svg.text(kLeft, 26, text.title, {.size = 16});
  for (std::size_t i = 0; i < panels.size(); ++i) {
    const double left = kLeft + static_cast<double>(i) * (kWidth + kGap);
    svg.text(left, kTop - 14, panels[i].title, {.size = 14});
    draw_frame(svg, left, x, y, text);
    for (std::size_t j = 0; j < panels[i].curves.size(); ++j) {
      const Curve& curve = panels[i].curves[j];
      const std::string_view colour = drawing::kColours[j % drawing::kColours.size()];
      std::vector<std::pair<double, double>> points;
      for (const auto& [across, upwards] : curve.points)
        points.emplace_back(left + x.at(across), y.at(upwards));
      svg.polyline(points, colour, curve.dashed);
      for (const auto& [across, upwards] : points) svg.circle(across, upwards, 3, colour);
    }
  }
  for (std::size_t j = 0; j < curves.size(); ++j) {
    const double left = kLeft + kLegendColumn * static_cast<double>(j / rows);
    const double at = legend + kLegendRow * static_cast<double>(j % rows);
    svg.polyline({{left, at}, {left + 28, at}}, drawing::kColours[j % drawing::kColours.size()],
                 curves[j].dashed);
    svg.text(left + 36, at + 4, curves[j].name);
  }
  return std::move(svg).finish();
}

}  // namespace dear::study
