#include "dear/tools/bench_collectives/group_collectives.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "dear/tools/bench_collectives/uneven_rows.h"

namespace dear::bench_collectives {
namespace {

class GroupCollectives : public Collectives {
 public:
  GroupCollectives(Group group, int ahead) : group_(std::move(group)), ahead_(ahead) {}

  [[nodiscard]] std::string description() const override { return group_.description(); }
  [[nodiscard]] int granularity(MeasuredOperation operation) const override {
    return has_output(operation) ? group_.size() : 1;
  }
  [[nodiscard]] Range shard(const Call& call, int rank) const override {
    return shard_of(call.count, call.dtype, group_.size(), rank);
  }
  [[nodiscard]] const std::byte* reduced_shard(const Call& call) const override {
    return data() + shard(call, group_.rank()).begin * size_of(call.dtype);
  }
  void prepare(std::int64_t bytes, std::int64_t output_bytes) override {
    data_ = group_.allocate(bytes);
    gathered_ = data_;
    if (output_bytes > 0) {
      output_ = group_.allocate(output_bytes);
    }
  }
  [[nodiscard]] std::byte* data() const override { return data_.data(); }
  [[nodiscard]] std::byte* output() const override { return output_.data(); }
  [[nodiscard]] const std::byte* gathered() const override { return gathered_.data(); }

  [[nodiscard]] std::int64_t sent_bytes() const override { return moved_.sent; }
  void run(const Call& call) override {
    carry_out(call, [this](Request&& request) { group_.perform(std::move(request)); });
  }
  // A group runs what is issued one after another, so all of them may have the same vector.
  void run_batch(const Call& call, int batch) override {
    if (ahead_ == 1) return Collectives::run_batch(call, batch);
    for (int done = 0; done < batch;) {
      std::vector<Pending> issued;
      for (int i = 0; i < ahead_ && done < batch; ++i, ++done)
        carry_out(call, [&](Request&& request) { issued.push_back(group_.issue(request)); });
      for (Pending& pending : issued) pending.wait();
    }
  }

 protected:
  Group group_;
  Buffer data_;
  Buffer gathered_;  // what an all-gather is of

 private:
  template <typename Carry>
  void carry_out(const Call& call, const Carry& carry) {
    const auto perform = [&](Collective collective) {
      const Buffer& buffer = collective == Collective::all_gather ? gathered_ : data_;
      carry({.collective = collective, .view = {.buffer = buffer, .count = call.count, .dtype = call.dtype}});
    };
    switch (call.operation) {
      case MeasuredOperation::pair:
        perform(Collective::reduce_scatter);
        return perform(Collective::all_gather);
      case MeasuredOperation::reduce_scatter:
        return perform(Collective::reduce_scatter);
      case MeasuredOperation::all_gather:
        return perform(Collective::all_gather);
      case MeasuredOperation::all_reduce:
        return perform(Collective::all_reduce);
      case MeasuredOperation::broadcast:
        return perform(Collective::broadcast);
      case MeasuredOperation::all_to_all:
        return carry({.collective = Collective::all_to_all,
                      .view = {.buffer = data_, .count = call.count, .dtype = call.dtype},
                      .output = {.buffer = output_, .count = call.count, .dtype = call.dtype}});
      case MeasuredOperation::all_to_all_v:
        draw(call);
        return carry({.collective = Collective::all_to_all_v,
                      .view = {.buffer = data_, .count = call.count, .dtype = call.dtype},
                      .output = {.buffer = output_, .count = call.count, .dtype = call.dtype},
                      .rows = {.sent = sent_.data(), .received = received_.data(), .moved = &moved_}});
      case MeasuredOperation::barrier:
        return perform(Collective::barrier);
    }
  }

  // Once for many calls, which may be under way: nothing is drawn again for the same.
  void draw(const Call& call) {
    if (!sent_.empty() && call.count == drawn_for_.count && call.seed == drawn_for_.seed) return;
    drawn_for_ = call;
    const auto rows = uneven_rows(call.seed, group_.size(), call.count / group_.size());
    sent_ = rows[static_cast<std::size_t>(group_.rank())];
    received_.resize(sent_.size());
  }

  int ahead_;
  Buffer output_;
  Call drawn_for_;
  std::vector<std::int64_t> sent_, received_;
  MovedBytes moved_;
};

class OneCopyCollectives final : public GroupCollectives {
 public:
  using GroupCollectives::GroupCollectives;

  [[nodiscard]] std::string description() const override {
    return group_.description() + ", one copy of what is gathered";
  }
  [[nodiscard]] std::string refusal(MeasuredOperation operation, DType) const override {
    using enum MeasuredOperation;
    const bool can = operation == pair || operation == reduce_scatter || operation == all_gather;
    return can ? "" : "with one copy of the parameters, they are all-gathered and nothing else";
  }
  void prepare(std::int64_t bytes, std::int64_t) override {
    data_ = group_.allocate(bytes);
    gathered_ = group_.allocate_shared(bytes);
  }
  void run_to_verify(const Call& call) override {
    const auto run_one = [&](MeasuredOperation operation) {
      run({.operation = operation, .dtype = call.dtype, .count = call.count});
    };
    if (call.operation != MeasuredOperation::all_gather) run_one(MeasuredOperation::reduce_scatter);
    if (call.operation == MeasuredOperation::reduce_scatter) return;
    update(call);
    run_one(MeasuredOperation::all_gather);
  }

 private:
  // An update of plain SGD with a rate of -1, on parameters of 0.
  void update(const Call& call) {
    const Range own = shard(call, group_.rank());
    if (own.empty()) return;
    const std::int64_t begin = own.begin * size_of(call.dtype);
    std::memcpy(gathered_.data() + begin, data_.data() + begin,
                static_cast<std::size_t>(own.size() * size_of(call.dtype)));
  }
};

}  // namespace

std::unique_ptr<Collectives> make_group_collectives(const Group& group, int ahead) {
  return std::make_unique<GroupCollectives>(group, ahead);
}

std::unique_ptr<Collectives> make_one_copy_collectives(const Group& group, int ahead) {
  return std::make_unique<OneCopyCollectives>(group, ahead);
}

}  // namespace dear::bench_collectives
