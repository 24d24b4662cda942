// SPDX-License-Identifier: Apache-2.0
// What scripts/virtual-cluster.sh needs beside ip and tc: a switch with a rate and a delay for kernels without netem,
// and the two ends of a measured link. Linux only; the script compiles it.
//   virtual-network switch FOLDER HOSTS BITS_PER_S DELAY_NS TRUNK_BITS_PER_S [A-B:BITS_PER_S:DELAY_NS...]
//     Joins hosts 1 to HOSTS and the caller's own network, number 254. Each gets a TAP device eth0 in the network
//     namespace of FOLDER/hostN.net. BITS_PER_S holds back what goes to a host; what leaves it is for its own tc to
//     hold back, since a full queue there keeps TCP from sending more. 0: no limit. DELAY_NS is added to every packet.
//     A trunk, if it has a rate, is between the first half of the hosts and the others. A-B: what hosts A and B send
//     each other is held back to a rate of its own, each way, and delayed for longer. Prints "ready"; then a number on
//     standard input is a new delay.
//   virtual-network answer PORT
//     The other end of `ping` and `send`, for ever.
//   virtual-network ping ADDRESS PORT
//     Prints the round trip of a byte over TCP, the lower quartile of half a second [ns].
//   virtual-network send ADDRESS PORT N
//     Sends N bytes over TCP; prints how fast the second half arrived [bit/s].
//   virtual-network briefly COMMAND...
//     Runs COMMAND in time slices as short as can be: hosts that share a core wait for each other's messages, and a
//     rank that spins would keep the core for a tick of 4 ms (Linux 6.12 and later; earlier ones take no notice).
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <system_error>
#include <vector>

#include "virtual-switch.hpp"

namespace {

using namespace virtual_network;

int run_switch(char** a) {
  prctl(PR_SET_TIMERSLACK, 1);
  // Before everything that computes. Without the right it is merely less accurate, which the calibration shows.
  const sched_param first{.sched_priority = 50};
  (void)sched_setscheduler(0, SCHED_FIFO, &first);
  std::size_t links = 0;
  while (a[5 + links]) ++links;
  Switch s(a[0], std::atoi(a[1]), std::atof(a[2]), std::atoll(a[3]), std::atof(a[4]), {a + 5, links});
  std::puts("ready");
  std::fflush(stdout);
  s.run();
}

// ---------------------------------------------------------------- the two ends of a measured link

constexpr int repeats = 'p', counts = 'r';  ///< the first byte of a connection: what the other end does

sockaddr_in address(const char* host, const char* port) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = htons(static_cast<std::uint16_t>(std::atoi(port)));
  if (inet_pton(AF_INET, host, &a.sin_addr) != 1) throw std::runtime_error(std::string("no address: ") + host);
  return a;
}

void send_at_once(int connection) {
  const int on = 1;
  check(setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), "TCP_NODELAY");
}

int reach(const char* host, const char* port, char what) {
  const sockaddr_in a = address(host, port);
  for (int tries = 0;; ++tries) {
    const int connection = check(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
    if (connect(connection, reinterpret_cast<const sockaddr*>(&a), sizeof a) == 0) {
      send_at_once(connection);
      check(write(connection, &what, 1), "write");
      return connection;
    }
    if (tries == 50) throw std::system_error(errno, std::generic_category(), host);
    close(connection);
    usleep(20'000);
  }
}

/// Counts what comes; the rate leaves out the first half, while TCP finds its speed.
void count(int connection) {
  std::vector<char> buffer(1 << 20);
  std::int64_t expected = 0, got = 0, late = 0;
  check(read(connection, &expected, sizeof expected), "read");
  Nanoseconds begin = 0;
  while (got < expected) {
    const auto n = check(read(connection, buffer.data(), buffer.size()), "read");
    if (n == 0) return;
    if (begin) late += n;
    got += n;
    if (!begin && got >= expected / 2) begin = now();
  }
  const double rate = 8e9 * static_cast<double>(late) / static_cast<double>(now() - begin);
  check(write(connection, &rate, sizeof rate), "write");
}

void repeat(int connection) {
  for (char byte; read(connection, &byte, 1) == 1;) check(write(connection, &byte, 1), "write");
}

int answer(char** a) {
  std::signal(SIGCHLD, SIG_IGN);
  const int listening = check(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
  const sockaddr_in here = address("0.0.0.0", a[0]);
  check(bind(listening, reinterpret_cast<const sockaddr*>(&here), sizeof here), "bind");
  check(listen(listening, 16), "listen");
  for (;;) {
    const int connection = check(accept(listening, nullptr, nullptr), "accept");
    if (check(fork(), "fork") == 0) {
      send_at_once(connection);
      char what = 0;
      check(read(connection, &what, 1), "read");
      what == repeats ? repeat(connection) : count(connection);
      return 0;
    }
    close(connection);
  }
}

int ping(char** a) {
  const int connection = reach(a[0], a[1], repeats);
  std::vector<Nanoseconds> trips;
  for (const Nanoseconds end = now() + 500'000'000; now() < end || trips.size() < 11;) {
    const Nanoseconds begin = now();
    char byte = 0;
    check(write(connection, &byte, 1), "write");
    if (check(read(connection, &byte, 1), "read") == 0) throw std::runtime_error("the other end is gone");
    trips.push_back(now() - begin);
  }
  std::ranges::nth_element(trips, trips.begin() + static_cast<std::ptrdiff_t>(trips.size() / 4));
  std::printf("%lld\n", static_cast<long long>(trips[trips.size() / 4]));
  return 0;
}

int send(char** a) {
  const int connection = reach(a[0], a[1], counts);
  const std::int64_t bytes = std::atoll(a[2]);
  check(write(connection, &bytes, sizeof bytes), "write");
  const std::vector<char> buffer(1 << 20);
  for (std::int64_t left = bytes; left > 0;) {
    left -= check(write(connection, buffer.data(), static_cast<std::size_t>(std::min<std::int64_t>(left, 1 << 20))),
                  "write");
  }
  double rate = 0;
  if (check(read(connection, &rate, sizeof rate), "read") != sizeof rate)
    throw std::runtime_error("the other end is gone");
  std::printf("%.0f\n", rate);
  return 0;
}

// ---------------------------------------------------------------- hosts that share a core

/// The kernel's, of sched_setattr(2); glibc of Debian 12 declares neither.
struct SchedulerAttributes {
  std::uint32_t size = sizeof(SchedulerAttributes), policy = 0;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime_ns = 0, deadline_ns = 0, period_ns = 0;
};

int briefly(char** a) {
  SchedulerAttributes s;
  if (syscall(SYS_sched_getattr, 0, &s, sizeof s, 0) == 0 && s.policy == SCHED_OTHER) {
    s.runtime_ns = 100'000;  // the least there is
    syscall(SYS_sched_setattr, 0, &s, 0);
  }
  check(execvp(a[0], a), a[0]);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  struct Mode {
    const char* name;
    int least;  ///< arguments
    bool more;  ///< may follow
    int (*run)(char**);
  };
  const std::array<Mode, 5> modes{{{"switch", 5, true, run_switch},
                                   {"answer", 1, false, answer},
                                   {"ping", 2, false, ping},
                                   {"send", 3, false, send},
                                   {"briefly", 1, true, briefly}}};
  try {
    for (const Mode& m : modes) {
      const bool fits = m.more ? argc >= m.least + 2 : argc == m.least + 2;
      if (fits && std::strcmp(argv[1], m.name) == 0) return m.run(argv + 2);
    }
    std::fputs(
        "usage: virtual-network switch|answer|ping|send|briefly ...: the head of scripts/virtual-network.cpp has "
        "them\n",
        stderr);
    return 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "virtual-network: %s\n", e.what());
    return 1;
  }
}
