#include "dear/systems/pipeline/pipeline.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/counted.h"
#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/comm/group/exchange.h"
#include "dear/systems/pipeline/made.h"
#include "dear/systems/pipeline/saved.h"

namespace dear {
namespace {

using systems::pipeline::Job;
using systems::pipeline::Made;
using systems::pipeline::SampledTensor;
using systems::pipeline::Stage;

std::string shape_of(const torch::Tensor& tensor) {
  return fmt::format("[{}] of {}", fmt::join(tensor.sizes(), ", "), c10::toString(tensor.scalar_type()));
}

// What is wrong with the arguments of a step on this rank; "" for nothing.
std::string refusal_of(const Made& made, const PipelineModel::Tensors& batch, const torch::Tensor& targets) {
  const Job& job = made.job;
  for (const Stage& stage : job.stages.stages) {
    if (stage.rank != job.rank) continue;
    for (std::int64_t op = stage.operators.begin; op < stage.operators.end; ++op) {
      const PipelineModel::Operator& one = job.model.operators()[static_cast<std::size_t>(op)];
      for (const PipelineModel::Value& input : one.inputs) {
        if (input.maker >= 0) continue;
        const SampledTensor& like = made.batch[index_of(input.index)];
        const bool is_there = input.index < std::ssize(batch) && batch[index_of(input.index)].defined();
        if (is_there && like.is_like(batch[index_of(input.index)])) continue;
        return fmt::format(
            "rank {}: tensor {} of the batch, which operator '{}' reads, is {}, where the sample was [{}] of "
            "{}: "
            "give every step a batch like the sample",
            job.rank, input.index, one.name, is_there ? shape_of(batch[index_of(input.index)]) : "not there",
            fmt::join(like.sizes, ", "), c10::toString(like.type));
      }
    }
  }
  if (job.stages.stages.back().rank != job.rank) return "";
  const std::int64_t samples = made.batch.front().sizes.front();
  if (targets.defined() && targets.dim() > 0 && targets.size(0) == samples) return "";
  return fmt::format("rank {}: targets are {}, and the batch has {}: give one row for each", job.rank,
                     targets.defined() ? shape_of(targets) : "not there",
                     counted(static_cast<std::size_t>(samples), "sample"));
}

PipelineModel::Tensors parts_of(const torch::Tensor& tensor, int micro_batches) {
  if (!tensor.defined() || tensor.dim() == 0) return {};
  return tensor.chunk(micro_batches);
}

// Does what all ranks do together while this one waits for no operator. An error of another rank says so.
template <typename Act>
auto while_idle(const Made& made, std::string_view what, const Act& act) {
  const auto said = [&](const std::exception& error) {
    return fmt::format(
        "rank {}: it had done its part of the steps before and waited for no operator, but for {}: {}",
        made.job.rank, what, error.what());
  };
  try {
    return act();
  } catch (const TimeoutError& error) {
    throw TimeoutError(said(error));
  } catch (const TransportError& error) {
    throw TransportError(said(error));
  }
}

}  // namespace

Pipeline::Pipeline(const PipelineModel& model, const Tensors& sample, const Group& group,
                   const PipelineOptions& options)
    : made_(systems::pipeline::make(model, sample, group, options)) {}
Pipeline::Pipeline(Pipeline&&) noexcept = default;
Pipeline::~Pipeline() = default;

double Pipeline::step(const Tensors& batch, const torch::Tensor& targets, const Loss& loss) {
  Made& made = *made_;
  const Job& job = made.job;
  if (!made.broken.empty())
    throw TransportError(
        fmt::format("rank {}: the pipeline failed in an earlier step: {}", job.rank, made.broken));
  try {
    while_idle(made, "the others to begin the next step",
               [&] { systems::pipeline::refuse_together(made.group, refusal_of(made, batch, targets)); });
  } catch (const ConfigError&) {  // all ranks can go on
    throw;
  } catch (const std::exception& error) {
    made.broken = error.what();
    throw;
  }
  try {
    const double begin = now_seconds();
    std::vector<Tensors> batches;
    for (const torch::Tensor& one : batch) batches.push_back(parts_of(one, job.micro_batches));
    const Tensors parts = parts_of(targets, job.micro_batches);
    const auto loss_of = [&](const torch::Tensor& output, int micro_batch) {
      const torch::Tensor value = loss(output, parts.at(index_of(micro_batch)));
      if (!value.defined() || value.numel() != 1 || !value.requires_grad())
        throw ConfigError(
            fmt::format("rank {}: the loss of micro-batch {} is no tensor of one element that depends on the "
                        "model's output: "
                        "return a mean over samples",
                        job.rank, micro_batch));
      return value / job.micro_batches;
    };
    std::vector<Span> spans;
    const auto computed = [&](std::optional<int> stage) {
      if (made.means) made.means->start(stage);
    };
    systems::pipeline::Run run(job, *made.wire, batches, loss_of, computed,
                               made.record_trace ? &spans : nullptr);
    const Tensors earlier = made.parameters->put_aside();
    run.run();
    made.parameters->add_tied(*made.wire);
    computed(std::nullopt);
    if (made.means) while_idle(made, "gradients of its replicas", [&] { made.means->finish(); });
    made.parameters->add_earlier(earlier);
    made.statistics.seconds = now_seconds() - begin;
    made.statistics.bytes_sent = made.wire->bytes_sent();
    made.statistics.waited_seconds = 0;
    for (Span& span : spans) {
      if (span.activity == Activity::wait)
        made.statistics.waited_seconds += span.end_seconds - span.begin_seconds;
      span.iteration = made.statistics.steps;
      made.spans.push_back(std::move(span));
    }
    ++made.statistics.steps;
    return while_idle(made, "the loss", [&] {
      const std::vector<double> losses = comm::all_gather_values(made.group, run.loss());
      const auto first = losses.begin() + job.stages.stages.back().rank / job.replicas * job.replicas;
      return std::accumulate(first, first + job.replicas, 0.0) / job.replicas;
    });
  } catch (const std::exception& error) {
    made.broken = error.what();
    made.wire->abort(error.what());
    made.group.abort(error.what());
    throw;
  }
}

Pipeline::Tensors Pipeline::parameters() const { return made_->parameters->own(); }
double Pipeline::clip_grad_norm(double max_norm) { return made_->parameters->clip(max_norm); }
void Pipeline::save(torch::optim::Optimizer& optimizer, const std::string& path, const Position& position) {
  systems::pipeline::save(made_->group, *made_->parameters, optimizer, path, position);
}
Position Pipeline::load(torch::optim::Optimizer& optimizer, const std::string& path) {
  return systems::pipeline::load(made_->group, *made_->parameters, optimizer, path);
}
std::map<std::string, torch::Tensor> Pipeline::state() { return made_->parameters->state(); }
void Pipeline::load_state(const std::map<std::string, torch::Tensor>& state) {
  made_->parameters->load(state);
}
const std::string& Pipeline::plan() const { return made_->plan; }
int Pipeline::micro_batches() const { return made_->job.micro_batches; }
double Pipeline::predicted_seconds() const { return made_->predicted_seconds; }
const PipelineStatistics& Pipeline::statistics() const { return made_->statistics; }

std::vector<std::string> Pipeline::stages() const {
  const auto first_of = [&](const Stage& stage) {
    return stage.rank / made_->job.replicas * made_->job.replicas;
  };
  std::vector<std::string> texts;
  for (const Stage& stage : made_->job.stages.stages)
    texts.push_back(made_->job.replicas == 1
                        ? fmt::format("{} on rank {}", stage.text, stage.rank)
                        : fmt::format("{} on ranks {} to {}", stage.text, first_of(stage),
                                      first_of(stage) + made_->job.replicas - 1));
  return texts;
}

Trace Pipeline::trace() const {
  const std::string modelled = made_->group.modelled_network();
  return {.title = "dear pipeline",
          .network = modelled.empty() ? "" : "modelled: " + modelled,
          .spans = made_->spans};
}

}  // namespace dear
