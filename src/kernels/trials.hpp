// The makers behind trials(): one group for each file trial_*.cpp. Users call make_trial.
#pragma once
#include "kernels/trial.hpp"

namespace gradmeter::kernels {

std::string gemm_trial_refusal(const Problem&);
std::size_t gemm_trial_bytes(const Problem&);
std::unique_ptr<Trial> make_gemm_trial(const Problem&, const TrialOptions&);

std::string lns_trial_refusal(const Problem&);
std::size_t lns_trial_bytes(const Problem&);
std::unique_ptr<Trial> make_lns_trial(const Problem&, const TrialOptions&);

std::string conv_trial_refusal(const Problem&);
std::size_t conv_trial_bytes(const Problem&);
std::unique_ptr<Trial> make_conv_trial(const Problem&, const TrialOptions&);

std::string rnn_trial_refusal(const Problem&);
std::size_t rnn_trial_bytes(const Problem&);
std::unique_ptr<Trial> make_rnn_trial(const Problem&, const TrialOptions&);
std::string sparse_trial_refusal(const Problem&);
std::size_t sparse_trial_bytes(const Problem&);
std::unique_ptr<Trial> make_sparse_trial(const Problem&, const TrialOptions&);

std::string pointwise_trial_refusal(const Problem&);
std::size_t pointwise_trial_bytes(const Problem&);
std::unique_ptr<Trial> make_pointwise_trial(const Problem&, const TrialOptions&);

}  // namespace gradmeter::kernels
