// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/gpus.hpp"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <regex>
#include <string>
#include <vector>

namespace gradmeter::runtime {
namespace {

TEST(GpuLibraries, EachHasAVersionOrSaysWhatItIsNeededFor) {
  std::vector<std::string> names;
  for (const GpuLibrary& library : gpu_libraries()) {
    names.push_back(library.name);
    EXPECT_FALSE(library.needed_for.empty() || (library.version.empty() && library.remedy.empty())) << library.name;
    EXPECT_EQ(availability(library).find('\n'), std::string::npos) << availability(library);
  }
  EXPECT_THAT(names, ::testing::ElementsAre("CUDA", "NCCL", "cuBLASLt", "cuDNN", "cuSPARSE", "cuSPARSELt",
                                            "MPI on GPUs", "NVML"));
}

TEST(GpuLibraries, AMissingOneSaysWhatToDo) {
  EXPECT_EQ(availability({.name = "A", .version = "1.2", .needed_for = "b", .remedy = "c"}), "1.2");
  EXPECT_EQ(availability({.name = "A", .version = "1.2", .needed_for = "b", .remedy = "c", .place = "/lib/libA.so.1"}),
            "1.2  (/lib/libA.so.1)");
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

TEST(GpuLibraries, TheVersionIsThatOfTheLinkedLibrary) {
  const auto before = gpu_library_versions();
  const auto close = [](void* library) { dlclose(library); };
  const std::unique_ptr<void, decltype(close)> linked(dlopen(GRADMETER_GPU_LIBRARIES, RTLD_NOW | RTLD_GLOBAL), close);
  ASSERT_TRUE(linked) << dlerror();
  const auto after = gpu_library_versions();
  std::map<std::string, std::string> places;
  for (const GpuLibrary& library : gpu_libraries()) places[library.name] = library.place;
  const std::map<std::string, std::string> versions{{"NCCL", "2.28.9"},
                                                    {"cuBLASLt", "13.1.0"},
                                                    {"cuDNN", "9.19.0"},
                                                    {"cuSPARSE", "12.6.3"},
                                                    {"cuSPARSELt", "0.10.0"}};
  for (const auto& [name, version] : versions) {
    if (before.contains(name)) continue;  // the real one is linked, and comes first
    ASSERT_TRUE(after.contains(name)) << name;
    EXPECT_EQ(after.at(name), version) << name;
    EXPECT_EQ(places.at(name), std::filesystem::canonical(GRADMETER_GPU_LIBRARIES).string()) << name;
  }
}

}  // namespace
}  // namespace gradmeter::runtime
