#pragma once

#include <cstdint>

// What DeAR calls of an MPI: a table of plain functions that a module hands over, compiled once for each
// implementation. Implementations differ in their binary interface, not in what these do; so all that thinks
// stands above the table, and is compiled once.
//
// Functions that return int give 0, or an error of MPI that describe_error() puts into words. One thread at a
// time calls them. Nothing is thrown across the table.
namespace dear::channels {

// Changes with every change of the table, so that a module of another build is not called.
inline constexpr int kMpiBindingRevision = 8;

// Two worlds of messages that never mix.
enum class MpiLane : std::int32_t { data, control };

// A request that is complete.
struct MpiCompletion {
  void* cookie = nullptr;
  std::int64_t bytes = 0;  // that came, of a receive
  int error = 0;
  int truncated = 0;  // 1 when the error is that the message was longer than its receive
};

// As mpi.h's MpiCollective, in numbers.
struct MpiCall {
  std::int32_t collective = 0;
  std::int32_t dtype = 0;
  std::int32_t reduction = 0;
  std::int32_t root = 0;
  std::int64_t count = 0;
  void* data = nullptr;
  void* output = nullptr;
};

// What goes to a peer and comes from it, under two cookies.
struct MpiEagerMessage {
  const void* out = nullptr;
  void* in = nullptr;
  std::int32_t bytes = 0;
  std::int32_t room = 0;
  std::int32_t peer = 0;
  void* sending = nullptr;
  void* receiving = nullptr;
};

struct MpiBinding {
  int revision = 0;
  const char* implementation = nullptr;  // "openmpi"

  // Sets what MPI reads from the environment: before initialize(), on the program's thread, since others may
  // be reading. `outlive`: 1 to have MPI do without what ends this process when a peer dies.
  void (*prepare)(int outlive);
  // Waits for all ranks to come, without an end. `serialized`: whether threads may call in turn.
  int (*initialize)(int* rank, int* size, int* serialized);
  // Waits for all ranks, asleep, while `goes_on` says 1 of every message of the control lane that comes.
  // `met` stays 0 where it said 0: then MPI must not be called again.
  int (*meet_to_end)(int (*goes_on)(const void* message, std::int64_t bytes), int* met);
  // When all have met. Some implementations never come back where a peer has gone on before.
  int (*finalize)();
  // "Open MPI 4.1.4"
  void (*describe_version)(char* text, int room);
  void (*describe_error)(int error, char* text, int room);

  // Messages of up to 2^31 - 1 bytes. The cookie comes back with the completion.
  int (*send)(const void* data, int bytes, int peer, int tag, MpiLane lane, void* cookie);
  int (*receive)(void* data, int bytes, int peer, int tag, MpiLane lane, void* cookie);
  // Moves on what it can, and forgets the requests that it reports. The list stays until the next call.
  int (*poll)(const MpiCompletion** completions, int* count);
  // All messages at once, on the data lane, with `looks` looks at them, of which every one of number
  // `yield_every` (0: none) lets other threads run. `through` becomes 1 when all have come and gone by then;
  // if not, each cookie comes back: in `completions`, or later from poll().
  int (*exchange)(const MpiEagerMessage* messages, int count, int tag, int looks, int yield_every,
                  int* through, const MpiCompletion** completions, int* completed);
  // The cookies of the requests that are not complete.
  void* const* (*outstanding)(int* count);
  // Takes back the receives that no message has met yet.
  void (*cancel_receives)();

  // Takes a message of the control lane, if one is there. `bytes` is -1 if not.
  int (*take_control)(void* data, int room, int* peer, std::int64_t* bytes);

  // 1 when MPI has it.
  int (*has)(const MpiCall* call);
  // Nonblocking, one at a time; `done` becomes 1.
  int (*begin)(const MpiCall* call);
  int (*test)(int* done);
  int (*perform)(const MpiCall* call);
};

// The one name that a module exports: const MpiBinding* dear_mpi_binding().
inline constexpr const char* kMpiBindingSymbol = "dear_mpi_binding";

}  // namespace dear::channels
