#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/error.h"
#include "dear/drawing/bar_chart.h"
#include "dear/drawing/svg.h"

namespace dear::drawing::drawing_test {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(Svg, HoldsWhatWasDrawn) {
  Svg svg(100, 50, "a < b & c");
  svg.text(1, 2, "x > y", {.anchor = Anchor::end, .size = 10, .upwards = true})
      .line(0, 0, 10, 10, "red", 2)
      .rectangle(1, 2, 3, 4, "blue", "a <hint>")
      .circle(5, 5, 3, "green")
      .polygon({{0, 1}, {2, 3}, {4, 0}}, "#eee")
      .polyline({{0, 1}, {2, 3}}, "black", true);
  const std::string text = std::move(svg).finish();
  EXPECT_THAT(text, StartsWith("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"100\" height=\"50\""));
  EXPECT_THAT(text, EndsWith("</svg>\n"));
  EXPECT_THAT(text, HasSubstr("<title>a &lt; b &amp; c</title>"));
  EXPECT_THAT(text,
              HasSubstr("text-anchor=\"end\" font-size=\"10\" transform=\"rotate(-90 1.0 2.0)\">x &gt; y<"));
  EXPECT_THAT(text, HasSubstr("stroke=\"red\" stroke-width=\"2\"/>"));
  EXPECT_THAT(text, HasSubstr("fill=\"blue\"><title>a &lt;hint&gt;</title></rect>"));
  EXPECT_THAT(text, HasSubstr("<polygon points=\"0.0,1.0 2.0,3.0 4.0,0.0\" fill=\"#eee\"/>"));
  EXPECT_THAT(text, HasSubstr("points=\"0.0,1.0 2.0,3.0\""));
  EXPECT_THAT(text, HasSubstr("stroke-dasharray"));
}

BarChartText words() {
  return {
      .title = "times", .first = "work", .second = "waiting", .mark = "bound", .format = [](double value) {
        return fmt::format("{:g} s", value);
      }};
}

// The longest bar fills the field of 210 points, the others are in proportion.
TEST(BarChart, BarsAreInProportion) {
  const std::string text = bar_chart(
      {{.title = "one", .bars = {{"long", 3, 1, 2}, {"short", 1, 0, 0}}}, {.title = "two", .bars = {}}},
      words());
  EXPECT_THAT(text, HasSubstr("width=\"157.5\" height=\"13.0\" fill=\"#0072b2\"><title>work: 3 s</title>"));
  EXPECT_THAT(text, HasSubstr("width=\"52.5\" height=\"13.0\" fill=\"#e69f00\"><title>waiting: 1 s</title>"));
  EXPECT_THAT(text, HasSubstr("width=\"52.5\" height=\"13.0\" fill=\"#0072b2\"><title>work: 1 s</title>"));
  EXPECT_THAT(text, HasSubstr(">4 s</text>"));
  EXPECT_THAT(text, Not(HasSubstr("nan")));
}

TEST(BarChart, NothingToDraw) {
  EXPECT_THROW(bar_chart({}, words()), ConfigError);
  EXPECT_THROW(bar_chart({{.title = "empty", .bars = {}}}, words()), ConfigError);
  EXPECT_THAT(bar_chart({{.title = "zero", .bars = {{"a", 0, 0, 0}}}}, words()), Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace dear::drawing::drawing_test
