#include "dear/train/data_parallel/join.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/agreement/participation.h"
#include "dear/comm/group/exchange.h"
#include "dear/train/data_parallel/trainer.h"

namespace dear {

using agreement::Announcement;

// ---- Join

namespace {

// A rank in two of them would wait in one while its peers train in the other.
thread_local int open_joins = 0;

}  // namespace

Join::Join(DataParallel& model, const JoinOptions& options) : Join(std::vector{&model}, options) {}

Join::Join(std::vector<DataParallel*> models, const JoinOptions& options) : models_(std::move(models)) {
  if (models_.empty()) throw ConfigError("a Join of no model: name those that train in its loop");
  if (open_joins > 0)
    throw ConfigError(
        "another Join is open, and a rank that has run out could follow one of them only: make one Join of "
        "all models that train in the loop");
  const Group group = models_[0]->trainer_->group();
  std::int64_t bytes = 0;
  for (DataParallel* model : models_) {
    if (model->trainer_->group().size() != group.size() || model->trainer_->group().rank() != group.rank())
      throw ConfigError("the models of a Join train on different ranks: make a Join for each group of ranks");
    if (model->trainer_->verifies())
      throw ConfigError(
          "ranks of a Join take different numbers of steps, so verify_every cannot count them: leave it out");
    bytes = std::max(bytes, model->trainer_->uneven_inputs.settle_for_join());
  }
  if (group.size() > 1) {
    struct Wish {
      JoinOptions options;
      std::int64_t models, bytes;
    };
    const auto wishes =
        comm::all_gather_values(group, Wish{options, static_cast<std::int64_t>(models_.size()), bytes});
    for (const Wish& wish : wishes) {
      bytes = std::max(bytes, wish.bytes);
      if (wish.options.divisor != options.divisor || wish.options.uneven != options.uneven ||
          wish.models != static_cast<std::int64_t>(models_.size()))
        throw MismatchError(
            fmt::format("rank {}: ranks make Joins with different options, or of different numbers of "
                        "models: make the same on every rank",
                        group.rank()));
    }
    constexpr std::int64_t kSpare = 1024;  // options may take more room later
    joined_ = std::make_shared<agreement::Joined>();
    joined_->options = options;
    joined_->call = models_[0]->trainer_->uneven_inputs.announcements(2 * bytes + kSpare);
    for (std::size_t i = 0; i < models_.size(); ++i)
      models_[i]->trainer_->participation().join(joined_, static_cast<std::uint32_t>(i));
  }
  ++open_joins;
}

Join::~Join() {
  if (!ended_) abandon("it left a Join without end(), as after an exception");
}

std::int64_t Join::shadowed() const { return joined_ ? joined_->followed : 0; }

void Join::abandon(const std::string& reason) noexcept {
  if (ended_) return;
  ended_ = true;
  --open_joins;
  if (!joined_ || joined_->over) return;
  for (DataParallel* model : models_) {
    model->trainer_->group().abort(reason);
    model->trainer_->participation().leave();
  }
}

// What the others do, until all have run out.
void Join::follow() {
  agreement::Announcements& call = *joined_->call;
  for (;;) {
    const std::vector<Announcement> said = call.receive(call.send({}));
    agreement::require_alike(call.rank(), said);
    const std::optional<int> first = agreement::first_present(said);
    if (!first) return;
    if (joined_->options.uneven == Uneven::error) {
      joined_->over = true;
      throw MismatchError(
          fmt::format("rank {}: it has no more data after {} steps of this join, and rank {} has: the step "
                      "is given up on every rank; give ranks equally many batches, or leave out the error",
                      call.rank(), joined_->steps, *first));
    }
    const Announcement& what = said[static_cast<std::size_t>(*first)];
    train::Trainer& model = *models_.at(what.model)->trainer_;
    model.participation().set_first(*first);
    model.uneven_inputs.follow(what);
  }
}

void Join::begin_step(std::size_t model) {
  train::Trainer& one = *models_.at(model)->trainer_;
  if (one.participation().begins()) one.uneven_inputs.begin_step();
}

void Join::end() {
  if (ended_) return;
  const auto leave = [this] {
    ended_ = true;
    --open_joins;
    if (joined_) joined_->over = true;
    for (DataParallel* model : models_) model->trainer_->participation().leave();
  };
  if (!joined_ || joined_->over) return leave();
  for (DataParallel* model : models_) model->trainer_->uneven_inputs.require_all_stepped();
  for (DataParallel* model : models_) model->trainer_->participation().set_out_of_data(true);
  try {
    follow();
  } catch (const std::exception& error) {
    if (!joined_->over) abandon(error.what());
    if (!ended_) leave();
    throw;
  }
  leave();
}

}  // namespace dear
