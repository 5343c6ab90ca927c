#pragma once

#include "studies/report/statement.h"
#include "studies/report/study_file.h"
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// This study puts what was published of PARTEL (Wen, Bennis and Huang 2020, arXiv 2003.04544) beside plans of
// methods/edge in cells that are drawn.
namespace dear::studies::edge {

struct PublishedPartel {
  std::string source;
  double less_latency = 0;   // share of an iteration, beside equal parts
  double more_accuracy = 0;  // at the deadline
  double deadline_seconds = 0;
};
// ConfigError for what is not such a file.
PublishedPartel parse_published_partel(std::string_view text, const std::string& source);
PublishedPartel read_published_partel(const std::string& path);

struct PartelOptions {
  int seeds = 25;
  int trained = 5;  // of the seeds, also to the deadline
};

// Mean seconds of an iteration over seeds, by scheme, of so many groups.
struct PartelCell {
  int groups = 0, workers = 0;
  std::vector<double> seconds;     // by scheme, as paba_schemes() has them
  double less = 0;                 // median over seeds of the share that joint allocation saves
  std::vector<double> half_width;  // of their 95 % intervals
};
struct PartelPlan {  // of one seed
  std::vector<double> seconds;
  double gap = 0, residual = 0;
};
struct PartelFindings {
  std::vector<PartelCell> cells;
  std::vector<PartelPlan> plans;
  std::vector<std::vector<double>> accuracies;  // by seed and scheme, at the deadline
};
PartelFindings find_partel(const PublishedPartel& published, const PartelOptions& options);
std::vector<Statement> statements_of(const PublishedPartel& published, const PartelFindings& findings);
// README.md, a picture and results.json.
std::vector<StudyFile> study_of_partel(const PublishedPartel& published, const PartelOptions& options);

}  // namespace dear::studies::edge
