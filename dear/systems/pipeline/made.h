#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dear/systems/pipeline/means.h"
#include "dear/systems/pipeline/parameters.h"
#include "dear/systems/pipeline/pipeline.h"
#include "dear/systems/pipeline/run.h"
#include "dear/systems/pipeline/wire.h"

namespace dear::systems::pipeline {

// A pipeline as its ranks have agreed upon it.
struct Made {
  Group group;
  Job job;
  std::string plan;
  double predicted_seconds = 0;
  std::vector<SampledTensor> batch;  // whole, by tensor
  bool record_trace = false;
  std::optional<Parameters> parameters{};
  std::optional<Wire> wire{};
  std::optional<Means> means{};  // of replicas
  PipelineStatistics statistics{};
  std::vector<Span> spans{};
  std::string broken{};  // why it failed; "" while all is well
};

std::unique_ptr<Made> make(const PipelineModel& model, const Tensors& sample, const Group& group,
                           const PipelineOptions& options);

// ConfigError on every rank where one has a reason to refuse; `mine` is "" for none. Collective.
void refuse_together(const Group& group, const std::string& mine);

}  // namespace dear::systems::pipeline
