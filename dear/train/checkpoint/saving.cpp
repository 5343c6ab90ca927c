#include "dear/train/checkpoint/saving.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include "dear/base/archive/pickle.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/agreement/control_plane.h"
#include "dear/comm/group/exchange.h"
#include "dear/train/autograd/operator_observer.h"
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
  writer_.add(name, bytes_of(dense));
}
void FileSink::finish(const std::string& pickle) { write_all(writer_, pickle); }

void CopySink::write(const std::string& name, const torch::Tensor& dense) {
  copies_.emplace_back(name, dense.clone(at::MemoryFormat::Preserve));
}
void CopySink::write_file(const std::string& path) const {
  archive::ZipWriter writer(path);
  for (const auto& [name, values] : copies_) writer.add(name, bytes_of(values));
  for (const auto& [name, text] : texts_) writer.add(name, std::string_view(text));
  write_all(writer, pickle_);
}

// ---- what each rank has for itself

OfRank own(train::TrainingState& state, RandomState random) {
  OfRank mine;
  if (random == RandomState::of_each_rank) {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard lock(generator.mutex());
    mine.random = generator.get_state();
  }
  mine.compression = state.compression();
  return mine;
}

namespace {

// Every rank's bytes of a tensor, whatever their number.
std::vector<torch::Tensor> gather(const Group& group, const torch::Tensor& mine) {
  const torch::Tensor flat = mine.defined() ? mine.contiguous().reshape({-1}) : torch::empty({0});
  const auto bytes = static_cast<std::int64_t>(flat.nbytes());
  const std::vector<std::int64_t> sizes = comm::all_gather_values(group, bytes);
  const std::int64_t most = (*std::max_element(sizes.begin(), sizes.end()) + 63) / 64 * 64;
  std::vector<torch::Tensor> all(sizes.size());
  if (most == 0) return all;
  const Buffer buffer = group.allocate(most * group.size());
  std::memcpy(buffer.data() + most * group.rank(), flat.const_data_ptr(), static_cast<std::size_t>(bytes));
  group.all_gather({.buffer = buffer, .offset_bytes = 0, .count = most * group.size(), .dtype = DType::u8})
      .wait();
  for (std::size_t rank = 0; rank < sizes.size(); ++rank)
    all[rank] = torch::from_blob(
        buffer.data() + most * static_cast<std::int64_t>(rank),
        {sizes[rank] / static_cast<std::int64_t>(flat.element_size())}, [buffer](void*) {}, flat.dtype());
  return all;
}

}  // namespace

Value gather_of_ranks(const OfRank& mine, const train::TrainingState& state, const Store& store_defined) {
  const auto store = [&](const torch::Tensor& values) {
    return values.defined() ? store_defined(values) : Value();
  };
  const Group& group = state.group();
  const auto ranks = static_cast<std::size_t>(group.size());
  std::vector<Value> random(ranks), compression(ranks), parameters(ranks, Value(Value::Dict()));
  const std::vector<torch::Tensor> randoms = gather(group, mine.random);
  for (std::size_t rank = 0; rank < ranks; ++rank) random[rank] = store(randoms[rank]);
  if (mine.compression) {
    for (const CompressionStateOfParameter& one : mine.compression->parameters) {
      const auto found =
          std::find_if(state.trained().begin(), state.trained().end(),
                       [&](const auto& parameter) { return parameter.tensor.is_same(one.parameter); });
      std::vector<Value> of_parameter(ranks, Value(Value::Dict()));
      for (const auto& [name, values] :
           {std::pair("residual", one.residual), std::pair("momentum", one.momentum),
            std::pair("codec", one.codec)}) {
        const std::vector<torch::Tensor> all = gather(group, values);
        for (std::size_t rank = 0; rank < ranks; ++rank) of_parameter[rank].set(name, store(all[rank]));
      }
      for (std::size_t rank = 0; rank < ranks; ++rank) parameters[rank].set(found->name, of_parameter[rank]);
    }
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      compression[rank].set("step", mine.compression->step);
      compression[rank].set("parameters", parameters[rank]);
    }
  }
  Value::List all;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    Value one;
    one.set("random", random[rank]);
    one.set("compression", compression[rank]);
    all.push_back(std::move(one));
  }
  return all;
}

// ---- the whole

void on_every_rank(const Group& group, const std::function<void()>& act) {
  std::string error;
  try {
    act();
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
  attempt([&] { sink = make_sink(); });
  const train::EngineState::Outlines outlines = state.outlines();
  StoredState vectors(outlines.size());
  state.visit(outlines, [&](std::size_t i, const std::string& name, const torch::Tensor& values) {
    attempt([&] { vectors[i].insert_or_assign(name, sink->add(values)); });
  });
  const Value of_ranks = gather_of_ranks(own(state, random), state, [&](const torch::Tensor& values) {
    Value record;
    attempt([&] { record = sink->add(values); });
    return record;
  });
  attempt([&] { sink->finish(describe(*sink, outlines, vectors, of_ranks)); });
  sink.reset();
  on_rank_0(state.group(), [&] {
    if (error) std::rethrow_exception(error);
  });
}

}  // namespace dear::checkpoint
