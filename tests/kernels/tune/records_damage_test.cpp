#include <string>

#include <gtest/gtest.h>

#include "base/file.hpp"
#include "fakes/bad_json.hpp"
#include "fakes/damage.hpp"
#include "fakes/files.hpp"
#include "fakes/temporary_folder.hpp"
#include "kernels/tune/records.hpp"

namespace kiln::tune {
namespace {

/// Whatever is done to tuning.json, what is read from it is of its form, and what is written next is kept. A
/// version that is newer is the exception: it is somebody else's, and says so.
class RecordsDamage : public testing::Test {
 protected:
  static TuneRecord record(std::string kernel) {
    return {.kernel = std::move(kernel),
            .types = "f32",
            .sizes = {{"m", 64}, {"n", 8}},
            .parameters = {"tm", "tn"},
            .trials = {{.variant = {32, 64}, .time = std::chrono::nanoseconds(500)},
                       {.variant = {1, 2}, .problem = "it never ended"}}};
  }

  void look(const std::string& what) {
    const auto found = read_records(base::Folder::open(folder_.path(), false).value(), device_);
    if (!found) {
      ++newer_;
      ASSERT_EQ(found.error().code(), ErrorCode::unsupported) << what;
      return;
    }
    for (const TuneRecord& one : *found)
      for (const TuneTrial& trial : one.trials) {
        ASSERT_EQ(trial.variant.size(), one.parameters.size()) << what;
        ASSERT_TRUE(!trial.problem.empty() || trial.time.count() > 0) << what;
      }
  }
  void heal(const std::string& what) {
    const auto written = write_records(folder_.path(), device_, {record("new")});
    if (!written) {
      ASSERT_EQ(written.error().code(), ErrorCode::unsupported) << what;
      return;
    }
    const auto found = read_records(base::Folder::open(folder_.path(), false).value(), device_);
    ASSERT_TRUE(found) << what;
    ASSERT_FALSE(found->empty()) << what;
    ASSERT_TRUE(same_call(found->back(), record("new"))) << what;
  }

  const Identity device_ = {"opencl", "ACME", "Anvil", "1.0", "C 2", {7}};
  fakes::TemporaryFolder folder_;
  const std::filesystem::path file_ = folder_.path() / "tuning.json";
  const std::string whole_ = to_json(device_, {record("gemm_nn")});
  std::size_t newer_ = 0;
};

TEST_F(RecordsDamage, OfEveryKindIsReadOrNotAndHealed) {
  fakes::Sweep sweep;
  const auto checked = [&](const std::string& bytes, const std::string& what) {
    fakes::overwrite(file_, bytes);
    look(what);
    if (sweep.closely()) heal(what);
    ASSERT_FALSE(HasFailure()) << what;
  };
  fakes::flip_every_bit(whole_, sweep, checked);
  fakes::report_cases("tuning.json, bit flipped", sweep.cases);
  EXPECT_LE(newer_, 3U) << "3, 5 and 9 are one bit away from 1";
  sweep = {};
  fakes::cut_at_every_length(whole_, sweep, checked);
  fakes::report_cases("tuning.json, truncated", sweep.cases);
  sweep = {};
  for (const std::size_t block : {std::size_t{512}, std::size_t{4096}})
    fakes::zero_every_block(whole_, block, sweep, checked);
  for (const std::string& text : fakes::other_json())
    if (sweep.next()) checked(text, "other JSON");
  fakes::report_cases("tuning.json, zeroed block or other text", sweep.cases);
  sweep = {};
  for (const auto& [what, text] : fakes::bad_json(fakes::damage_all() ? 60'000'000 : 4'000'000))
    if (sweep.next()) checked(text, what);
  fakes::report_cases("tuning.json, huge or deeply nested", sweep.cases);
}

}  // namespace
}  // namespace kiln::tune
