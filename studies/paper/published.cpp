#include "studies/paper/published.h"

#include <algorithm>
#include <set>
#include <string>

#include <fmt/format.h>

#include "dear/base/json/json_field.h"
#include "dear/base/os/atomic_file.h"
#include "dear/base/vocabulary/error.h"

namespace dear::studies {
namespace {

constexpr JsonFormat kFormat = {.name = "dear-published", .kind = "file of published figures"};
constexpr std::int64_t kMostCount = 1 << 20;  // ranks, samples

// Refuses what is there already: nobody could say which of both counts.
void require_new(const JsonField& field, std::set<std::string>& seen, const std::string& what) {
  if (!seen.insert(what).second) field.fail(fmt::format("there are two of {}: keep one", what));
}

double positive(const JsonField& field) {
  const double number = field.number_from_0();
  if (!(number > 0)) field.fail("expected a number above 0");
  return number;
}

}  // namespace

const PublishedJob& Published::job_of(const PublishedFigure& figure) const {
  const auto found = std::find_if(jobs.begin(), jobs.end(),
                                  [&](const PublishedJob& job) { return job.model == figure.model; });
  if (found == jobs.end())
    throw ConfigError(fmt::format("there is no job of model '{}': add it to the jobs", figure.model));
  return *found;
}

Published parse_published(std::string_view json, const std::string& name_of_source) {
  const Json document = parse_json_file(json, name_of_source, kFormat);
  const JsonField root(document, name_of_source);
  root.expect_members({"format", "version", "source", "ranks", "jobs", "figures", "iterations", "gains"});
  Published published{.source = root.member("source").text(),
                      .ranks = static_cast<int>(root.member("ranks").integer(1, kMostCount)),
                      .jobs = {},
                      .figures = {},
                      .iterations = {},
                      .gains = {}};
  std::set<std::string> jobs, figures, gains;
  for (const JsonField& job : root.member("jobs").elements()) {
    job.expect_members({"model", "batch", "alone_seconds"});
    published.jobs.push_back({.model = job.member("model").text(),
                              .batch = job.member("batch").integer(1, kMostCount),
                              .alone_seconds = positive(job.member("alone_seconds"))});
    require_new(job, jobs, fmt::format("model '{}'", published.jobs.back().model));
  }
  for (const JsonField& figure : root.member("figures").elements()) {
    figure.expect_members({"model", "cluster", "method", "policy", "fusion", "samples_per_second"});
    published.figures.push_back({.model = figure.member("model").text(),
                                 .cluster = figure.member("cluster").text(),
                                 .method = figure.member("method").text(),
                                 .policy = figure.member("policy").text(),
                                 .fusion = figure.member("fusion").text(),
                                 .samples_per_second = positive(figure.member("samples_per_second"))});
    const PublishedFigure& read = published.figures.back();
    require_new(figure, figures,
                fmt::format("'{}' of model '{}' on cluster '{}'", read.method, read.model, read.cluster));
    try {
      (void)published.job_of(published.figures.back());
    } catch (const ConfigError& error) {
      figure.member("model").fail(error.what());
    }
  }
  for (const JsonField& iteration : root.member("iterations").elements()) {
    iteration.expect_members({"model", "cluster", "ranks", "method", "policy", "seconds", "source"});
    published.iterations.push_back(
        {.model = iteration.member("model").text(),
         .cluster = iteration.member("cluster").text(),
         .ranks = static_cast<int>(iteration.member("ranks").integer(1, kMostCount)),
         .method = iteration.member("method").text(),
         .policy = iteration.member("policy").text(),
         .seconds = positive(iteration.member("seconds")),
         .source = iteration.member("source").text()});
  }
  for (const JsonField& gain : root.member("gains").elements()) {
    gain.expect_members({"cluster", "largest"});
    published.gains.push_back(
        {.cluster = gain.member("cluster").text(), .largest = positive(gain.member("largest"))});
    require_new(gain, gains, fmt::format("cluster '{}'", published.gains.back().cluster));
  }
  return published;
}

Published read_published(const std::string& path) { return parse_published(os::read_file(path), path); }

}  // namespace dear::studies
