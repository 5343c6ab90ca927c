#include "dear/train/data_parallel/data_parallel.h"

#include <utility>

#include "dear/train/data_parallel/trainer.h"

namespace dear {

DataParallel::DataParallel(torch::nn::Module& model, torch::optim::Optimizer& optimizer, Group group,
                           DataParallelOptions options)
    : DataParallel(live_model_of(model), make_optimizer(optimizer), std::move(group), std::move(options)) {
  trainer_->model_changes.set_source([&model] { return model_of(model); });
}
DataParallel::DataParallel(Model model, std::unique_ptr<Optimizer> optimizer, Group group,
                           DataParallelOptions options)
    : trainer_(std::make_unique<train::Trainer>(model, std::move(optimizer), group, std::move(options))) {}

DataParallel::~DataParallel() = default;

void DataParallel::step() { trainer_->step(); }
void DataParallel::discard_step() { trainer_->discard_step(); }
void DataParallel::synchronize() { trainer_->synchronize(); }
void DataParallel::wait() { trainer_->wait(); }
bool DataParallel::gradients_arrived() const { return trainer_->passes.gradients_arrived(); }
bool DataParallel::has_state() const { return trainer_->has_state(); }
bool DataParallel::by_program() const { return trainer_->by_program(); }
bool DataParallel::has_stepped() const { return trainer_->has_stepped(); }
void DataParallel::defer() { trainer_->defer(); }
void DataParallel::resume() { trainer_->resume(); }
void DataParallel::regroup(Fusion fusion) { trainer_->engines.regroup(std::move(fusion)); }
void DataParallel::reshard(const std::vector<double>& weights) { trainer_->engines.reshard(weights); }
std::vector<DataParallel::StateOfParameter> DataParallel::optimizer_state() {
  return trainer_->engines.optimizer_state();
}
void DataParallel::load_optimizer_state(const std::vector<StateOfParameter>& states) {
  trainer_->engines.load_optimizer_state(states);
}
const Schedule& DataParallel::schedule() const { return trainer_->engine().schedule(); }
const Grouping& DataParallel::grouping() const { return trainer_->engine().grouping(); }
const Workload& DataParallel::workload() const { return trainer_->engine().workload(); }
DataParallelStatistics DataParallel::statistics() const { return trainer_->reports.statistics(); }
const TuningProgress* DataParallel::tuning() const { return trainer_->tuning(); }
Trace DataParallel::trace() { return trainer_->reports.trace(); }
Workload DataParallel::profile() { return trainer_->reports.profile(); }
DataParallel::NoSync::NoSync(DataParallel& owner) : owner_(owner) { owner_.defer(); }
DataParallel::NoSync::~NoSync() { owner_.resume(); }
bool DataParallel::step(const StepOptions& options) { return trainer_->step(options); }
double DataParallel::clip_gradients_by_norm(double max_norm, const NormOptions& options) {
  return trainer_->gradient_changes.clip_gradients_by_norm(max_norm, options);
}
void DataParallel::reduce_gradients() { trainer_->gradient_changes.reduce_gradients(); }
double DataParallel::mean_over_ranks(double mine) { return trainer_->gradient_changes.mean_over_ranks(mine); }
void DataParallel::clip_gradients_by_value(double limit) {
  trainer_->gradient_changes.clip_gradients_by_value(limit);
}
bool DataParallel::unscale_gradients(double loss_scale) {
  return trainer_->gradient_changes.unscale_gradients(loss_scale);
}
torch::Tensor DataParallel::unscale_gradients_by(const torch::Tensor& inverse_scale) {
  return trainer_->gradient_changes.unscale_gradients_by(inverse_scale);
}
void DataParallel::step_unless(const torch::Tensor& nonfinite, const torch::Tensor& inverse_scale) {
  trainer_->step_unless(nonfinite, inverse_scale);
}
torch::Tensor DataParallel::clip_gradients(double max_norm, const NormOptions& options) {
  return trainer_->gradient_changes.clip_gradients(max_norm, options);
}
void DataParallel::broadcast_buffers() { trainer_->shared_buffers.broadcast_buffers(); }
void DataParallel::samples(std::int64_t count) { trainer_->uneven_inputs.samples(count); }
const BatchShares& DataParallel::batch_shares() const { return trainer_->uneven_inputs.batch_shares(); }
void DataParallel::rebuild(torch::nn::Module& model) {
  trainer_->model_changes.rebuild(live_model_of(model));
  trainer_->model_changes.set_source([&model] { return model_of(model); });
}
void DataParallel::rebuild(const Model& model) {
  trainer_->model_changes.rebuild(model);
  trainer_->model_changes.set_source({});
}
CompressionReport DataParallel::compression_report() { return trainer_->engines.compression_report(); }
CompressionStates DataParallel::compression_states() { return trainer_->engines.compression_states(); }
void DataParallel::load_compression_states(const CompressionStates& states) {
  trainer_->engines.load_compression_states(states);
}
Watch& DataParallel::watch() { return trainer_->watch(); }

}  // namespace dear
