#pragma once

#include <functional>
#include <string>
#include <vector>

namespace dear::charts {

// A value made of two parts, one after the other, the interval in which it lies, and a mark on the same
// scale.
struct Bar {
  std::string label;
  double first = 0;
  double second = 0;
  double mark = 0;        // none where it is 0
  double half_width = 0;  // of the interval around first + second; likewise
};

// Bars below each other, on one scale.
struct BarPanel {
  std::string title;
  std::vector<Bar> bars;
};

struct BarChartText {
  std::string title;
  std::string first;                          // what the parts, the mark and the interval are, for the legend
  std::string second;                         // empty where no bar has a second part
  std::string mark;                           // likewise
  std::string interval{};                     // in the legend where a bar has one
  std::function<std::string(double)> format;  // of a value
};

// Panels of horizontal bars, two or three beside each other. They share one scale, or one for each row of
// panels where the longest bar of one panel is less than a fifth of another's. An axis ends at
// end_of_axis() (base/charts/layout.h); longer bars have a gap, and the legend says so. Second parts are
// hatched, so that they differ also without colours. ConfigError when there is no bar.
std::string bar_chart(const std::vector<BarPanel>& panels, const BarChartText& text);

}  // namespace dear::charts
