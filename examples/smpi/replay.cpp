// SPDX-License-Identifier: Apache-2.0
// Replays a schedule that `gradmeter allreduce --dry-run --goal FILE` has written, by MPI's messages between two ranks,
// and prints the time at which the last rank is done. It is meant for SimGrid's SMPI, where that time is simulated;
// compare.py builds and starts it. With a second argument, "check", the messages carry numbers, and each rank compares
// what it ends with to the sum over all ranks (fp32, all-reduce).
#include <fcntl.h>
#include <mpi.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace {

enum class Kind : std::uint8_t { send, receive, sum, join };

struct Operation {
  Kind kind;
  int peer = 0, tag = 0, bytes = 0;
  std::size_t at = 0;           ///< first byte in the buffer
  double seconds = 0;           ///< of a sum
  int waits = 0;                ///< operations that it requires and that are not done
  std::vector<int> after = {};  ///< operations that require it
  int added = -1;               ///< of a sum: the receive whose data it adds
  bool lands_beside = false;    ///< of a receive: a sum adds it to the buffer
};

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "replay: %s\n", why.c_str());
  MPI_Abort(MPI_COMM_WORLD, 2);
  std::abort();
}

std::string_view map_file(const char* path) {
  const int file = ::open(path, O_RDONLY);
  struct stat info {};
  if (file < 0 || ::fstat(file, &info) != 0 || info.st_size == 0) give_up(std::string("cannot read ") + path);
  const auto size = static_cast<std::size_t>(info.st_size);
  const void* at = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
  ::close(file);
  if (at == MAP_FAILED) give_up(std::string("cannot map ") + path);
  return {static_cast<const char*>(at), size};
}

/// The next word of a line; empty at its end.
std::string_view word(std::string_view& line) {
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  const std::string_view w = line.substr(0, line.find(' '));
  line.remove_prefix(w.size());
  return w;
}
template <class Number>
Number number(std::string_view text) {
  Number n{};
  if (std::from_chars(text.data(), text.data() + text.size(), n).ec != std::errc())
    give_up("no number: " + std::string(text.substr(0, 40)));
  return n;
}

Operation read_operation(std::string_view label, std::string_view line) {
  constexpr std::string_view at = "_at_";
  Operation x{.kind = label.front() == 's'   ? Kind::send
                      : label.front() == 'r' ? Kind::receive
                      : label.front() == 'c' ? Kind::sum
                                             : Kind::join};
  if (const auto place = label.find(at); place != std::string_view::npos)
    x.at = number<std::size_t>(label.substr(place + at.size()));
  if (word(line) == "calc") {
    x.seconds = 1e-9 * number<double>(word(line));
    return x;
  }
  x.bytes = number<int>(word(line));
  word(line);  // to, from
  x.peer = number<int>(word(line));
  word(line);  // tag
  x.tag = number<int>(word(line));
  return x;
}

std::vector<Operation> read_rank(std::string_view text, int rank) {
  const std::string head = "\nrank " + std::to_string(rank) + " {\n";
  std::size_t at = text.find(head);
  if (at == std::string_view::npos) give_up("the file has no rank " + std::to_string(rank));
  text.remove_prefix(at + head.size());
  std::vector<Operation> all;
  std::unordered_map<std::string_view, int> labels;
  while (!text.starts_with('}')) {
    std::string_view line = text.substr(0, text.find('\n'));
    if (line.size() == text.size()) give_up("rank " + std::to_string(rank) + " has no end");
    text.remove_prefix(line.size() + 1);
    const std::string_view label = word(line);
    if (label.ends_with(':')) {
      labels[label.substr(0, label.size() - 1)] = static_cast<int>(all.size());
      all.push_back(read_operation(label, line));
      continue;
    }
    word(line);  // requires
    const int later = labels.at(label), before = labels.at(word(line));
    Operation& x = all[static_cast<std::size_t>(later)];
    Operation& first = all[static_cast<std::size_t>(before)];
    ++x.waits;
    first.after.push_back(later);
    if (x.kind == Kind::sum && x.added < 0) {
      x.added = before;
      first.lands_beside = true;
    }
  }
  return all;
}

int ranks_of(std::string_view text) {
  constexpr std::string_view head = "num_ranks ";
  const std::size_t at = text.find(head);
  if (at == std::string_view::npos) give_up("this is no GOAL file: it has no num_ranks");
  return number<int>(text.substr(at + head.size(), 12));
}

/// One rank's replay. Operations start once what they require is done, in the order in which they become ready.
class Replay {
 public:
  Replay(std::vector<Operation> operations, bool check, int rank) : all_(std::move(operations)), check_(check) {
    for (const auto& x : all_) bytes_ = std::max(bytes_, x.at + static_cast<std::size_t>(x.bytes));
    landings_.resize(check ? all_.size() : 0);
    if (check) {
      buffer_ = static_cast<char*>(std::malloc(bytes_ + 1));
      for (std::size_t i = 0; i < bytes_ / 4; ++i) floats(0)[i] = value(rank, i);
    } else {
      buffer_ =
          static_cast<char*>(SMPI_SHARED_MALLOC(bytes_ + 1));  // all ranks' pages are the same few: only time counts
    }
  }
  ~Replay() {
    if (check_) {
      std::free(buffer_);
    } else {
      SMPI_SHARED_FREE(buffer_);
    }
  }
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  void run() {
    for (std::size_t i = 0; i < all_.size(); ++i)
      if (all_[i].waits == 0) ready_.push_back(static_cast<int>(i));
    for (;;) {
      while (!ready_.empty()) {
        const int i = ready_.front();
        ready_.pop_front();
        start(i);
      }
      if (requests_.empty()) break;
      int done = 0;
      MPI_Waitany(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUS_IGNORE);
      const auto at = static_cast<std::size_t>(done);
      const int i = of_request_[at];
      requests_[at] = requests_.back();
      of_request_[at] = of_request_.back();
      requests_.pop_back();
      of_request_.pop_back();
      finish(i);
    }
    MPI_Waitall(static_cast<int>(sends_.size()), sends_.data(), MPI_STATUSES_IGNORE);
    if (finished_ != all_.size()) give_up("operations are left that can never start");
  }
  /// The numbers that are not the sum over all ranks.
  std::size_t wrong(int ranks) const {
    std::size_t n = 0;
    for (std::size_t i = 0; i < bytes_ / 4; ++i) {
      float sum = 0;
      for (int r = 0; r < ranks; ++r) sum += value(r, i);
      n += floats(0)[i] != sum;
    }
    return n;
  }

 private:
  static float value(int rank, std::size_t i) { return static_cast<float>((rank + 1) * static_cast<int>(i % 13 + 1)); }
  float* floats(std::size_t at) const { return reinterpret_cast<float*>(buffer_ + at); }

  void start(int i) {
    const auto at = static_cast<std::size_t>(i);
    Operation& x = all_[at];
    switch (x.kind) {
      case Kind::send:  // nothing requires it
        sends_.emplace_back();
        MPI_Isend(buffer_ + x.at, x.bytes, MPI_BYTE, x.peer, x.tag, MPI_COMM_WORLD, &sends_.back());
        return finish(i);
      case Kind::receive: {
        void* to = buffer_ + x.at;
        if (check_ && x.lands_beside) {
          landings_[at].resize(static_cast<std::size_t>(x.bytes) / 4);
          to = landings_[at].data();
        }
        requests_.emplace_back();
        of_request_.push_back(i);
        MPI_Irecv(to, x.bytes, MPI_BYTE, x.peer, x.tag, MPI_COMM_WORLD, &requests_.back());
        return;
      }
      case Kind::sum:
        if (x.seconds > 0) smpi_execute(x.seconds);
        if (check_) {
          const auto& landed = landings_[static_cast<std::size_t>(x.added)];
          for (std::size_t k = 0; k < landed.size(); ++k) floats(x.at)[k] += landed[k];
        }
        return finish(i);
      case Kind::join:
        return finish(i);
    }
  }
  void finish(int i) {
    ++finished_;
    for (const int a : all_[static_cast<std::size_t>(i)].after)
      if (--all_[static_cast<std::size_t>(a)].waits == 0) ready_.push_back(a);
  }

  std::vector<Operation> all_;
  bool check_;
  std::size_t bytes_ = 0, finished_ = 0;
  char* buffer_ = nullptr;
  std::vector<std::vector<float>> landings_;  ///< by receive that a sum adds, where numbers count
  std::deque<int> ready_;
  std::vector<MPI_Request> requests_, sends_;
  std::vector<int> of_request_;
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc < 2) give_up("usage: replay FILE.goal [check]");
  const bool check = argc > 2 && std::strcmp(argv[2], "check") == 0;
  const std::string_view text = map_file(argv[1]);
  if (ranks_of(text) != ranks) give_up("the file is for " + std::to_string(ranks_of(text)) + " ranks");
  Replay replay(read_rank(text, rank), check, rank);
  // Simulated ranks all begin at 0 s; reading the file takes no simulated time.
  replay.run();
  const double seconds = MPI_Wtime();
  double last = 0;
  unsigned long wrong = check ? replay.wrong(ranks) : 0, wrong_in_all = 0;
  MPI_Reduce(&seconds, &last, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  MPI_Reduce(&wrong, &wrong_in_all, 1, MPI_UNSIGNED_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) std::printf("%.9g s, %lu wrong\n", last, wrong_in_all);
  MPI_Finalize();
  return wrong_in_all == 0 ? 0 : 4;
}
