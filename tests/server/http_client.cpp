#include "server/http_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace lockstep::testing {
using Clock = std::chrono::steady_clock;

HttpClient::HttpClient(std::uint16_t port) {
  socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) close();
}
HttpClient::~HttpClient() { close(); }

void HttpClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}
void HttpClient::shutdown_write() { ::shutdown(socket_, SHUT_WR); }
void HttpClient::close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}
void HttpClient::reset() {
  const linger now{1, 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  close();
}
void HttpClient::set_receive_buffer(int bytes) { ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes); }

std::optional<std::string> HttpClient::read_some(std::chrono::milliseconds limit) {
  if (socket_ < 0) return std::nullopt;
  pollfd wanted{socket_, POLLIN, 0};
  const int ready = ::poll(&wanted, 1, static_cast<int>(std::max<std::int64_t>(0, limit.count())));
  if (ready <= 0) return std::string();
  char bytes[65536];
  const auto n = ::recv(socket_, bytes, sizeof bytes, 0);
  if (n <= 0) return std::nullopt;
  return std::string(bytes, static_cast<std::size_t>(n));
}

bool HttpClient::fill(Clock::time_point until) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
  if (left.count() <= 0) return false;
  const auto bytes = read_some(left);
  if (!bytes || bytes->empty()) return false;
  buffer_ += *bytes;
  return true;
}

bool HttpClient::closes(std::chrono::milliseconds limit) {
  const auto until = Clock::now() + limit;
  while (Clock::now() < until) {
    const auto bytes = read_some(std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()));
    if (!bytes) return true;
    if (!bytes->empty()) return false;
  }
  return false;
}

HttpReply HttpClient::read(std::chrono::milliseconds limit, bool head) {
  const auto until = Clock::now() + limit;
  HttpReply reply;
  std::size_t end = 0;
  while ((end = buffer_.find("\r\n\r\n")) == std::string::npos) {
    if (!fill(until)) return reply;
  }
  const std::string header = buffer_.substr(0, end + 2);
  buffer_.erase(0, end + 4);
  reply.status = std::atoi(header.substr(header.find(' ') + 1).c_str());
  for (std::size_t at = header.find("\r\n") + 2; at < header.size();) {
    const auto line_end = header.find("\r\n", at);
    const std::string line = header.substr(at, line_end - at);
    const auto colon = line.find(": ");
    std::string name = line.substr(0, colon);
    std::transform(name.begin(), name.end(), name.begin(), ::tolower);
    reply.headers[name] = line.substr(colon + 2);
    at = line_end + 2;
  }
  if (head || reply.status == 204 || reply.status == 100) {
    reply.complete = true;
    return reply;
  }
  if (reply.headers.contains("content-length")) {
    const auto length = static_cast<std::size_t>(std::atoll(reply.headers["content-length"].c_str()));
    while (buffer_.size() < length) {
      if (!fill(until)) break;
    }
    reply.complete = buffer_.size() >= length;
    reply.body = buffer_.substr(0, length);
    buffer_.erase(0, length);
    return reply;
  }
  if (reply.headers.contains("transfer-encoding")) {
    while (true) {
      std::size_t line = 0;
      while ((line = buffer_.find("\r\n")) == std::string::npos) {
        if (!fill(until)) return reply;
      }
      const auto size = static_cast<std::size_t>(std::strtoull(buffer_.c_str(), nullptr, 16));
      while (buffer_.size() < line + 2 + size + 2) {
        if (!fill(until)) {
          reply.body += buffer_.substr(std::min(buffer_.size(), line + 2));
          return reply;
        }
      }
      reply.body += buffer_.substr(line + 2, size);
      buffer_.erase(0, line + 2 + size + 2);
      if (size == 0) break;
    }
    reply.complete = true;
    return reply;
  }
  while (fill(until)) {
  }
  reply.body = std::exchange(buffer_, {});
  reply.complete = true;
  return reply;
}

std::string request_text(std::string_view method, std::string_view path, std::string_view body, std::string_view headers) {
  std::string out = std::string(method) + ' ' + std::string(path) + " HTTP/1.1\r\nHost: test\r\n";
  if (!body.empty()) {
    std::string lower(headers);
    std::transform(lower.begin(), lower.end(), lower.begin(), ::tolower);
    if (lower.find("content-type:") == std::string::npos) out += "Content-Type: application/json\r\n";
    out += "Content-Length: " + std::to_string(body.size()) + "\r\n";
  }
  out += headers;
  out += "\r\n";
  out += body;
  return out;
}

HttpReply fetch(std::uint16_t port, std::string_view method, std::string_view path, std::string_view body, std::string_view headers) {
  HttpClient client(port);
  client.send(request_text(method, path, body, headers));
  return client.read(std::chrono::seconds(20), method == "HEAD");
}

std::vector<std::string> stream_events(const std::string& body) {
  std::vector<std::string> events;
  for (std::size_t at = 0; at < body.size();) {
    const auto end = std::min(body.find('\n', at), body.size());
    const std::string line = body.substr(at, end - at);
    if (line.starts_with("data: ")) events.push_back(line.substr(6));
    at = end + 1;
  }
  return events;
}

}  // namespace lockstep::testing
