#include "dear/base/charts/line_plot.h"

#include <cmath>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"

namespace dear::charts::line_plot_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

PlotText text() {
  return {.title = "Title",
          .across = "across",
          .upwards = "upwards",
          .format_x = [](double x) { return fmt::format("x{:g}", x); },
          .format_y = [](double y) { return fmt::format("y{:g}", y); }};
}

TEST(LinePlot, ShowsEveryCurveAndRefusesNone) {
  const std::string svg =
      line_plot({{.title = "one", .curves = {{.name = "curve", .points = {{1, 2}, {10, 3}}}}}}, text());
  for (const char* const word : {"Title", "across", "upwards", "one", "curve", "</svg>"})
    EXPECT_THAT(svg, HasSubstr(word));
  EXPECT_THAT([&] { line_plot({{.title = "", .curves = {}}}, text()); },
              ThrowsMessage<ConfigError>(HasSubstr("points")));
}

TEST(LinePlot, HasRoundNumbersOnLinearScalesAndPowersOfTenOnOthers) {
  PlotText linear = text();
  linear.logarithmic_x = false;
  const std::vector<PlotPanel> panels = {
      {.title = "", .curves = {{.name = "curve", .points = {{0.7, -0.1}, {8.3, 0.9}}}}}};
  const std::string svg = line_plot(panels, linear);
  for (const char* const tick : {">x1<", ">x2<", ">x5<", ">x8<", ">y0<", ">y0.2<", ">y0.8<"})
    EXPECT_THAT(svg, HasSubstr(tick));
  for (const char* const none : {">x0<", ">x9<", ">x1.5<", ">y-0<", ">y0.1<", ">y1<"})
    EXPECT_THAT(svg, Not(HasSubstr(none)));
  EXPECT_THAT(line_plot(panels, text()), HasSubstr(">x1<"));
  // An axis of one value has one tick.
  EXPECT_THAT(line_plot({{.title = "", .curves = {{.name = "point", .points = {{1, 5}}}}}}, linear),
              HasSubstr(">y5<"));
}

// A step of such an axis is less than what a number of this size can tell apart, or more than any number.
TEST(LinePlot, AxesEndWhateverTheNumbers) {
  PlotText linear = text();
  linear.logarithmic_x = false;
  for (const auto& [one, other] : {std::pair{1e20, std::nextafter(1e20, 2e20)}, {-1e308, 1e308}})
    EXPECT_THAT(
        line_plot({{.title = "", .curves = {{.name = "curve", .points = {{0, one}, {1, other}}}}}}, linear),
        HasSubstr("</svg>"));
}

TEST(LinePlot, PointsWithoutALogarithmAreLeftOut) {
  PlotText logarithmic = text();
  logarithmic.logarithmic = true;
  const std::string svg =
      line_plot({{.title = "", .curves = {{.name = "curve", .points = {{1, 2}, {2, 0}, {3, -1}, {4, 20}}}}}},
                logarithmic);
  for (const char* const none : {"inf", "nan"}) EXPECT_THAT(svg, Not(HasSubstr(none)));
  EXPECT_THAT(svg, HasSubstr(">y10<"));
  EXPECT_THROW(line_plot({{.title = "", .curves = {{.name = "curve", .points = {{1, 0}}}}}}, logarithmic),
               ConfigError);
}

TEST(LinePlot, CurvesDifferWithoutColours) {
  const std::string svg = line_plot({{.title = "one",
                                      .curves = {{.name = "first", .points = {{1, 2}, {10, 3}}},
                                                 {.name = "second", .points = {{1, 3}, {10, 4}}}}}},
                                    text());
  EXPECT_THAT(svg, HasSubstr("<circle"));
  EXPECT_THAT(svg, HasSubstr("height=\"6\" class=\"marker\""));
}

TEST(LinePlot, PanelsWithAnAxisOfTheirOwnHaveAScaleOfTheirOwn) {
  PlotText linear = text();
  linear.logarithmic_x = false;
  linear.intervals = "what an interval is";
  const Curve same{.name = "curve", .points = {{0, 1}, {2, 3}}, .intervals = {{0, 2}, {3, 3}}};
  const std::string svg = line_plot(
      {{.title = "one", .curves = {same}},
       {.title = "two", .curves = {{.name = "curve", .points = {{0, 1}, {700, 3}}}}, .across = "own"}},
      linear);
  for (const char* const word : {">across<", ">own<", ">x2<", ">x700<", ">what an interval is<", ">y0<"})
    EXPECT_THAT(svg, HasSubstr(word));
  EXPECT_EQ(svg.find(">curve<"), svg.rfind(">curve<"));  // once, in the legend
}

TEST(LinePlot, LogarithmicScalesOfLessThanTwoDecadesHaveTicks) {
  const std::string svg =
      line_plot({{.title = "", .curves = {{.name = "curve", .points = {{3, 1}, {30, 1}}}}}}, text());
  for (const char* const tick : {">x5<", ">x10<", ">x20<"}) EXPECT_THAT(svg, HasSubstr(tick));
}

TEST(LinePlot, GrowsWithItsWords) {
  const auto width = [](const std::string& svg) { return std::stod(svg.substr(svg.find("width=\"") + 7)); };
  const std::string name(200, 'm');
  EXPECT_GT(width(line_plot({{.title = "", .curves = {{.name = name, .points = {{1, 2}}}}}}, text())), 2600);
  EXPECT_GT(width(line_plot({{.title = name, .curves = {{.name = "curve", .points = {{1, 2}}}}}}, text())),
            2800);
}

}  // namespace
}  // namespace dear::charts::line_plot_test
