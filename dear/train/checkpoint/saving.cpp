#include "dear/train/checkpoint/saving.h"

#include <utility>

#include <fmt/format.h>

#include "dear/base/archive/pickle.h"
#include "dear/base/recorder/recorder.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/agreement/control_plane.h"
#include "dear/comm/group/exchange.h"
#include "dear/train/autograd/operator_observer.h"
#include "dear/train/checkpoint/own_state.h"
#include "dear/train/checkpoint/patience.h"
#include "dear/train/checkpoint/stored.h"
#include "dear/train/data_parallel/data_parallel.h"

namespace dear::checkpoint {

using archive::Value;

// ---- sinks

archive::TensorRecord TensorSink::add(const torch::Tensor& tensor) {
  const torch::Tensor values = train::dense(tensor);
  const archive::TensorRecord record = checkpoint::describe(values, std::to_string(count_++));
  write("data/" + record.key, values);
  return record;
}

namespace {

void write_all(archive::ZipWriter& writer, const std::string& pickle) {
  writer.add("data.pkl", pickle);
  writer.add("byteorder", std::string_view("little"));
  writer.add("version", std::string_view("3\n"));
  writer.finish();
}

}  // namespace

void FileSink::write(const std::string& name, const torch::Tensor& dense) {
  kept_.emplace_back(name, dense);
  if (static_cast<std::int64_t>(dense.nbytes()) >= kAtOnce) return flush();
  kept_.back().second = dense.clone(at::MemoryFormat::Preserve);
}
void FileSink::flush() {
  for (const auto& [name, values] : kept_) writer_.add(name, bytes_of(values));
  kept_.clear();
}
void FileSink::finish(const std::string& pickle) {
  flush();
  write_all(writer_, pickle);
}

void CopySink::write(const std::string& name, const torch::Tensor& dense) {
  copies_.emplace_back(name, dense.clone(at::MemoryFormat::Preserve));
}
void CopySink::write_file(const std::string& path) const {
  const recorder::Files files(path);
  archive::ZipWriter writer(path);
  for (const auto& [name, values] : copies_) writer.add(name, bytes_of(values));
  for (const auto& [name, text] : texts_) writer.add(name, std::string_view(text));
  write_all(writer, pickle_);
}

// ---- the whole

void on_every_rank(const Group& group, const std::function<void()>& act) {
  on_every_rank_at_once(group, [&](const Run& run) { run(act); });
}

void on_every_rank_at_once(const Group& group, const std::function<void(const Run& run)>& act) {
  std::string error;
  try {
    act([&](const std::function<void()>& work) {
      patiently(group, [&] {
        const recorder::Files files("");
        work();
      });
    });
  } catch (const TimeoutError&) {  // all ranks have it
    throw;
  } catch (const TransportError&) {
    throw;
  } catch (const std::exception& failure) {
    error = failure.what();
    const std::string who = fmt::format("rank {}", group.rank());
    if (!error.starts_with(who)) error = who + ": " + error;
  }
  for (const std::string& theirs : all_gather_text(group, error))
    if (!theirs.empty()) throw ConfigError(theirs);
}

void on_rank_0(const Group& group, const std::function<void()>& act) {
  on_every_rank(group, [&] {
    if (group.rank() == 0) act();
  });
}

void save_whole(train::TrainingState& state, RandomState random,
                const std::function<std::shared_ptr<TensorSink>()>& make_sink, const Describe& describe) {
  const autograd::Unobserved unobserved;
  const torch::NoGradGuard no_grad;
  const bool writes = state.group().rank() == 0;
  std::shared_ptr<TensorSink> sink;
  std::exception_ptr error;  // of rank 0, which goes on with what all ranks do together
  const auto attempt = [&](const auto& act) {
    if (!writes || error) return;
    try {
      act();
    } catch (const std::exception&) {
      error = std::current_exception();
    }
  };
  patiently(state.group(), [&] { attempt([&] { sink = make_sink(); }); });
  const train::EngineState::Outlines outlines = state.outlines();
  StoredState vectors(outlines.size());
  std::int64_t kept_bytes = 0;  // at most, by the sink; on all ranks alike
  state.visit(outlines, [&](std::size_t i, const std::string& name, const torch::Tensor& values) {
    const auto add = [&] { attempt([&] { vectors[i].insert_or_assign(name, sink->add(values)); }); };
    kept_bytes += static_cast<std::int64_t>(values.nbytes());
    if (kept_bytes < FileSink::kAtOnce) return add();
    kept_bytes = 0;
    patiently(state.group(), [&] {
      add();
      attempt([&] { sink->flush(); });
    });
  });
  const Value of_ranks = gather_own_states(state, random, [&](const torch::Tensor& values) {
    Value record;
    attempt([&] { record = sink->add(values); });
    return record;
  });
  patiently(state.group(), [&] {
    attempt([&] { sink->finish(describe(*sink, outlines, vectors, of_ranks)); });
    sink.reset();
  });
  on_rank_0(state.group(), [&] {
    if (error) std::rethrow_exception(error);
  });
}

}  // namespace dear::checkpoint
