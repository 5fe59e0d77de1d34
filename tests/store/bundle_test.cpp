#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "store/bundle_fixture.hpp"

namespace kiln::store {
namespace {

TEST_F(BundleTest, HasEachProgramUnderItsTargetAndKey) {
  write_samples();
  const auto bundle = open();
  EXPECT_EQ(bundle->name(), path_.string());
  EXPECT_EQ(bundle->bytes(), fs::file_size(path_));
  EXPECT_EQ(bundle->size(), 5U);
  for (const SampleProgram& program : sample_programs()) {
    EXPECT_EQ(answer_of(*bundle, program.identity, program.name), program.contents);
    const auto found = bundle->find(target_of(*bundle, program.identity), sample_key(program.name).digest);
    EXPECT_EQ(bundle->identities()[found->identity], program.identity);
    EXPECT_EQ(bundle->read(*found).value(), seal_sample(program)) << "verbatim";
  }
  EXPECT_EQ(answer_of(*bundle, sm_90, "scan"), "nothing") << "it is for another target";
  EXPECT_EQ(answer_of(*bundle, portable, "other"), "nothing");
}

TEST_F(BundleTest, HasTheTargetsWithTheirCompilers) {
  write_samples();
  const auto bundle = open();
  ASSERT_EQ(bundle->targets().size(), 2U);
  EXPECT_TRUE(std::ranges::is_sorted(bundle->targets(), {}, &BundledTarget::digest));
  EXPECT_EQ(bundle->identities().size(), 3U);
  const BundledTarget& cuda = target_of(*bundle, sm_90);
  EXPECT_EQ(cuda.count, 3U);
  EXPECT_EQ(cuda.identity.compiler, "");
  EXPECT_EQ(cuda.identity.device, "sm_90");
  EXPECT_EQ(target_of(*bundle, portable).count, 2U);
  EXPECT_EQ(target_of(*bundle, portable).identity.formats, portable.formats);
}

TEST_F(BundleTest, FindsProgramsWithoutTheHeadersOfAToolkit) {
  auto programs = sample_programs();
  programs.push_back({sm_90, "gemm with other headers", "another gemm", "gemm without"});
  write_bundle(path_, contents_of(programs)).value();
  const auto bundle = open();
  const auto found = [&](const Identity& identity, const std::string& name) {
    const auto program = bundle->find_without_toolkit(target_of(*bundle, identity), base::sha256(name));
    return program ? binary_of(bundle->read(*program)) : "nothing";
  };
  EXPECT_EQ(found(sm_90, "conv without"), "conv for sm_90");
  const std::string either = found(sm_90, "gemm without");
  EXPECT_TRUE(either == "gemm for sm_90" || either == "another gemm") << either;
  EXPECT_EQ(found(portable, "conv without"), "nothing");
  EXPECT_EQ(found(sm_90, "conv"), "nothing");
  const auto digests = bundle->digests_without_toolkit();
  ASSERT_EQ(digests.size(), 3U);
  for (const auto& [digest, place] : digests) {
    const auto key = bundle->program(place).key;
    EXPECT_EQ(digest == base::sha256(std::string_view("conv without")), key == sample_key("conv").digest);
  }
}

TEST_F(BundleTest, HasFactsAndRequests) {
  write_samples();
  const auto bundle = open();
  EXPECT_EQ(bundle->facts(), R"({"made":"in a test"})");
  ASSERT_TRUE(bundle->has_requests());
  const auto requests = bundle->requests();
  ASSERT_TRUE(requests) << requests.error().message();
  ASSERT_EQ(requests->entries().size(), 1U);
  EXPECT_EQ(requests->entries()[0].key.name, "conv");
  const auto request = requests->request(requests->entries()[0]).value();
  EXPECT_EQ(fakes::text_of(requests->contents(request.source).value()), "kernel void conv() {}");
}

TEST_F(BundleTest, MayHaveNoRequests) {
  write_bundle(path_, contents_of(sample_programs())).value();
  const auto bundle = open();
  EXPECT_FALSE(bundle->has_requests());
  EXPECT_EQ(bundle->requests().error().code(), ErrorCode::unsupported);
}

TEST_F(BundleTest, MayBeEmpty) {
  write_bundle(path_, {}).value();
  const auto bundle = open();
  EXPECT_EQ(bundle->size(), 0U);
  EXPECT_TRUE(bundle->targets().empty());
  EXPECT_EQ(bundle->facts(), "{}");
}

TEST_F(BundleTest, HasEqualBytesForEqualInputsInAnyOrder) {
  BundleContents contents = contents_of(sample_programs());
  contents.record = record_path();
  write_bundle(path_, contents).value();
  const std::string first = fakes::read_file(path_);
  auto programs = sample_programs();
  std::ranges::reverse(programs);
  BundleContents reversed = contents_of(programs);
  reversed.record = contents.record;
  reversed.identities.push_back(sample_identity());
  write_bundle(path_, reversed).value();
  EXPECT_EQ(fakes::read_file(path_), first) << "an identity that no program has is left out";
}

TEST_F(BundleTest, OfTenThousandProgramsHasAnIndexOfTwoMegabytesAtMost) {
  BundleContents contents{.identities = {sm_90, portable}};
  for (int i = 0; i < 10'000; ++i) {
    const std::string name = fakes::numbered("program", i);
    const Identity& identity = i % 2 == 0 ? sm_90 : portable;
    contents.entries.push_back({.identity = static_cast<std::size_t>(i % 2),
                                .key = sample_key(name).digest,
                                .without_toolkit = base::sha256(name + " without"),
                                .read = [&identity, name]() -> Result<std::vector<std::byte>> {
                                  return seal_entry(label_of(sample_key(name).digest, identity), {});
                                }});
  }
  write_bundle(path_, contents).value();
  EXPECT_LE(header_of(fakes::read_file(path_)).index_bytes, 2'000'000U);
  const auto bundle = open();
  EXPECT_EQ(bundle->size(), 10'000U);
  for (int i = 0; i < 10'000; ++i) {
    const std::string name = fakes::numbered("program", i);
    const auto& target = target_of(*bundle, i % 2 == 0 ? sm_90 : portable);
    ASSERT_EQ(bundle->find(target, sample_key(name).digest)->key, sample_key(name).digest) << name;
    ASSERT_EQ(bundle->find_without_toolkit(target, base::sha256(name + " without"))->key, sample_key(name).digest);
  }
}

TEST_F(BundleTest, MayBeAPartOfAnotherFile) {
  const std::string bundle = write_samples();
  const std::string before(640, 'x');
  const std::string after = "garbage" + bundle;
  fakes::write_file(path_, before + bundle + after);
  const auto open_at = [&](std::uint64_t offset, std::uint64_t size) {
    return BundleFile::open_part(base::FileHandle(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)), "app", offset,
                                 size);
  };
  for (const std::uint64_t size : {bundle.size(), bundle.size() + after.size(), std::size_t{1} << 40}) {
    const auto part = open_at(before.size(), size);
    ASSERT_TRUE(part) << part.error().message();
    EXPECT_EQ((*part)->bytes(), bundle.size());
    EXPECT_EQ(answer_of(**part, sm_90, "conv"), "conv for sm_90");
    EXPECT_EQ((*part)->requests().value().entries().size(), 1U);
    EXPECT_EQ((*part)->name(), "app");
  }
  EXPECT_EQ(open_at(before.size(), bundle.size() - 1).error().code(), ErrorCode::damaged);
  EXPECT_EQ(open_at(0, before.size()).error().code(), ErrorCode::damaged);
  EXPECT_EQ(open_at(std::uint64_t{1} << 40, bundle.size()).error().code(), ErrorCode::damaged);
  EXPECT_NE(refusal_of(bundle + "garbage").find("7 bytes after its end"), std::string::npos)
      << "a file of its own has nothing else";
}

TEST_F(BundleTest, ThatIsNoRegularFileIsRefusedAtOnce) {
  EXPECT_NE(refusal().find("io: cannot open the bundle " + path_.string()), std::string::npos) << refusal();
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_NE(refusal().find("is not a regular file"), std::string::npos) << refusal();
  fs::remove(path_);
  fs::create_directory(path_);
  EXPECT_NE(refusal().find("is not a regular file"), std::string::npos) << refusal();
}

TEST_F(BundleTest, MayBeASymbolicLink) {
  const auto real = folder_.path() / "real.kiln";
  write_bundle(real, contents_of(sample_programs())).value();
  fs::create_symlink(real, path_);
  EXPECT_EQ(open()->size(), 5U);
  const SigningKey key = SigningKey::generate("ci").value();
  ASSERT_TRUE(sign_bundle(*open(), std::span(&key, 1)));
  EXPECT_TRUE(fs::is_symlink(path_)) << "the bundle that the link leads to is signed";
  EXPECT_EQ(open()->signatures().size(), 1U);
}

TEST_F(BundleTest, IsNotWrittenWithTheSameProgramTwice) {
  auto programs = sample_programs();
  programs.push_back({sm_90_by_another, "conv", "conv of another compiler"});
  const auto written = write_bundle(path_, contents_of(programs));
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code(), ErrorCode::invalid_request);
  EXPECT_NE(written.error().message().find(sample_key("conv").digest.hex()), std::string::npos);
}

TEST_F(BundleTest, IsNotWrittenWithAnEntryThatIsNotWhatItsLabelSays) {
  write_samples();
  const std::string before = fakes::read_file(path_);
  const auto files_before = fakes::names_in(folder_.path());
  const auto refused = [&](const std::function<void(BundleContents&)>& change) {
    BundleContents contents = contents_of(sample_programs());
    change(contents);
    const auto written = write_bundle(path_, contents);
    EXPECT_EQ(fakes::read_file(path_), before) << "the bundle before stays";
    EXPECT_EQ(fakes::names_in(folder_.path()), files_before) << "and nothing else is left";
    return written ? "written" : std::string(to_string(written.error().code())) + ": " + written.error().message();
  };
  const auto is_refused = [&](const std::function<void(BundleContents&)>& change, const std::string& why) {
    const std::string message = refused(change);
    EXPECT_NE(message.find(why), std::string::npos) << message;
  };
  is_refused([](auto& contents) { contents.entries[0].key = sample_key("other").digest; }, "it is another program");
  is_refused([](auto& contents) { contents.entries[2].identity = 0; },
             "it was not compiled for sm_90 by NVRTC 13.0");
  is_refused([](auto& contents) { std::swap(contents.entries[0].read, contents.entries[3].read); },
             "it was not compiled for");
  is_refused(
      [](auto& contents) {
        contents.entries[1].read = []() -> Result<std::vector<std::byte>> {
          auto sealed = seal_sample(sample_programs()[1]);
          sealed.back() ^= std::byte{1};
          return sealed;
        };
      },
      "damaged: the program with the key " + sample_key("gemm").digest.hex());
  is_refused(
      [](auto& contents) {
        contents.entries[4].read = []() -> Result<std::vector<std::byte>> {
          return Error(ErrorCode::io, "the disk is gone");
        };
      },
      "io: the disk is gone");
  is_refused([](auto& contents) { contents.facts = "[]"; }, "must be a JSON object");
  is_refused([this](auto& contents) { contents.record = folder_.path() / "absent"; }, "absent");
  is_refused([this](auto& contents) { contents.record = path_; }, "is not a record");
}

TEST_F(BundleTest, IsNotWrittenIntoAFolderThatDoesNotExist) {
  const auto written = write_bundle(folder_.path() / "absent" / "app.kiln", {});
  ASSERT_FALSE(written);
  EXPECT_NE(written.error().message().find("absent: No such file"), std::string::npos) << written.error().message();
}

}  // namespace
}  // namespace kiln::store
