// Every bound of the server in one place: bytes, counts and times. Tests make them small; nothing else changes them.
#pragma once
#include <chrono>
#include <cstddef>

namespace lockstep::server {

struct Limits {
  // One request.
  std::size_t header_bytes = 64 << 10;  // request line and header fields; above: 431
  std::size_t body_bytes = 32 << 20;    // after chunked decoding; above: 413
  int json_depth = 64;                  // nested arrays and objects
  std::size_t json_memory_bytes = 256 << 20;  // of one parsed body; above: 413

  // All connections together.
  int connections = 1024;                      // above: 503, unless an idle one can be closed instead
  std::size_t small_body_bytes = 256 << 10;    // bodies up to this size are always read ...
  std::size_t all_bodies_bytes = 256 << 20;    // ... larger ones while all bodies held are below this; above: 503

  // One connection.
  std::size_t pipelined_bytes = 64 << 10;  // read ahead while a reply is in work
  int send_buffer_bytes = 256 << 10;       // the kernel's, of a connection
  std::size_t outgoing_bytes = 4 << 20;    // events a slow reader may leave waiting; above: its reply is cancelled

  std::chrono::milliseconds header_time{10'000};          // from the first byte (a new connection: from accept) to the end of the header
  std::chrono::milliseconds body_progress_time{30'000};   // between two bytes of a body
  std::chrono::milliseconds body_time{300'000};           // a whole body
  std::chrono::milliseconds idle_time{75'000};            // keep-alive between two requests
  std::chrono::milliseconds write_progress_time{30'000};  // between two bytes a client takes
  std::chrono::milliseconds stream_silence_time{10'000};  // a stream without an event for this long gets a comment line
  std::chrono::milliseconds linger_time{2'000};           // what a refused client still sends is read this long, so that it sees the reply
  std::chrono::milliseconds cancel_time{5'000};           // stop(): from cancelling every reply to closing what is left
};

}  // namespace lockstep::server
