#include <chrono>
#include <map>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "contract/contract.hpp"
#include "contract/kernels.hpp"
#include "fakes/damage.hpp"
#include "fakes/files.hpp"
#include "store/samples.hpp"

// Entries as each driver makes them, damaged at every place.
namespace kiln::contract {
namespace {

class DamageContract : public Contract {
 protected:
  void SetUp() override {
    Contract::SetUp();
    if (IsSkipped() || HasFailure()) return;
    request_ = request(scale(3));
    {
      Cache cache(device_, options());
      for (const int factor : {2, 3, 4}) ASSERT_TRUE(cache.get(request(scale(factor))));
    }
    store_ = store::open_store(options().directory, device_->identity());
    entry_ = entry_of(3);
    whole_ = fakes::read_file(entry_);
    for (const int factor : {2, 4}) neighbours_[entry_of(factor)] = fakes::read_file(entry_of(factor));
  }

  std::filesystem::path entry_of(int factor) const {
    return store::entry_path(*store_, request(scale(factor)).key());
  }

  /// A cache compiles the program, which computes what it should, and keeps it in place of the damaged one.
  void expect_healed(const std::string& bytes, const std::string& what) {
    fakes::overwrite(entry_, bytes);
    ASSERT_EQ(store::code_of_get(*store_, request_->key()), ErrorCode::damaged) << what;
    {
      Cache cache(device_, options());
      const auto program = cache.get(*request_);
      ASSERT_TRUE(program) << what << ": " << program.error().message();
      ASSERT_EQ(program->origin(), Origin::compiled) << what;
      ASSERT_TRUE(scales(*device_, program->module(), 3, 1)) << what;
      ASSERT_EQ(cache.stats().replaced, 1U) << what;
    }
    const auto healed = store_->get(request_->key());
    ASSERT_TRUE(healed && *healed) << what;
    const auto loaded = device_->load(*(*healed)->binary());
    ASSERT_TRUE(loaded) << what;
    ASSERT_TRUE(scales(*device_, **loaded, 3, 2)) << what;
    for (const auto& [path, neighbour] : neighbours_)
      ASSERT_TRUE(fakes::read_file(path) == neighbour) << what << ": " << path;
  }

  /// What makes the cases of a fault from the whole entry.
  using Fault = std::function<void(fakes::Sweep&, const fakes::Damaged&)>;

  /// Every case is noticed when the entry is read, and some go all the way through a cache.
  void sweep(const std::string& name, std::size_t through_a_cache, const Fault& fault) {
    fakes::Sweep all;
    fault(all, [](const std::string& bytes, const std::string& what) {
      const auto decoded = store::open_entry(std::as_bytes(std::span(bytes)));
      ASSERT_TRUE(!decoded && decoded.error().code() == ErrorCode::damaged) << what;
    });
    fakes::report_cases(fmt::format("{}, {}, entry of {} bytes", GetParam(), name, whole_.size()), all.cases);
    fakes::Sweep some{.step = fakes::damage_all() ? 1 : std::max<std::size_t>(1, all.cases / through_a_cache)};
    const auto start = std::chrono::steady_clock::now();
    fault(some, [&](const std::string& bytes, const std::string& what) {
      if (!HasFatalFailure()) expect_healed(bytes, what);
    });
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    fakes::report_cases(fmt::format("{}, {}, through a cache, in {:.1f} s", GetParam(), name, took.count()),
                        some.cases);
  }

  std::unique_ptr<store::SampleStore> store_;
  std::optional<Request> request_;
  std::filesystem::path entry_;
  std::string whole_;
  std::map<std::filesystem::path, std::string> neighbours_;
};

TEST_P(DamageContract, OfEveryBitIsNoticedAndTheProgramCompiledAnew) {
  sweep("bit flipped", 60, [this](fakes::Sweep& sweep, const fakes::Damaged& damaged) {
    fakes::flip_every_bit(whole_, sweep, damaged);
  });
}

TEST_P(DamageContract, ByTruncationAtEveryLengthIsNoticedAndTheProgramCompiledAnew) {
  sweep("truncated", 30, [this](fakes::Sweep& sweep, const fakes::Damaged& damaged) {
    fakes::cut_at_every_length(whole_, sweep, damaged);
  });
}

TEST_P(DamageContract, OfEveryHeaderByteIsNoticedAndTheProgramCompiledAnew) {
  sweep("header byte set to each other value", 30, [this](fakes::Sweep& sweep, const fakes::Damaged& damaged) {
    fakes::set_every_value(whole_, 192, sweep, damaged);
  });
}

TEST_P(DamageContract, OfEveryBlockIsNoticedAndTheProgramCompiledAnew) {
  sweep("block zeroed", 12, [this](fakes::Sweep& sweep, const fakes::Damaged& damaged) {
    for (const std::size_t block : {std::size_t{512}, std::size_t{4096}})
      fakes::zero_every_block(whole_, block, sweep, damaged);
  });
}

TEST_P(DamageContract, ByAnotherProgramsEntryIsNoticedAndBothAreRight) {
  const std::string two = neighbours_.at(entry_of(2));
  fakes::overwrite(entry_of(2), whole_);
  fakes::overwrite(entry_, two);
  Cache cache(device_, options());
  for (const int factor : {2, 3, 4}) {
    const Program program = cache.get(request(scale(factor))).value();
    EXPECT_EQ(program.origin(), factor == 4 ? Origin::disk : Origin::compiled);
    EXPECT_TRUE(scales(*device_, program.module(), factor, 1));
  }
  EXPECT_EQ(cache.stats().replaced, 2U);
  EXPECT_EQ(fakes::read_file(entry_of(4)), neighbours_.at(entry_of(4)));
}

INSTANTIATE_TEST_SUITE_P(Apis, DamageContract, every_api(), name_of);

}  // namespace
}  // namespace kiln::contract
