// SPDX-License-Identifier: Apache-2.0
// A transport of shared memory that brings messages to landings, as those between processes and nodes do.
#pragma once
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "runtime/transport/transport.hpp"

namespace gradmeter::test {

class CopyingTransport final : public runtime::Transport {
 public:
  explicit CopyingTransport(runtime::Transport& inner) : inner_(inner) {}
  std::string_view name() const override { return "copying"; }
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  int channels() const override { return inner_.channels(); }
  bool zero_copy_from(int) const override { return false; }
  bool can_send_from(std::span<const std::byte> data) const override { return inner_.can_send_from(data); }
  std::size_t message_bytes() const override { return inner_.message_bytes(); }
  runtime::MessageHandle send(int peer, int channel, std::span<const std::byte> data) override {
    ++traffic_.messages;
    traffic_.bytes += data.size();
    return inner_.send(peer, channel, data);
  }
  runtime::MessageHandle receive(int peer, int channel, std::span<std::byte> landing) override {
    landings_[++receives_] = {landing, inner_.receive(peer, channel, {})};
    return {receives_, nullptr};
  }
  bool send_done(runtime::MessageHandle& m) override { return inner_.send_done(m); }
  const std::byte* try_receive(runtime::MessageHandle& m) override {
    auto& [landing, message] = landings_.at(m.id);
    const std::byte* const from = inner_.try_receive(message);
    if (!from) return nullptr;
    std::memcpy(landing.data(), from, landing.size());
    inner_.release(message);
    const std::byte* const at = landing.data();
    landings_.erase(m.id);
    return at;
  }
  void progress() override { inner_.progress(); }

  static std::unique_ptr<runtime::Transport> over(runtime::Transport& inner) {
    return std::make_unique<CopyingTransport>(inner);
  }

 private:
  runtime::Transport& inner_;
  std::uint64_t receives_ = 0;
  std::map<std::uint64_t, std::pair<std::span<std::byte>, runtime::MessageHandle>> landings_;
};

}  // namespace gradmeter::test
