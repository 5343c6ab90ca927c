#include "dear/comm/mpi/channels/binding.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <functional>
#include <mpi.h>
#include <sched.h>
#include <time.h>
#include <vector>

#include "dear/comm/mpi/channels/binding_collectives.h"

// Compiled once for each implementation of MPI, which cmake names in DEAR_MPI_IMPLEMENTATION. Nothing else
// of DeAR is linked into it.
namespace dear::channels {
namespace {

// What MPI keeps for the process it runs in.
struct State {
  MPI_Comm lanes[2] = {MPI_COMM_NULL, MPI_COMM_NULL};
  int rank = 0;
  int size = 1;
  // MPI looks at requests side by side; a completed one's place is taken by the last.
  std::vector<MPI_Request> requests;
  std::vector<void*> cookies;
  std::vector<int> indices;
  std::vector<MPI_Status> statuses;
  std::vector<MpiCompletion> completions;
  std::vector<MPI_Request> exchanged;
};
State state;

MPI_Comm lane_of(MpiLane lane) { return state.lanes[static_cast<int>(lane)]; }

// Plugins of Open MPI find MPI's symbols in the global scope, where a module's libraries are not.
void make_symbols_global() {
  Dl_info info;
  void* const symbol = reinterpret_cast<void*>(&MPI_Init_thread);
  if (dladdr(symbol, &info) != 0 && info.dli_fname != nullptr) {
    static_cast<void>(dlopen(info.dli_fname, RTLD_LAZY | RTLD_GLOBAL | RTLD_NOLOAD));
  }
}

// UCX, which may carry MPI, cuts what goes over TCP into 8 KiB unless it is told otherwise, and asks the
// receiver before it sends what does not fit: that took a fifth of a wire of 1 Gb/s. The user's word counts.
void send_long_segments_over_tcp() {
  constexpr int kUnlessSet = 0;
  setenv("UCX_TCP_TX_SEG_SIZE", "64k", kUnlessSet);
  setenv("UCX_TCP_RX_SEG_SIZE", "256k", kUnlessSet);
}

// UCX reads a long message of a rank on this host out of that process's memory (cross-memory attach), and
// aborts where it can't: when the sender has died, or has failed and given back what it was sending. MPI
// hears nothing of it. Without, the bytes go through shared memory. The user's word counts.
void outlive_peers() {
  constexpr int kUnlessSet = 0;
  setenv("UCX_TLS", "^cma", kUnlessSet);
}

void prepare(int outlive) {
  send_long_segments_over_tcp();
  if (outlive != 0) {
    outlive_peers();
  }
}

int initialize(int* rank, int* size, int* serialized) {
  make_symbols_global();
  int provided = MPI_THREAD_SINGLE;
  if (const int error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
      error != MPI_SUCCESS) {
    return error;
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  for (MPI_Comm& lane : state.lanes) {
    if (const int error = MPI_Comm_dup(MPI_COMM_WORLD, &lane); error != MPI_SUCCESS) {
      return error;
    }
    MPI_Comm_set_errhandler(lane, MPI_ERRORS_RETURN);
  }
  MPI_Comm_rank(MPI_COMM_WORLD, &state.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &state.size);
  use_for_collectives(state.lanes[static_cast<int>(MpiLane::data)], state.size);
  *rank = state.rank;
  *size = state.size;
  *serialized = provided >= MPI_THREAD_SERIALIZED ? 1 : 0;
  return MPI_SUCCESS;
}

void describe_version(char* text, int room) {
  char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(version, &length);
  // "Open MPI v4.1.4, package: ...", "MPICH Version:      4.0.2\nMPICH Release date: ..."
  const char* digit = std::strpbrk(version, "0123456789");
  const int digits = digit != nullptr ? static_cast<int>(std::strspn(digit, "0123456789.")) : 0;
  const char* const family = std::strncmp(version, "Open MPI", 8) == 0 ? "Open MPI"
                             : std::strncmp(version, "MPICH", 5) == 0  ? "MPICH"
                                                                       : DEAR_MPI_IMPLEMENTATION;
  std::snprintf(text, static_cast<std::size_t>(room), "%s %.*s", family, digits,
                digit != nullptr ? digit : "");
}

void describe_error(int error, char* text, int room) {
  char words[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (MPI_Error_string(error, words, &length) != MPI_SUCCESS) {
    std::snprintf(words, sizeof words, "error %d", error);
  }
  std::replace(words, words + std::strlen(words), '\n', ' ');
  std::snprintf(text, static_cast<std::size_t>(room), "%s", words);
}

void keep(MPI_Request request, void* cookie) {
  state.requests.push_back(request);
  state.cookies.push_back(cookie);
}

int send(const void* data, int bytes, int peer, int tag, MpiLane lane, void* cookie) {
  MPI_Request request = MPI_REQUEST_NULL;
  const int error = MPI_Isend(data, bytes, MPI_BYTE, peer, tag, lane_of(lane), &request);
  if (error == MPI_SUCCESS) {
    keep(request, cookie);
  }
  return error;
}

int receive(void* data, int bytes, int peer, int tag, MpiLane lane, void* cookie) {
  MPI_Request request = MPI_REQUEST_NULL;
  const int error = MPI_Irecv(data, bytes, MPI_BYTE, peer, tag, lane_of(lane), &request);
  if (error == MPI_SUCCESS) {
    keep(request, cookie);
  }
  return error;
}

void make_room_for(std::size_t requests) {
  if (state.statuses.size() < requests) {
    state.indices.resize(2 * requests);
    state.statuses.resize(2 * requests);
    state.completions.resize(2 * requests);
  }
}

MpiCompletion completion_of(void* cookie, const MPI_Status& status, int error) {
  int bytes = 0;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  int kind = MPI_SUCCESS;
  if (error != MPI_SUCCESS) {
    MPI_Error_class(error, &kind);
  }
  return {.cookie = cookie, .bytes = bytes, .error = error, .truncated = kind == MPI_ERR_TRUNCATE ? 1 : 0};
}

int poll(const MpiCompletion** completions, int* count) {
  *count = 0;
  const std::size_t looked_at = state.requests.size();
  if (looked_at == 0) {
    // Looks for messages as a side effect, so that MPI serves peers also when we wait for nothing.
    int flag = 0;
    return MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, lane_of(MpiLane::control), &flag, MPI_STATUS_IGNORE);
  }
  make_room_for(looked_at);
  int done = 0;
  int error = MPI_SUCCESS;
  if (looked_at == 1) {  // the quicker form
    error = MPI_Test(state.requests.data(), &done, state.statuses.data());
    state.indices[0] = 0;
    if (error != MPI_SUCCESS) {
      state.statuses[0].MPI_ERROR = error;
      error = MPI_ERR_IN_STATUS;
      done = 1;
    }
  } else {
    error = MPI_Testsome(static_cast<int>(looked_at), state.requests.data(), &done, state.indices.data(),
                         state.statuses.data());
  }
  if (error != MPI_SUCCESS && error != MPI_ERR_IN_STATUS) {
    return error;
  }
  if (done == MPI_UNDEFINED || done == 0) {
    return MPI_SUCCESS;
  }
  for (int i = 0; i < done; ++i) {
    const MPI_Status& status = state.statuses[i];
    state.completions[i] = completion_of(state.cookies[state.indices[i]], status,
                                         error == MPI_ERR_IN_STATUS ? status.MPI_ERROR : MPI_SUCCESS);
  }
  // From the back, so that the last one, which fills the gap, is no completed one. The order of those that
  // stay matters to nobody.
  if (done > 1) {
    std::sort(state.indices.begin(), state.indices.begin() + done, std::greater<>());
  }
  for (int i = 0; i < done; ++i) {
    const auto at = static_cast<std::size_t>(state.indices[i]);
    state.requests[at] = state.requests.back();
    state.cookies[at] = state.cookies.back();
    state.requests.pop_back();
    state.cookies.pop_back();
  }
  *completions = state.completions.data();
  *count = done;
  return MPI_SUCCESS;
}

// Requests that are through within the looks are never kept, which is what makes this the quick way. One
// after the other is quicker than all at once: each look moves all of them on, and sends are mostly through
// at once.
int exchange(const MpiEagerMessage* messages, int count, int tag, int looks, int yield_every, int* through,
             const MpiCompletion** completions, int* completed) {
  const MPI_Comm lane = lane_of(MpiLane::data);
  const auto each = static_cast<std::size_t>(count);
  const std::size_t all = 2 * each;
  std::vector<MPI_Request>& requests = state.exchanged;
  if (requests.size() < all) requests.resize(all);
  make_room_for(all);
  std::fill_n(requests.begin(), all, MPI_REQUEST_NULL);
  int error = MPI_SUCCESS;
  // The peers wait for what is sent; what is received cannot be used before.
  for (std::size_t i = 0; i < each && error == MPI_SUCCESS; ++i) {
    error = MPI_Isend(messages[i].out, messages[i].bytes, MPI_BYTE, messages[i].peer, tag, lane,
                      &requests[each + i]);
  }
  for (std::size_t i = 0; i < each && error == MPI_SUCCESS; ++i) {
    error = MPI_Irecv(messages[i].in, messages[i].room, MPI_BYTE, messages[i].peer, tag, lane, &requests[i]);
  }
  const bool started = error == MPI_SUCCESS;
  std::size_t at = 0;  // the first that is not through
  for (int look = 1; look <= looks && at < all && error == MPI_SUCCESS; ++look) {
    int done = 0;
    error = MPI_Test(&requests[at], &done, &state.statuses[at]);
    if (done != 0) {
      at += error == MPI_SUCCESS ? 1 : 0;
    } else if (yield_every > 0 && look % yield_every == 0) {
      sched_yield();
    }
  }
  *through = at == all ? 1 : 0;
  *completed = 0;
  *completions = state.completions.data();
  if (at == all) {
    return MPI_SUCCESS;
  }
  for (std::size_t i = 0; i < all; ++i) {
    void* const cookie = i < each ? messages[i].receiving : messages[i - each].sending;
    if (i < at || (i == at && started && error != MPI_SUCCESS)) {
      state.completions[static_cast<std::size_t>((*completed)++)] =
          completion_of(cookie, state.statuses[i], i < at ? MPI_SUCCESS : error);
    } else if (requests[i] != MPI_REQUEST_NULL) {
      keep(requests[i], cookie);
    }
  }
  return started ? MPI_SUCCESS : error;
}

void* const* outstanding(int* count) {
  *count = static_cast<int>(state.cookies.size());
  return state.cookies.data();
}

// Sends cannot be taken back; MPI refuses, which is as well.
void cancel_receives() {
  for (MPI_Request& request : state.requests) {
    MPI_Cancel(&request);
  }
}

int take_control(void* data, int room, int* peer, std::int64_t* bytes) {
  *bytes = -1;
  int flag = 0;
  MPI_Status status;
  const MPI_Comm lane = lane_of(MpiLane::control);
  int error = MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, lane, &flag, &status);
  if (error != MPI_SUCCESS || flag == 0) {
    return error;
  }
  error = MPI_Recv(data, room, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, lane, &status);
  int count = 0;
  MPI_Get_count(&status, MPI_BYTE, &count);
  *peer = status.MPI_SOURCE;
  *bytes = count;
  return error;
}

// MPI_Finalize spins until all ranks have come to it, and complains of messages that nobody took; so they are
// taken, and the ranks meet before it.
int meet_to_end(int (*goes_on)(const void* message, std::int64_t bytes), int* met) {
  *met = 0;
  std::vector<std::byte> message(1 << 16);
  MPI_Request meeting = MPI_REQUEST_NULL;
  int error = MPI_Ibarrier(lane_of(MpiLane::control), &meeting);
  for (int done = 0; error == MPI_SUCCESS && done == 0;) {
    error = MPI_Test(&meeting, &done, MPI_STATUS_IGNORE);
    for (std::int64_t bytes = 0; error == MPI_SUCCESS && bytes >= 0;) {
      int peer = 0;
      error = take_control(message.data(), static_cast<int>(message.size()), &peer, &bytes);
      if (bytes >= 0 && goes_on(message.data(), bytes) == 0) {
        return MPI_SUCCESS;
      }
    }
    if (done == 0) {
      const timespec look{.tv_sec = 0, .tv_nsec = 1'000'000};
      nanosleep(&look, nullptr);
    }
  }
  *met = error == MPI_SUCCESS ? 1 : 0;
  return error;
}

// [Note: Still before the end] MPICH before 4.2 over UCX ends so: each rank asks every peer to acknowledge
// what it sent, answers the peers' questions until it has all answers, and then sleeps in a barrier of the
// launcher. Whoever asks it after that waits for ever (pmodels/mpich pull request 6596). A peer that answers
// from its own end has asked before; only one that answers from meet_to_end, which it is about to leave, has
// not. So no rank begins its end before all have left: one that is late by less than this pause is not
// forgotten.
int finalize() {
  if (state.size > 1) {
    constexpr timespec kStill{.tv_sec = 0, .tv_nsec = 100'000'000};
    nanosleep(&kStill, nullptr);
  }
  return MPI_Finalize();
}

constexpr MpiBinding kBinding = {.revision = kMpiBindingRevision,
                                 .implementation = DEAR_MPI_IMPLEMENTATION,
                                 .prepare = prepare,
                                 .initialize = initialize,
                                 .meet_to_end = meet_to_end,
                                 .finalize = finalize,
                                 .describe_version = describe_version,
                                 .describe_error = describe_error,
                                 .send = send,
                                 .receive = receive,
                                 .poll = poll,
                                 .exchange = exchange,
                                 .outstanding = outstanding,
                                 .cancel_receives = cancel_receives,
                                 .take_control = take_control,
                                 .has = has_collective,
                                 .begin = begin_collective,
                                 .test = test_collective,
                                 .perform = perform_collective};

}  // namespace
}  // namespace dear::channels

extern "C" __attribute__((visibility("default"))) const dear::channels::MpiBinding* dear_mpi_binding() {
  return &dear::channels::kBinding;
}
