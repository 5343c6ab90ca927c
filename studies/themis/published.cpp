#include "studies/themis/published.h"

#include "dear/base/json/json_field.h"
#include "dear/base/os/atomic_file.h"
#include "dear/platform/cost/chunk_planner.h"

namespace dear::studies::themis {
namespace {

constexpr JsonFormat kThemisFormat = {.name = "dear-published-themis", .kind = "file of figures of Themis"};

double above_zero(const JsonField& field) {
  const double number = field.number_from_0();
  if (!(number > 0)) field.fail("expected a number above 0");
  return number;
}

std::string planner(const JsonField& field) {
  std::string name = field.text();
  if (!cost::is_chunk_planner(name))
    field.fail("expected an algorithm that goes in chunks, such as themis-scf");
  return name;
}

}  // namespace

PublishedThemis parse_published_themis(std::string_view text, const std::string& source) {
  const Json document = parse_json_file(text, source, kThemisFormat);
  const JsonField root(document, source);
  root.expect_members({"format", "version", "source", "utilisation", "gains", "iterations"});
  PublishedThemis published{
      .source = root.member("source").text(), .utilisation = {}, .gains = {}, .iterations = {}};
  for (const JsonField& one : root.member("utilisation").elements()) {
    one.expect_members({"algorithm", "mean"});
    published.utilisation.push_back(
        {.algorithm = planner(one.member("algorithm")), .mean = above_zero(one.member("mean"))});
  }
  for (const JsonField& one : root.member("gains").elements()) {
    one.expect_members({"algorithm", "mean"}, {"largest"});
    published.gains.push_back({.algorithm = planner(one.member("algorithm")),
                               .mean = above_zero(one.member("mean")),
                               .largest = one.has("largest") ? above_zero(one.member("largest")) : 0});
  }
  for (const JsonField& one : root.member("iterations").elements()) {
    one.expect_members({"model", "gain", "largest", "ideal"});
    published.iterations.push_back({.model = one.member("model").text(),
                                    .gain = above_zero(one.member("gain")),
                                    .largest = above_zero(one.member("largest")),
                                    .ideal = above_zero(one.member("ideal"))});
  }
  return published;
}

PublishedThemis read_published_themis(const std::string& path) {
  return parse_published_themis(os::read_file(path), path);
}

}  // namespace dear::studies::themis
