// The makers behind trials(): one group for each file trial_*.cpp. Users call make_trial.
#pragma once
#include "kernels/trial.hpp"

namespace gradmeter::kernels {

std::string gemm_trial_refusal(const Problem&);
std::size_t gemm_trial_bytes(const Problem&);
std::unique_ptr<Trial> make_gemm_trial(const Problem&, const TrialOptions&);

std::string sparse_trial_refusal(const Problem&);
std::size_t sparse_trial_bytes(const Problem&);
std::unique_ptr<Trial> make_sparse_trial(const Problem&, const TrialOptions&);

std::string pointwise_trial_refusal(const Problem&);
std::size_t pointwise_trial_bytes(const Problem&);
std::unique_ptr<Trial> make_pointwise_trial(const Problem&, const TrialOptions&);

}  // namespace gradmeter::kernels
