#include <map>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/charts/bar_chart.h"
#include "dear/base/charts/layout.h"
#include "dear/base/charts/svg.h"
#include "dear/base/vocabulary/error.h"

namespace dear::charts::drawing_test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;
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
  EXPECT_THAT(
      text,
      HasSubstr(
          "width=\"52.5\" height=\"13.0\" fill=\"url(#pattern-1-e69f00)\"><title>waiting: 1 s</title>"));
  EXPECT_THAT(text, HasSubstr("width=\"52.5\" height=\"13.0\" fill=\"#0072b2\"><title>work: 1 s</title>"));
  EXPECT_THAT(text, HasSubstr(">4 s</text>"));
  EXPECT_THAT(text, Not(HasSubstr("nan")));
}

// The interval ends where its axis does, at 5 s, and stands in the legend and beside the value.
TEST(BarChart, ShowsIntervalsWhereThereAreSome) {
  BarChartText text = words();
  text.interval = "interval of 95 %";
  const std::string with = bar_chart({{.title = "one", .bars = {{"a", 3, 1, 0, 1}, {"b", 2, 0, 0}}}}, text);
  EXPECT_THAT(with,
              HasSubstr("<line x1=\"218.0\" y1=\"134.5\" x2=\"302.0\" y2=\"134.5\" stroke=\"black\"/>"));
  EXPECT_THAT(with, HasSubstr(">4 s ± 1 s<"));
  EXPECT_THAT(with, HasSubstr(">interval of 95 %<"));
  EXPECT_THAT(bar_chart({{.title = "one", .bars = {{"b", 2, 0, 0}}}}, text), Not(HasSubstr("interval")));
}

TEST(Svg, PatternsAreDefinedOnceAndOverrideNothingElse) {
  Svg svg(9, 9, "");
  svg.rectangle(0, 0, 1, 1, "#e69f00", "", Pattern::rising)
      .rectangle(2, 0, 1, 1, "#e69f00", "", Pattern::rising);
  svg.rectangle(4, 0, 1, 1, "#e69f00", "", Pattern::falling).rectangle(6, 0, 1, 1, "#e69f00");
  const std::string text = std::move(svg).finish();
  std::map<std::string, int> uses;
  const std::regex use("(<pattern id=\"|url\\(#)([^\")]*)");
  for (std::sregex_iterator each(text.begin(), text.end(), use), end; each != end; ++each) ++uses[(*each)[0]];
  EXPECT_THAT(uses, ElementsAre(Pair(HasSubstr("<pattern"), 1), Pair(HasSubstr("<pattern"), 1),
                                Pair(HasSubstr("url"), 2), Pair(HasSubstr("url"), 1)));
  EXPECT_THAT(text, HasSubstr("prefers-color-scheme: dark"));
}

TEST(BarChart, NothingToDraw) {
  EXPECT_THROW(bar_chart({}, words()), ConfigError);
  EXPECT_THROW(bar_chart({{.title = "empty", .bars = {}}}, words()), ConfigError);
  EXPECT_THAT(bar_chart({{.title = "zero", .bars = {{"a", 0, 0, 0}}}}, words()), Not(HasSubstr("nan")));
}

TEST(BarChart, PanelsShareAScaleThatHasNumbers) {
  const std::string text = bar_chart(
      {{.title = "one", .bars = {{"a", 3, 1, 0}}}, {.title = "two", .bars = {{"b", 2, 0, 0}}}}, words());
  EXPECT_THAT(text, HasSubstr("width=\"105.0\" height=\"13.0\" fill=\"#0072b2\"><title>work: 2 s</title>"));
  for (const char* const tick : {">0 s<", ">2 s<", ">4 s<"}) EXPECT_THAT(text, HasSubstr(tick));
  EXPECT_THAT(text, Not(HasSubstr("gap")));
}

TEST(BarChart, RowsOfPanelsHaveScalesWhereOneWouldSqueezeTheRest) {
  std::vector<BarPanel> panels;
  for (const double seconds : {1.0, 1.0, 1.0, 100.0, 50.0})
    panels.push_back({.title = "panel", .bars = {{"bar", seconds, 0, 0}}});
  const std::string text = bar_chart(panels, words());
  EXPECT_THAT(text, HasSubstr("width=\"210.0\" height=\"13.0\" fill=\"#0072b2\"><title>work: 1 s</title>"));
  EXPECT_THAT(text, HasSubstr("width=\"105.0\" height=\"13.0\" fill=\"#0072b2\"><title>work: 50 s</title>"));
  EXPECT_THAT(text, HasSubstr("panels beside each other have one scale"));
}

TEST(BarChart, ABarThatWouldSqueezeTheRestHasAGap) {
  const std::string text =
      bar_chart({{.title = "one", .bars = {{"a", 1, 0, 0}, {"b", 2, 0, 0}, {"c", 100, 0, 0}}}}, words());
  EXPECT_THAT(text, HasSubstr("width=\"70.0\" height=\"13.0\" fill=\"#0072b2\"><title>work: 2 s</title>"));
  EXPECT_THAT(text, HasSubstr("longer than their axis"));
  EXPECT_THAT(text, HasSubstr(">100 s</text>"));
}

TEST(BarChart, LongWordsStayOnThePicture) {
  BarChartText text = words();
  text.title = text.first =
      "quite many words that stand in one line where there is room for them, or in more of them";
  const std::string svg = bar_chart(
      {{.title = "one", .bars = {{"a policy with a rather long name, planned, in two dimensions", 1, 0, 0}}}},
      text);
  std::smatch size;
  ASSERT_TRUE(std::regex_search(svg, size, std::regex("width=\"([0-9.]+)\"")));
  const double width = std::stod(size[1]);
  const std::regex words(
      "<text x=\"([0-9.]+)\" y=\"[0-9.]+\" text-anchor=\"(\\w+)\"(?: font-size=\"(\\d+)\")?>([^<]*)<");
  int texts = 0;
  for (std::sregex_iterator each(svg.begin(), svg.end(), words); each != std::sregex_iterator();
       ++each, ++texts) {
    const double x = std::stod((*each)[1]);
    const double wide = text_width((*each)[4].str(), (*each)[3].matched ? std::stoi((*each)[3]) : 13);
    const double left = (*each)[2] == "start" ? x : (*each)[2] == "end" ? x - wide : x - wide / 2;
    EXPECT_GE(left, 0) << (*each)[4];
    EXPECT_LE(left + wide, width) << (*each)[4];
  }
  EXPECT_GT(texts, 6);
}

TEST(Layout, WrapsBetweenWords) {
  EXPECT_THAT(wrapped("one two three", 10, text_width("one two", 10)), ElementsAre("one two", "three"));
  EXPECT_THAT(wrapped("incomprehensibilities a", 10, 20), ElementsAre("incomprehensibilities", "a"));
  EXPECT_THAT(wrapped("", 10, 20), ElementsAre(""));
  EXPECT_DOUBLE_EQ(text_width("\xc2\xb5"), text_width("m"));  // one letter
}

TEST(Layout, FlowsInRows) {
  const Flow rows = flow({30, 40, 50, 200}, 100, 20);
  EXPECT_THAT(rows.places, ElementsAre(Pair(0, 0), Pair(30, 0), Pair(0, 20), Pair(0, 40)));
  EXPECT_EQ(rows.height, 60);
  EXPECT_EQ(flow({}, 100, 20).height, 0);
}

TEST(Layout, AxesEndAtTheLongestUnlessItSqueezesTheRest) {
  EXPECT_EQ(end_of_axis({1, 2, 6}), 6);
  EXPECT_EQ(end_of_axis({1, 2, 10}), 10);
  EXPECT_EQ(end_of_axis({1, 2, 11}), 6);
  EXPECT_EQ(end_of_axis({0, 0}), 0);
  EXPECT_EQ(round_step(0.3), 0.5);
  EXPECT_EQ(round_step(0), 0);
}

TEST(Svg, SeriesHaveMarkersOfTheirOwn) {
  std::vector<std::string> shapes;
  for (std::size_t series = 0; series < kColours.size(); ++series) {
    Svg svg(9, 9, "");
    svg.marker(series, 4, 4, 3, "black");
    const std::string shape = std::move(svg).finish();
    EXPECT_THAT(shapes, Not(Contains(shape)));
    shapes.push_back(shape);
  }
}

}  // namespace
}  // namespace dear::charts::drawing_test
