#include "dear/train/torch_backend/carrier.h"

#include <cstring>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/shm/testing/ranks.h"
#include "dear/comm/shm/testing/shm_threads.h"
#include "dear/train/torch_backend/callbacks.h"
#include "dear/train/torch_backend/staging_ring.h"

namespace dear::torch_backend::carrier_test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

// ---- the ring

TEST(StagingRing, PlacesDependOnSizesAlone) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::int64_t> sizes;
    for (int i = 0; i < 60; ++i) sizes.push_back(1 + static_cast<std::int64_t>(random() % 3000));
    const auto places_of = [&](unsigned seed) {
      std::mt19937 when(seed);
      StagingRing ring(8192);
      std::vector<std::int64_t> places;
      std::size_t returned = 0;  // of places
      for (const std::int64_t size : sizes) {
        std::optional<std::int64_t> place;
        while (!(place = ring.take(size))) ring.give_back(places.at(returned++));
        places.push_back(*place);
        EXPECT_EQ(*place % 64, 0);
        EXPECT_LE(*place + size, 8192);
        while (returned < places.size() && when() % 2 == 0) ring.give_back(places[returned++]);
      }
      return places;
    };
    EXPECT_EQ(places_of(1), places_of(2));
  }
}

TEST(StagingRing, GivesNoPlaceTwice) {
  StagingRing ring(256);
  EXPECT_EQ(ring.take(100), 0);
  EXPECT_EQ(ring.take(64), 128);
  EXPECT_EQ(ring.take(128), std::nullopt);
  ring.give_back(0);
  EXPECT_EQ(ring.take(128), 0);
  EXPECT_EQ(ring.take(1), std::nullopt);
}

// ---- operations

float value_of(int rank, std::int64_t element) { return static_cast<float>((7 * rank + element) % 13); }

// Fills what a rank gives: block b, element i is value_of(rank + b, i).
struct Blocks {
  Blocks(int blocks, std::int64_t count, int rank) : values(static_cast<std::size_t>(blocks)) {
    for (int block = 0; block < blocks; ++block)
      for (std::int64_t i = 0; i < count; ++i)
        values[static_cast<std::size_t>(block)].push_back(value_of(rank + block, i));
  }
  std::vector<const std::byte*> from() const {
    std::vector<const std::byte*> all;
    for (const auto& block : values) all.push_back(reinterpret_cast<const std::byte*>(block.data()));
    return all;
  }
  std::vector<std::byte*> to() {
    std::vector<std::byte*> all;
    for (auto& block : values) all.push_back(reinterpret_cast<std::byte*>(block.data()));
    return all;
  }
  std::vector<std::vector<float>> values;
};

bool gives_blocks(Collective collective) {
  return collective == Collective::reduce_scatter || collective == Collective::all_to_all;
}
bool takes_blocks(Collective collective) {
  return collective == Collective::all_gather || collective == Collective::all_to_all;
}

float expected(Collective collective, int ranks, int rank, int root, int block, std::int64_t i) {
  float sum = 0;
  switch (collective) {
    case Collective::all_reduce:
    case Collective::reduce:
      for (int other = 0; other < ranks; ++other) sum += value_of(other, i);
      return sum;
    case Collective::reduce_scatter:
      for (int other = 0; other < ranks; ++other) sum += value_of(other + rank, i);
      return sum;
    case Collective::broadcast:
      return value_of(root, i);
    case Collective::all_gather:
      return value_of(block, i);
    case Collective::all_to_all:
      return value_of(block + rank, i);
    case Collective::all_to_all_v:
    case Collective::barrier:
      break;
  }
  return 0;
}

// One operation with memory of its own, to be waited for and looked at.
class Running {
 public:
  Running(Carrier& carrier, Collective collective, std::int64_t count, int root, bool at_once)
      : collective_(collective),
        root_(root),
        rank_(carrier.group().rank()),
        ranks_(carrier.group().size()),
        given_(gives_blocks(collective) ? ranks_ : 1, count, rank_),
        taken_(takes_blocks(collective) ? ranks_ : 1, count, -100) {
    Operation operation{.collective = collective, .dtype = DType::f32, .root = root, .count = count};
    operation.from = given_.from();
    const bool in_place = collective == Collective::broadcast;
    operation.to = in_place ? given_.to() : taken_.to();
    operation.done = [this](const std::exception_ptr& error) {
      error ? done_.set_exception(error) : done_.set_value();
    };
    ended_ = done_.get_future();
    at_once ? carrier.run(std::move(operation)) : carrier.post(std::move(operation));
  }
  void check() {
    ended_.get();
    if (collective_ == Collective::reduce && rank_ != root_) return;
    const auto& found = collective_ == Collective::broadcast ? given_.values : taken_.values;
    for (std::size_t block = 0; block < found.size(); ++block)
      for (std::size_t i = 0; i < found[block].size(); ++i)
        ASSERT_EQ(found[block][i], expected(collective_, ranks_, rank_, root_, static_cast<int>(block),
                                            static_cast<std::int64_t>(i)))
            << name_of(collective_) << " block " << block << " element " << i;
  }

 private:
  Collective collective_;
  int root_, rank_, ranks_;
  Blocks given_, taken_;
  std::promise<void> done_;
  std::future<void> ended_;
};

// An all-to-all-v: rank r gives rank q `elements[r][q]`, element i of it value_of(r + q, i).
class RunningUneven {
 public:
  RunningUneven(Carrier& carrier, const std::vector<std::vector<std::int64_t>>& elements, bool at_once)
      : rank_(carrier.group().rank()) {
    const int ranks = carrier.group().size();
    Operation operation{.collective = Collective::all_to_all_v, .dtype = DType::f32};
    for (int peer = 0; peer < ranks; ++peer) {
      operation.gives.push_back(elements[static_cast<std::size_t>(rank_)][static_cast<std::size_t>(peer)]);
      operation.takes.push_back(elements[static_cast<std::size_t>(peer)][static_cast<std::size_t>(rank_)]);
      given_.push_back(Blocks(1, operation.gives.back(), rank_ + peer));
      taken_.push_back(Blocks(1, operation.takes.back() + 1, -100));  // one more, which stays as it is
      operation.from.push_back(given_.back().from().front());
      operation.to.push_back(taken_.back().to().front());
    }
    operation.done = [this](const std::exception_ptr& error) {
      error ? done_.set_exception(error) : done_.set_value();
    };
    ended_ = done_.get_future();
    at_once ? carrier.run(std::move(operation)) : carrier.post(std::move(operation));
  }
  void check() {
    ended_.get();
    for (std::size_t peer = 0; peer < taken_.size(); ++peer) {
      const std::vector<float>& found = taken_[peer].values.front();
      for (std::size_t i = 0; i + 1 < found.size(); ++i)
        ASSERT_EQ(found[i], value_of(static_cast<int>(peer) + rank_, static_cast<std::int64_t>(i)));
      ASSERT_EQ(found.back(), value_of(-100, static_cast<std::int64_t>(found.size()) - 1));
    }
  }

 private:
  int rank_;
  std::vector<Blocks> given_, taken_;
  std::promise<void> done_;
  std::future<void> ended_;
};

class Carriers : public ::testing::TestWithParam<int> {
 protected:
  static std::vector<std::string> run(const backends::testing::GroupBody& body) {
    return comm::testing::run_on_threads(backends::testing::make_shm_threads(GetParam()), {}, body);
  }
};

// Small rings and chunks, so that operations of some thousands of elements come in many chunks.
TEST_P(Carriers, CarryRandomOperationsInOrder) {
  EXPECT_THAT(
      run([](Group& group) {
        Carrier carrier(group, {.ring_bytes = 16384, .chunk_bytes = 4096});
        std::mt19937 random(11);  // the same on every rank
        for (int round = 0; round < 6; ++round) {
          std::vector<std::unique_ptr<Running>> running;
          for (int i = 0; i < 20; ++i) {
            const auto collective = static_cast<Collective>(1 + random() % 6);  // any but a barrier
            const auto count = static_cast<std::int64_t>(random() % 4 == 0 ? random() % 5000 : random() % 70);
            const int root = static_cast<int>(random() % static_cast<unsigned>(group.size()));
            running.push_back(std::make_unique<Running>(carrier, collective, count, root, random() % 3 == 0));
          }
          while (!running.empty()) {
            running.back()->check();
            running.pop_back();
          }
          std::promise<void> met;
          carrier.run({.done = [&](const std::exception_ptr&) { met.set_value(); }});
          met.get_future().get();
        }
      }),
      Each("ok"));
}

// Beside others, from none to several chunks for a rank.
TEST_P(Carriers, CarryUnevenBlocks) {
  EXPECT_THAT(run([](Group& group) {
                Carrier carrier(group, {.ring_bytes = 16384, .chunk_bytes = 4096});
                std::mt19937 random(13);  // the same on every rank
                const auto ranks = static_cast<std::size_t>(group.size());
                for (int round = 0; round < 10; ++round) {
                  std::vector<std::unique_ptr<RunningUneven>> running;
                  std::vector<std::unique_ptr<Running>> others;
                  for (int i = 0; i < 8; ++i) {
                    std::vector elements(ranks, std::vector<std::int64_t>(ranks));
                    const unsigned most = i == 0 ? 1 : random() % 3 == 0 ? 3000 : 50;
                    for (auto& row : elements)
                      for (std::int64_t& one : row) one = random() % 3 == 0 ? 0 : random() % most;
                    running.push_back(std::make_unique<RunningUneven>(carrier, elements, random() % 3 == 0));
                    others.push_back(std::make_unique<Running>(carrier, Collective::all_reduce, 700, 0,
                                                               random() % 3 == 0));
                  }
                  for (auto& one : running) one->check();
                  for (auto& one : others) one->check();
                }
              }),
              Each("ok"));
}

// Rank 1 gives rank 0 an element more than that takes.
TEST_P(Carriers, RefuseSizesThatDoNotMatch) {
  if (GetParam() == 1) return;
  for (const bool at_once : {false, true}) {
    EXPECT_THAT(run([&](Group& group) {
                  Carrier carrier(group, {.ring_bytes = 16384, .chunk_bytes = 4096});
                  const auto ranks = static_cast<std::size_t>(group.size());
                  std::vector elements(ranks, std::vector<std::int64_t>(ranks, 9));
                  if (group.rank() == 1) elements[1][0] = 10;
                  RunningUneven(carrier, elements, at_once).check();
                  group.barrier().wait();
                }),
                Each(HasSubstr("rank 1 sends 40 bytes to rank 0, which takes 36")));
  }
}

TEST_P(Carriers, TellOperationsOfAGroupThatHasFailed) {
  const auto reports = run([](Group& group) {
    Carrier carrier(group, {.ring_bytes = 16384, .chunk_bytes = 4096});
    Running(carrier, Collective::all_reduce, 100, 0, false).check();
    if (group.rank() == 0) group.abort("the test ends it");
    std::vector<std::unique_ptr<Running>> running;
    for (int i = 0; i < 10; ++i)
      running.push_back(std::make_unique<Running>(carrier, Collective::all_reduce, 9000, 0, i % 2 == 0));
    for (auto& one : running) EXPECT_THROW(one->check(), Error);
  });
  EXPECT_THAT(reports, Each("ok"));
}

INSTANTIATE_TEST_SUITE_P(Ranks, Carriers, ::testing::Values(1, 2, 3, 4),
                         [](const auto& test) { return "On" + std::to_string(test.param); });

// ---- callbacks

TEST(Callbacks, MayWaitForEachOther) {
  std::vector<std::promise<void>> links(20);
  std::promise<void> all;
  Callbacks callbacks;  // ends first
  for (std::size_t i = 0; i < links.size(); ++i)
    callbacks.post([&, i] {
      if (i + 1 < links.size()) links[i + 1].get_future().get();
      links[i].set_value();
      if (i == 0) all.set_value();
    });
  all.get_future().get();
}

TEST(Callbacks, MayDropTheLastHandle) {
  auto callbacks = std::make_shared<Callbacks>();
  std::promise<void> dropped;
  auto handle = std::make_shared<std::shared_ptr<Callbacks>>(callbacks);
  Callbacks* const raw = callbacks.get();
  callbacks.reset();
  raw->post([handle, &dropped] {
    handle->reset();
    dropped.set_value();
  });
  handle.reset();
  dropped.get_future().get();
}

}  // namespace
}  // namespace dear::torch_backend::carrier_test
