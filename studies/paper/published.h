#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dear::studies {

// A job as its authors ran it, on every rank.
struct PublishedJob {
  std::string model;  // of the zoo
  std::int64_t batch = 1;
  double alone_seconds = 0;  // an iteration on one rank
};

// A throughput that somebody measured and published.
struct PublishedFigure {
  std::string model;
  std::string cluster;            // a preset
  std::string method;             // as its authors call it
  std::string policy;             // that stands for it
  std::string fusion;             // "tensor": each by itself; else as FusionChoice reads it
  double samples_per_second = 0;  // of all ranks together
};

// An iteration that somebody measured and published, of a model with the zoo's own batch.
struct PublishedIteration {
  std::string model;
  std::string cluster;  // a preset
  int ranks = 1;
  std::string method;
  std::string policy;
  double seconds = 0;
  std::string source{};  // who published it, of what
};

// The largest gain over the state of the art that is claimed for DeAR on a cluster: 0.83 is 83 %.
struct PublishedGain {
  std::string cluster;
  double largest = 0;
};

// Everything that a study takes from papers. docs/study/published.json is the one place of these numbers.
struct Published {
  std::string source;
  int ranks = 1;  // of every figure
  std::vector<PublishedJob> jobs;
  std::vector<PublishedFigure> figures;
  std::vector<PublishedIteration> iterations;
  std::vector<PublishedGain> gains;

  [[nodiscard]] const PublishedJob& job_of(const PublishedFigure& figure) const;
};

// ConfigError with file and place for what is no such file, for a figure of a model without a job, and for
// two jobs of one model, figures of one method on it and a cluster, or gains on a cluster.
Published read_published(const std::string& path);
Published parse_published(std::string_view json, const std::string& name_of_source);

}  // namespace dear::studies
