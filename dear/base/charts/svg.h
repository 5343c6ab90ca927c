#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Pictures as SVG that need nothing but themselves to be shown.
namespace dear::charts {

// Told apart by most eyes, also without red and green (Okabe and Ito 2008).
inline constexpr std::array<std::string_view, 8> kColours{"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                          "#e69f00", "#56b4e9", "#000000", "#999999"};

// Colours of what frames data. A viewer that prefers dark pictures gets darker or lighter ones for them, for
// black and for white; see Svg.
inline constexpr std::string_view kRule = "#dddddd";       // a line at a tick
inline constexpr std::string_view kFaintRule = "#eeeeee";  // a line between ticks; an empty row
inline constexpr std::string_view kFrame = "#888888";      // an axis
inline constexpr std::string_view kMuted = "#555555";      // words that say less
inline constexpr std::string_view kIdle = "#cccccc";       // time in which nothing is done
inline constexpr std::string_view kBand = "#cfe3f1";       // an area around a curve

// The colour of words on an area of `colour`, one of kColours, on light and on dark pictures.
std::string_view ink_on(std::string_view colour);

// White lines or dots on an area, so that areas differ also without colours.
enum class Pattern : std::uint8_t { solid, rising, falling, dotted, crossed, upright, level };

enum class Anchor : std::uint8_t { start, middle, end };

struct TextStyle {
  Anchor anchor = Anchor::start;
  int size = 13;
  bool upwards = false;  // turned by a right angle
  std::string_view colour = "black";
};

// A white sheet of points that things are drawn on, from the top left corner; later ones cover earlier ones.
// A style in it darkens the sheet, and lightens what is black, for viewers that prefer dark pictures.
class Svg {
 public:
  Svg(double width, double height, std::string_view title);

  Svg& text(double x, double y, std::string_view words, const TextStyle& style = {});
  Svg& line(double x1, double y1, double x2, double y2, std::string_view colour = "black", double width = 1);
  // A tooltip shows `hint` where it is not empty.
  Svg& rectangle(double x, double y, double width, double height, std::string_view colour,
                 std::string_view hint = "", Pattern pattern = Pattern::solid);
  Svg& circle(double x, double y, double radius, std::string_view colour);
  // Draws a marker whose shape tells the series: four shapes, filled and then hollow, so that series differ
  // also without colours.
  Svg& marker(std::size_t series, double x, double y, double radius, std::string_view colour);
  Svg& polyline(const std::vector<std::pair<double, double>>& points, std::string_view colour,
                bool dashed = false);
  // From one end of an interval to the other, upright or level, with a bar across each end.
  Svg& interval(double x1, double y1, double x2, double y2, std::string_view colour = "black");
  Svg& polygon(const std::vector<std::pair<double, double>>& points, std::string_view colour);

  [[nodiscard]] std::string finish() &&;

 private:
  std::string text_;
  std::map<std::string, std::string> patterns_;  // their definitions, by name
};

}  // namespace dear::charts
