#include <algorithm>

#include <kiln/kernel.hpp>

#include "cli_fixture.hpp"

namespace kiln::cli {
namespace {

using Emit = Cli;

TEST_F(Emit, ListsTheKernelsOfTheDemo) {
  const auto listed = command_.run({"emit"});
  ASSERT_EQ(listed.status, 0) << listed.error;
  EXPECT_TRUE(contains(listed.out, "nbody_step\n")) << listed.out;
  const auto names = command_.run({"emit", "--json"}).json();
  EXPECT_EQ(names.size(), static_cast<std::size_t>(std::count(listed.out.begin(), listed.out.end(), '\n')));
}

TEST_F(Emit, PrintsEveryKernelInEveryLanguage) {
  const std::map<std::string, std::string> marks = {
      {"glsl", "OPENGL"}, {"vulkan", "VULKAN"}, {"opencl", "OPENCL"}, {"cuda", "CUDA"}, {"hip", "HIP"}};
  for (const auto& name : command_.run({"emit", "--json"}).json())
    for (const auto& [language, mark] : marks) {
      const auto text = command_.run({"emit", name, "--language", language});
      ASSERT_EQ(text.status, 0) << text.error;
      EXPECT_TRUE(contains(text.out, "#define KILN_" + mark)) << name << " in " << language;
      EXPECT_TRUE(contains(text.out, "#define GROUP_X ")) << name << " in " << language;
    }
}

TEST_F(Emit, TellsInJsonHowTheKernelIsLaunched) {
  const auto emitted = command_.run({"emit", "nbody_step", "--language", "cuda", "--json"}).json();
  EXPECT_EQ(emitted.at("kernel"), "nbody_step");
  EXPECT_EQ(emitted.at("language"), "cuda");
  EXPECT_EQ(emitted.at("entry"), "kiln_nbody_step");
  EXPECT_EQ(emitted.at("group_size"), nlohmann::json::array({32, 1, 1}));
  EXPECT_EQ(emitted.at("source"), command_.run({"emit", "nbody_step", "--language", "cuda"}).out);
}

TEST_F(Emit, WhatItPrintsCompilesAsItIs) {
  std::size_t devices = 0;
  for (const char* api : {"opengl", "opencl", "vulkan", "cuda", "hip"}) {
    const auto device = open_device(api, quiet);
    if (!device) continue;
    ++devices;
    const Language language = (*device)->info().language;
    const auto emitted =
        command_.run({"emit", "nbody_step", "--language", std::string(to_string(language)), "--json"}).json();
    const Request request({.name = "printed",
                           .source = emitted.at("source"),
                           .entries = {emitted.at("entry")},
                           .language = language});
    const auto compiled = (*device)->compile(request);
    EXPECT_TRUE(compiled) << api << ": " << compiled.error().describe();
  }
  if (devices == 0) GTEST_SKIP() << "there is no device";
}

TEST_F(Emit, NamesTheKernelThatTheDemoDoesNotHave) {
  const auto outcome = command_.run({"emit", "abacus", "--language", "glsl"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_TRUE(contains(outcome.error, "no kernel \"abacus\"")) << outcome.error;
}

}  // namespace
}  // namespace kiln::cli
