#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace dear::study {

struct Curve {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x ascending
  bool dashed = false;
};

struct PlotPanel {
  std::string title;
  std::vector<Curve> curves;
};

struct PlotText {
  std::string title;
  std::string across, upwards;  // what the axes are
  bool logarithmic = false;     // of y, which is then above 0
  bool logarithmic_x = true;    // likewise
  std::function<std::string(double)> format_x, format_y;
};

// Panels beside each other, with the same scales, whose curves have the same names in the same order: one
// legend tells them. SVG. ConfigError where there is no point.
std::string line_plot(const std::vector<PlotPanel>& panels, const PlotText& text);

}  // namespace dear::study
