#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "fakes/child.hpp"
#include "fakes/temporary_folder.hpp"
#include "store/bundle_samples.hpp"
#include "store/elf_sections.hpp"
#include "store/embedded_bundles.hpp"

extern "C" int kiln_has_embedded_bundle();

// kiln_add_bundle() embeds bundles in this program, in a shared library that it links, and in a module.
namespace kiln::store {
namespace {

/// The names of the programs in the bundles, in their order, or why a bundle cannot be opened.
std::string programs_of(std::vector<EmbeddedBundle> bundles) {
  std::string names;
  for (EmbeddedBundle& bundle : bundles) {
    const auto opened = BundleFile::open_part(std::move(bundle.file), bundle.name, bundle.offset, bundle.size);
    if (!opened) return opened.error().message();
    EXPECT_EQ((*opened)->bytes(), bundle.size);
    for (const char* name : {"one", "two", "library", "module"})
      if ((*opened)->find((*opened)->targets()[0], sample_key(name).digest)) names += std::string(name) + ' ';
  }
  return names;
}

class EmbeddedBundles : public testing::Test {
 protected:
  std::vector<EmbeddedBundle> find() {
    return find_embedded_bundles(
        Log(LogLevel::debug, [this](const LogRecord& record) { log_ += record.message + "\n"; }));
  }

  std::string log_;
  const fakes::TemporaryFolder folder_;
};

TEST_F(EmbeddedBundles, AreFoundInTheProgramAndInItsLibrary) {
  ASSERT_EQ(kiln_has_embedded_bundle(), 1);
  const auto bundles = find();
  ASSERT_EQ(bundles.size(), 3U);
  EXPECT_EQ(bundles[0].name, "bundle 1 of " + std::filesystem::read_symlink("/proc/self/exe").string());
  EXPECT_TRUE(bundles[1].name.starts_with("bundle 2 of "));
  EXPECT_TRUE(bundles[2].name.ends_with("libembedded_library.so")) << bundles[2].name;
  for (const EmbeddedBundle& bundle : bundles) EXPECT_NE(::fcntl(bundle.file.get(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_EQ(programs_of(find()), "one two library ");
  EXPECT_EQ(log_, "");
}

TEST_F(EmbeddedBundles, OfAModuleAreFoundWhileItIsLoaded) {
  void* module = dlopen(KILN_EMBEDDED_MODULE, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(module, nullptr) << dlerror();
  EXPECT_EQ(programs_of(find()), "one two library module ");
  dlclose(module);
  EXPECT_EQ(programs_of(find()), "one two library ");
}

TEST_F(EmbeddedBundles, OfALibraryThatWasReplacedAreNotUsed) {
  const auto path = folder_.path() / "module.so";
  std::filesystem::copy(KILN_EMBEDDED_MODULE, path);
  const std::string result = fakes::in_child([&]() -> std::string {
    if (dlopen(path.c_str(), RTLD_NOW) == nullptr) return dlerror();
    std::string all = programs_of(find());
    std::filesystem::rename(path, folder_.path() / "old.so");
    std::filesystem::copy(KILN_EMBEDDED_LIBRARY, path);
    all += "then " + programs_of(find());
    std::filesystem::remove(path);
    all += "then " + programs_of(find());
    return all + log_.substr(0, log_.find('\n')) + '|' + log_.substr(log_.find('\n') + 1);
  });
  EXPECT_EQ(result, "one two library module then one two library then one two library 1 of 1 bundles of " +
                        path.string() +
                        " are not in the file: it was stripped, or replaced after it was loaded|cannot open " +
                        path.string() + " for its bundles: No such file or directory");
}

TEST_F(EmbeddedBundles, OfALibraryThatIsAFifoByNowAreNotWaitedFor) {
  const auto path = folder_.path() / "module.so";
  std::filesystem::copy(KILN_EMBEDDED_MODULE, path);
  const std::string result = fakes::in_child([&]() -> std::string {
    // Without the flag, this would wait for a writer.
    alarm(60);
    if (dlopen(path.c_str(), RTLD_NOW) == nullptr) return dlerror();
    std::filesystem::remove(path);
    if (mkfifo(path.c_str(), 0600) != 0) return std::strerror(errno);
    return programs_of(find());
  });
  EXPECT_EQ(result, "one two library ");
}

TEST_F(EmbeddedBundles, OfTheProgramAreNotFoundWithoutProc) {
  const std::string result = fakes::in_child([&]() -> std::string {
    if (unshare(fakes::is_root() ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) != 0 ||
        mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", "/proc", "tmpfs", 0, nullptr) != 0)
      return "skipped";
    const std::string programs = programs_of(find());
    return programs + log_.substr(0, log_.find('\n'));
  });
  if (result == "skipped") GTEST_SKIP() << "mount() is not allowed";
  EXPECT_EQ(result, "library cannot open this program for its bundles: No such file or directory");
}

/// A malformed file is read with the notes of a good one.
class ElfWithBundles : public testing::Test {
 protected:
  static constexpr std::string_view section_names{"\0.text\0.kiln.bundle\0.shstrtab\0", 30};

  ElfWithBundles() {
    const std::size_t first = bytes_.size() + sizeof(ElfW(Ehdr));
    std::string contents(first_bundle_);
    contents.resize(rounded(contents.size()));
    contents += second_bundle_;
    const std::size_t names = first + contents.size();
    const std::size_t table = names + section_names.size();
    ElfW(Ehdr) header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_shoff = table;
    header.e_shentsize = sizeof(ElfW(Shdr));
    header.e_shnum = 4;
    header.e_shstrndx = 3;
    std::array<ElfW(Shdr), 4> sections{};
    sections[1] = section(1, SHT_PROGBITS, first, 16);
    sections[2] = section(7, SHT_PROGBITS, first, contents.size());
    sections[3] = section(20, SHT_STRTAB, names, section_names.size());
    append(&header, sizeof header);
    bytes_ += contents;
    bytes_ += section_names;
    append(sections.data(), sizeof sections);
    for (const std::string& bundle : {first_bundle_, second_bundle_}) {
      BundleNote note{.bundle_bytes = bundle.size()};
      std::memcpy(note.begin.data(), bundle.data(), note.begin.size());
      notes_.push_back(note);
    }
  }

  static std::size_t rounded(std::size_t size) { return (size + 63) / 64 * 64; }
  static ElfW(Shdr) section(ElfW(Word) name, ElfW(Word) type, std::size_t offset, std::size_t size) {
    ElfW(Shdr) made{};
    made.sh_name = name;
    made.sh_type = type;
    made.sh_offset = offset;
    made.sh_size = size;
    return made;
  }
  void append(const void* data, std::size_t size) { bytes_.append(static_cast<const char*>(data), size); }

  base::FileHandle open(const std::string& bytes) const {
    fakes::write_file(path_, bytes);
    return base::FileHandle(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  }
  std::vector<EmbeddedBundle> find(const std::string& bytes) const {
    auto found = find_bundles_in(open(bytes), "app", notes_);
    for (const EmbeddedBundle& bundle : found)
      EXPECT_TRUE(bundle.offset <= bytes.size() && bundle.size <= bytes.size() - bundle.offset);
    return found;
  }

  std::string bundle_with(const std::string& program, std::span<const SigningKey> keys = {}) const {
    const auto path = folder_.path() / "made.kiln";
    EXPECT_TRUE(write_bundle(path, contents_of({{sm_90, program, program}}), keys));
    return fakes::read_file(path);
  }

  const fakes::TemporaryFolder folder_{fakes::memory_place()};
  const std::filesystem::path path_ = folder_.path() / "app";
  const SigningKey key_ = SigningKey::generate("ci").value();
  /// The first one is a signed copy of the second one, so both have one header.
  const std::string first_bundle_ = bundle_with("one", std::span(&key_, 1));
  const std::string second_bundle_ = bundle_with("one");
  std::string bytes_;
  std::vector<BundleNote> notes_;
};

TEST_F(ElfWithBundles, HasThemOneAfterTheOther) {
  const auto found = find(bytes_);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(bytes_.substr(found[0].offset, found[0].size), first_bundle_);
  EXPECT_EQ(bytes_.substr(found[1].offset, found[1].size), second_bundle_);
}

TEST_F(ElfWithBundles, NeedsNotesInNoOrder) {
  ASSERT_EQ(notes_[0].begin, notes_[1].begin) << "a bundle and its signed copy have one header";
  std::ranges::reverse(notes_);
  const auto found = find(bytes_);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].size, first_bundle_.size());
  EXPECT_EQ(found[1].size, second_bundle_.size());
  notes_.pop_back();
  EXPECT_EQ(find(bytes_).size(), 0U) << "the first bundle has no note";
}

TEST_F(ElfWithBundles, ThatIsTruncatedAtAnyLengthHasNone) {
  for (std::size_t size = 0; size < bytes_.size(); ++size)
    EXPECT_TRUE(find(bytes_.substr(0, size)).empty()) << size;
}

TEST_F(ElfWithBundles, ThatIsDamagedHasNoneOutsideOfTheFile) {
  for (std::size_t place = 0; place < bytes_.size(); ++place)
    for (const char damage : {'\x01', '\x80', '\xff'}) {
      std::string damaged = bytes_;
      damaged[place] = static_cast<char>(damaged[place] ^ damage);
      EXPECT_LE(find(damaged).size(), 2U);
    }
}

TEST_F(ElfWithBundles, ThatClaimsMuchIsRefused) {
  const auto with = [this](std::size_t place, auto value) {
    std::string claims = bytes_;
    std::memcpy(claims.data() + place, &value, sizeof value);
    return find(claims).size();
  };
  EXPECT_EQ(with(offsetof(ElfW(Ehdr), e_shoff), ~ElfW(Off){0}), 0U);
  EXPECT_EQ(with(offsetof(ElfW(Ehdr), e_shnum), ElfW(Half){0xffff}), 0U);
  EXPECT_EQ(with(offsetof(ElfW(Ehdr), e_shnum), ElfW(Half){0}), 0U);
  EXPECT_EQ(with(offsetof(ElfW(Ehdr), e_shstrndx), ElfW(Half){4}), 0U);
  const std::size_t table = bytes_.size() - 4 * sizeof(ElfW(Shdr));
  for (const int section : {2, 3}) {
    const std::size_t place = table + static_cast<std::size_t>(section) * sizeof(ElfW(Shdr));
    EXPECT_EQ(with(place + offsetof(ElfW(Shdr), sh_size), ~decltype(ElfW(Shdr)::sh_size){0}), 0U);
    EXPECT_EQ(with(place + offsetof(ElfW(Shdr), sh_offset), ~ElfW(Off){0}), 0U);
  }
  notes_[0].bundle_bytes = ~std::uint64_t{0};
  EXPECT_EQ(find(bytes_).size(), 0U);
}

TEST_F(ElfWithBundles, IsARegularFile) {
  EXPECT_TRUE(find_elf_sections(base::FileHandle(::open("/", O_RDONLY | O_CLOEXEC)), ".kiln.bundle").empty());
  EXPECT_TRUE(
      find_elf_sections(base::FileHandle(::open("/dev/zero", O_RDONLY | O_CLOEXEC)), ".kiln.bundle").empty());
}

class Notes : public testing::Test {
 protected:
  static std::string number(std::uint32_t value) { return {reinterpret_cast<const char*>(&value), sizeof value}; }
  static std::string note(std::uint32_t type, std::string name, std::string contents, std::size_t alignment = 4) {
    std::string bytes = number(static_cast<std::uint32_t>(name.size())) +
                        number(static_cast<std::uint32_t>(contents.size())) + number(type) + name;
    const auto pad = [&] { bytes.resize((bytes.size() + alignment - 1) / alignment * alignment); };
    pad();
    bytes += contents;
    pad();
    return bytes;
  }
  static std::string contents(std::uint64_t size, char filling) {
    return std::string(reinterpret_cast<const char*>(&size), sizeof size) + std::string(128, filling);
  }
  static std::size_t count(const std::string& bytes, std::size_t alignment = 4) {
    return find_bundle_notes(std::as_bytes(std::span(bytes)), alignment).size();
  }

  const std::string kiln_{"Kiln\0", 5};
  const std::string gnu_{"GNU\0", 4};
};

TEST_F(Notes, OfBundlesAreFoundAmongOthers) {
  const std::string notes = note(3, gnu_, std::string(20, 'x')) + note(1, kiln_, contents(1000, 'a')) +
                            note(1, gnu_, "1") + note(1, kiln_, contents(2000, 'b'));
  const auto found = find_bundle_notes(std::as_bytes(std::span(notes)), 4);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].bundle_bytes, 1000U);
  EXPECT_EQ(found[0].begin[127], std::byte{'a'});
  EXPECT_EQ(found[1].bundle_bytes, 2000U);
  for (const std::size_t alignment : {0U, 1U}) EXPECT_EQ(count(notes, alignment), 2U);
  EXPECT_EQ(count(note(5, gnu_, std::string(12, 'x'), 8) + note(1, kiln_, contents(1000, 'a'), 8), 8), 1U);
}

TEST_F(Notes, ThatAreTruncatedAreIgnored) {
  const std::string whole = note(3, gnu_, "build") + note(1, kiln_, contents(1000, 'a'));
  for (std::size_t size = 0; size < whole.size(); ++size) EXPECT_EQ(count(whole.substr(0, size)), 0U) << size;
}

TEST_F(Notes, OfOthersAreIgnored) {
  EXPECT_EQ(count(note(2, kiln_, contents(1000, 'a'))), 0U) << "of another version";
  EXPECT_EQ(count(note(1, kiln_, contents(1000, 'a') + "more")), 0U);
  EXPECT_EQ(count(note(1, std::string("Kilm\0", 5), contents(1000, 'a'))), 0U);
  EXPECT_EQ(count(note(1, kiln_, contents(127, 'a'))), 0U) << "too small for a bundle";
  std::string huge = note(1, kiln_, contents(1000, 'a'));
  huge.replace(0, 4, number(~0U));
  EXPECT_EQ(count(huge), 0U);
}

}  // namespace
}  // namespace kiln::store
