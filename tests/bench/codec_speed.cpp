// SPDX-License-Identifier: Apache-2.0
// What codecs cost on one core, compared with memcpy in the same round.
//   build/release/tests/bench/bench_codecs [--avx2] [--64MiB] [--instructions] [CODEC ...]
// --avx2: with no instruction set above AVX2, though the processor may have AVX-512. --64MiB: only that size.
// For each codec and operation: GB/s of fp32 (4 bytes an element whatever is moved; median and quartiles over rounds),
// its ratio to memcpy's in the same round, the bytes an element that must move, and the share of the roofline: bytes
// moved a second, by those of memcpy (8 an element). Above 1 it says that memcpy is not the machine's limit. "reduce"
// sums four encoded spans and encodes the sum (compression::Reducer); its GB/s are of the sum. The first size stays in
// a cache, the second in few, the last in none.
// --instructions prints instead how many instructions an element takes, for codecs that can be cut into spans.
#include <hwy/targets.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <functional>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include "compression/registry.hpp"
#include "core/format.hpp"
#include "core/random.hpp"
#include "core/statistics.hpp"

namespace {

using namespace gradmeter;
using compression::CodecPtr;

constexpr std::size_t rounds = 7, parts = 4;
/// What memcpy moves for each 4 that it copies, where no line is read only to be overwritten: large copies use
/// non-temporal stores.
constexpr double copied_bytes = 8;
constexpr double least_seconds = 0.004;  // of one measurement

class Memory {
 public:
  explicit Memory(std::size_t bytes) : bytes_(bytes), data_(::operator new(bytes, align)) {
    std::memset(data_, 0, bytes);
  }
  ~Memory() { ::operator delete(data_, align); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::span<float> floats() { return {static_cast<float*>(data_), bytes_ / sizeof(float)}; }
  std::byte* bytes() { return static_cast<std::byte*>(data_); }

 private:
  static constexpr std::align_val_t align{4096};
  std::size_t bytes_;
  void* data_;
};

/// Seconds of one call, of as many as make a measurement.
template <class Work>
double seconds(const Work& work) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  for (std::size_t calls = 1;; ++calls) {
    work();
    const double passed = std::chrono::duration<double>(Clock::now() - begin).count();
    if (passed >= least_seconds) return passed / static_cast<double>(calls);
  }
}

void require(bool done, const char* call) {
  if (!done) throw std::system_error(errno, std::generic_category(), call);
}

/// The instructions of work(), which runs in a child of this process, step by step. The kernel also stops between the
/// rounds of a repeated instruction, which is counted once here.
std::size_t instructions(const std::function<void()>& work) {
  const pid_t child = fork();
  require(child >= 0, "fork");
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0 || raise(SIGSTOP) != 0) _exit(1);
    work();
    _exit(0);
  }
  std::size_t count = 0;
  for (long last = 0;;) {
    int status = 0;
    require(waitpid(child, &status, 0) == child, "waitpid");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return count;
    errno = WIFSTOPPED(status) ? 0 : ECHILD;
#ifdef __x86_64__
    const long at = errno == 0 ? ptrace(PTRACE_PEEKUSER, child, offsetof(user_regs_struct, rip), nullptr) : 0;
#else
    const long at = last + 1;
#endif
    require(errno == 0 && ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr) == 0, "ptrace");
    if (at != last) ++count;
    last = at;
  }
}

struct Row {
  std::string codec, operation;
  double bytes_moved = 0;                        ///< an element
  std::vector<double> speeds = {}, ratios = {};  ///< GB/s of fp32; to memcpy's
};

class Bench {
 public:
  Bench(std::size_t elements, const std::vector<CodecPtr>& codecs)
      : n_(elements),
        codecs_(codecs),
        x_(4 * n_),
        out_(4 * n_),
        wire_(4 * n_ + n_ + 4096),
        parts_(parts * (2 * n_ + n_ / 4 + 4096)) {
    const core::Random random(1, 2);
    for (std::size_t i = 0; i < n_; ++i) x_.floats()[i] = 0.01F * static_cast<float>(random.gaussian(i % (1 << 20)));
    rows_.push_back({"memcpy", "", copied_bytes});
    for (const auto& c : codecs_) {
      const double wire = static_cast<double>(c->wire_bytes(n_)) / static_cast<double>(n_);
      rows_.push_back({label(*c), "encode", 4 + wire});
      rows_.push_back({label(*c), "decode", 4 + wire});
      rows_.push_back({label(*c), "decode-add", 8 + wire});
      if (reduces(*c)) rows_.push_back({label(*c), "reduce", (parts + 1) * wire});
    }
  }

  void round(bool keep) {
    auto row = rows_.begin();
    const double copy = seconds([&] { std::memcpy(out_.bytes(), x_.bytes(), 4 * n_); });
    note(*row++, copy, copy, keep);
    for (const auto& c : codecs_) {
      std::size_t bytes = 0;
      note(*row++, seconds([&] { bytes = c->encode(x_.floats(), wire_.bytes(), {}); }), copy, keep);
      const std::span<const std::byte> wire(wire_.bytes(), bytes);
      note(*row++, seconds([&] { c->decode(wire, out_.floats()); }), copy, keep);
      note(*row++, seconds([&] { c->decode_add(wire, out_.floats(), out_.floats()); }), copy, keep);
      if (reduces(*c)) note(*row++, reduced(*c), copy, keep);
    }
  }

  /// Instructions an element: those of all elements, less those of the first half.
  void print_instructions() {
    const auto count = [&](const auto& work) {
      for (const std::size_t n : {n_ / 2, n_}) work(n)();  // A first call may look up functions.
      const double more = static_cast<double>(instructions(work(n_))) - static_cast<double>(instructions(work(n_ / 2)));
      return more / static_cast<double>(n_ / 2);
    };
    fmt::print("{:<28} {:>8} {:>8} {:>8}\n", "instructions an element", "encode", "decode", "reduce");
    for (const auto& c : codecs_) {
      if (c->grain() == compression::whole_tensor) continue;
      std::size_t bytes = 0;
      const auto encode = [&](std::size_t n) {
        return [&, n] { bytes = c->encode(x_.floats().first(n), wire_.bytes(), {}); };
      };
      const auto decode = [&](std::size_t n) {
        encode(n)();
        return [&, n] { c->decode({wire_.bytes(), bytes}, out_.floats().first(n)); };
      };
      const auto reduce = [&](std::size_t n) {
        return [this, &c, n, wires = encoded_parts(*c, n), reducer = compression::Reducer(*c, n)]() mutable {
          reducer.run(wires, n, wire_.bytes(), {});
        };
      };
      const double encoding = count(encode), decoding = count(decode);
      fmt::print("{:<28} {:>8.2f} {:>8.2f}", label(*c), encoding, decoding);
      if (reduces(*c)) fmt::print(" {:>8.2f}", count(reduce));
      fmt::print("\n");
    }
  }

  void print() const {
    fmt::print("\n{} KiB of fp32\n{:<28} {:<10} {:>8} {:>15} {:>8} {:>13} {:>8} {:>9}\n", n_ * 4 / 1024, "codec", "",
               "GB/s", "quartiles", "/memcpy", "quartiles", "bytes/el", "roofline");
    for (const auto& r : rows_) {
      const auto speed = core::summarise(r.speeds), ratio = core::summarise(r.ratios);
      fmt::print("{:<28} {:<10} {:>8.2f} {:>7.2f}-{:<7.2f} {:>8.3f} {:>6.3f}-{:<6.3f} {:>8.3f} {:>9.2f}\n", r.codec,
                 r.operation, speed.median, speed.q1, speed.q3, ratio.median, ratio.q1, ratio.q3, r.bytes_moved,
                 ratio.median * r.bytes_moved / copied_bytes);
    }
  }

 private:
  static std::string label(const compression::Codec& c) { return compression::find_codec(c.name())->label; }
  /// Whole spans of a sum would be kept beside these of the bench.
  static bool reduces(const compression::Codec& c) { return c.layout().has_value(); }
  std::array<std::span<const std::byte>, parts> encoded_parts(const compression::Codec& c, std::size_t n) {
    std::array<std::span<const std::byte>, parts> wires;
    const std::size_t bytes = c.wire_bytes(n);
    for (std::size_t i = 0; i < parts; ++i) {
      std::byte* to = parts_.bytes() + i * bytes;
      c.encode(x_.floats().first(n), to, {.step = i});
      wires[i] = {to, bytes};
    }
    return wires;
  }
  double reduced(const compression::Codec& c) {
    const auto wires = encoded_parts(c, n_);
    compression::Reducer reducer(c, n_);
    return seconds([&] { reducer.run(wires, n_, wire_.bytes(), {}); });
  }
  void note(Row& row, double took, double copy, bool keep) {
    if (!keep) return;
    row.speeds.push_back(4e-9 * static_cast<double>(n_) / took);
    row.ratios.push_back(copy / took);
  }

  std::size_t n_;
  const std::vector<CodecPtr>& codecs_;
  Memory x_, out_, wire_, parts_;
  std::vector<Row> rows_;
};

std::vector<std::string> everything() {
  std::vector<std::string> names;
  for (const auto& row : compression::codecs()) {
    if (!row.make) continue;
    names.emplace_back(row.name);
    if (row.parameters.find("rounding=") != row.parameters.npos) {
      names.push_back(fmt::format("{}:rounding=nearest", row.name));
    }
  }
  return names;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> names(argv + 1, argv + argc);
  std::vector<std::size_t> sizes{std::size_t{1} << 16, std::size_t{1} << 24, std::size_t{1} << 26};
  if (std::erase(names, "--64MiB") > 0) sizes = {std::size_t{1} << 24};
  if (std::erase(names, "--avx2") > 0) hwy::DisableTargets(HWY_AVX2 - 1);  // a better target has a lower bit
  const bool counts = std::erase(names, "--instructions") > 0;
  std::vector<CodecPtr> codecs;
  for (const auto& name : names.empty() ? everything() : names) {
    codecs.push_back(compression::find_codec(name)->codec);
  }
  if (counts) {
    Bench(8192, codecs).print_instructions();
    return 0;
  }
  for (const std::size_t elements : sizes) {
    Bench bench(elements, codecs);
    for (std::size_t i = 0; i < rounds + 1; ++i) bench.round(i > 0);
    bench.print();
  }
  return 0;
}
