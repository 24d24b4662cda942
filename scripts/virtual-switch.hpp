// SPDX-License-Identifier: Apache-2.0
// The switch of virtual-network.cpp: a rate and a delay for kernels without netem, a trunk between two racks, single
// links that are slower or later.
#pragma once
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace virtual_network {

using Nanoseconds = std::int64_t;

inline Nanoseconds now() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The result of a system call. Errors: std::system_error that says what was tried.
template <class T>
T check(T result, const char* what) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), what);
  return result;
}

constexpr int head = 254;                 ///< the number of the caller's own network: no rate holds it back
constexpr double queue_bytes = 16 << 20;  ///< what a port holds back before it drops

/// The kernel's virtio_net_hdr; <linux/virtio_net.h> names a member "class".
struct SegmentationHeader {
  std::uint8_t flags, kind;  ///< kind 0: one packet
  std::uint16_t header_bytes, segment_bytes, checksum_start, checksum_offset;
};

/// What serves one packet at a time.
struct Server {
  double ns_per_byte = 0;  ///< 0: all at once
  Nanoseconds free = 0;
  Nanoseconds passing(double bytes) const { return static_cast<Nanoseconds>(bytes * ns_per_byte); }
  Nanoseconds start(Nanoseconds earliest) const { return ns_per_byte > 0 ? std::max(earliest, free) : earliest; }
  /// Returns when the first byte passes.
  Nanoseconds serve(Nanoseconds earliest, double bytes) {
    const Nanoseconds begin = start(earliest);
    free = begin + passing(bytes);
    return begin;
  }
};

using Bytes = std::vector<char>;  ///< a packet behind a SegmentationHeader

struct Port {
  int number, rack, device;
  Server receiving;
  std::multimap<Nanoseconds, Bytes> waiting = {};  ///< to this port's host, by when they are due
};

/// What one host sends another, where it is not as usual.
struct Path {
  Server server;
  Nanoseconds delay = 0;  ///< beside the usual one
};

inline double ns_per_byte(double bits_per_s) { return bits_per_s > 0 ? 8e9 / bits_per_s : 0; }

/// A TAP device eth0 in the caller's network, with checksums and segmentation left to the other end.
inline int open_tap(int number) {
  const int device = check(open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC), "/dev/net/tun");
  ifreq request{};
  request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
  std::strcpy(request.ifr_name, "eth0");
  check(ioctl(device, TUNSETIFF, &request), "making eth0");
  check(ioctl(device, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6), "segmentation of eth0");
  const int any = check(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), "socket");
  request.ifr_hwaddr = {.sa_family = 1, .sa_data = {2, 0, 0, 0, 0, static_cast<char>(number)}};
  check(ioctl(any, SIOCSIFHWADDR, &request), "the address of eth0");
  close(any);
  return device;
}

inline int open_tap_in(const std::string& network, int number) {
  const int there = check(open(network.c_str(), O_RDONLY | O_CLOEXEC), network.c_str());
  check(setns(there, CLONE_NEWNET), network.c_str());
  close(there);
  return open_tap(number);
}

class Switch {
 public:
  Switch(const std::string& folder, int hosts, double bits_per_s, Nanoseconds delay, double trunk_bits_per_s,
         std::span<char*> links)
      : delay_(delay) {
    trunk_.fill({.ns_per_byte = ns_per_byte(trunk_bits_per_s)});
    ports_.push_back({.number = head, .rack = 0, .device = open_tap(head), .receiving = {}});
    const Server link{.ns_per_byte = ns_per_byte(bits_per_s)};
    for (int i = 1; i <= hosts; ++i) {
      const int device = open_tap_in(folder + "/host" + std::to_string(i) + ".net", i);
      ports_.push_back({.number = i, .rack = 2 * i > hosts + 1, .device = device, .receiving = link});
    }
    for (const char* link : links) add_link(link);
    for (const Port& p : ports_) polled_.push_back({.fd = p.device, .events = POLLIN, .revents = 0});
    polled_.push_back({.fd = STDIN_FILENO, .events = POLLIN, .revents = 0});
  }

  [[noreturn]] void run() {
    for (;;) {
      const Nanoseconds wait = std::max<Nanoseconds>(deliver() - now(), 0);
      const timespec t{.tv_sec = wait / 1'000'000'000, .tv_nsec = wait % 1'000'000'000};
      if (ppoll(polled_.data(), polled_.size(), &t, nullptr) <= 0) continue;
      if (polled_.back().revents) read_delay();
      for (std::size_t i = 0; i < ports_.size(); ++i) {
        if (polled_[i].revents & POLLIN) take_from(ports_[i]);
      }
    }
  }

 private:
  void add_link(const char* text) {
    int a = 0, b = 0;
    double bits_per_s = 0;
    long long delay = 0;
    if (std::sscanf(text, "%d-%d:%lf:%lld", &a, &b, &bits_per_s, &delay) != 4) throw std::runtime_error(text);
    for (const auto& way : {std::pair{a, b}, std::pair{b, a}}) {
      unusual_[way] = {.server = {.ns_per_byte = ns_per_byte(bits_per_s)}, .delay = delay};
    }
  }

  /// Hands over what is due. Returns when the next is.
  Nanoseconds deliver() {
    const Nanoseconds t = now();
    Nanoseconds next = t + 1'000'000'000;
    for (Port& p : ports_) {
      auto first = p.waiting.begin();
      for (; first != p.waiting.end() && first->first <= t; first = p.waiting.erase(first)) {
        // A device that is down takes nothing, as a cut link; TCP sends again.
        (void)!write(p.device, first->second.data(), first->second.size());
      }
      if (first != p.waiting.end()) next = std::min(next, first->first);
    }
    return next;
  }

  void read_delay() {
    std::array<char, 64> line{};
    if (read(STDIN_FILENO, line.data(), line.size() - 1) <= 0) {
      polled_.back().fd = -1;
    } else {
      delay_ = std::atoll(line.data());
    }
  }

  /// A few packets at most: the others must not wait.
  void take_from(Port& from) {
    for (int n = 0; n < 16; ++n) {
      const auto length = read(from.device, buffer_.data(), buffer_.size());
      if (length <= static_cast<ssize_t>(sizeof(SegmentationHeader) + 14)) return;
      route(from, static_cast<std::size_t>(length));
    }
  }

  void route(Port& from, std::size_t length) {
    const auto first = static_cast<unsigned char>(buffer_[sizeof(SegmentationHeader)]);
    const auto last = static_cast<unsigned char>(buffer_[sizeof(SegmentationHeader) + 5]);
    const double bytes = bytes_on_wire(length);
    const Nanoseconds sent = now();
    for (Port& to : ports_) {
      if (&to == &from || !((first & 1) || to.number == last)) continue;
      Nanoseconds t = sent;
      const auto path = unusual_.find({from.number, to.number});
      if (path != unusual_.end() && !pass(path->second.server, to, bytes, t)) continue;
      if (to.rack != from.rack && !pass(trunk_[static_cast<std::size_t>(to.rack)], to, bytes, t)) continue;
      if (is_full(to.receiving, t)) continue;
      const Nanoseconds arrived = to.receiving.serve(t, bytes) + to.receiving.passing(bytes);
      const Nanoseconds more = path == unusual_.end() ? 0 : path->second.delay;
      to.waiting.emplace(arrived + delay_ + more, Bytes{buffer_.data(), buffer_.data() + length});
    }
  }

  /// Moves t on to when the port can begin to receive what comes from a server before it, so that the last byte leaves
  /// the slower of the two last. False: the packet is dropped.
  static bool pass(Server& server, const Port& to, double bytes, Nanoseconds& t) {
    if (is_full(server, t)) return false;
    t = server.serve(t, bytes) + std::max<Nanoseconds>(server.passing(bytes) - to.receiving.passing(bytes), 0);
    return true;
  }

  static bool is_full(const Server& s, Nanoseconds t) {
    return static_cast<double>(s.start(t) - t) > queue_bytes * s.ns_per_byte;
  }

  /// With the headers of the packets that the network card would cut this one into, and what Ethernet puts between.
  double bytes_on_wire(std::size_t length) const {
    SegmentationHeader h;
    std::memcpy(&h, buffer_.data(), sizeof h);
    const std::size_t frame = length - sizeof h;
    const bool is_cut = h.kind != 0 && h.segment_bytes > 0 && frame > h.header_bytes;
    const std::size_t packets = is_cut ? (frame - h.header_bytes + h.segment_bytes - 1) / h.segment_bytes : 1;
    return static_cast<double>(frame + (packets - 1) * h.header_bytes + packets * 24);
  }

  std::vector<Port> ports_;
  std::vector<pollfd> polled_;                   ///< of each port; standard input
  std::array<Server, 2> trunk_;                  ///< by the rack where it leads
  std::map<std::pair<int, int>, Path> unusual_;  ///< by the numbers of sender and receiver
  Nanoseconds delay_;
  std::array<char, 70'000> buffer_{};
};

}  // namespace virtual_network
