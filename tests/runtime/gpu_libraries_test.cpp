#include "runtime/host/gpu_libraries.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "runtime/host/cuda_adapter.hpp"

namespace gradmeter::runtime {
namespace {

TEST(GpuLibraries, EachHasAVersionOrSaysWhatItIsNeededFor) {
  std::vector<std::string> names;
  for (const GpuLibrary& library : gpu_libraries()) {
    names.push_back(library.name);
    EXPECT_FALSE(library.needed_for.empty() || (library.version.empty() && library.remedy.empty())) << library.name;
    EXPECT_EQ(availability(library).find('\n'), std::string::npos) << availability(library);
  }
  EXPECT_THAT(names, ::testing::ElementsAre("CUDA", "NCCL", "cuBLASLt", "cuDNN", "cuSPARSE", "MPI on GPUs", "NVML"));
}

TEST(GpuLibraries, AMissingOneSaysWhatToDo) {
  EXPECT_EQ(availability({.name = "A", .version = "1.2", .needed_for = "b", .remedy = "c"}), "1.2");
  EXPECT_EQ(availability({.name = "A", .version = "", .needed_for = "b", .remedy = "c"}),
            "not built in: needed for b; c");
}

TEST(GpuLibraries, ARunRecordsThoseThatAreThere) {
  const auto versions = gpu_library_versions();
  EXPECT_EQ(versions.contains("CUDA"), read_cuda().built);
  for (const auto& [name, version] : versions) EXPECT_FALSE(version.empty()) << name;
  if (versions.contains("CUDA")) {
    EXPECT_TRUE(std::regex_search(versions.at("CUDA"), std::regex("^[0-9]+\\.[0-9]"))) << versions.at("CUDA");
  }
}

}  // namespace
}  // namespace gradmeter::runtime
