// Hazards of the order of streams: each test holds a stream of one rank that another must wait for, and shows
// that the result is wrong where that wait is taken away. Letters: docs/internals/training.md.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "dear/base/os/testing/rounds.h"
#include "dear/base/vocabulary/error.h"
#include "dear/train/data_parallel/testing/on_stub_device.h"

namespace dear::stream_order_test {
namespace {

using train::testing::message_of;
using train::testing::on_stub::expect_guarded;
using train::testing::on_stub::Guard;
using train::testing::on_stub::Job;
using train::testing::on_stub::run;
using train::testing::on_stub::Setting;
using train::testing::on_stub::Stream;

class StreamOrder : public train::testing::on_stub::OnTheStubDevice {};

void halve(const at::Tensor& tensor) {
  const torch::NoGradGuard no_grad;
  at::Tensor(tensor).mul_(0.5);
}

// a
TEST_F(StreamOrder, ReductionsWaitForTheGradientsOfTheBackwardPass) {
  expect_guarded(Guard::after_gradients, [](Job& job) {
    job.lag(Stream::program, [&] { job.backward(2); });
    job.dp->step();
    job.train(3);
  });
}

// k: an accumulator belongs to the stream on which it was made, here before DataParallel.
TEST_F(StreamOrder, ReductionsWaitForEveryStreamThatAccumulates) {
  const auto accumulate_on_side = [](Job& job) {
    job.on(Stream::side, [&] { job.kept = torch::autograd::impl::grad_accumulator(job.net->head->weight); });
  };
  expect_guarded(Guard::every_gradient,
                 [](Job& job) {
                   job.lag(Stream::side, [&] { job.backward(2); });
                   job.dp->step();
                   job.train(3);
                 },
                 {.fusion = "all", .prepare = accumulate_on_side});
}

// i, of what is written before step()
TEST_F(StreamOrder, UpdatesWaitForWhatTheProgramWroteBeforeStep) {
  expect_guarded(Guard::after_program, [](Job& job) {
    job.backward(2);
    job.lag(Stream::program, [&] {
      halve(job.net->second->weight);
      job.dp->step();
    });
    job.train(3);
  });
}

// i, of what is written after step()
TEST_F(StreamOrder, WritesOfTheProgramWaitForTheParameters) {
  expect_guarded(Guard::before_parameters, [](Job& job) {
    job.backward(2);
    job.lag(Stream::communication, [&] {
      job.dp->step();
      halve(job.net->second->weight);
    });
    job.train(3);
  });
}

// g, without a wait of the host
TEST_F(StreamOrder, CopiesToTheHostWaitForTheParameters) {
  expect_guarded(Guard::before_parameters, [](Job& job) {
    at::Tensor there;
    job.lag(Stream::communication, [&] {
      job.train(2);
      there = job.net->first->weight.detach().to(at::kCPU, /*non_blocking=*/true);
    });
    if (job.impl) job.impl->synchronizeStream(job.stream(Stream::program));
    job.see(there);
  });
}

// g, with one: the wait is in item() itself, so nothing of ours can be taken away but what the test before
// does.
TEST_F(StreamOrder, ItemsAreThoseOfTheLastStep) {
  expect_guarded(Guard::none, [](Job& job) {
    job.lag_until_the_host_waits(Stream::communication, [&] {
      job.train(2);
      job.see(job.net->head->bias[0].item<double>());
    });
  });
}

// f
TEST_F(StreamOrder, SynchronizeLetsTheHostReadMemoryItself) {
  expect_guarded(Guard::host, [](Job& job) {
    job.lag_until_the_host_waits(Stream::communication, [&] {
      job.train(2);
      job.dp->synchronize();
      job.see_raw(job.net->first->weight);
    });
  });
}

// h: an average of the parameters on a stream of its own.
TEST_F(StreamOrder, EachStreamThatReadsWaits) {
  expect_guarded(Guard::every_stream, [](Job& job) {
    job.lag(Stream::communication, [&] {
      job.train(2);
      job.order(Stream::program, Stream::side);
      job.see(job.net->first->weight);
      job.on(Stream::side, [&] { job.see(job.net->first->weight); });
    });
    job.order(Stream::side, Stream::program);
    job.train(3);
  });
}

// h: batches that arrive on a stream of their own, for which the program waits. Nothing of ours stands
// between.
TEST_F(StreamOrder, ABatchMayComeOnAnotherStream) {
  const auto prefetched = [](Job& job) {
    at::Tensor inputs;
    job.on(Stream::side, [&] { inputs = job.batches[2].inputs * 0.5; });
    job.order(Stream::side, Stream::program);
    job.batches[2].inputs = inputs;
    job.train(2);
  };
  for (const Stream lagging : {Stream::side, Stream::program, Stream::communication})
    expect_guarded(Guard::none, [&](Job& job) {
      job.lag(lagging, [&] { prefetched(job); });
      job.train(3);
    });
}

TEST_F(StreamOrder, ReadersOfGradientsWaitForTheirReduction) {
  expect_guarded(Guard::before_gradients, [](Job& job) {
    job.lag(Stream::communication, [&] {
      job.backward(2);
      job.dp->reduce_gradients();
      job.see(job.net->first->weight.grad());
    });
    job.dp->step();
  });
}

// The next backward pass adds to gradients that are zero.
TEST_F(StreamOrder, ZerosComeBeforeTheParametersThatABackwardPassHasWaitedFor) {
  expect_guarded(Guard::zeros_first,
                 [](Job& job) {
                   job.lag(
                       Stream::communication,
                       [&] {
                         job.train(2);
                         job.backward(3);
                       },
                       "aten::zero_");
                   job.dp->step();
                   job.train(4);
                 },
                 {.policy = "wfbp", .fusion = "all"});
}

// Nothing was sent in the backward pass, so that no operator waits for anything until the step is given up.
TEST_F(StreamOrder, ZerosOfAStepThatIsGivenUpComeBeforeTheNextGradients) {
  expect_guarded(Guard::none,
                 [](Job& job) {
                   job.dp->synchronize();
                   job.backward(2);
                   job.lag(Stream::communication, [&] {
                     job.dp->discard_step();
                     job.backward(3);
                   });
                   job.dp->step();
                 },
                 {.policy = "serial"});
}

// c: the CPU takes norms otherwise.
TEST_F(StreamOrder, ANormIsReadWhenItIsThere) {
  expect_guarded(Guard::handed_over,
                 [](Job& job) {
                   job.lag(Stream::communication, [&] {
                     job.backward(2);
                     job.see(job.dp->clip_gradients(0.01));
                   });
                   job.dp->step();
                 },
                 {.as_on_cpu = false});
}

// Buckets that regroup() makes on another stream than that of the next forward pass.
TEST_F(StreamOrder, ReadersWaitForBucketsThatWereMadeOnAnotherStream) {
  const auto make = [](Job& job, Group group, const DataParallelOptions& options) {
    job.optimizer = std::make_unique<torch::optim::SGD>(job.net->parameters(), 0.1);
    return std::make_unique<DataParallel>(*job.net, *job.optimizer, std::move(group), options);
  };
  expect_guarded(Guard::after_adoption,
                 [](Job& job) {
                   job.order(Stream::program, Stream::third);
                   job.lag(Stream::third, [&] {
                     job.on(Stream::third, [&] { job.dp->regroup(Fusion::parse("layer")); });
                     job.backward(2);
                   });
                   job.dp->step();
                 },
                 {.make = make});
}

// j
TEST_F(StreamOrder, ACaptureIsRefused) {
  run(
      [](Job& job) {
        const stub_device::Capture capture(job.stream(Stream::program));
        const std::string said = message_of<ConfigError>([&] { job.train(2); });
        EXPECT_NE(said.find("a graph of the device is being captured"), std::string::npos) << said;
        job.barrier();
        job.dp.reset();
      },
      {});
}

// j, where rank 0 meets the capture when an operator of the forward pass has to wait for parameters, and rank
// 1 when a gradient arrives. Neither leaves the other waiting when its DataParallel goes.
TEST_F(StreamOrder, ACaptureIsRefusedWhereverARankMeetsIt) {
  run(
      [](Job& job) {
        job.lag(Stream::communication, [&] { job.train(2); });
        if (job.rank == 1) job.dp->wait();
        const stub_device::Capture capture(job.stream(Stream::program));
        EXPECT_FALSE(message_of<ConfigError>([&] { job.backward(3); }).empty());
        job.barrier();
        job.dp.reset();
      },
      {});
}

// m: the communicator may be made by the first collective, for which the host waits. That one is in the first
// step(), in which ranks wait for each other anyway, and in no hook.
TEST_F(StreamOrder, NoCollectiveComesBeforeTheFirstStep) {
  const auto collectives = [](Job& job) {
    int found = 0;
    job.barrier();
    if (job.rank == 0) {
      stub_device::finish();
      for (const stub_device::Ran& ran : stub_device::take_record())
        found += ran.what == "reduce_scatter" || ran.what == "all_gather" || ran.what == "all_reduce" ? 1 : 0;
      stub_device::start_record();
    }
    job.barrier();
    return found;
  };
  run(
      [&](Job& job) {
        job.backward(0);
        const int before = collectives(job);
        job.dp->step();
        const int after = collectives(job);
        if (job.rank != 0) return;
        EXPECT_EQ(before, 0);
        EXPECT_GT(after, 0);
      },
      {.first_steps = false, .prepare = [&](Job& job) { collectives(job); }});
}

}  // namespace
}  // namespace dear::stream_order_test
