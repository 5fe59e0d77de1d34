#include "backend/quirks/mesa_program_deletion.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <utility>

namespace kiln::backend::quirks {
namespace {

std::string_view text_of(GLenum name) {
  const auto* text = reinterpret_cast<const char*>(glGetString(name));
  return text != nullptr ? text : "";
}

GLuint make_idle_program() {
  const char* source = "#version 430\nlayout(local_size_x = 1) in;\nvoid main() {}\n";
  return glCreateShaderProgramv(GL_COMPUTE_SHADER, 1, &source);
}

}  // namespace

bool MesaProgramDeletion::affects(std::string_view version, std::string_view renderer) {
  // As in "4.5 (Core Profile) Mesa 22.3.6".
  constexpr std::string_view mesa = "Mesa ";
  const std::size_t found = version.find(mesa);
  if (found == std::string_view::npos) return false;
  std::array<int, 3> release = {};
  const char* at = version.data() + found + mesa.size();
  const char* const end = version.data() + version.size();
  for (int& number : release) {
    at = std::from_chars(at, end, number).ptr;
    if (at == end || *at != '.') break;
    ++at;
  }
  if (release >= std::array{24, 1, 2}) return false;
  // Drivers that share shaders between contexts. All others are assumed to have the bug, because r600 cannot be
  // recognised by its name. virgl names the host's renderer after its own name, so only the start counts.
  constexpr std::array<std::string_view, 3> sharing = {"Mesa Intel", "zink", "NV"};
  if (renderer.starts_with("AMD")) return renderer.find("radeonsi") == std::string_view::npos;
  return std::ranges::none_of(sharing, [&](std::string_view driver) { return renderer.starts_with(driver); });
}

bool MesaProgramDeletion::affects_current() { return affects(text_of(GL_VERSION), text_of(GL_RENDERER)); }

MesaProgramDeletion::Launch::Launch(MesaProgramDeletion& quirk, GLuint program) : quirk_(quirk) {
  {
    const base::MutexLock lock(quirk_.gate_mutex_);
    // Deletions are rare and short, so those that wait go first.
    while (quirk_.deletions_waiting_ > 0) quirk_.gate_changed_.wait(quirk_.gate_mutex_);
    ++quirk_.launching_;
  }
  const base::MutexLock lock(quirk_.mutex_);
  quirk_.recover();
  if (program != 0) quirk_.last_launches_[quirk_.contexts_.current()].program = program;
}

MesaProgramDeletion::Launch::~Launch() {
  const base::MutexLock lock(quirk_.gate_mutex_);
  if (--quirk_.launching_ == 0 && quirk_.deletions_waiting_ > 0) quirk_.gate_changed_.notify_all();
}

bool MesaProgramDeletion::begin_deletion() {
  const base::MutexLock lock(gate_mutex_);
  ++deletions_waiting_;
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
  while ((launching_ > 0 || deleting_) && std::chrono::steady_clock::now() < until)
    gate_changed_.wait_until(gate_mutex_, until);
  if (launching_ > 0 || deleting_) return false;
  return deleting_ = true;
}

void MesaProgramDeletion::end_deletion(bool began) {
  const base::MutexLock lock(gate_mutex_);
  --deletions_waiting_;
  if (began) deleting_ = false;
  gate_changed_.notify_all();
}

void MesaProgramDeletion::recover() {
  LastLaunch& last = last_launches_[contexts_.current()];
  if (last.deletions == deletions_) return;
  glFinish();
  launch_idle_programs();
  last = {0, deletions_};
}

void MesaProgramDeletion::let_go(void* context) {
  launch_idle_programs();
  last_launches_[context].program = 0;
}

void MesaProgramDeletion::launch_idle_programs() {
  // The context may be the application's.
  GLint before = 0;
  glGetIntegerv(GL_CURRENT_PROGRAM, &before);
  for (GLuint& program : idle_programs_) {
    if (program == 0) program = make_idle_program();
    glUseProgram(program);
    glDispatchCompute(1, 1, 1);
  }
  glUseProgram(static_cast<GLuint>(before));
}

bool MesaProgramDeletion::busy_elsewhere(GLuint program, void* here) const {
  return std::ranges::any_of(last_launches_, [&](const auto& launch) {
    return launch.second.program == program && launch.first != here && !contexts_.is_idle(launch.first);
  });
}

std::vector<GLuint> MesaProgramDeletion::delete_programs(std::vector<GLuint> programs) {
  void* const here = contexts_.current();
  if (contexts_.application_has_other(here)) return programs;
  // Programs that cannot be deleted now are set aside before anything waits.
  std::vector<GLuint> later;
  std::vector<void*> holding;
  {
    const base::MutexLock lock(mutex_);
    const auto busy = std::partition(programs.begin(), programs.end(), [&](GLuint program) KILN_REQUIRES(mutex_) {
      return !busy_elsewhere(program, here);
    });
    later.assign(busy, programs.end());
    programs.erase(busy, programs.end());
    for (const auto& [context, last] : last_launches_)
      if (context != here && std::ranges::find(programs, last.program) != programs.end())
        holding.push_back(context);
  }
  if (programs.empty()) return later;
  const auto all_later = [&] {
    later.insert(later.end(), programs.begin(), programs.end());
    return later;
  };
  struct Deletion {
    explicit Deletion(MesaProgramDeletion& of) : quirk(of), began(quirk.begin_deletion()) {}
    ~Deletion() { quirk.end_deletion(began); }
    MesaProgramDeletion& quirk;
    const bool began;
  };
  const Deletion deletion(*this);
  if (!deletion.began) return all_later();

  // No context launches anything now. Idle contexts that launched one of the programs last let it go.
  contexts_.in_each_idle(holding, [this](void* context) {
    const base::MutexLock lock(mutex_);
    let_go(context);
  });
  const base::MutexLock lock(mutex_);
  // An application may have been lent a context meanwhile, or this one could not be made current again.
  if (contexts_.current() != here || contexts_.application_has_other(here)) return all_later();
  if (std::ranges::find(programs, last_launches_[here].program) != programs.end()) let_go(here);
  for (const GLuint program : programs) {
    // A thread may have got an idle context before this one took it.
    if (std::ranges::any_of(last_launches_, [&](const auto& launch) { return launch.second.program == program; })) {
      later.push_back(program);
      continue;
    }
    glDeleteProgram(program);
    ++deletions_;
  }
  return later;
}

void MesaProgramDeletion::delete_idle_programs() {
  const base::MutexLock lock(mutex_);
  for (GLuint& program : idle_programs_) glDeleteProgram(std::exchange(program, 0));
}

}  // namespace kiln::backend::quirks
