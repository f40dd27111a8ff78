// serve_until_signal: the first signal drains, the second exits at once.
#include <spdlog/spdlog.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "server/server.h"

namespace lockstep::server {
namespace {
constexpr double kDrainSeconds = 30;
}

int serve_until_signal(Server& server) {
  std::signal(SIGPIPE, SIG_IGN);  // a closed terminal or pipe is an error of its write, no reason to die
  boost::asio::io_context io(1);
  boost::asio::signal_set signals(io, SIGINT, SIGTERM);
  std::thread stopper;
  const auto second = [](const boost::system::error_code& ec, int number) {
    if (ec) return;
    spdlog::warn("second signal: exiting at once");
    std::_Exit(128 + number);
  };
  signals.async_wait([&](const boost::system::error_code&, int) {
    spdlog::info("stopping: new requests are refused, live replies have {:.0f} s to finish; a second signal exits at once", kDrainSeconds);
    signals.async_wait(second);
    stopper = std::thread([&] {
      server.stop(kDrainSeconds);
      io.stop();
    });
  });
  io.run();
  stopper.join();
  spdlog::info("stopped");
  return 0;
}

}  // namespace lockstep::server
