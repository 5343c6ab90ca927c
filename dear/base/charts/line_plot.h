#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace dear::charts {

// Values against an axis. Curves of one name look alike and stand in the legend once.
struct Curve {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x ascending
  bool dashed = false;
  std::vector<std::pair<double, double>> intervals{};  // of y, by point; empty for none
  bool marked = true;                                  // by markers, at some points where there are many
};

struct PlotPanel {
  std::string title;
  std::vector<Curve> curves;
  std::string across{};  // the horizontal axis, where it is another than that of the text, with its own scale
};

struct PlotText {
  std::string title;
  std::string across, upwards;  // what the axes are, with their units
  bool logarithmic = false;     // of y; points that are not above 0 are left out then
  bool logarithmic_x = true;    // likewise
  std::function<std::string(double)> format_x, format_y;
  std::string intervals{};  // what intervals are, for the legend
  std::size_t columns = 0;  // panels beside each other; 0 for all
};

// Panels in rows. Those of one row share the scale of y; those with the same horizontal axis share that of x,
// in a row if `columns` is given. One legend tells the curves by colour, marker and dashes. SVG. ConfigError
// where there is no point.
std::string line_plot(const std::vector<PlotPanel>& panels, const PlotText& text);

}  // namespace dear::charts
