// A small blocking HTTP client over a raw socket, for tests that need to see and send every byte.
#pragma once
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::testing {

struct HttpReply {
  int status = 0;
  std::map<std::string, std::string> headers;  // lower-case names
  std::string body;                            // chunks joined
  bool complete = false;                       // the framing's end was seen
};

class HttpClient {
 public:
  explicit HttpClient(std::uint16_t port);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;

  bool connected() const { return socket_ >= 0; }
  void send(std::string_view bytes);
  /// Sends no more; the other direction stays open.
  void shutdown_write();
  void close();
  void reset();  // RST
  void set_receive_buffer(int bytes);

  /// One response. `complete` is false when the connection or the time ended first.
  HttpReply read(std::chrono::milliseconds limit = std::chrono::seconds(20), bool head = false);
  /// Bytes that come within `limit`, at most; nullopt at the end of the connection.
  std::optional<std::string> read_some(std::chrono::milliseconds limit);
  /// True when the server closes within `limit` (and sends nothing more).
  bool closes(std::chrono::milliseconds limit);

 private:
  bool fill(std::chrono::steady_clock::time_point until);  // more bytes into buffer_
  int socket_ = -1;
  std::string buffer_;
};

std::string request_text(std::string_view method, std::string_view path, std::string_view body = {}, std::string_view headers = {});

/// One request on a connection of its own.
HttpReply fetch(std::uint16_t port, std::string_view method, std::string_view path, std::string_view body = {}, std::string_view headers = {});

/// The data of every "data: " line of an event stream.
std::vector<std::string> stream_events(const std::string& body);

}  // namespace lockstep::testing
