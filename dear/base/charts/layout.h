#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Where words and numbers go on a picture, so that none leaves it.
namespace dear::charts {

inline constexpr double kMargin = 24;  // around a chart or plot
inline constexpr int kTitleSize = 16;
inline constexpr double kTitleRow = 20;  // the height of each line of a title

// About the width of `words` (UTF-8) in a sans-serif font of `size` points; rather too wide than too narrow.
double text_width(std::string_view words, int size = 13);

// Lines of whole words of `text`, none wider than `width` unless one word alone is. One line at least.
std::vector<std::string> wrapped(std::string_view text, int size, double width);

struct Flow {
  std::vector<std::pair<double, double>> places;  // from (0, 0), as (x, y)
  double height = 0;                              // of all rows
};

// Items of such widths beside each other, in rows of `row` points that are at most `width` wide.
Flow flow(const std::vector<double>& widths, double width, double row);

// The least of 1, 2, 2.5, 5 times a power of ten that is not below `step`; 0 for a step that is not above 0.
double round_step(double step);

// Where an axis of bars that begins at 0 ends: at the longest, unless that is more than 5 times the median,
// so that it would squeeze the rest: then at 3 times the median. 0 where no value is above 0.
double end_of_axis(std::vector<double> values);

}  // namespace dear::charts
