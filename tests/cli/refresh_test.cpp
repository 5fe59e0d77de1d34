#include <kiln/device.hpp>

#include "cli_fixture.hpp"

namespace kiln::cli {
namespace {

/// `kiln bake --refresh`. Mesa reports another version of OpenGL if a variable says so, so its device has another
/// identity, as after an update of the driver.
class CliRefresh : public Cli {
 protected:
  const Environment updated_ = {{"MESA_GL_VERSION_OVERRIDE", "4.3"}};

  Outcome compile(Environment environment) const {
    Words words = {"compile", "--device", "opengl", "-D", "TILE=8", "--json"};
    for (const auto* name : {"one.comp", "two.comp", "three.comp"}) words.push_back(source_file(name));
    return kiln(words, environment);
  }
  static std::vector<std::string> outcomes(const Outcome& outcome) {
    std::vector<std::string> all;
    const auto json = outcome.json();
    for (const auto& program : json["programs"]) all.push_back(program["outcome"]);
    return all;
  }
};

TEST_F(CliRefresh, CompilesARecordOnceAfterAnUpdateOfTheDriverAndTheNextProcessNothing) {
  const auto device = open_device("opengl", quiet);
  if (!device) GTEST_SKIP() << device.error().message();
  if (!device.value()->info().software) GTEST_SKIP() << "the variable is for Mesa's driver for the CPU";
  const std::string record = (home_.path() / "app.kilnreq").string();
  ASSERT_EQ(compile({{"KILN_RECORD", record}}).status, 0);
  const auto refreshed = kiln({"bake", "--refresh", record, "--device", "opengl", "--json"}, updated_);
  ASSERT_EQ(refreshed.status, 0) << refreshed.error;
  EXPECT_EQ(outcomes(compile(updated_)), (std::vector<std::string>{"stored", "stored", "stored"}));
  EXPECT_EQ(outcomes(compile({{"MESA_GL_VERSION_OVERRIDE", "4.4"}})),
            (std::vector<std::string>{"compiled", "compiled", "compiled"}))
      << "the variable changes the identity";
}

}  // namespace
}  // namespace kiln::cli
